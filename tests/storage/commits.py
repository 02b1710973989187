"""A group commit that is listened to, and disks and threads that a test holds up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import ClassVar, TypeVar

from flintmq.errors import FlintError
from flintmq.fsync_policy import ALWAYS, FsyncPolicy
from flintmq.storage.group_commit import GroupCommit
from flintmq.storage.journal import Journal
from flintmq.testing import SimulatedFileSystem
from tests.storage.journals import entry

T = TypeVar("T")
PATIENCE = 20  # seconds, for what happens at once


class Heard:
    """A group commit and everything it said."""

    def __init__(
        self,
        journal: Journal,
        policy: FsyncPolicy = ALWAYS,
        *,
        frame_bytes_max: int = 1 << 20,
        monotonic: Callable[[], float] = lambda: 0.0,
        sync_on_loop: bool = False,
        slow_seconds: float = 1.0,
    ) -> None:
        self.durable: list[int] = []
        self.written: list[int] = []
        self.failures: list[FlintError] = []
        self.room: list[str] = []
        self.slow: list[float] = []
        self.stalled: list[bool] = []
        """Told by another thread: whether the loop was held up."""
        self.is_stalled = threading.Event()
        self._changed = asyncio.Event()
        self.next_index = 1
        self.commit = GroupCommit(
            journal,
            policy,
            on_durable=self._note(self.durable),
            on_failed=self._note(self.failures),
            on_written=self._note(self.written),
            on_full=lambda error: self._note(self.room)("full"),
            on_room=lambda: self._note(self.room)("room"),
            on_slow=lambda seconds, size: self._note(self.slow)(seconds),
            on_stalled=self._note_stalled,
            is_slow=lambda seconds: seconds > slow_seconds,
            sync_on_loop=sync_on_loop,
            frame_bytes_max=frame_bytes_max,
            monotonic=monotonic,
        )

    def _note(self, notes: list[T]) -> Callable[[T], None]:
        def note(what: T) -> None:
            notes.append(what)
            self._changed.set()

        return note

    def _note_stalled(self, seconds: float, on_loop: bool) -> None:
        self.stalled.append(on_loop)
        self.is_stalled.set()

    def submit(
        self, payload: bytes = b"", *, tell_when_written: bool = False, sync_can_wait: bool = False
    ) -> int:
        index, self.next_index = self.next_index, self.next_index + 1
        return self.commit.submit(
            [entry(index, payload)],
            tell_when_written=tell_when_written or sync_can_wait,
            sync_can_wait=sync_can_wait,
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class SlowDisk:
    """Syncs of journal files that wait until the test lets them go on, one by one or all."""

    def __init__(self, disk: SimulatedFileSystem) -> None:
        self._begun = threading.Semaphore(0)
        self._allowed = threading.Semaphore(0)
        self._is_free = False
        disk.on_sync = self._sync

    def _sync(self, name: str) -> None:
        if "journal/journal-" in name and not self._is_free:
            self._begun.release()
            assert self._allowed.acquire(timeout=PATIENCE)

    async def begun(self) -> None:
        """Until the thread is in a sync."""
        assert await asyncio.to_thread(self._begun.acquire, timeout=PATIENCE)

    def finish_one(self) -> None:
        self._allowed.release()

    def finish_all(self) -> None:
        self._is_free = True
        self._allowed.release(1000)


class LateThread(threading.Thread):
    """A thread that begins when the test says so: until then everything is left to the loop."""

    late: ClassVar[list[LateThread]] = []

    def start(self) -> None:
        self.late.append(self)

    @classmethod
    def begin(cls) -> None:
        late, cls.late[:] = cls.late[:], []
        for thread in late:
            threading.Thread.start(thread)
