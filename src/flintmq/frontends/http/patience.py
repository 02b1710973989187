"""How long an answer may take: renewed by what makes progress, without end for streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = "flintmq.patience"
"""Where the scope of a request has it."""


class Patience:
    """How long the request under way may still take."""

    __slots__ = ("_counts", "_seconds", "_time_limit")

    def __init__(
        self, time_limit: asyncio.Timeout, seconds: float, counts: Callable[[int], None]
    ) -> None:
        """`counts`: called with 1 and -1 where the request waits, and where it goes on."""
        self._time_limit, self._seconds, self._counts = time_limit, seconds, counts

    def renew(self, more: float = 0.0) -> None:
        """As long as a request may take, from now on, and so many seconds more."""
        now = asyncio.get_running_loop().time()
        self._time_limit.reschedule(now + self._seconds + more)

    @contextmanager
    def waiting(self, seconds: float | None) -> Iterator[None]:
        """For so long the request waits for something to happen, and costs nothing. None: it is a
        stream, and ends by itself."""
        now = asyncio.get_running_loop().time()
        end = None if seconds is None else now + seconds + self._seconds
        self._time_limit.reschedule(end)
        self._counts(1)
        try:
            yield
        finally:
            self._counts(-1)
            if not self._time_limit.expired():
                self.renew()
