"""What of a range is in object storage is read there by the task itself; the broker sends the rest.

The broker says which objects there are, what of them nobody is to get, and the ttl. Where a task
cannot read an object, for example because it has no credentials, the broker sends that as well.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from ..broker_api import Fetched
from ..errors import FlintError
from ..groups.ranges import without
from ..model import FarObjects
from ..rows import Origin, Rows, Run
from ..storage.objects import Objects, ObjectStores
from ..storage.segments import Segment
from .connecting import BrokerLine
from .living import living
from .ranges import Range

_log = logging.getLogger(__name__)

Reads = Iterable[tuple[Range, Fetched]]


class FarReads:
    """The rows of ranges, in order. `fetches` reads ranges through the broker."""

    def __init__(
        self,
        line: BrokerLine,
        ranges: Sequence[Range],
        fetches: Callable[[Sequence[Range]], Reads],
        *,
        with_expired: bool,
        objects: Objects | None = None,
    ) -> None:
        self._line, self._ranges, self._fetches = line, ranges, fetches
        self._with_expired = with_expired
        self._objects = objects or ObjectStores()
        self._now_ms = round(time.time() * 1000)
        self.direct_rows = 0
        """How many were not asked of the broker."""

    def __iter__(self) -> Iterator[tuple[Range, Fetched]]:
        near: list[Range] = []
        for one in self._ranges:
            if one.start >= one.far_end:
                near.append(one)
                continue
            rest = yield from self._far(one)
            if rest.rows:
                near.append(rest)
        yield from self._fetches(near)

    def _far(self, one: Range) -> Generator[tuple[Range, Fetched], None, Range]:
        """Yields what objects have of a range, from its start on; returns the rest."""
        line = self._line
        found = line.run(line.broker.objects(one.plain, one.start, min(one.end, one.far_end)))
        offset = one.start
        if found.id != one.id or found.first_offset > offset:
            return one  # the broker says what that means
        for url, base, behind in found.objects:
            if not base <= offset < behind:
                continue
            try:
                for run, behind_run in self._runs(url, found, one, offset):
                    piece, offset = replace(one, start=offset, end=behind_run), behind_run
                    if run is not None:
                        self.direct_rows += run.row_count
                        yield piece, Fetched(Rows([run]), offset, one.end)
            except FlintError as error:
                _log.warning("%s: read through the broker instead, from offset %d", error, offset)
                break
            if offset >= one.end:
                break
        return replace(one, start=offset)

    def _runs(
        self, url: str, found: FarObjects, one: Range, offset: int
    ) -> Iterator[tuple[Run | None, int]]:
        """What one object has from an offset on; and up to where that goes. None where nobody is to
        get it."""
        origin = Origin(one.topic, one.partition)
        with closing(Segment(self._objects, url)) as segment:
            for entry in segment.entries(one.id):
                if entry.next <= offset:
                    continue
                if entry.base >= one.end:
                    return
                batch = segment.read(entry)
                stop = min(entry.next, one.end)
                kept = without([(max(offset, entry.base), stop)], found.gone)
                for first, behind in kept:
                    start, end = first - entry.base, behind - entry.base
                    picks = None
                    if not self._with_expired:
                        picks = living(batch, start, end, found.ttl_ms, self._now_ms)
                    yield Run(batch, start, end, origin, picks), behind
                if not kept or kept[-1][1] < stop:
                    yield None, stop
                offset = stop
