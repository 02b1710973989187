"""Group commit: all who wait share one write and one sync.

One thread writes prepared lots and syncs; while it does, the next lot gathers, and goes as one
frame when the thread is back. There is no delay that waits for company: a lot that comes alone goes
alone. The event loop is woken once per sync. A second thread makes spare files and recycles
old ones, so that the first never waits for that.

A little that comes while the thread rests, and whose sync nobody waits for, is written by the loop
itself: it goes to the system's cache in less time than waking a thread takes. What would wait for
the disk (the next file, a write that was slow a moment ago) is left to the thread, and so is a
sync, but for that of a lone message on a disk that is known to be quick (`loop_syncs.py`).

Nothing that was submitted is ever given up because the disk is full: it waits until there is room.
Any other failure, above all that of a sync, fails everything that waits and is final.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Thread

from ..errors import BrokerFailed, Closed, FlintError, StorageFailed, StorageFull
from ..fsync_policy import ALWAYS, FsyncPolicy
from .file_chores import RETRY_SECONDS, FileChores
from .frames import Record, RecordLot
from .journal import Journal
from .loop_syncs import LoopSyncs, SyncWatch
from .lot_writer import LotWriter

FRAME_BYTES_MAX = 16 << 20
"""What one write takes, unless a single lot is larger: a sync of more holds everything up."""
LATE_SECONDS = 0.005
"""How long what can wait for its sync waits for others to share it with."""


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

    Only `on_stalled(s, on_loop)` comes from a thread of its own, while the loop may be held up: a
    sync has taken `s` seconds so far, and `is_slow(s)`.

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
        on_stalled: Callable[[float, bool], object] = _ignore,
        is_slow: Callable[[float], bool] = _never,
        sync_on_loop: bool = False,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sync_on_loop`: the loop may sync a lone message itself where the disk is quick. Not for
        a member of a cluster, whose peers wait for signs of life."""
        self.journal = journal
        self.policy = policy
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._on_written = on_written
        self._on_full = on_full
        self._on_room = on_room
        self._on_slow = on_slow
        self._frame_bytes_max = frame_bytes_max
        self._syncs_all = policy.acknowledges_after_sync
        # Of the loop's thread:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[Thread] = []
        self._ended: asyncio.Future[None] | None = None
        self.submitted = 0
        """The last ticket."""
        self.waiting_bytes = 0
        """Submitted and not reported as durable yet."""
        self._sizes: deque[tuple[int, int]] = deque()
        self._known = 0
        """The last ticket that writing is known to have come to."""
        self._wake_is_due = self._late_is_due = False
        self._closed = False
        self.failure: FlintError | None = None
        self.full: StorageFull | None = None
        self.synced = 0
        # Shared. The loop's thread adds lots at the end and wakes the writing thread later; that
        # one removes them at the beginning: each a single step of the list.
        self._changed = threading.Condition(threading.Lock())
        self._lots: list[RecordLot] = []
        self._closing = False
        self._broken: Exception | None = None
        # Of the one who writes: the thread, or the loop while the thread rests.
        self._writing = threading.Lock()
        self.loop_syncs = LoopSyncs(sync_on_loop)
        self.watch = SyncWatch(is_slow, on_stalled)
        self.writer = LotWriter(
            journal,
            policy,
            have_come=self._have_come,
            was_slow=self._was_slow,
            is_slow=is_slow,
            monotonic=monotonic,
            loop_syncs=self.loop_syncs,
            watch=self.watch,
        )
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
        sync_can_wait: bool = False,
    ) -> int:
        """Have records written together, behind everything submitted before. Never waits. With
        `must_sync` they are reported as durable once synced, whatever the policy: a vote that
        a power cut takes back is a vote that is given twice. With `sync_can_wait` nobody waits for
        more than that they are written: the next sync of others does, if one comes soon.

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
            self.writer.tell_written = ticket
        if must_sync or (self._syncs_all and not sync_can_wait):
            self.writer.must_sync = ticket
        self._lots.append(lot)
        if self._loop is not None and not self._wake_is_due:
            # Others that run in this turn of the loop may submit too, and go along.
            self._wake_is_due = True
            self._loop.call_soon(self._wake)
        return ticket

    def hold(self) -> None:
        """Nothing that is submitted goes before `go`: whoever calls this calls that in the next
        turn of the loop, which saves one more."""
        self._wake_is_due = True

    def go(self) -> None:
        if self._loop is None or not self._lots:
            self._wake_is_due = False
        else:
            self._wake()

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
        self.writer.late_seconds = LATE_SECONDS
        self.watch.start(Thread)
        for target, name in ((self._write_all, "journal"), (self._do_chores, "journal-files")):
            thread = Thread(target=target, name=f"flintmq-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        if self._lots:
            self._notify()

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
            done = self._turn()
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
        if self._wake_is_due:  # else it was done already
            self._wake_is_due = False
            if not self._write_here():
                self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify()

    def _write_here(self) -> bool:
        """Write what waits on this thread, if that cannot take long; whether it was done."""
        if (
            self._closing
            or self.failure is not None
            or self.full is not None
            or not self._writing.acquire(blocking=False)
        ):
            return False
        told: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        writer = self.writer
        try:
            # What the thread has written and not reported yet comes first.
            if self._known != writer.written or not writer.may_write_here(self._lots):
                return False
            is_first = not writer.unsynced_records
            writer.write_here(self._lots, lambda *call: told.append((call[0], call[1:])))
        except StorageFull:
            return False  # the thread meets it again, and deals with it
        except Exception as error:
            self._broken = error  # the same
            return False
        finally:
            self._writing.release()
        if self.journal.wants_spare():
            self._chores.want()
        if is_first and writer.unsynced_records:
            self._sync_in_time()
        for callback, arguments in told:
            callback(*arguments)
        return True

    def _sync_in_time(self) -> None:
        """The loop has written what is to be synced by and by."""
        if self.policy.kind == "interval":
            self._notify()
        elif self.policy.kind == "always" and not self._late_is_due and self._loop is not None:
            # A timer, and not the thread: mostly somebody waits for a sync before that.
            self._late_is_due = True
            self._loop.call_later(LATE_SECONDS, self._is_late)

    def _is_late(self) -> None:
        self._late_is_due = False
        seconds = self.writer.seconds_to_sync()
        if seconds is None or self._loop is None:
            return
        if seconds > 0:  # others were synced meanwhile, and these have come since
            self._late_is_due = True
            self._loop.call_later(seconds, self._is_late)
        else:
            self._notify()

    def _have_come(self, at: int, written: bool, durable: bool, synced: bool) -> None:
        """Writing has come to a ticket: which of these is to be told of it."""
        self._known = at
        if self.failure is not None:
            return
        if synced:
            self.synced = at
        try:
            if written:
                self._on_written(at)
            if durable:
                sizes = self._sizes
                while sizes and sizes[0][0] <= at:
                    self.waiting_bytes -= sizes.popleft()[1]
                self._on_durable(at)
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

    # --- in threads

    def _wait(self) -> bool:
        """Wait for something to do; False when everything is done and the end has come."""
        with self._changed:
            while not self._lots and self._broken is None:
                if self._closing:
                    return False
                seconds = self.writer.seconds_to_sync()
                if seconds is not None and seconds <= 0:
                    return True
                self._changed.wait(seconds)
        return True

    def _turn(self) -> bool:
        """Write what waits, or the beginning of it; whether there was anything to do."""
        done = self.writer.turn(self._lots, self._frame_bytes_max, self._call)
        if self.journal.wants_spare():
            self._chores.want()
        return done

    def _write_all(self) -> None:
        """The writing thread."""
        is_full = False
        try:
            while self._wait():
                try:
                    with self._writing:
                        if self._broken is not None:
                            raise self._broken
                        self._turn()
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
                self._call(self._have_come, *self.writer.at_the_end())
        self.watch.stop()
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
        self._notify()

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

    def _was_slow(self, seconds: float, size: int) -> None:
        self._tell(self._on_slow, seconds, size)

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception as error:
            self._cannot_tell(error)

    def _cannot_tell(self, error: Exception) -> None:
        """A callback has raised: nothing more is reported, the journal has failed."""
        fault = f"{type(error).__name__}: {error}"
        self._fail(BrokerFailed("taking in what the journal has written", fault))


def _as_failure(error: BaseException) -> FlintError:
    if isinstance(error, FlintError):
        return error
    failure = StorageFailed("write", "the journal", f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
