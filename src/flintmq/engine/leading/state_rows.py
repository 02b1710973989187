"""What a reader that begins by `last_per_key` is handed: the last of every key, then everything."""

from __future__ import annotations

from collections.abc import Sequence

from ...batch import RowSource
from ...groups.offset_set import OffsetSet


class StateRows:
    """The offsets of the state, as of when the topic ended at `end`; from there on, all of them."""

    def __init__(self, offsets: OffsetSet, end: int) -> None:
        self._offsets, self.end = offsets, end

    def next(self, offset: int) -> int:
        """The first to be handed out, from an offset on. What lies before is forgotten."""
        self._offsets.discard_before(min(offset, self.end))
        first = self._offsets.first()
        return max(offset, self.end) if first is None else first

    def picks(
        self, source: RowSource, start: int, stop: int, living: Sequence[int] | None
    ) -> list[int]:
        """Those of a range of rows that are handed out, of those that may be read."""
        base, end = source.base_offset, self.end
        ranges = self._offsets.present(base + start, min(base + stop, end))
        if base + stop > end:
            ranges.append((max(end, base + start), base + stop))
        picks = [offset - base for first, behind in ranges for offset in range(first, behind)]
        if living is None:
            return picks
        alive = set(living)
        return [row for row in picks if row in alive]
