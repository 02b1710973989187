"""`flintmq key ls`: list API keys."""

from __future__ import annotations

import time

import click

from ..storage.key_file import KeyFile
from .keys_shared import keys_file_options, shown, when
from .look import print_table
from .shared import output_option, print_json


@click.command("ls")
@keys_file_options
@output_option
def command(file: KeyFile, output: str) -> int:
    """List API keys: permissions, creation and expiry. Secrets are not stored.

    \b
    Examples:
      flintmq key ls --data-dir /var/lib/flint
      flintmq key ls --data-dir /var/lib/flint --output json
    """
    is_there = file.stamp() is not None
    keys = file.read() if is_there else []
    if output == "json":
        print_json({"keys": [shown(key) for key in keys]})
        return 0
    if not is_there:
        click.echo(f"{file.path} does not exist: the broker requires no keys.", err=True)
        return 0
    now_ms = time.time_ns() // 1_000_000
    print_table(
        ("ID", "NAME", "GRANTS", "MADE", "EXPIRES", "NOTE"),
        [
            (
                key.id,
                key.name,
                " ".join(f"{one.topics}:{','.join(one.may)}" for one in key.grants),
                when(key.made_at_ms),
                "expired" if key.is_expired(now_ms) else when(key.expires_at_ms) or "never",
                key.note,
            )
            for key in keys
        ],
    )
    return 0
