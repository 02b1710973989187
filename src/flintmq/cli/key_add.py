"""`flintmq key add`: create an API key, shown once."""

from __future__ import annotations

import re
import sys
import time

import click

from ..access import TopicGrant
from ..errors import InvalidRequest
from ..storage.key_file import KeyFile, make_key
from .keys_shared import keys_file_options, shown, when
from .shared import output_option, print_json

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@click.command("add")
@click.argument("name")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    metavar="PATTERN:PERMISSIONS",
    help="Topics and permissions: publish, consume, administer. May be repeated.",
)
@click.option("--expires", metavar="TIME", help="Key expires after this time: 12h, 30d, 52w.")
@click.option("--note", default="", help="Free text, for example the owner of the key.")
@keys_file_options
@output_option
def command(
    name: str, grants: tuple[str, ...], expires: str | None, note: str, file: KeyFile, output: str
) -> int:
    """Create an API key and print it. It is shown only once.

    A running broker accepts it within a second, without a restart. Only a hash is stored.
    PATTERN is a topic name, where * matches one word and > matches the rest. Quote it, because
    the shell interprets both characters.

    \b
    Examples:
      flintmq key add billing --grant 'orders.>:consume' --grant 'bills:publish' \\
          --data-dir /var/lib/flint > billing.key
      flintmq key add root --grant '>:publish,consume,administer' --expires 30d \\
          --data-dir /var/lib/flint
    """
    now_ms = time.time_ns() // 1_000_000
    key, text = make_key(
        name,
        [_grant(one) for one in grants],
        now_ms=now_ms,
        expires_at_ms=None if expires is None else now_ms + _milliseconds(expires),
        note=note,
    )
    is_first = file.stamp() is None
    file.add(key)
    if output == "json":
        print_json({**shown(key), "key": text})
        return 0
    click.echo(text)
    if sys.stdout.isatty():
        ends = "" if key.expires_at_ms is None else f", expires {when(key.expires_at_ms)}"
        click.echo(f"Created key {key.id} ({name}){ends}. It is not shown again.", err=True)
    if is_first:
        click.echo(
            "flintmq: this is the first key: from now on, every client of this broker needs one",
            err=True,
        )
    return 0


def _grant(text: str) -> TopicGrant:
    pattern, colon, permissions = text.rpartition(":")
    if not colon or not pattern:
        raise click.UsageError(
            f"a grant must be PATTERN:PERMISSIONS, as in 'orders.>:publish,consume'; not {text!r}"
        )
    try:
        return TopicGrant.of(
            pattern, [one.strip() for one in permissions.split(",") if one.strip()]
        )
    except InvalidRequest as error:
        raise click.UsageError(f"--grant {text}: {error}") from None


def _milliseconds(text: str) -> int:
    found = re.fullmatch(r"(\d{1,9})([smhdw])", text.strip())
    if found is None or not int(found[1]):
        raise click.UsageError(
            f"--expires must be a time such as 90m, 12h, 30d or 52w, not {text!r}"
        )
    return int(found[1]) * _UNITS[found[2]] * 1000
