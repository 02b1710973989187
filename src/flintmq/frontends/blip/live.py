"""What is left out of live queues: messages that are stored go to groups, not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...batch import RowSource
from ...rows import Origin


class Unstored:
    """A filter that lets pass what was published at QoS 0. A RowFilter."""

    text = ""
    uses_value = False
    fields = None

    def pick(
        self,
        source: RowSource,
        rows: Sequence[int],
        origin: Origin,
        decode: Callable[[RowSource, int], object] | None,
        limit: int | None = None,
    ) -> list[int]:
        return [] if source.base_offset >= 0 else list(rows)[:limit]


UNSTORED = Unstored()
