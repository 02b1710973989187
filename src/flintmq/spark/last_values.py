"""The last value of every key of a compacted topic: `option("view", "latest")`.

A task reads the state of a partition as of when it begins. A key is in one partition, so it comes
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from ..broker_api import Fetched, Filter, ReaderApi, ReaderOpening
from ..errors import FlintError
from ..rows import Rows, Run
from ..serde.filters import compile_filter
from .connecting import BrokerLine
from .ranges import Range

ROWS_AT_ONCE = 8192


class LastValues:
    """The rows of these partitions, in the order of offsets."""

    def __init__(self, line: BrokerLine, ranges: Sequence[Range], filter: str | None) -> None:
        self._line, self._ranges = line, ranges
        self._filter: Filter | None = None if filter is None else compile_filter(filter)

    def __iter__(self) -> Iterator[tuple[Range, Fetched]]:
        for one in self._ranges:
            opening = ReaderOpening(
                one.plain, start="last_per_key", filter=self._filter, auto_create=False
            )
            reader = self._line.ask(self._line.broker.open_reader(opening))
            try:
                end = reader.state_ends[one.partition]
                while (found := self._line.ask(_take(reader, end))) is not None:
                    yield one, Fetched(found, 0, end)
            finally:
                with suppress(FlintError):
                    self._line.run(reader.close())


async def _take(reader: ReaderApi, end: int) -> Rows | None:
    """Some of the state; None at its end."""
    while True:
        rows = reader.take(ROWS_AT_ONCE)
        if not rows.runs:
            if await reader.position() >= end:
                return None
            await reader.look()
            continue
        runs = [cut for run in rows.runs if (cut := _before(run, end)) is not None]
        return Rows(runs) if runs else None


def _before(run: Run, end: int) -> Run | None:
    """What of a run is before an offset."""
    base = run.source.base_offset
    rows = [row for row in run.rows() if base + row < end]
    if not rows:
        return None
    return run._replace(start=rows[0], stop=rows[-1] + 1, picks=rows)
