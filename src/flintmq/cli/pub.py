"""`flintmq pub`: publish from the command line, a pipe or a file."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from time import monotonic
from typing import Any, BinaryIO, NamedTuple

import click
import msgspec

from ..amounts import many, rate
from ..client.client import Client
from ..errors import InvalidRequest, TopicFull
from ..model import Receipt
from .beside import finish, next_beside
from .connecting import Target, run_async, server_options
from .durations import Duration, Moment
from .envelope import Outgoing, outgoing
from .look import ProgressBar, said
from .names import TOPIC
from .shared import output_option, print_json, reported

BATCH = 1000
IN_FLIGHT = 8
NUMBER = b"{{n}}"
READ_BYTES = 256 * 1024


class PublishTally:
    """What was published so far; reported at the end, also after Ctrl-C."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.count = 0
        self.last: Receipt | None = None
        self.is_empty = False
        self.fits = BATCH
        """How many messages to publish at once. A small topic that rejects when full takes few."""
        self.began = monotonic()

    def add(self, receipt: Receipt) -> None:
        self.count += receipt.count
        self.last = receipt

    def note(self, size: int) -> None:
        self.is_empty = size == 0

    def tell(self, output: str, ended: str) -> None:
        said()
        seconds = monotonic() - self.began
        last = self.last.parts[-1] if self.last is not None and self.last.parts else self.last
        if output == "json":
            offset = None if last is None or last.offset is None else last.offset + last.count - 1
            print_json(
                {
                    "topic": self.topic,
                    "count": self.count,
                    "partition": None if last is None else str(last.partition),
                    "last_offset": None if offset is None else str(offset),
                    "durability": None if last is None else last.durability,
                    "seconds": round(seconds, 3),
                    "ended": ended,
                }
            )
        elif self.count == 1 and last is not None and last.offset is not None:
            where = f" of partition {last.partition}" if last.partition else ""
            what = ", an empty message" if self.is_empty else ""
            click.echo(f"{self.topic}: offset {last.offset}{where}{what}", err=True)
        else:
            text = f"{self.topic}: {many(self.count, 'message')} {rate(self.count, seconds)}"
            if last is not None and last.offset is None:
                text += "; not stored (QoS 0)"
            click.echo(text, err=True)


class PublishRate(NamedTuple):
    """A rate in messages per second, counted from the start: lost time is made up for."""

    rate: float | None

    def due(self, count: int, began: float) -> float:
        """How long to wait before the next message, after `count` of them."""
        return 0.0 if self.rate is None else count / self.rate - (monotonic() - began)

    @property
    def batch(self) -> int:
        return BATCH if self.rate is None else max(1, min(BATCH, int(self.rate / 20)))


key_option = click.option("--key", help="Key, used for partitioning and ordering.")
header_option = click.option(
    *("-H", "--header", "headers"),
    multiple=True,
    metavar="NAME:VALUE",
    help="Header. May be repeated.",
)


@click.command("pub")
@click.argument("topic", type=TOPIC)
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option("--file", "file", type=click.File("rb"), help="Publish the content of FILE.")
@click.option("--lines", is_flag=True, help="Publish each line of the input as a message.")
@click.option(
    "-J", "as_json", is_flag=True, help="Each line is a JSON envelope, as printed by `sub -J`."
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help="Publish N times; {{n}} is replaced by 1, 2, ...",
)
@key_option
@header_option
@click.option("--priority", type=click.IntRange(0, 7), help="0 (default) to 7 (first).")
@click.option("--ttl", type=Duration(), help="Message expires after this time.")
@click.option("--delay", type=Duration(), help="Deliver after this delay.")
@click.option("--at", type=Moment(), help="Deliver at this time.")
@click.option(
    "--qos", type=click.IntRange(0, 1), default=1, help="0: live subscribers only, not stored."
)
@click.option("--partition", type=click.IntRange(min=0), help="Publish to this partition.")
@click.option("--content-type", help="Content type of the value.")
@click.option(
    "--format",
    "format",
    type=click.Choice(["json", "msgpack", "avro", "text", "raw"]),
    help="VALUE is JSON, and is encoded in this format. text and raw: VALUE is sent as it is.",
)
@click.option("--compression", help="Compress each message: gzip, zstd or lz4.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Limit to this many messages per second.",
)
@output_option
@server_options
def command(
    target: Target,
    topic: str,
    values: tuple[str, ...],
    file: BinaryIO | None,
    lines: bool,
    as_json: bool,
    count: int | None,
    headers: tuple[str, ...],
    rate: float | None,
    output: str,
    **keywords: Any,
) -> int:
    """Publish VALUE, standard input (also as `-`) or a file: as one message, or line by line.

    An acknowledged message is as durable as the broker's fsync policy guarantees. Ctrl-C stops
    and prints how many messages were published. Filters can read fields of a value if it has a
    format, from --format or from the topic.

    \b
    Examples:
      flintmq pub orders '{"id": 42}' --key 42 -H region:eu
      flintmq pub orders --count 1000 'order {{n}}'
      seq 1 100 | flintmq pub numbers --lines
      flintmq pub images --file photo.png
      flintmq pub orders 'later' --delay 5m
      flintmq sub orders -J --count 10 | flintmq pub orders.copy -J
    """
    said_of = {name: value for name, value in keywords.items() if value is not None}
    if "delay" in said_of and "at" in said_of:
        raise click.UsageError("choose one of --delay and --at")
    if headers:
        said_of["headers"] = header_map(headers)
    lots = _messages(values, file, lines, as_json, count, said_of.get("format"))
    tally = PublishTally(topic)
    total = count * max(1, len(values)) if count else None
    with reported(partial(tally.tell, output), lambda: tally.count):
        run_async(_publish(target, topic, lots, said_of, PublishRate(rate), tally, total))
    return 0


def header_map(texts: Sequence[str]) -> dict[str, str]:
    """Headers as options name them."""
    return dict(_header(text) for text in texts)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise click.UsageError(f"a header must be NAME:VALUE, not {text!r}")
    return name.strip(), value.strip()


def _messages(
    values: tuple[str, ...],
    file: BinaryIO | None,
    lines: bool,
    as_json: bool,
    count: int | None,
    format: str | None,
) -> Iterator[list[Outgoing]]:
    """The messages to publish, in batches; from a pipe, whatever has arrived."""
    if file is not None and values:
        raise click.UsageError("pass either VALUE or --file")
    reads = file is None and values in ((), ("-",))
    if reads and sys.stdin.isatty():
        what = "line by line" if lines or as_json else "as one message"
        click.echo(f"reading standard input {what}; end with Ctrl-D", err=True)
    if lines or as_json:
        if values not in ((), ("-",)) or count:
            raise click.UsageError(
                "--lines and -J read standard input or --file, and do not work with --count"
            )
        return _by_line(file or sys.stdin.buffer, as_json, format)
    if file is not None or values in ((), ("-",)):
        raw = [(file or sys.stdin.buffer).read()]
    else:
        raw = [value.encode(errors="surrogateescape") for value in values]
    if count is None:
        return iter([[_one(value, format) for value in raw]])
    repeated = (
        _one(value.replace(NUMBER, b"%d" % number) if NUMBER in value else value, format)
        for number in range(1, count + 1)
        for value in raw
    )
    return iter(lambda: list(islice(repeated, BATCH)), [])


def _by_line(source: BinaryIO, as_json: bool, format: str | None) -> Iterator[list[Outgoing]]:
    number = 0
    for lines in _lines(source):
        lot: list[Outgoing] = []
        for line in lines:
            number += 1
            try:
                if not as_json:
                    lot.append(_one(line, format))
                elif line.strip():
                    lot.append(outgoing(line))
            except InvalidRequest as error:
                raise InvalidRequest(f"line {number:,}: {error}") from None
        yield lot


def _lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """Lines as they arrive, however slowly; the last one may lack its newline."""
    rest = b""
    # Past the buffer, whose lock a read that never ends would keep from the end of the program.
    read = getattr(source, "raw", source).read
    while chunk := read(READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _one(value: bytes, format: str | None) -> Outgoing:
    if format in (None, "raw"):
        return Outgoing(value, {})
    try:
        return Outgoing(value.decode() if format == "text" else msgspec.json.decode(value), {})
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise InvalidRequest(f"with --format {format} the value must be JSON: {error}") from None


async def _publish(
    target: Target,
    topic: str,
    lots: Iterator[list[Outgoing]],
    said_of: dict[str, Any],
    pace: PublishRate,
    tally: PublishTally,
    total: int | None,
) -> None:
    loop = asyncio.get_running_loop()
    under_way: set[asyncio.Task[Receipt]] = set()
    taken = 0
    bar = ProgressBar(f"to {topic}", total)
    async with target.connect(makes=True) as mq:
        try:
            while (lot := await next_beside(lots)) is not None:
                for part in _parts(lot, lambda: min(pace.batch, tally.fits)):
                    if (wait := pace.due(taken, tally.began)) > 0:
                        await asyncio.sleep(wait)
                    under_way.add(loop.create_task(_send(mq, topic, part, said_of, tally)))
                    taken += len(part)
                    # The first alone: where it makes the topic, others could come before it.
                    if len(under_way) >= IN_FLIGHT or not tally.count:
                        under_way = await _some(under_way)
                    bar.show(tally.count)
            while under_way:
                under_way = await _some(under_way)
        finally:
            await finish(under_way)


def _parts(lot: list[Outgoing], most: Callable[[], int]) -> Iterator[list[Outgoing]]:
    """Publish several at once. Values that are already encoded and those still to be encoded are
    sent separately."""
    for _, alike in groupby(lot, key=attrgetter("is_written")):
        while part := list(islice(alike, most())):
            yield part


async def _send(
    mq: Client, topic: str, lot: list[Outgoing], said_of: dict[str, Any], tally: PublishTally
) -> Receipt:
    keywords = dict(said_of)
    if lot[0].is_written:
        keywords |= {"format": "raw", "compression": "none", "magic_header": "none"}
    for name in {name for message in lot for name in message.keywords}:
        default = 0 if name == "priority" else said_of.get(name)
        keywords[name] = [message.keywords.get(name, default) for message in lot]
    if any(message.expires_at is not None for message in lot):
        keywords["ttl"] = [
            said_of.get("ttl")
            if message.expires_at is None
            else datetime.fromtimestamp(message.expires_at, UTC)
            for message in lot
        ]
    try:
        receipt = await mq.publish_batch(topic, [message.value for message in lot], **keywords)
    except TopicFull as error:
        if not error.never_fits or len(lot) == 1:
            raise
        half = len(lot) // 2
        tally.fits = min(tally.fits, half)
        await _send(mq, topic, lot[:half], said_of, tally)
        return await _send(mq, topic, lot[half:], said_of, tally)
    tally.add(receipt)
    tally.note(len(lot[0].value) if len(lot) == 1 and isinstance(lot[0].value, bytes) else 1)
    return receipt


async def _some(tasks: set[asyncio.Task[Receipt]]) -> set[asyncio.Task[Receipt]]:
    """Wait for at least one; raises what one of them raised."""
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return left
