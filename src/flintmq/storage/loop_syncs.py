"""Syncs on the event loop: when one is allowed, and who tells of one that takes long.

A lone message waits for its sync, and there is nothing else to do meanwhile: handing it to a thread
and back costs as much as the sync of a quick disk. But while the loop syncs, everything waits. So
it does that only for little, behind a run of quick syncs of which the last one is recent; the first
that is not quick sends it back to the thread, until there is such a run again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter

QUICK_SECONDS = 0.005
"""A quarter of what a turn of the loop may take."""
QUICK_RUN = 16
"""So many quick syncs in a row, and the next one is expected to be quick too."""
RECENT_SECONDS = 10.0
"""Of a disk that was not asked for longer nothing is known: the thread asks first."""
LONE_LOTS_MAX = 4
LONE_BYTES_MAX = 2048
"""What is synced on the loop. With more, the loop has better things to do than to wait."""
LOOK_SECONDS = 0.25
"""How often the watch looks, while there are syncs."""
RESTS_AFTER = 40
"""So many looks without a sync, and it rests: an idle broker sleeps."""


class LoopSyncs:
    """Whether the loop may sync. For the one who writes."""

    def __init__(self, is_on: bool) -> None:
        self.is_on = is_on
        self.count = 0
        """How many syncs were the loop's."""
        self._run = 0
        self._last_at = 0.0

    def observe(self, seconds: float, now: float, on_loop: bool) -> None:
        """A sync took so long."""
        self._run = self._run + 1 if seconds < QUICK_SECONDS else 0
        self._last_at = now
        self.count += on_loop

    def may(self, lots: int, size: int, now: float) -> bool:
        return (
            self.is_on
            and lots <= LONE_LOTS_MAX
            and size <= LONE_BYTES_MAX
            and self._run >= QUICK_RUN
            and now - self._last_at < RECENT_SECONDS
        )


class SyncWatch:
    """Tells of a sync while it takes long, from a thread of its own: the loop may be the one that
    waits for the disk, and then it tells nothing."""

    def __init__(
        self, is_slow: Callable[[float], bool], on_stalled: Callable[[float, bool], object]
    ) -> None:
        self._is_slow, self._on_stalled = is_slow, on_stalled
        self.stalled = 0
        """How many syncs were slow."""
        self._under_way: tuple[float, bool] | None = None
        self._told: tuple[float, bool] | None = None
        self._count = 0
        self._rests = False
        self._woken = threading.Event()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def start(self, make_thread: type[threading.Thread] = threading.Thread) -> None:
        self._thread = make_thread(target=self._look, name="flintmq-sync-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def begin(self, on_loop: bool) -> None:
        self._under_way = (perf_counter(), on_loop)
        self._count += 1
        if self._rests:
            self._woken.set()

    def end(self) -> None:
        self._under_way = None

    # --- in its thread

    def _look(self) -> None:
        quiet, known = 0, 0
        while not self._is_stopped:
            self._rests = quiet >= RESTS_AFTER
            if self._rests and self._count == known:
                self._woken.wait()
            else:
                self._woken.wait(LOOK_SECONDS)
            self._woken.clear()
            quiet = quiet + 1 if self._count == known and self._under_way is None else 0
            known = self._count
            self.look()

    def look(self) -> None:
        """Whether the sync that is under way takes long already."""
        under_way = self._under_way
        if under_way is None or under_way is self._told:
            return
        seconds = perf_counter() - under_way[0]
        if self._is_slow(seconds):
            self._told = under_way
            self.stalled += 1
            self._on_stalled(seconds, under_way[1])
