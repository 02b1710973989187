"""From offsets to rows and back, as groups need them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...batch import KEY_HASH, KEYS, RecordBatch, RowSource
from ...errors import Corrupt
from ...group_model import Ranges
from ...rows import Origin, Run
from ...storage.loading import ENOUGH_BATCHES, ENOUGH_BYTES, NotLoaded, when_loaded
from ..state.memory_log import TopicLogApi
from ..waiting import again

if TYPE_CHECKING:
    from .topic import LeadingTopic


def rows_of(
    topic: LeadingTopic,
    ranges: Ranges,
    damaged: Ranges | None = None,
    unreadable: Ranges | None = None,
    unloaded: Ranges | None = None,
) -> list[Run]:
    """The rows at these offsets, in this order; neighbours of one batch are one run. What is
    damaged is left out, and noted in `damaged`; what the disk could not read, in `unreadable`.

    With `unloaded`, the disk is not waited for: from the first that is not in memory on, all are
    noted there. Raises NotLoaded if what comes before it is little.
    """
    origin = topic.origin
    locate = topic.log.locate if unloaded is None else topic.log.locate_nowait
    runs: list[Run] = []
    source = None
    base = end = 0
    first = last = size = 0
    picks: list[int] | None = None
    for number, (start, stop) in enumerate(ranges):
        if picks is not None and stop - start == 1 and base <= start < end:
            picks.append(start - base)  # scattered ones are mostly alone
            continue
        while start < stop:
            upto = min(stop, end)
            if source is not None and base <= start < end:
                if picks is not None:
                    picks.extend(range(start - base, upto - base))
                elif start - base == last:
                    last = upto - base
                else:
                    picks = [*range(first, last), *range(start - base, upto - base)]
            else:
                if source is not None:
                    runs.append(_run(source, first, last, origin, picks))
                    source = picks = None
                try:
                    source, row, rows = locate(start)
                except NotLoaded:
                    if unloaded is None or (len(runs) < ENOUGH_BATCHES and size < ENOUGH_BYTES):
                        raise
                    unloaded += [(start, stop), *ranges[number + 1 :]]
                    return runs
                except Corrupt as error:
                    if error.next_offset is None:
                        raise
                    upto = min(stop, error.next_offset)
                    noted = damaged if error.is_proven else unreadable
                    if noted is not None:
                        noted.append((start, upto))
                    start = upto
                    continue
                base, end = start - row, start - row + rows
                upto = min(stop, end)
                size += source.size(row, upto - base)
                first, last, picks = row, upto - base, None
            start = upto
    if source is not None:
        runs.append(_run(source, first, last, origin, picks))
    return runs


async def rows_of_loaded(topic: LeadingTopic, ranges: Ranges) -> list[Run]:
    """As `rows_of`, without holding up the loop while the disk reads."""
    runs: list[Run] = []
    while ranges:
        unloaded: Ranges = []
        attempt = partial(_rows_of_open, topic, ranges, unloaded)
        runs += await when_loaded(attempt, topic.log.at_once)
        first = topic.log.first_offset  # retention may have come by
        ranges = [(max(start, first), stop) for start, stop in unloaded if stop > first]
    return runs


def _rows_of_open(topic: LeadingTopic, ranges: Ranges, unloaded: Ranges) -> list[Run]:
    if topic.ended is not None:
        raise again(topic.ended)  # meanwhile
    return rows_of(topic, ranges, unloaded=unloaded)


def _run(source: RowSource, first: int, last: int, origin: Origin, picks: list[int] | None) -> Run:
    if picks is None:
        return Run(source, first, last, origin)
    return Run(source, min(picks), max(picks) + 1, origin, picks)


def cut(runs: list[Run], count: int) -> list[Run]:
    """Leave the first `count` rows in `runs`; what is cut off."""
    over: list[Run] = []
    for index, run in enumerate(runs):
        if run.row_count <= count:
            count -= run.row_count
            continue
        rows = list(run.rows())
        over = [run._replace(picks=rows[count:]), *runs[index + 1 :]]
        runs[index:] = [run._replace(picks=rows[:count])] if count else []
        break
    return over


def key_hashes(log: TopicLogApi, start: int, stop: int) -> list[int]:
    """What messages are ordered by, of each; 0 where there is no key. Raises NotLoaded."""
    hashes: list[int] = []
    while start < stop:
        try:
            source, row, rows = log.locate_nowait(start)
        except Corrupt:  # nobody gets it: no key has to wait for it
            source, row, rows = log.outline(start)
        end = min(rows, row + stop - start)
        if source.columns & KEY_HASH and isinstance(source, RecordBatch):
            hashes += source.control_column(KEY_HASH).cast("I")[row:end].tolist()
        elif source.columns & (KEY_HASH | KEYS):
            hashes += map(source.key_hash, range(row, end))
        else:
            hashes += [0] * (end - row)
        start += end - row
    return hashes
