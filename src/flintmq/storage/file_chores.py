"""Spare files of the journal are made, and old ones recycled, beside those who write."""

from __future__ import annotations

import queue
from collections.abc import Callable

from ..errors import StorageFull
from .journal import Journal

RETRY_SECONDS = 1.0
"""How often a full disk is asked again."""


class FileChores:
    """Makes spare files and recycles old ones: by a thread that calls `run`, or by `step`."""

    def __init__(
        self,
        journal: Journal,
        *,
        on_full: Callable[[StorageFull], object],
        on_room: Callable[[], object],
    ) -> None:
        self._journal, self._on_full, self._on_room = journal, on_full, on_room
        self._wanted: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def want(self, release_before: int = 0) -> None:
        """Have files before a position recycled, if one is named, and a spare made if needed."""
        self._wanted.put(release_before)

    def end(self) -> None:
        self._wanted.put(None)

    def run(self) -> None:
        seconds: float | None = None
        while True:
            try:
                position = self._wanted.get(timeout=seconds)
            except queue.Empty:
                position = 0
            if position is None:
                return
            seconds = None if self._is_done(position) else RETRY_SECONDS

    def step(self) -> None:
        while not self._wanted.empty():
            if not self._is_done(self._wanted.get()):
                return
        if not self._journal.wants_spare():
            self._on_room()

    def _is_done(self, position: int | None) -> bool:
        """Do what is wanted; False where the disk is full."""
        try:
            if position:
                self._journal.release_before(position)
            if self._journal.wants_spare():
                self._journal.make_spare()
        except StorageFull as error:
            self._on_full(error)
            return False
        self._on_room()
        return True
