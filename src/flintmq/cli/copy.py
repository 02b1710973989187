"""`flintmq copy`: copy topics to topics, brokers and files, and back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import click
import msgspec

from ..amounts import many, rate, size
from ..batch import BatchBuilder
from ..client.client import Client
from ..client.reader import Reader
from ..client.sending import halves
from ..errors import FlintError, InvalidRequest
from ..model import Receipt, Start, TopicStats
from ..rows import Rows, Run
from .beside import finish, next_beside
from .connecting import Target, run_async, server_options, target_of
from .copy_files import (
    BATCHES,
    STDIO,
    CopyBatch,
    contiguous,
    copied,
    is_file,
    next_offsets,
    open_sink,
)
from .copy_files import read_file as lots_of_file
from .durations import Position
from .look import ProgressBar
from .names import TOPIC
from .outlet import Outlet
from .shared import file_option, output_option, reported

BATCH = 1000
IN_FLIGHT = 8
COMMIT_EVERY = 16
"""Batches between two saves of the position. After a crash these are sent again, and recognised as
duplicates."""


@dataclass(slots=True)
class CopyJob:
    """What to copy, and the progress so far."""

    source: str
    destination: str
    start: Start | None
    filter: str | None
    count: int | None
    follow: bool
    resume: str | None
    """The name under which the source stores our position."""
    skip: int
    copied: int = 0
    bytes: int = 0
    repeated: int = 0
    missed: int = 0
    """Messages that retention deleted before we could read them."""
    read: int = 0
    """For a file: how many of its messages are finished."""
    began: float = field(default_factory=monotonic)

    def tell(self, output: str, ended: str) -> None:
        seconds = monotonic() - self.began
        if output == "json":
            facts = {
                "source": self.source,
                "destination": self.destination,
                "count": self.copied,
                "bytes": self.bytes,
                "repeated": self.repeated,
                "missed": self.missed,
                "read": self.read,
                "seconds": round(seconds, 3),
                "ended": ended,
            }
            # Standard output may be where the messages go.
            click.echo(msgspec.json.encode(facts), err=self.destination == STDIO)
            return
        text = f"{self.source} to {self.destination}: {many(self.copied, 'message')}, "
        text += f"{size(self.bytes)} {rate(self.copied, seconds)}"
        if self.repeated:
            text += f"; {self.repeated:,} were already there"
        if self.missed:
            text += f"; {self.missed:,} were deleted before they could be read"
        if ended != "done" and self.read:
            text += f"; continue with --skip {self.read + self.skip}"
        elif ended != "done" and (self.resume or is_file(self.destination)):
            text += "; continue with --resume"
        click.echo(text, err=True)


@click.command("copy")
@click.argument("source", type=TOPIC)
@click.argument("destination", type=TOPIC)
@click.option("--to-server", metavar="URL", help="Destination broker, if it is another one.")
@click.option("--to-context", metavar="NAME", help="Destination broker by its context name.")
@file_option("--to-api-key-file", "File with the API key of the destination broker.")
@file_option("--to-tls-ca", "CA file used to verify the destination broker.")
@click.option(
    "--from", "start", type=Position(), help="earliest (default), an offset, a time, -5m."
)
@click.option("--filter", "filter", help="Copy only messages that match.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after N messages.")
@click.option("--follow", is_flag=True, help="Keep copying new messages.")
@click.option(
    "--resume", is_flag=True, help="Continue where an earlier copy stopped, without duplicates."
)
@click.option(
    "--name",
    "resume_name",
    help="Name under which --resume stores the position.  [copy.DESTINATION]",
)
@click.option(
    "--skip", type=click.IntRange(min=0), default=0, help="Skip the first N messages of a file."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@click.option("--topics", is_flag=True, help="Treat both names as topics, not files.")
@output_option
@server_options
def command(
    target: Target,
    source: str,
    destination: str,
    to_server: str | None,
    to_context: str | None,
    to_api_key_file: Path | None,
    to_tls_ca: Path | None,
    resume: bool,
    resume_name: str | None,
    overwrite: bool,
    topics: bool,
    output: str,
    **keywords: Any,
) -> int:
    """Copy messages from topic to topic, from topic to file, or from file to topic.

    A name ending in .jsonl (one JSON envelope per line, as printed by `sub -J`) or .batches
    (raw record batches) is a file; `-` is standard input or output, line by line. Values, keys,
    headers, priorities, content types, expiry and due times are copied; offsets and timestamps
    are assigned by the new topic. Messages keep their partition if both topics have the same
    number of partitions. Copies what is there now, unless --follow is given. Ctrl-C stops the
    copy and prints how to continue.

    \b
    Examples:
      flintmq copy orders orders.copy
      flintmq copy orders orders --to-server flint://mq2.example.com:7600 --resume
      flintmq copy orders orders.jsonl
      flintmq copy orders orders.batches --from -1h
      flintmq copy orders.jsonl orders.restored
      flintmq copy orders - --filter 'headers.region == "eu"' | head
    """
    from_file = not topics and is_file(source)
    to_file = not topics and is_file(destination)
    same_broker = not (to_server or to_context)
    to = (
        target
        if same_broker
        else target_of(to_server, to_context, api_key_file=to_api_key_file, tls_ca=to_tls_ca)
    )
    if from_file and to_file:
        raise click.UsageError("one of the two must be a topic; use cp to copy files")
    if from_file and (resume or any(keywords[one] for one in ("start", "filter", "follow"))):
        raise click.UsageError(
            "--from, --filter, --follow and --resume are for topics; use --skip for files"
        )
    if keywords["skip"] and not from_file:
        raise click.UsageError("--skip is for files; use --from for topics")
    if source == destination and to == target:
        raise click.UsageError(f"{source} cannot be copied to itself")
    if resume and destination == STDIO:
        raise click.UsageError("--resume needs a topic or a file that can store the position")
    remembered = resume_name or f"copy.{destination}" if resume and not to_file else None
    job = CopyJob(source, destination, resume=remembered, **keywords)
    if from_file:
        work = _from_file(job, to)
    elif to_file:
        work = _to_file(job, target, resume, overwrite)
    else:
        work = _to_topic(job, target, to)
    try:
        with reported(partial(job.tell, output), lambda: job.copied):
            run_async(work)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InvalidRequest(f"{error.filename or destination}: {error.strerror}") from None
    return 1 if job.missed else 0


# --- reading a topic up to where it ends now


class Ends:
    """Where to stop, by partition; None with --follow."""

    def __init__(self, stats: TopicStats, follow: bool) -> None:
        parts = stats.partitions or [stats]
        self._ends = None if follow else {n: part.next_offset for n, part in enumerate(parts)}
        self._open = {n for n, part in enumerate(parts) if part.message_count}
        self.total = None if follow else stats.message_count

    def within(self, rows: Rows) -> Rows:
        """The partitions that existed at the start."""
        if self._ends is None:
            return rows
        kept: list[Run] = []
        for run in rows.runs:
            end = self._ends.get(run.origin.partition, 0) - run.source.base_offset
            picked = run.rows()
            if picked and picked[-1] + 1 >= end:
                self._open.discard(run.origin.partition)
            if picked and picked[-1] < end:
                kept.append(run)
            elif inside := [row for row in picked if row < end]:
                kept.append(run._replace(start=inside[0], stop=inside[-1] + 1, picks=inside))
        return Rows(kept)

    def reached(self) -> bool:
        return self._ends is not None and not self._open


@asynccontextmanager
async def _reading(
    mq: Client, job: CopyJob, after: dict[int, int]
) -> AsyncIterator[tuple[Reader, Ends]]:
    stats = await mq.topic_stats(job.source)
    ends = Ends(stats, job.follow)
    plain = not stats.partitions
    start = job.start
    if plain and after:
        start = after[0]
    async with mq.reader(job.source, start=start, filter=job.filter) as reader:
        if after and not plain:
            firsts = {number: part.first_offset for number, part in enumerate(stats.partitions)}
            await reader.seek({**firsts, **after})
        if ends.total is not None:
            ends.total = min(ends.total, await reader.lag())
        yield reader, ends


async def _rows(reader: Reader, ends: Ends, job: CopyJob, taken: int = 0) -> AsyncIterator[Rows]:
    while not ends.reached() and (job.count is None or taken < job.count):
        most = BATCH if job.count is None else min(BATCH, job.count - taken)
        found = await reader.read_batch(most, timeout=None if job.follow else 0)
        job.missed += found.missed
        if not found:
            return
        rows = ends.within(found)
        taken += len(rows)
        if rows:
            yield rows


# --- into a file


async def _to_file(job: CopyJob, target: Target, resume: bool, overwrite: bool) -> None:
    after = next_offsets(job.destination, job.source) if resume else {}
    async with target.connect(auto_create=False) as mq, _reading(mq, job, after) as (reader, ends):
        stats = await mq.topic_stats(job.source)
        if resume and stats.partitions and job.destination.endswith(BATCHES):
            raise InvalidRequest(
                f"record batches do not carry their partition: copy {job.source}/0 and so "
                "on to one file each, or all of them to a .jsonl"
            )
        sink = open_sink(job.destination, resume=resume, overwrite=overwrite)
        bar = ProgressBar("copied", ends.total)
        try:
            async with Outlet(sink.file) as out:
                found = _rows(reader, ends, job)
                while (rows := await out.unless_gone(anext(found, None))) is not None:
                    try:
                        await out.print([sink.encode(rows)])
                    finally:  # an interrupt may come when they are written, and not counted yet
                        if out.left:
                            job.copied += len(rows)
                            job.bytes += _bytes_of(rows.runs)
                    bar.show(job.copied)
        finally:
            bar.clear()
            sink.close()


def _bytes_of(runs: Sequence[Run]) -> int:
    return sum(
        run.source.size(run.start, run.stop)
        if run.picks is None
        else sum(run.source.size(row, row + 1) for row in run.picks)
        for run in runs
    )


# --- into a topic


class Bookmark:
    """The position of a copy in each partition, stored by the source under a name.

    We never read through it: messages delivered to a copy that was then killed would be
    missing.
    """

    def __init__(self, places: dict[int, Reader]) -> None:
        self._places = places

    @classmethod
    async def open(
        cls, mq: Client, job: CopyJob, name: str, stack: AsyncExitStack
    ) -> tuple[Bookmark, dict[int, int]]:
        """The bookmark, and the next offsets to copy; a new bookmark is placed where the job
        begins."""
        count = await _partitions(mq, job.source)
        topics = [job.source] if count is None else [f"{job.source}/{n}" for n in range(count)]
        places: dict[int, Reader] = {}
        after: dict[int, int] = {}
        for number, topic in enumerate(topics):
            is_known = any(group.name == name for group in await mq.groups(topic))
            place = await stack.enter_async_context(mq.reader(topic, name=name))
            if is_known:
                await place.seek("committed")
                after[number] = await place.position()
            else:
                async with mq.reader(topic, start=job.start) as reader:
                    after[number] = await reader.position()
                await place.commit(after[number])
            places[number] = place
        return cls(places), after

    async def move(self, partition: int, offset: int) -> None:
        await (self._places.get(partition) or self._places[0]).commit(offset)


@dataclass(slots=True)
class Parcel:
    """Rows being sent to a partition, and where in the source they come from."""

    rows: BatchBuilder
    partition: int | None
    producer: str | None = None
    sequence: int | None = None
    behind: tuple[int, int] | None = None
    """The source partition, and the offset after the last of these rows."""
    read: int = 0
    bytes: int = 0


class CopySender:
    """Parcels being sent to a topic: several at once, in order, counted once acknowledged."""

    def __init__(
        self, mq: Client, job: CopyJob, bar: ProgressBar, bookmark: Bookmark | None
    ) -> None:
        self._mq, self._job, self._bar, self._bookmark = mq, job, bar, bookmark
        self._under_way: deque[tuple[asyncio.Task[list[Receipt]], Parcel]] = deque()
        self._behind: dict[int, int] = {}
        self._since_commit = 0
        # The first alone: it may have to make the topic, and what is sent meanwhile could come
        # before it. Likewise as long as something may be there already, or still on its way, from
        # an earlier copy that was killed.
        self._alone = IN_FLIGHT + 1 if job.resume else 1

    async def send(self, parcel: Parcel) -> None:
        task = asyncio.ensure_future(self._publish(parcel.rows, parcel))
        self._under_way.append((task, parcel))
        await asyncio.sleep(0)
        while len(self._under_way) >= (1 if self._alone > 0 else IN_FLIGHT):
            await self._settle()

    async def finish(self) -> None:
        while self._under_way:
            await self._settle()
        await self._commit()

    async def abandon(self) -> None:
        """At an early end: count what was acknowledged, in order."""
        await finish([task for task, _ in self._under_way])
        with suppress(asyncio.CancelledError, FlintError):
            while self._under_way:
                await self._settle()
            await self._commit()

    async def _settle(self) -> None:
        task, parcel = self._under_way[0]
        receipts = await task
        self._under_way.popleft()
        job = self._job
        repeated = sum(receipt.count for receipt in receipts if receipt.duplicate)
        job.repeated += repeated
        job.copied += parcel.rows.row_count - repeated
        job.bytes += parcel.bytes
        job.read += parcel.read
        if not repeated:
            self._alone -= 1
        if parcel.behind is not None:
            partition, offset = parcel.behind
            self._behind[partition] = offset
            self._since_commit += 1
            if self._since_commit >= COMMIT_EVERY:
                await self._commit()
        self._bar.show(job.copied + job.repeated)

    async def _commit(self) -> None:
        self._since_commit = 0
        if self._bookmark is not None:
            for partition, offset in self._behind.items():
                await self._bookmark.move(partition, offset)
        self._behind.clear()

    async def _publish(self, rows: BatchBuilder, parcel: Parcel, skip: int = 0) -> list[Receipt]:
        sequence = None if parcel.sequence is None else parcel.sequence + skip
        try:
            return [
                await self._mq.publish_batch(
                    self._job.destination,
                    rows,
                    partition=parcel.partition,
                    producer=parcel.producer,
                    sequence=sequence,
                )
            ]
        except InvalidRequest:
            # Some are there already and some are not: halves, down to single ones, are either.
            if sequence is None or rows.row_count == 1:
                raise
            first, second = halves(rows)
            assert isinstance(first, BatchBuilder)
            assert isinstance(second, BatchBuilder)
            done = await self._publish(first, parcel, skip)
            return done + await self._publish(second, parcel, skip + first.row_count)


async def _partitions(mq: Client, topic: str) -> int | None:
    if "/" in topic or not await mq.topics(topic):
        return None
    return (await mq.topic_info(topic)).options.partitions


async def _to_topic(job: CopyJob, target: Target, to: Target) -> None:
    async with AsyncExitStack() as stack:
        mq = await stack.enter_async_context(target.connect())
        # A directory can be opened once only.
        other = mq if to == target else await stack.enter_async_context(to.connect(makes=True))
        ours, theirs = await _partitions(mq, job.source), await _partitions(other, job.destination)
        if job.resume and theirs and theirs != ours:
            raise InvalidRequest(
                f"--resume keeps messages in their partitions, but {job.source} has "
                f"{ours or 'none'} and {job.destination} has {theirs}; name one partition, "
                f"as in {job.destination}/0"
            )
        identity = (await mq.topic_info(job.source)).id
        bookmark: Bookmark | None = None
        after: dict[int, int] = {}
        if job.resume:
            bookmark, after = await Bookmark.open(mq, job, job.resume, stack)
        reader, ends = await stack.enter_async_context(_reading(mq, job, after))
        bar = ProgressBar("copied", ends.total)
        sending = CopySender(other, job, bar, bookmark)
        try:
            async for rows in _rows(reader, ends, job):
                for parcel in _parcels(rows, job, theirs if theirs == ours else None, identity):
                    await sending.send(parcel)
            await sending.finish()
        finally:
            bar.clear()
            await sending.abandon()


def _parcels(rows: Rows, job: CopyJob, partitions: int | None, identity: int) -> Iterator[Parcel]:
    """Rows, each batch for one partition. For detecting duplicates their offsets have no gap."""
    for run in rows.runs:
        number = run.origin.partition
        for part in contiguous(run):
            parcel = Parcel(
                copied(part.source, range(part.start, part.stop)),
                number if partitions else None,
                bytes=part.source.size(part.start, part.stop),
            )
            if job.resume:
                parcel.producer = f"{job.resume} {identity}/{number}"
                parcel.sequence = part.source.base_offset + part.start
                parcel.behind = (number, part.source.base_offset + part.stop)
            yield parcel


async def _from_file(job: CopyJob, to: Target) -> None:
    async with to.connect(makes=True) as mq:
        lots = lots_of_file(job.source, mq.clock.now_ms())
        bar = ProgressBar("copied", job.count)
        sending = CopySender(mq, job, bar, None)
        skip, taken = job.skip, 0
        try:
            while (lot := await next_beside(lots)) is not None:
                rows, read = _cut(lot, skip, None if job.count is None else job.count - taken)
                skip = max(0, skip - lot.read)
                taken += rows.row_count
                if rows.row_count:
                    size = rows.size(0, rows.row_count)
                    await sending.send(Parcel(rows, None, read=read, bytes=size))
                if job.count is not None and taken >= job.count:
                    break
            await sending.finish()
        finally:
            bar.clear()
            await sending.abandon()


def _cut(lot: CopyBatch, skip: int, most: int | None) -> tuple[BatchBuilder, int]:
    """A batch without the messages to skip, and not more than wanted."""
    if skip >= lot.read:
        return BatchBuilder(), 0
    # What has expired is not among the rows any more; it is skipped first.
    first = max(0, skip - (lot.read - lot.rows.row_count))
    last = lot.rows.row_count if most is None else min(lot.rows.row_count, first + most)
    if first == 0 and last == lot.rows.row_count:
        return lot.rows, lot.read - skip
    cut = BatchBuilder()
    cut.extend(lot.rows, first, last)
    return cut, lot.read - skip if last == lot.rows.row_count else last - first
