"""The window of appends sent to one peer and not yet confirmed, by messages and by bytes."""

from __future__ import annotations

from collections import deque

from flintmq.errors import RaftInvariantBroken


class Inflights:
    """Oldest first. Full at `messages_max` messages or once `bytes_max` bytes are under way; the
    last message may pass the byte limit, so that a large entry can be sent at all."""

    __slots__ = ("_bytes", "_bytes_max", "_messages_max", "_sent")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._sent: deque[tuple[int, int]] = deque()  # last index, payload bytes

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def in_flight_bytes(self) -> int:
        return self._bytes

    def is_full(self) -> bool:
        return len(self._sent) >= self._messages_max or self._bytes >= self._bytes_max

    def add(self, last_index: int, payload_bytes: int) -> None:
        if self.is_full():
            raise RaftInvariantBroken("an append was sent into a full window")
        self._sent.append((last_index, payload_bytes))
        self._bytes += payload_bytes

    def free_to(self, index: int) -> None:
        """Everything up to `index` arrived."""
        while self._sent and self._sent[0][0] <= index:
            self._bytes -= self._sent.popleft()[1]

    def reset(self) -> None:
        self._sent.clear()
        self._bytes = 0
