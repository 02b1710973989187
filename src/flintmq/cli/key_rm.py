"""`flintmq key rm`: revoke an API key."""

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
    """Revoke a key by name or id. Its clients are disconnected within a second.

    After the last key is revoked, the broker still requires a key, so no client can connect.

    \b
    Examples:
      flintmq key rm billing --data-dir /var/lib/flint --yes
    """
    parsed = parse_key(name_or_id.strip())
    if parsed is not None:
        raise click.UsageError(
            "this is a complete key, and it is now in your shell history; name the key by "
            f"its id: {parsed[0]}"
        )
    confirm(f"Revoke key {name_or_id} and disconnect its clients?", yes)
    key = file.remove(name_or_id)
    if output == "json":
        print_json(shown(key))
    else:
        click.echo(f"Revoked key {key.id} ({key.name}).")
    return 0
