"""Writing lots and syncing them as the policy says: for the one who writes, whoever that is."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from ..fsync_policy import FsyncPolicy
from ..observe.metrics import DISK_SECONDS, Histogram
from .frames import RecordLot, bytes_of
from .journal import Journal
from .loop_syncs import QUICK_SECONDS, LoopSyncs, SyncWatch

HERE_BYTES_MAX = 64 << 10
HERE_SECONDS_MAX = 0.002
HERE_REST = 20
"""What the loop may write itself. After a write that took longer it leaves that for this many times
as long: a disk that holds writers up costs the loop a twentieth of its time, and no more."""

Tell = Callable[..., object]
"""Have something called, with its arguments, on the loop."""


class LotWriter:
    """Tells `have_come(ticket, written, durable, synced)`: writing has come to a ticket, and which
    of these is to be told of it. And `was_slow(seconds, bytes)`."""

    def __init__(
        self,
        journal: Journal,
        policy: FsyncPolicy,
        *,
        have_come: Callable[[int, bool, bool, bool], object],
        was_slow: Callable[[float, int], object],
        is_slow: Callable[[float], bool],
        monotonic: Callable[[], float],
        loop_syncs: LoopSyncs,
        watch: SyncWatch,
    ) -> None:
        self._journal, self._policy = journal, policy
        self._have_come, self._was_slow, self._is_slow = have_come, was_slow, is_slow
        self._monotonic, self._loop_syncs, self._watch = monotonic, loop_syncs, watch
        # Of the loop, by tickets: who wants to hear of a write, and who waits for a sync.
        self.tell_written = self.must_sync = 0
        # Of the one who writes:
        self.late_seconds = 0.0
        """How long what can wait for its sync waits for others to share it with."""
        self.written = self._synced = 0
        self.unsynced_records = 0
        self._unsynced_since = 0.0
        self._not_here_before = 0.0
        self.sync_seconds = Histogram(DISK_SECONDS)
        self.written_bytes = self.written_frames = 0

    def turn(self, waiting: list[RecordLot], bytes_max: int, tell: Tell) -> bool:
        """Write what waits, at most so much of it, and sync if that is due."""
        return self._write(waiting, _beginning(waiting, bytes_max), tell)

    # --- on the loop

    def may_write_here(self, lots: list[RecordLot]) -> bool:
        """Whether the loop may write these, and sync them where somebody waits for that: not if
        that could take long."""
        size, kind, now = bytes_of(lots), self._policy.kind, self._monotonic()
        if not lots or now < self._not_here_before or not self._journal.has_room(size):
            return False
        if self.must_sync > self._synced:
            return kind == "always" and self._loop_syncs.may(len(lots), size, now)
        is_due = self.unsynced_records > 0 and self._sync_is_due()
        return kind != "every_n" and size <= HERE_BYTES_MAX and not is_due

    def write_here(self, waiting: list[RecordLot], tell: Tell) -> None:
        began, lots = self._monotonic(), waiting[:]
        is_awaited = self.must_sync > self._synced
        self._write(waiting, lots, tell, may_sync=is_awaited, here=True)
        took = self._monotonic() - began
        if took > (QUICK_SECONDS if is_awaited else HERE_SECONDS_MAX):
            self._not_here_before = began + took + took * HERE_REST

    # --- writing

    def _write(
        self,
        waiting: list[RecordLot],
        lots: list[RecordLot],
        tell: Tell,
        *,
        may_sync: bool = True,
        here: bool = False,
    ) -> bool:
        journal, after_sync = self._journal, self._policy.acknowledges_after_sync
        began = self._monotonic()
        tell_written = False
        if lots:
            if not self.unsynced_records:
                self._unsynced_since = began
            journal.write(lots)
            self.written_bytes += bytes_of(lots)
            self.written_frames += 1
            for lot in lots:
                self.unsynced_records += lot.count
            del waiting[: len(lots)]
            tell_written = self.tell_written > self.written or not after_sync
            self.written += len(lots)
        sync = may_sync and self.unsynced_records > 0 and self._sync_is_due()
        if sync:
            if tell_written and after_sync:
                tell_written = False
                tell(self._have_come, self.written, True, False, False)
            self._sync(here)
        took = self._monotonic() - began
        if self._is_slow(took):
            tell(self._was_slow, took, bytes_of(lots))
        if lots or sync:
            durable = sync if after_sync else bool(lots)
            is_synced = journal.durable == journal.written
            tell(self._have_come, self.written, tell_written, durable, is_synced)
        return bool(lots) or sync

    def _sync(self, here: bool) -> None:
        self._watch.begin(here)
        began = perf_counter()
        try:
            self._journal.sync()
        finally:
            self._watch.end()
        took = perf_counter() - began
        self.sync_seconds.observe(took)
        self._loop_syncs.observe(took, self._monotonic(), here)
        self.unsynced_records, self._synced = 0, self.written

    def at_the_end(self) -> tuple[int, bool, bool, bool]:
        """What is to be told once everything is synced: the journal was closed."""
        durable = self._policy.acknowledges_after_sync and self.unsynced_records > 0
        return self.written, False, durable, True

    # --- when to sync

    def seconds_to_sync(self) -> float | None:
        """When what is written has to be synced; None where there is no such time."""
        if not self.unsynced_records or self._policy.kind not in ("always", "interval"):
            return None
        return self._unsynced_since + self._sync_after() - self._monotonic()

    def _sync_after(self) -> float:
        policy = self._policy
        return policy.number / 1000 if policy.kind == "interval" else self.late_seconds

    def _sync_is_due(self) -> bool:
        if self.must_sync > self._synced:
            return True
        if self._policy.kind == "every_n":
            return self.unsynced_records >= self._policy.number
        seconds = self.seconds_to_sync()
        return seconds is not None and seconds <= 0


def _beginning(lots: list[RecordLot], bytes_max: int) -> list[RecordLot]:
    """What goes into the next frame: at least one lot. It stays queued until it is written."""
    lots, total = lots[:], 0
    for count, lot in enumerate(lots):
        total += lot.bytes
        if total > bytes_max and count:
            return lots[:count]
    return lots
