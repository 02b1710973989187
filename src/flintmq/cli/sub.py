"""`flintmq sub`: messages on the terminal, into a pipe or a file."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

import click

from ..client.client import Client
from ..errors import FlintError, InvalidRequest
from ..model import Start
from ..rows import Message
from .connecting import Target, run_async, server_options
from .durations import Duration, Position
from .envelope import line
from .formatting import formatter
from .showing import has_colour, many
from .values import as_bytes, for_people, published

BATCH = 1000

Take = Callable[[int, float | None], Any]
"""So many at most, waiting so long at most: messages, none when there are none."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages, and for how long."""

    topic: str
    group: str | None
    reader: str | None
    live: bool
    start: Start | None
    filter: str | None
    count: int | None
    follow: bool
    timeout: float | None


class Tally:
    def __init__(self) -> None:
        self.count = self.size = 0
        self.began = monotonic()

    def tell(self, topic: str) -> None:
        seconds = monotonic() - self.began
        rate = f", {self.count / seconds:,.0f}/s" if seconds > 0.1 else ""
        click.echo(
            f"{topic}: {many(self.count, 'message')}, {self.size:,} bytes in {seconds:.2f} s{rate}",
            err=True,
        )


@click.command("sub")
@click.argument("topic")
@click.option("--group", help="Take messages as a member of a queue group, and acknowledge them.")
@click.option("--reader", help="Read on where the reader of that name stands, and move it.")
@click.option("--live", is_flag=True, help="Only what is published from now on; patterns allowed.")
@click.option(
    "--from",
    "start",
    type=Position(),
    help="earliest (default), latest, committed, an offset, a time, or -5m.",
)
@click.option("--count", type=click.IntRange(min=1), help="So many at most.")
@click.option("--follow", is_flag=True, help="Wait for more at the end, also for --count of them.")
@click.option("--timeout", type=Duration(), help="End when nothing has come for so long.")
@click.option("--filter", "filter", help="Only those an expression picks, in the broker.")
@click.option("-f", "--format", "format", help="How to print each: %t %p %o %k %v %h %T %d ...")
@click.option("-J", "as_json", is_flag=True, help="Each as one line of JSON, which `pub -J` takes.")
@click.option("--decode", is_flag=True, help="Values of msgpack, Avro ... as JSON.")
@click.option("--raw", is_flag=True, help="The bytes of the values and nothing between them.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", help="json: as -J.")
@server_options
def command(
    target: Target,
    topic: str,
    format: str | None,
    as_json: bool,
    decode: bool,
    raw: bool,
    output: str,
    **keywords: Any,
) -> int:
    """Print the messages of TOPIC: from its beginning to its end, or on and on with --follow.

    Without --group, --reader or --live nothing is changed by it: anybody may look. On a terminal
    each message is shown with its offset, time and key; in a pipe just the values, a line each, as
    they were published: compression is undone, and a format only with --decode. Ctrl-C ends it and
    tells how many there were.

    \b
    Examples:
      flintmq sub orders
      flintmq sub orders --follow --from latest
      flintmq sub orders --group billing --count 10
      flintmq sub 'orders.>' --live
      flintmq sub orders --filter 'headers.region == "eu"' -f '%o %k %v\\n'
      flintmq sub orders -J | head
    """
    wanted = Wanted(topic, **keywords)
    if sum(map(bool, (wanted.group, wanted.reader, wanted.live))) > 1:
        raise click.UsageError("choose one of --group, --reader and --live")
    if wanted.live and wanted.start is not None:
        raise click.UsageError("--live begins now; leave --from out")
    if sum(map(bool, (format, as_json, raw))) > 1:
        raise click.UsageError("choose one of -f, -J and --raw")
    if wanted.start == "committed" and not (wanted.reader or wanted.group):
        raise click.UsageError("--from committed is where a --reader of a name stands: name it")
    if not wanted.live and any(letter in topic for letter in "*>"):
        raise click.UsageError(
            f"a pattern is for --live; `flintmq topic ls '{topic}'` lists topics, to read one each"
        )
    tally = Tally()
    write = _writer(format, as_json or output == "json", decode, raw)
    try:
        run_async(_receive(target, wanted, write, tally))
    except KeyboardInterrupt:
        tally.tell(topic)
        raise
    except FlintError:
        if tally.count:
            tally.tell(topic)
        raise
    if sys.stdout.isatty():
        tally.tell(topic)
    if not tally.count and wanted.filter is not None and "value" in wanted.filter:
        click.echo(
            "flintmq: no message fits; `value` has fields where the format is known: by `pub "
            "--format json`, or `topic add --format json`",
            err=True,
        )
    return 0


def _writer(
    format: str | None, as_json: bool, decode: bool, raw: bool
) -> Callable[[Sequence[Message]], bytes]:
    """How messages look; many at once, since printing one by one is what would take long."""
    value = for_people if decode else published
    if format is not None:
        try:
            one = formatter(format, value)
        except InvalidRequest as error:
            raise click.UsageError(str(error)) from None
    elif as_json:

        def one(message: Message) -> bytes:
            return line(message, decode=decode) + b"\n"

    elif raw:
        one = value
    elif sys.stdout.isatty():
        one = partial(pretty, colour=has_colour())
    else:

        def one(message: Message) -> bytes:
            return value(message) + b"\n"

    return lambda messages: b"".join(map(one, messages))


def pretty(message: Message, *, colour: bool = True) -> bytes:
    """For people: the facts dimmed, and nothing in a value that could upset a terminal."""
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
    target: Target, wanted: Wanted, write: Callable[[Sequence[Message]], bytes], tally: Tally
) -> None:
    out = sys.stdout.buffer
    async with (
        target.connect(auto_create=False) as mq,
        _source(mq, wanted) as (take, settle),
        _until_nobody_reads(),
    ):
        while wanted.count is None or tally.count < wanted.count:
            left = BATCH if wanted.count is None else min(BATCH, wanted.count - tally.count)
            messages = await take(left, _patience(wanted))
            if not messages:
                break
            out.write(write(messages))
            out.flush()
            await settle(messages)  # printed first: what nobody saw is handed out again
            tally.count += len(messages)
            tally.size += sum(message.size for message in messages)


@asynccontextmanager
async def _until_nobody_reads() -> AsyncIterator[None]:
    """Ends the work when whoever read our pipe has gone, also while nothing comes to be written."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    is_gone = False

    def leave() -> None:
        nonlocal is_gone
        is_gone = True
        loop.remove_reader(output)
        if task is not None:
            task.cancel()

    try:
        output = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(output).st_mode)
    except (OSError, ValueError):  # a test's own stream
        is_pipe = False
    if is_pipe:
        # The end that is written to is never readable; it is woken when the other one is closed.
        loop.add_reader(output, leave)
    try:
        yield
    except asyncio.CancelledError:
        if is_gone:
            raise BrokenPipeError from None
        raise
    finally:
        if is_pipe:
            loop.remove_reader(output)


def _patience(wanted: Wanted) -> float | None:
    if wanted.timeout is not None:
        return wanted.timeout
    return None if wanted.follow or wanted.live else 0.0


@asynccontextmanager
async def _source(mq: Client, wanted: Wanted) -> AsyncIterator[tuple[Take, Callable[[Any], Any]]]:
    if wanted.group is not None:
        group = wanted.group

        async def poll(most: int, timeout: float | None) -> Any:
            while True:
                wait = 3600.0 if timeout is None else timeout
                found = await mq.poll(
                    wanted.topic,
                    group,
                    most,
                    wait=wait,
                    start=wanted.start,
                    filter=wanted.filter,
                )
                if found or timeout is not None:
                    return found

        yield poll, mq.ack
    elif wanted.live:
        async with mq.live(wanted.topic, filter=wanted.filter, capacity=10_000) as feed:
            yield _reading(feed), _nothing
    else:
        async with mq.reader(
            wanted.topic, name=wanted.reader, start=wanted.start, filter=wanted.filter
        ) as reader:

            async def commit(messages: Sequence[Message]) -> None:
                await reader.commit()

            yield _reading(reader), commit if wanted.reader else _nothing


def _reading(source: Any) -> Take:
    async def take(most: int, timeout: float | None) -> Any:
        return await source.read_batch(most, timeout=timeout)

    return take


async def _nothing(messages: Sequence[Message]) -> None:
    await asyncio.sleep(0)
