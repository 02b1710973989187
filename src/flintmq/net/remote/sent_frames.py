"""The frames of a session that were sent: counted, and kept until the other side has counted them.

What is kept is sent again over the next connection of the session. Pure.
"""

from __future__ import annotations

from collections import deque

from ...errors import MalformedFrame
from ..wire.frames import Buffer


class SentFrames:
    __slots__ = ("_kept", "_sent", "_wrote")

    def __init__(self) -> None:
        self._kept: deque[tuple[int, list[Buffer]]] = deque()  # request, frame
        self._sent = 0
        self._wrote = 0  # of those, how many were ever written to a socket

    def begin(self) -> None:
        """A new session: nothing was sent."""
        self._kept.clear()
        self._sent = self._wrote = 0

    def forget(self) -> None:
        """Nothing will be sent again."""
        self._kept.clear()

    def add(self, request: int, parts: list[Buffer]) -> None:
        """One more; of which request, or 0 if nobody waits for an answer."""
        self._sent += 1
        self._kept.append((request, parts))

    def are_written(self) -> None:
        self._wrote = self._sent

    @property
    def written(self) -> int:
        """How many were ever written to a socket."""
        return self._wrote

    def to_send_again(self) -> list[list[Buffer]]:
        return [parts for _, parts in self._kept]

    def acknowledge(self, received: int) -> None:
        """The other side has so many."""
        surplus = len(self._kept) - (self._sent - received)
        if not 0 <= received <= self._sent:
            raise MalformedFrame(f"{received:,} frames received of {self._sent:,} that were sent")
        for _ in range(surplus):
            self._kept.popleft()

    def unwritten(self) -> set[int]:
        """Requests that were never written to a socket."""
        count = self._sent - self._wrote
        return {request for request, _ in list(self._kept)[-count:]} if count else set()

    def take_back(self, requests: set[int]) -> None:
        """Never to be sent: neither side has counted them."""
        kept = [entry for entry in self._kept if entry[0] not in requests]
        self._sent -= len(self._kept) - len(kept)
        self._kept = deque(kept)
