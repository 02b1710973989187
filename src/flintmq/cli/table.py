"""`flintmq table`: the last value of every key of a compacted topic; set, delete, watch."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click
import msgspec

from ..batch import BatchBuilder, Key
from ..client.client import Client
from ..errors import InvalidRequest, TopicExists, TopicNotFound
from ..rows import Message
from .connecting import Target, run_async, server_options
from .durations import Duration
from .envelope import envelope
from .exit_codes import FAILED
from .look import print_table
from .names import TOPIC
from .shared import hint, output_option
from .values import for_people

ROWS_AT_ONCE = 1000


@click.command("table")
@click.argument("topic", type=TOPIC)
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key. May be repeated."
)
@click.option("--delete", "deletes", multiple=True, metavar="KEY", help="Delete a key.")
@click.option("--watch", is_flag=True, help="Then print every change. Ctrl-C stops.")
@click.option(
    "--timeout", type=Duration(), help="With --watch: stop when nothing has changed for this long."
)
@output_option
@server_options
def command(
    target: Target,
    topic: str,
    keys: tuple[str, ...],
    sets: tuple[str, ...],
    deletes: tuple[str, ...],
    watch: bool,
    timeout: float | None,
    output: str,
) -> int:
    """Print the last value of every key of TOPIC, or of these keys.

    TOPIC must have --compact key; --set creates it. Exit code 1 if a KEY has no value.

    \b
    Examples:
      flintmq table prices --set EURUSD=1.08 --set GBPUSD=1.27
      flintmq table prices
      flintmq table prices EURUSD
      flintmq table prices --delete GBPUSD
      flintmq table prices --watch --output json
    """
    changes: list[tuple[str, bytes]] = []
    for one in sets:
        key, separator, value = one.partition("=")
        if not separator or not value:
            raise click.UsageError(f"--set needs KEY=VALUE, not {one!r}; --delete deletes a key")
        changes.append((key, value.encode(errors="surrogateescape")))
    changes += [(key, b"") for key in deletes]
    if changes and keys:
        raise click.UsageError("choose one of KEY and --set or --delete")
    as_json = output == "json"

    async def work() -> int:
        async with target.connect(makes=bool(changes)) as mq:
            if changes:
                await _change(mq, topic, changes, as_json)
            missing: Sequence[str] = ()
            if watch or not changes:
                missing = await _show(mq, topic, keys, as_json, watch, timeout)
        for key in missing:
            click.echo(f"flintmq: {topic} has no value for key {key!r}", err=True)
        return FAILED if missing else 0

    return run_async(work())


async def _change(
    mq: Client, topic: str, changes: Sequence[tuple[str, bytes]], as_json: bool
) -> None:
    try:
        is_table = (await mq.topic_info(topic)).options.compact == "key"
    except TopicNotFound:
        is_table = True
        with suppress(TopicExists):
            await mq.create_topic(topic, compact="key")
    if not is_table:
        raise InvalidRequest(
            f"topic {topic!r} keeps every message: `flintmq topic edit {topic} --compact key` first"
        )
    for key, value in changes:
        row = BatchBuilder()  # as it was typed, whatever the format of the topic
        row.append_row(value, key=key)
        receipt = await mq.publish_batch(topic, row)
        if as_json:
            told = {"key": key, "deleted": not value, "offset": str(receipt.offset)}
            click.echo(msgspec.json.encode(told).decode())
        else:
            click.echo(f"{key} {'set' if value else 'deleted'}")


async def _show(
    mq: Client, topic: str, keys: Sequence[str], as_json: bool, watch: bool, timeout: float | None
) -> Sequence[str]:
    """Print what is there, then what follows. Which keys are missing."""
    expression = " or ".join(f"key == {key!r}" for key in keys) or None
    found: dict[Key, Message] = {}
    try:
        opened = await mq.reader(topic, start="last_per_key", filter=expression, auto_create=False)
    except TopicNotFound:
        raise InvalidRequest(
            f"topic {topic!r} does not exist; `flintmq table {shlex.quote(topic)} --set KEY=VALUE` "
            "creates it"
        ) from None
    async with opened as reader:
        while rows := await reader.read_batch(ROWS_AT_ONCE, timeout=0):
            for message in rows:
                if message.key is not None:
                    found.pop(message.key, None)
                    if message.value:
                        found[message.key] = message
        if as_json:
            for message in found.values():
                _tell_json(message)
        elif found:
            print_table(["key", "value"], [_line(one) for one in found.values()])
        elif not watch and not keys:
            hint(f"{topic} has no values")
        while watch:
            sys.stdout.flush()
            rows = await reader.read_batch(ROWS_AT_ONCE, timeout)
            for message in rows:
                if message.key is not None and as_json:
                    _tell_json(message)
                elif message.key is not None:
                    click.echo("  ".join(_line(message)))
            watch = bool(rows)
    return [key for key in keys if key not in found]


def _line(message: Message) -> tuple[str, str]:
    key = message.key if isinstance(message.key, str) else repr(message.key)
    value = for_people(message).decode(errors="replace") if message.value else "(deleted)"
    return key, value


def _tell_json(message: Message) -> None:
    told: dict[str, Any] = envelope(message, decode=True)
    if not message.value:
        told["deleted"] = True
    click.echo(msgspec.json.encode(told).decode())
