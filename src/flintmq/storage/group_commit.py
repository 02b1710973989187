"""Group commit: all who wait share one write and one sync.

One thread writes prepared lots and syncs; while it does, the next lot gathers, and goes as one
frame when the thread is back. There is no delay that waits for company: a lot that comes alone goes
alone. The event loop is woken once per sync. A second thread makes spare files and recycles
old ones, so that the first never waits for that.

Where the policy acknowledges what is written and not yet synced, a little that comes while the
thread rests is written by the loop itself: it goes to the system's cache in less time than waking a
thread takes. What would wait for the disk (a sync, the next file, a write that was slow a moment
ago) is left to the thread.

Nothing that was submitted is ever given up because the disk is full: it waits until there is room.
Any other failure, above all that of a sync, fails everything that waits and is final.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Thread
from time import perf_counter

from ..errors import BrokerFailed, Closed, FlintError, StorageFailed, StorageFull
from ..fsync_policy import ALWAYS, FsyncPolicy
from ..observe.metrics import DISK_SECONDS, Histogram
from .frames import Record, RecordLot, bytes_of
from .journal import Journal

FRAME_BYTES_MAX = 16 << 20
"""What one write takes, unless a single lot is larger: a sync of more holds everything up."""
RETRY_SECONDS = 1.0
"""How often a full disk is asked again."""
HERE_BYTES_MAX = 64 << 10
HERE_SECONDS_MAX = 0.002
HERE_REST = 20
"""What the loop may write itself. After a write that took longer it leaves that for this many times
as long: a disk that holds writers up costs the loop a twentieth of its time, and no more."""


def _ignore(*_: object) -> None: ...


def _never(seconds: float) -> bool:
    return False


class GroupCommit:
    """Hands records to the journal and says when they are safe.

    Tickets count the submits from 1 on. All methods and all callbacks belong to the thread of the
    event loop:

    on_durable(ticket)   every submit up to this one is as safe as the policy promises: synced with
                         `always`, written with the others. `synced` tells what is on the disk
    on_written(ticket)   the same for written; only for submits that asked for it
    on_failed(error)     once, and nothing comes after it: what was submitted and not reported as
                         durable may or may not be on the disk. The node has to stop
    on_full(error)       the disk has no room for more journal: refuse publishers from now on. The
                         rest of the current file is left for what makes room
    on_room()            the disk has room again
    on_slow(s, bytes)    a write and its sync took `s` seconds, and `is_slow(s)`

    With `start()` the writing is done by a thread; without it, by `step()`.
    """

    def __init__(
        self,
        journal: Journal,
        policy: FsyncPolicy = ALWAYS,
        *,
        on_durable: Callable[[int], object],
        on_failed: Callable[[FlintError], object],
        on_written: Callable[[int], object] = _ignore,
        on_full: Callable[[StorageFull], object] = _ignore,
        on_room: Callable[[], object] = _ignore,
        on_slow: Callable[[float, int], object] = _ignore,
        is_slow: Callable[[float], bool] = _never,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.journal = journal
        self.policy = policy
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._on_written = on_written
        self._on_full = on_full
        self._on_room = on_room
        self._on_slow = on_slow
        self._is_slow = is_slow
        self._frame_bytes_max = frame_bytes_max
        self._monotonic = monotonic
        # Of the loop's thread:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[Thread] = []
        self._ended: asyncio.Future[None] | None = None
        self.submitted = 0
        """The last ticket."""
        self.waiting_bytes = 0
        """Submitted and not reported as durable yet."""
        self._sizes: deque[tuple[int, int]] = deque()
        self._wake_is_due = False
        self._closed = False
        self.failure: FlintError | None = None
        self.full: StorageFull | None = None
        self.synced = 0
        # Shared. The loop's thread adds lots at the end and wakes the writing thread later; that
        # one removes them at the beginning: each a single step of the list.
        self._changed = threading.Condition(threading.Lock())
        self._lots: list[RecordLot] = []
        self._tell_written = self._must_sync = 0
        self._closing = False
        self._broken: Exception | None = None
        # Of the one who writes: the thread, or the loop while the thread rests.
        self._writing = threading.Lock()
        self._not_here_before = 0.0
        self._written = self._synced = 0
        self._unsynced_records = 0
        self._unsynced_since = 0.0
        self.sync_seconds = Histogram(DISK_SECONDS)
        self.written_bytes = self.written_frames = 0
        self._chores = FileChores(
            journal,
            on_full=lambda error: self._call(self._tell_full, error),
            on_room=self._chores_have_room,
        )

    # --- for the loop

    def submit(
        self,
        records: Sequence[Record],
        *,
        tell_when_written: bool = False,
        must_sync: bool = False,
    ) -> int:
        """Have records written together, behind everything submitted before. Never waits. With
        `must_sync` they are reported as durable once synced, whatever the policy: a vote that
        a power cut takes back is a vote that is given twice.

        Raises the failure that ended the journal, or Closed.
        """
        if self.failure is not None:
            raise self.failure
        if self._closed:
            raise Closed("the journal")
        lot = self.journal.prepare(records)
        self.submitted = ticket = self.submitted + 1
        self.waiting_bytes += lot.bytes
        self._sizes.append((ticket, lot.bytes))
        if tell_when_written:
            self._tell_written = ticket
        if must_sync:
            self._must_sync = ticket
        self._lots.append(lot)
        if self._loop is not None and not self._wake_is_due:
            # Others that run in this turn of the loop may submit too, and go along.
            self._wake_is_due = True
            self._loop.call_soon(self._wake)
        return ticket

    def release_before(self, position: int) -> None:
        """Let the journal recycle its files before this position, in the background."""
        self._chores.want(position)
        if self._loop is None:
            self._step_chores()

    def start(self) -> None:
        """Begin to write in a thread, telling the running event loop."""
        assert self._loop is None, "start() is called once"
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        for target, name in ((self._write_all, "journal"), (self._do_chores, "journal-files")):
            thread = Thread(target=target, name=f"flintmq-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        if self._lots:
            self._wake()

    async def close(self) -> None:
        """Write and sync what was submitted, tell it, and close the journal."""
        if self._closed:
            return
        self._closed = True
        if self._loop is None:
            while self._lots and self.step():
                pass
            if self._lots:
                self._fail(self.full or Closed("the journal"))
            self.journal.close()
            return
        with self._changed:
            self._closing = True
            self._changed.notify()
        assert self._ended is not None
        await self._ended
        for thread in self._threads:
            thread.join()

    def step(self) -> bool:
        """Without threads: write what waits as one frame, sync if it is time, tell, and do the
        chores. Whether anything was done; a full disk is tried again at the next step."""
        assert self._loop is None, "the thread does this"
        if self.failure is not None:
            return False
        try:
            done = self._turn(_beginning(self._lots, self._frame_bytes_max), self._call)
            self._step_chores()
        except StorageFull as error:
            self._tell_full(error)
            return False
        except FlintError as error:
            self._fail(error)
            return False
        return done

    # --- on the loop, called by the threads

    def _wake(self) -> None:
        self._wake_is_due = False
        if self.policy.kind in ("interval", "never") and self._write_here():
            return
        with self._changed:
            self._changed.notify()

    def _write_here(self) -> bool:
        """Write what waits on this thread, if that cannot take long; whether it was done."""
        if (
            self.waiting_bytes > HERE_BYTES_MAX
            # What the thread has written and not reported yet comes first.
            or len(self._sizes) != len(self._lots)
            or self._closing
            or self._must_sync > self._synced
            or self.failure is not None
            or self.full is not None
            or not self._writing.acquire(blocking=False)
        ):
            return False
        told: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        try:
            began = self._monotonic()
            lots = self._lots[:]
            is_first = not self._unsynced_records
            if (
                not lots
                or began < self._not_here_before
                or not self.journal.has_room(bytes_of(lots))
                or (not is_first and self._sync_is_due())
            ):
                return False
            self._turn(lots, lambda callback, *arguments: told.append((callback, arguments)), False)
            took = self._monotonic() - began
            if took > HERE_SECONDS_MAX:
                self._not_here_before = began + took + took * HERE_REST
        except FlintError:
            return False  # the thread meets it again, and deals with it
        except Exception as error:
            self._broken = error
            return False
        finally:
            self._writing.release()
        if is_first and self.policy.kind == "interval":
            with self._changed:  # it has to sync in time
                self._changed.notify()
        for callback, arguments in told:
            callback(*arguments)
        return True

    def _have_come(self, written: int, durable: int, synced: int) -> None:
        """Writing has come so far, by tickets: 0 where there is nothing new to tell."""
        if self.failure is not None:
            return
        if synced:
            self.synced = synced
        try:
            if written:
                self._on_written(written)
            if durable:
                sizes = self._sizes
                while sizes and sizes[0][0] <= durable:
                    self.waiting_bytes -= sizes.popleft()[1]
                self._on_durable(durable)
        except Exception as error:
            self._cannot_tell(error)

    def _tell_full(self, error: StorageFull) -> None:
        if self.full is None and self.failure is None:
            self.full = error
            self._tell(self._on_full, error)

    def _tell_room(self) -> None:
        if self.full is not None:
            self.full = None
            self._tell(self._on_room)

    def _fail(self, error: FlintError) -> None:
        if self.failure is None:
            self.failure = error
            self._on_failed(error)

    # --- writing

    def _turn(
        self, lots: list[RecordLot], tell: Callable[..., object], may_sync: bool = True
    ) -> bool:
        """Write lots, sync if the policy says so, and tell the loop."""
        journal = self.journal
        began = self._monotonic()
        if lots:
            if not self._unsynced_records:
                self._unsynced_since = began
            journal.write(lots)
            self.written_bytes += bytes_of(lots)
            self.written_frames += 1
            for lot in lots:
                self._unsynced_records += lot.count
            del self._lots[: len(lots)]
            tell_written = self._tell_written > self._written
            self._written += len(lots)
            if tell_written and self.policy.acknowledges_after_sync:
                tell(self._have_come, self._written, 0, 0)
        is_due = self._synced < self._must_sync <= self._written or self._sync_is_due()
        sync = may_sync and self._unsynced_records > 0 and is_due
        if sync:
            sync_began = perf_counter()
            journal.sync()
            self.sync_seconds.observe(perf_counter() - sync_began)
            self._unsynced_records, self._synced = 0, self._written
        took = self._monotonic() - began
        if self._is_slow(took):
            tell(self._tell, self._on_slow, took, bytes_of(lots))
        if lots or sync:
            durable = self._written if lots else 0
            written = 0 if self.policy.acknowledges_after_sync else durable
            synced = self._written if journal.durable == journal.written else 0
            tell(self._have_come, written, durable, synced)
        if journal.wants_spare():
            self._chores.want()
        return bool(lots) or sync

    def _sync_is_due(self) -> bool:
        policy = self.policy
        if policy.kind == "always":
            return True
        if policy.kind == "every_n":
            return self._unsynced_records >= policy.number
        if policy.kind == "interval":
            return self._seconds_to_sync() <= 0
        return False

    def _seconds_to_sync(self) -> float:
        return self._unsynced_since + self.policy.number / 1000 - self._monotonic()

    def _wait(self) -> bool:
        """Wait for something to do; False when everything is done and the end has come."""
        with self._changed:
            while not self._lots:
                if self._closing:
                    return False
                seconds = None
                if self.policy.kind == "interval" and self._unsynced_records:
                    seconds = self._seconds_to_sync()
                    if seconds <= 0:
                        return True
                self._changed.wait(seconds)
        return True

    def _write_all(self) -> None:
        """The writing thread."""
        is_full = False
        try:
            while self._wait():
                try:
                    with self._writing:
                        if self._broken is not None:
                            raise self._broken
                        self._turn(_beginning(self._lots, self._frame_bytes_max), self._call)
                except StorageFull as error:
                    is_full = True
                    self._call(self._tell_full, error)
                    with self._changed:
                        if self._closing:
                            raise
                        self._changed.wait(RETRY_SECONDS)
                else:
                    if is_full:
                        is_full = False
                        self._chores.want()  # there is room again, unless that cannot make a spare
        except BaseException as error:
            self._call(self._fail, _as_failure(error))
            self.journal.abandon()
        else:
            try:
                self.journal.close()
            except BaseException as error:
                self._call(self._fail, _as_failure(error))
            else:
                self._call(self._have_come, 0, 0, self._written)
        self._chores.end()

    # --- making and recycling files

    def _do_chores(self) -> None:
        """The other thread."""
        try:
            self._chores.run()
        except BaseException as error:
            self._call(self._fail, _as_failure(error))
        self._call(self._end)

    def _step_chores(self) -> None:
        try:
            self._chores.step()
        except FlintError as error:
            self._fail(error)

    def _chores_have_room(self) -> None:
        self._call(self._tell_room)
        with self._changed:
            self._changed.notify()

    def _end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        if self._loop is None:
            callback(*arguments)
            return
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop was closed under us: nothing waits
            return

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception as error:
            self._cannot_tell(error)

    def _cannot_tell(self, error: Exception) -> None:
        """A callback has raised: nothing more is reported, the journal has failed."""
        fault = f"{type(error).__name__}: {error}"
        self._fail(BrokerFailed("taking in what the journal has written", fault))


def _beginning(lots: list[RecordLot], bytes_max: int) -> list[RecordLot]:
    """What goes into the next frame: at least one lot. It stays queued until it is written."""
    lots, total = lots[:], 0
    for count, lot in enumerate(lots):
        total += lot.bytes
        if total > bytes_max and count:
            return lots[:count]
    return lots


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


def _as_failure(error: BaseException) -> FlintError:
    if isinstance(error, FlintError):
        return error
    failure = StorageFailed("write", "the journal", f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
