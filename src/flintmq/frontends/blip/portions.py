"""How much is taken for a client in one step: about so many bytes, judged by what came last."""

from __future__ import annotations

PORTION_BYTES = 1024 * 1024
FIRST, GROWTH = 16, 4


class Portions:
    """A count of messages that grows up to `most` while they are small."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = min(FIRST, most)

    def note(self, frames: list[bytes]) -> None:
        """What was taken, as it goes out."""
        size = sum(map(len, frames))
        if size:
            fitting = PORTION_BYTES * len(frames) // size
            self.count = max(1, min(self._most, fitting, GROWTH * self.count))
