"""`flintmq key rm`: a key is one no more."""

from __future__ import annotations

import click

from ..storage.key_file import KeyFile, parse_key
from .keys_shared import keys_file_options, shown
from .shared import output_option, print_json


@click.command("rm")
@click.argument("name_or_id", metavar="NAME|ID")
@keys_file_options
@output_option
def command(name_or_id: str, file: KeyFile, output: str) -> int:
    """Take a key away, by its name or its id. Who uses it is disconnected within a second.

    The broker goes on asking for keys when the last one is gone: then nobody comes in.

    \b
    Examples:
      flintmq key rm billing --data-dir /var/lib/flint
    """
    parsed = parse_key(name_or_id.strip())
    if parsed is not None:
        raise click.UsageError(
            "that is a whole key, which is now in the history of this shell; name the key by its "
            f"id: {parsed[0]}"
        )
    key = file.remove(name_or_id)
    if output == "json":
        print_json(shown(key))
    else:
        click.echo(f"key {key.id} ({key.name}) is removed")
    return 0
