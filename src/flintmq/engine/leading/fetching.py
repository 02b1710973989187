"""Reading a topic by offset, in bulk and without a trace.

A reader holds a position, and a bounded topic lets go of what all readers have passed. A fetch
holds none: what was only fetched counts as read by nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...batch import RecordBatch, RowSource
from ...broker_api import Fetch, Fetched
from ...clock import Clock
from ...errors import FlintError, InvalidRequest
from ...loop.pace import Allowance, pace
from ...model import Extent, FarObjects, Missed, Start
from ...rows import Rows, Run
from ...storage.loading import NotLoaded
from ...storage.topic_log import TopicLog
from ..waiting import resolve
from .cursor import resolve_start

if TYPE_CHECKING:
    from .topic import LeadingTopic

FILTER_ROWS_MAX = 16_384
"""How many rows one fetch looks at with a filter: a rare match must not hold up the loop."""

_ENOUGH_BYTES = 1 << 20
"""Of more than this, the disk is not waited for."""


def fetch(topic: LeadingTopic, wanted: Fetch) -> Fetched:
    """Raises NotLoaded where the disk has to be waited for."""
    offset, end, filter = wanted.offset, wanted.end, wanted.filter
    max_rows, max_bytes = wanted.max_rows, wanted.max_bytes
    if type(offset) is not int or offset < 0 or max_rows < 1:
        raise InvalidRequest(f"fetch from offset {offset!r}, up to {max_rows!r} rows")
    log = topic.log
    gap = None
    if offset < log.first_offset:
        behind = log.first_offset if end is None else min(end, log.first_offset)
        if count := topic.sweeping.missed_between(offset, behind):
            gap = Missed(topic.name, offset, behind, count)
        offset = behind
    stop_at = log.next_offset if end is None else min(end, log.next_offset)
    runs: list[Run] = []
    taken = size = 0
    budget = FILTER_ROWS_MAX
    allowance = pace().begin()
    while offset < stop_at and taken < max_rows and size < max_bytes and budget > 0:
        try:
            source, row, rows = log.locate_nowait(offset, max_bytes)
        except NotLoaded:
            if size < min(max_bytes, _ENOUGH_BYTES):
                raise
            break
        except FlintError:
            if runs or gap is not None:
                break  # whoever fetches on from here hears it
            raise
        stop = min(rows, row + stop_at - offset, row + max_rows - taken)
        length = _length(source, row, stop)
        if runs and size + length > max_bytes:
            break
        if filter is not None:
            stop = min(stop, row + budget)
            budget -= stop - row
        run, stop = _wanted(topic, source, row, stop, wanted, allowance)
        if run is not None:
            runs.append(run)
            size += length
            taken += run.row_count
        offset += stop - row
        if filter is not None and allowance.is_over():
            break
    return Fetched(Rows(runs, gap), offset, log.next_offset)


def _length(source: RowSource, start: int, stop: int) -> int:
    if isinstance(source, RecordBatch) and 2 * (stop - start) >= source.row_count:
        return source.byte_length  # it goes whole
    return source.size(start, stop)


def _wanted(
    topic: LeadingTopic,
    source: RowSource,
    start: int,
    stop: int,
    wanted: Fetch,
    allowance: Allowance,
) -> tuple[Run | None, int]:
    """What is wanted of these rows, and how far that goes."""
    picks = topic.living(source, start, stop, with_expired=wanted.with_expired)
    if wanted.filter is not None:
        asked = range(start, stop) if picks is None else picks
        picks, looked = topic.sieve.look_through(wanted.filter, source, asked, None, allowance)
        if looked < len(asked):
            stop = asked[looked]
    if picks is None:
        return Run(source, start, stop, topic.origin), stop
    return (Run(source, start, stop, topic.origin, picks) if picks else None), stop


def extent(topic: LeadingTopic, at: Start | None) -> Extent:
    log = topic.log
    return Extent(
        topic.name,
        topic.origin.partition,
        topic.id,
        log.first_offset,
        log.next_offset,
        log.byte_count,
        log.first_offset if at is None else resolve_start(topic, at),
        log.far.end if isinstance(log, TopicLog) else 0,
    )


def objects(topic: LeadingTopic, start: int, end: int) -> FarObjects:
    log, gone = topic.log, topic.state.discarded
    far = log.far.all if isinstance(log, TopicLog) else []
    found = [section for section, _ in far if section.next > start and section.base < end]
    return FarObjects(
        topic.id,
        log.first_offset,
        [(section.file, section.base, section.next) for section in found],
        topic.ttl_ms,
        [] if gone is None else [one for one in gone.ranges() if one[1] > start and one[0] < end],
    )


async def wait_beyond(
    topics: Mapping[str, LeadingTopic],
    offsets: Mapping[str, int],
    clock: Clock,
    timeout: float | None,
) -> bool:
    """Until one of the topics has more than is known of it, or is gone."""

    def is_beyond() -> bool:
        return any(
            (topic := topics.get(name)) is None or topic.log.next_offset > offset
            for name, offset in offsets.items()
        )

    if is_beyond() or timeout == 0:
        return is_beyond()
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def rung() -> None:
        if is_beyond():
            resolve(future, True)

    bells = [topics[name].bell for name in offsets]
    for bell in bells:
        bell.listeners.add(rung)
    timer = None if timeout is None else clock.call_later(timeout, lambda: resolve(future, False))
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()
        for bell in bells:
            bell.listeners.discard(rung)
