"""The frames that a session has sent: counted, and kept until its client has counted them. Pure."""

from __future__ import annotations

from collections import deque

from ...errors import MalformedFrame
from ..wire.frames import Buffer


class KeptReplies:
    __slots__ = ("_is_needed", "_sent", "bytes", "frames")

    def __init__(self, *, is_needed: bool) -> None:
        """`is_needed`: the client may come back, and asks for what it has not received."""
        self._is_needed = is_needed
        self._sent = 0
        self.frames: deque[list[Buffer]] = deque()
        """The last of what was sent."""
        self.bytes = 0

    def add(self, parts: list[Buffer]) -> None:
        self._sent += 1
        if self._is_needed:
            self.frames.append(parts)
            self.bytes += sum(map(len, parts))

    def reach_back_to(self, received: int) -> bool:
        """Whether nothing is missing for who has received so many."""
        return self._sent - len(self.frames) <= received <= self._sent

    def acknowledge(self, received: int) -> None:
        if received > self._sent:
            raise MalformedFrame(f"{received:,} frames received of {self._sent:,} that were sent")
        if self._is_needed:
            for _ in range(len(self.frames) - (self._sent - received)):
                self.bytes -= sum(map(len, self.frames.popleft()))
