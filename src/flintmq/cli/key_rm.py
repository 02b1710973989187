"""`flintmq key rm`: a key is one no more."""

from __future__ import annotations

import click

from ..storage.key_file import KeyFile, parse_key
from .keys_shared import keys_file_options, shown
from .shared import output_option, print_json
from .showing import confirm, yes_option


@click.command("rm")
@click.argument("name_or_id", metavar="NAME|ID")
@keys_file_options
@yes_option
@output_option
def command(name_or_id: str, file: KeyFile, yes: bool, output: str) -> int:
    """Take a key away, by its name or its id. Who uses it is disconnected within a second.

    The broker goes on asking for keys when the last one is gone: then nobody comes in.

    \b
    Examples:
      flintmq key rm billing --data-dir /var/lib/flint --yes
    """
    parsed = parse_key(name_or_id.strip())
    if parsed is not None:
        raise click.UsageError(
            "that is a whole key, which is now in the history of this shell; name the key by its "
            f"id: {parsed[0]}"
        )
    confirm(f"Take the key {name_or_id} away, and disconnect who uses it?", yes)
    key = file.remove(name_or_id)
    if output == "json":
        print_json(shown(key))
    else:
        click.echo(f"key {key.id} ({key.name}) is removed")
    return 0
