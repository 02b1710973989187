"""`flintmq sub`: print messages to a terminal, a pipe or a file."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Any

import click

from ..amounts import age, many, rate
from ..client.client import Client
from ..errors import Disconnected, InvalidRequest, PermissionDenied
from ..group_model import LEASE_SECONDS
from ..rows import Message
from .connecting import Target, run_async, server_options
from .durations import Duration, Last, Position
from .envelope import line
from .formatting import formatter
from .names import GROUP, TOPIC
from .outlet import Outlet, to_its_end
from .shared import has_colour, reported
from .sub_sources import BATCH_MAX, FIRST_BATCH, MessageSource, Wanted, opened
from .values import as_bytes, for_people, published

HOLD_SECONDS = 1.0
"""How long a message waits for a slow reader before it is returned unwritten."""


class ReadTally:
    def __init__(self) -> None:
        self.count = self.size = 0
        self.began = monotonic()

    def tell(self, topic: str) -> None:
        seconds = monotonic() - self.began
        said = f"{topic}: {many(self.count, 'message')}, {self.size:,} bytes"
        click.echo(f"{said} {rate(self.count, seconds)}", err=True)


@click.command("sub")
@click.argument("topic", type=TOPIC)
@click.option("--group", type=GROUP, help="Consume as a member of a queue group, and acknowledge.")
@click.option("--reader", help="Continue at the position of this named reader, and advance it.")
@click.option(
    "--live", is_flag=True, help="Only new messages, as they are published; TOPIC may be a pattern."
)
@click.option(
    "--from",
    "start",
    type=Position(counts=True),
    help="earliest (default), latest, committed, an offset, a time, -5m, or -3: the last three.",
)
@click.option(
    "--last", type=click.IntRange(min=1), metavar="N", help="Last N messages; same as --from -N."
)
@click.option(
    "--last-per-key",
    is_flag=True,
    help="Start with the newest message of each key; --follow continues with new ones.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after N messages.")
@click.option(
    "--follow", is_flag=True, help="Wait for new messages at the end, also to complete --count."
)
@click.option("--timeout", type=Duration(), help="Stop when no message has arrived for this long.")
@click.option("--filter", "filter", help="Only messages that match; evaluated by the broker.")
@click.option("-f", "--format", "format", help="Format string: %t %p %o %k %v %h %T %d ...")
@click.option(
    "-J",
    "as_json",
    is_flag=True,
    help="Print each message as one line of JSON, which `pub -J` accepts.",
)
@click.option("--decode", is_flag=True, help="Print values in msgpack, Avro ... as JSON.")
@click.option("--raw", is_flag=True, help="Print only the bytes of the values, without separators.")
@click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", help="json: same as -J."
)
@server_options
def command(
    target: Target,
    topic: str,
    format: str | None,
    as_json: bool,
    decode: bool,
    raw: bool,
    output: str,
    last: int | None,
    last_per_key: bool,
    **keywords: Any,
) -> int:
    """Print the messages of TOPIC, from start to end. With --follow, wait for new ones.

    Reading changes nothing, unless --group or --reader is given. On a terminal each message is
    shown with its offset, time and key. In a pipe only the values are printed, one per line, as
    they were published: they are decompressed, and decoded only with --decode. Ctrl-C stops and
    prints how many messages there were.

    \b
    Examples:
      flintmq sub orders
      flintmq sub orders --last 10
      flintmq sub orders --follow --from latest
      flintmq sub orders --group billing --count 10
      flintmq sub prices --last-per-key --follow
      flintmq sub 'orders.>' --live
      flintmq sub orders --filter 'headers.region == "eu"' -f '%o %k %v\\n'
      flintmq sub orders -J | head
    """
    if last is not None:
        if keywords["start"] is not None:
            raise click.UsageError("choose one of --from and --last")
        keywords["start"] = Last(last)
    if last_per_key:
        if keywords["start"] is not None or any(keywords[name] for name in ("group", "reader")):
            raise click.UsageError(
                "--last-per-key starts with the state; do not use --from, --last, --group or "
                "--reader"
            )
        keywords["start"] = "last_per_key"
    wanted = Wanted(topic, **keywords)
    if sum(map(bool, (wanted.group, wanted.reader, wanted.live))) > 1:
        raise click.UsageError("choose one of --group, --reader and --live")
    if wanted.live and wanted.start is not None:
        raise click.UsageError("--live starts with new messages; do not use --from or --last")
    if sum(map(bool, (format, as_json, raw))) > 1:
        raise click.UsageError("choose one of -f, -J and --raw")
    if wanted.start == "committed" and not (wanted.reader or wanted.group):
        raise click.UsageError("--from committed needs a named reader: add --reader NAME")
    if not wanted.live and any(letter in topic for letter in "*>"):
        raise click.UsageError(
            "a pattern works only with --live; list the topics with `flintmq topic ls "
            f"'{topic}'`, and read them one by one"
        )
    tally = ReadTally()
    write = _writer(format, as_json or output == "json", decode, raw)

    def tell(ended: str) -> None:
        if ended != "done" or sys.stdout.isatty():
            tally.tell(topic)

    with reported(tell, lambda: tally.count):
        run_async(_receive(target, wanted, write, tally, decode=decode))
    if not tally.count and wanted.filter is not None and "value" in wanted.filter:
        click.echo(
            "flintmq: no message matches; a filter can read fields of `value` only if the "
            "format is known: publish with `pub --format json`, or create the topic with "
            "`topic add --format json`",
            err=True,
        )
    return 0


def _writer(
    format: str | None, as_json: bool, decode: bool, raw: bool
) -> Callable[[Message], bytes]:
    """How a message is printed."""
    value = for_people if decode else published
    if format is not None:
        try:
            return formatter(format, value)
        except InvalidRequest as error:
            raise click.UsageError(str(error)) from None
    if as_json:
        return lambda message: line(message, decode=decode) + b"\n"
    if raw:
        return value
    if sys.stdout.isatty():
        return partial(pretty, colour=has_colour())
    return lambda message: value(message) + b"\n"


def pretty(message: Message, *, colour: bool = True) -> bytes:
    """For people: metadata is dimmed, and control characters in values are escaped."""
    where = message.topic if not message.partition else f"{message.topic}/{message.partition}"
    facts = [where, "" if message.offset is None else f"#{message.offset}"]
    facts.append(message.time.astimezone().strftime("%H:%M:%S.%f")[:-3])
    if message.key is not None:
        facts.append(f"key={shown(message.key)}")
    facts += [f"{name}:{shown(value)}" for name, value in message.headers.items()]
    if message.delivery_count > 1:
        facts.append(f"delivery {message.delivery_count}")
    head = " ".join(fact for fact in facts if fact)
    dim, plain = ("\x1b[2m", "\x1b[0m") if colour else ("", "")
    return f"{dim}{head}{plain} {shown(for_people(message))}\n".encode()


def shown(value: Any) -> str:
    text = as_bytes(value).decode(errors="backslashreplace")
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


async def _receive(
    target: Target,
    wanted: Wanted,
    write: Callable[[Message], bytes],
    tally: ReadTally,
    *,
    decode: bool,
) -> None:
    async with (
        target.connect(auto_create=False) as mq,
        _telling_of_the_connection(mq, wanted),
        opened(mq, wanted) as source,
        Outlet(sys.stdout.buffer, exact=source.is_settling) as out,
    ):
        if decode and not wanted.live:
            with suppress(PermissionDenied):  # whoever may only read has to do without
                await mq.use_schemas(wanted.topic)
        most = FIRST_BATCH if source.is_settling else BATCH_MAX
        while (left := inf if wanted.count is None else wanted.count - tally.count) > 0:
            messages = await out.unless_gone(source.take(int(min(most, left)), wanted.patience))
            if not messages:
                break
            printed = await _print(out, source, write, messages, tally)
            # What we hold, nobody else gets: of a slow reader, as much as it takes in a while.
            most = max(1, printed) if printed < len(messages) else min(2 * most, BATCH_MAX)


@asynccontextmanager
async def _telling_of_the_connection(mq: Client, wanted: Wanted) -> AsyncIterator[None]:
    """Reports on stderr when the connection is lost and when it is back."""
    if wanted.follow or wanted.live:
        lost_at = 0.0

        @mq.on_disconnect
        def lost(error: Disconnected) -> None:
            nonlocal lost_at
            lost_at = monotonic()
            click.echo(f"flintmq: connection lost ({error.cause}); reconnecting", err=True)

        @mq.on_reconnect
        def back() -> None:
            after = age(monotonic() - lost_at)
            click.echo(f"flintmq: reconnected after {after}", err=True)

    yield


async def _print(
    out: Outlet,
    source: MessageSource,
    write: Callable[[Message], bytes],
    messages: Sequence[Message],
    tally: ReadTally,
) -> int:
    """Print messages and settle those that were written; returns how many. The rest is returned to
    the group at an early end or when the reader is slow, except for partly written lines."""
    waiting, lines = messages, [write(message) for message in messages]
    began = kept = monotonic()
    count = 0
    try:
        while waiting:
            try:
                await out.print(lines, seconds=HOLD_SECONDS if source.is_settling else inf)
            finally:
                done = waiting if out.left == len(waiting) else waiting[: out.left]
                waiting, lines = waiting[len(done) :], lines[len(done) :]
                if done:
                    await to_its_end(source.settle(done))
                    count += len(done)
                    tally.count += len(done)
                    tally.size += sum(message.size for message in done)
            if waiting and monotonic() - began >= HOLD_SECONDS:
                unwritten, waiting = waiting[out.begun :], waiting[: out.begun]
                lines = lines[: out.begun]
                if unwritten:
                    await to_its_end(source.give_back(unwritten))
            if waiting and monotonic() - kept > LEASE_SECONDS / 3:
                kept = monotonic()
                await source.keep(waiting)
    except BaseException:
        if waiting:
            await source.give_back(waiting)
        raise
    return count
