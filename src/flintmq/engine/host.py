"""The host: what a node has once. Directory, journal, the thread that syncs, checkpoints.

It opens the directory, recovers the shard, and carries its commands to the disk. What the disk
does then (it fails, it is full, it is slow, it has damaged something) is told from here.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..batch import DecodeCache
from ..clock import Clock, SteadyClock
from ..errors import FlintError, StorageFull
from ..fsync_policy import FsyncPolicy
from ..logs import event, limited
from ..rows import Decoder
from ..storage.filesystem import FileSystem, LocalFileSystem, Lock
from ..storage.group_commit import GroupCommit
from ..storage.journal import FILE_BYTES, FIRST_FILE_BYTES, Journal
from ..storage.manifest import Manifest
from ..storage.segments import SegmentStore
from ..storage.topic_log import TopicLog
from .backups import back_up_to
from .broker import Broker
from .checkpoints import Checkpoints
from .commands import LimitProducers
from .damages import Damages
from .figures import JournalFigures
from .journal_log import JournalLog
from .proposer import QUEUE_BYTES_MAX, Proposer
from .recovery import (
    JOURNAL,
    RECOVERY_STEP_SECONDS,
    SEGMENTS,
    Pace,
    Recovery,
    check_segments,
    opened,
    replay,
    restore,
    tell_recovered,
)
from .shard import Shard
from .state.producers import PRODUCER_BYTES, PRODUCER_SECONDS
from .state.staging import STAGED_SECONDS, Staging
from .waiting import again

_log = logging.getLogger(__name__)

CHECKPOINT_BYTES = 32 * 1024 * 1024
"""How much the journal grows between two checkpoints."""

BACKLOG_TIMES = 1.75
"""How much may be in memory and in no segment, by that figure, before publishers have to wait."""

SLOW_DISK_SECONDS = 1.0
"""A write with its sync that takes longer is told."""

_SEGMENT_NAME = re.compile(r"[0-9]{16}\.seg", re.ASCII)


class Host:
    first_file_bytes = FIRST_FILE_BYTES
    """How large the journal's first file is; those after it double."""

    def __init__(
        self,
        filesystem: FileSystem,
        *,
        fsync: FsyncPolicy | None = None,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        journal_file_bytes: int = FILE_BYTES,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        slow_disk_seconds: float = SLOW_DISK_SECONDS,
        reclaim_seconds: float = 0.0,
        scrub_bytes_per_second: int = 0,
        producer_seconds: float = PRODUCER_SECONDS,
        producer_bytes: int = PRODUCER_BYTES,
    ) -> None:
        """What was handed out when the process before this one ended is kept `reclaim_seconds` for
        consumers that come back; 0 where they ended with it."""
        self.filesystem = filesystem
        self._policy = fsync or FsyncPolicy()
        self._checkpoint_bytes = checkpoint_bytes
        self._journal_file_bytes = journal_file_bytes
        self._queue_bytes_max = queue_bytes_max
        self.slow_disk_seconds = slow_disk_seconds
        self._reclaim_seconds = reclaim_seconds
        self._producer_limits = (round(producer_seconds * 1000), producer_bytes)
        self._limits_decided = (0, 0)
        self.on_failed: Callable[[FlintError], None] | None = None
        """Told when the disk has failed, or the broker itself: nothing is written any more until
        the next start."""
        self.recovery: Recovery | None = None
        self.is_threaded = True
        self.is_closing = False
        self.store = SegmentStore(filesystem)
        self._lock: Lock | None = None
        self.journal_full: StorageFull | None = None
        self._full_since: float | None = None
        self._replayed_bytes = self._flushed_bytes = self._being_flushed = 0
        self._scrub_rate = scrub_bytes_per_second
        self.damages: Damages
        self._shard: Shard
        self._clock: SteadyClock
        self.checkpoints: Checkpoints
        self._journal: Journal
        self._commit: GroupCommit
        self._journal_log: JournalLog

    def keep(self, shard: Shard, clock: SteadyClock) -> None:
        """This is the shard whose commands are kept here."""
        self._shard, self._clock = shard, clock
        self.checkpoints = Checkpoints(self, shard)
        self.damages = Damages(
            self.filesystem,
            shard.state,
            lambda: self.checkpoints.manifest.files(),
            self._scrub_rate,
        )
        shard.on_fault = self._tell_failed

    def new_log(self, id: int, name: str, cache: DecodeCache) -> TopicLog:
        return TopicLog(
            id,
            self.store,
            cache,
            name=name,
            on_damage=lambda damage: self.damages.note(id, name, damage),
        )

    # --- opening

    async def open(self, *, threaded: bool = True) -> None:
        """Lock the directory, recover, and begin to write.

        Without threads nothing is written but by `step()`, and checkpoints hold up the loop.
        """
        self.is_threaded = threaded
        filesystem, clock = self.filesystem, self._clock
        self._lock = filesystem.lock("lock")
        try:
            for directory in (SEGMENTS, JOURNAL):
                if not filesystem.exists(directory):
                    filesystem.make_directory(directory)
            # Also for what a process before us made and did not come to sync: the directories, or
            # a manifest whose predecessor refers to the files that are about to be removed.
            filesystem.sync_directory("")
            began = clock.monotonic()
            records = await self._recover()
            seconds = clock.monotonic() - began
            state, torn = self._shard.state, self._journal.recovered.torn_tail
            self.recovery = tell_recovered(filesystem, state, records, torn, seconds)
        except BaseException:
            self._lock.release()
            self._lock = None
            raise
        known = self._shard.state.remembered
        self._limits_decided = (known.age_ms, known.bytes_max)
        self._limit_producers()
        if threaded:
            self.damages.start()
            self._commit.start()
            if self.is_checkpoint_due():
                # A process that died over a large journal leaves all of it in our memory.
                self.checkpoints.begin()

    def step(self) -> bool:
        """Without threads: write what waits, and apply it. Whether there was anything to do."""
        return self._commit.step()

    async def _recover(self) -> int:
        """Take up what is there; how many records of the journal that were."""
        shard, state = self._shard, self._shard.state
        manifest = opened(self.checkpoints.manifest, self.filesystem)
        log = self._journal_log = JournalLog()
        self._journal = Journal.open(
            self.filesystem,
            JOURNAL,
            file_bytes=self._journal_file_bytes,
            first_file_bytes=self.first_file_bytes,
        )
        self._commit = GroupCommit(
            self._journal,
            self._policy,
            on_durable=log.durable_up_to,
            on_failed=self.failed,
            on_written=log.written_up_to,
            on_full=self._ran_full,
            on_room=self._has_room,
            on_slow=self._was_slow,
            is_slow=lambda seconds: seconds > self.slow_disk_seconds,
        )
        shard.proposer = Proposer(
            log,
            state.apply,
            "synced" if self._policy.acknowledges_after_sync else "written",
            shard.fault,
        )
        shard.proposer.queue_bytes_max = self._queue_bytes_max
        log.write_to(self._commit, shard.proposer.committed, self._checkpoint_is_due)
        pace = Pace(self.is_threaded, RECOVERY_STEP_SECONDS)
        try:
            if manifest is not None:
                check_segments(self.filesystem, manifest)
                await restore(state, manifest, self.store, pace)
            head = self.checkpoints.manifest.head
            found = await replay(self._journal, log.group, head.checkpoint, shard.proposer, pace)
            log.go_on_behind(found.index, found.term, is_behind=found.is_behind)
            shard.proposer.applied = found.index
            self._replayed_bytes = found.bytes
            self._note_backlog()
            for topic in state.by_id.values():
                if isinstance(topic.log, TopicLog):
                    topic.log.sizes.bound()
            times = (topic.log.last_time for topic in state.by_id.values())
            self._clock.begin_at(max(head.time_ms, *times, 0))
            await shard.take_lead(reclaim_seconds=self._reclaim_seconds, step_aside=pace.step_aside)
            self._remove_unfinished(manifest)
        except BaseException:
            self._journal.abandon()
            raise
        return found.records

    def _remove_unfinished(self, manifest: Manifest | None) -> None:
        """Remove segments that the manifest let go, and those of a checkpoint that never ended.

        Without a manifest only if the journal has everything from the beginning on: what else is
        there may be all that is left, and stays.
        """
        numbers = {
            f"{SEGMENTS}/{name}": int(name.partition(".")[0])
            for name in self.filesystem.list(SEGMENTS)
            if _SEGMENT_NAME.fullmatch(name)
        }
        checkpoints = self.checkpoints
        kept = checkpoints.manifest.head
        checkpoints.next_file = max(kept.next_file, 1 + max(numbers.values(), default=0))
        known = self._journal.groups().get(self._journal_log.group)
        if manifest is None and (known is None or known.first_index != 1):
            return
        gone = set(kept.obsolete)
        checkpoints.litter = [
            path for path, number in numbers.items() if path in gone or number >= kept.next_file
        ]
        checkpoints.remove_litter()

    # --- settings

    def set_sizes(self, *, checkpoint_bytes: int, queue_bytes_max: int) -> None:
        """How much the journal grows between checkpoints, and how much may wait for the disk."""
        self._checkpoint_bytes, self._queue_bytes_max = checkpoint_bytes, queue_bytes_max
        self._shard.proposer.queue_bytes_max = queue_bytes_max
        self._note_backlog()

    def set_producer_limits(self, seconds: float, bytes_max: int) -> None:
        """How long, and in how many bytes, producers are remembered."""
        self._producer_limits = (round(seconds * 1000), bytes_max)
        self._limit_producers()

    def _limit_producers(self) -> None:
        shard = self._shard
        shard.state.remembered_in_memory.set_limits(*self._producer_limits)
        if self._limits_decided != self._producer_limits and shard.proposer.failure is None:
            self._limits_decided = self._producer_limits
            shard.proposer.propose(LimitProducers(*self._limits_decided))

    # --- what the journal tells

    def _checkpoint_is_due(self) -> None:
        if self.is_checkpoint_due() and self.checkpoints.full is None:
            self.checkpoints.begin()

    def failed(self, error: FlintError) -> None:
        event(
            _log,
            logging.ERROR,
            "disk_failed",
            f"the disk has failed, nothing is written any more until the next start: {error}",
            directory=self.filesystem.describe(),
        )
        self._shard.proposer.fail(error)
        for topic in self._shard.topics.values():
            topic.wake_publisher()
        self._tell_failed(error)

    def _tell_failed(self, error: FlintError) -> None:
        if self.on_failed is not None:
            self.on_failed(error)

    def _ran_full(self, error: StorageFull) -> None:
        self.journal_full = error
        self.note_room()
        self.checkpoints.begin()  # it gives files of the journal back

    def _has_room(self) -> None:
        self.journal_full = None
        self.note_room()

    def note_room(self) -> None:
        """Tell when publishers begin to be refused, and when that is over."""
        full = self._shard.proposer.full = self.journal_full or self.checkpoints.full
        now = self._clock.monotonic()
        if full is not None and self._full_since is None:
            self._full_since = now
            event(
                _log,
                logging.ERROR,
                "disk_full",
                f"publishers are refused, consumers go on: {full}",
                directory=self.filesystem.describe(),
            )
        elif full is None and self._full_since is not None:
            since, self._full_since = self._full_since, None
            event(
                _log,
                logging.WARNING,
                "disk_has_room",
                "the disk has room again: publishers are no longer refused",
                directory=self.filesystem.describe(),
                seconds=now - since,
            )

    def _was_slow(self, seconds: float, size: int) -> None:
        limited(
            _log,
            logging.WARNING,
            "slow_disk",
            self.filesystem.describe(),
            "the disk took long to write and sync; publishers wait for it",
            directory=self.filesystem.describe(),
            seconds=seconds,
            bytes=size,
        )

    # --- what is in no segment yet

    async def checkpoint(self) -> None:
        """Write what is in memory to segments, and let the journal's past go."""
        await self.checkpoints.checkpoint()

    def _unflushed(self) -> int:
        """Bytes in the journal and in no segment."""
        return self._replayed_bytes + self._journal_log.submitted_bytes - self._flushed_bytes

    def is_checkpoint_due(self) -> bool:
        return self._unflushed() - self._being_flushed >= self._checkpoint_bytes

    def checkpoint_begins(self) -> None:
        # What is proposed and not yet applied has to wait for the next one.
        self._being_flushed = self._unflushed() - self._shard.proposer.queued_bytes
        self._note_backlog()

    def checkpoint_ends(self, is_done: bool) -> None:
        if is_done:
            self._flushed_bytes += self._being_flushed
        self._being_flushed = 0
        self._note_backlog()

    def _note_backlog(self) -> None:
        """Hold publishers back where checkpoints are slower than they: memory is bounded."""
        begun = self._flushed_bytes - self._replayed_bytes
        proposer = self._shard.proposer
        proposer.submitted_bytes_max = begun + self._checkpoint_bytes * BACKLOG_TIMES
        proposer.let_go_on()
        self._journal_log.bytes_due = begun + self._being_flushed + self._checkpoint_bytes

    def position_behind(self, index: int) -> int:
        """Where in the journal the entry behind that index is, or will be."""
        return self._journal.position_of(self._journal_log.group, index + 1)

    def release_before(self, position: int) -> None:
        self._commit.release_before(position)

    # --- looking

    def figures(self) -> JournalFigures | None:
        if self._lock is None:
            return None
        commit, checkpoints, proposer = self._commit, self.checkpoints, self._shard.proposer
        return JournalFigures(
            sync_seconds=commit.sync_seconds,
            written_bytes=commit.written_bytes,
            frames=commit.written_frames,
            waiting_bytes=proposer.queued_bytes,
            unflushed_bytes=max(0, self._unflushed()),
            checkpoint_seconds=checkpoints.seconds,
            checkpoint_failures=checkpoints.failures,
            is_full=proposer.full is not None,
            last_index=proposer.log.index,
            applied_index=proposer.applied,
            damaged_messages=self.damages.messages(),
            scrub_bytes=self.damages.scrubber.read_bytes,
            scrub_passes=self.damages.scrubber.passes,
        )

    async def settled(self) -> bool:
        """Wait until nothing is on its way to the disk; whether there was anything to wait for."""
        if self._lock is None:
            return False
        waited = False
        proposer, checkpoints = self._shard.proposer, self.checkpoints
        while not proposer.is_quiet() or checkpoints.running is not None:
            waited = True
            if checkpoints.running is not None:
                await asyncio.wait([checkpoints.running])
            await proposer.wait_quiet()
        return waited

    async def back_up(self, directory: str) -> None:
        await self.back_up_to(LocalFileSystem(Path(directory)))

    async def back_up_to(self, target: FileSystem) -> None:
        """Copy everything up to now to an empty place. Publishing goes on meanwhile."""
        await back_up_to(target, self, self._shard)

    # --- the end

    async def close(self, end: Callable[[], None]) -> None:
        """Write what is left; then everybody hears of the end, by `end`."""
        if self._lock is None:
            end()
            return
        self.is_closing = True
        had_failed = self._shard.failure is not None
        try:
            self._shard.proposer.end_turn()
            with suppress(FlintError):  # the journal has what a checkpoint could not write
                await self.checkpoints.checkpoint()
        finally:
            # Whatever went wrong: nothing is acknowledged any more before the lock is given back.
            try:
                if self.damages.scrubber.is_running:
                    await self.checkpoints.aside(self.damages.scrubber.stop)
                end()
            finally:
                try:
                    await self._commit.close()
                finally:
                    self.checkpoints.end()
                    self.store.close()
                    self._lock.release()
        if self._shard.failure is not None and not had_failed:
            raise again(self._shard.failure)  # a fault of ours: nobody else has heard of it


def durable_broker(
    filesystem: FileSystem,
    *,
    clock: Clock | None = None,
    decoder: Decoder | None = None,
    staging: Staging | None = None,
    staged_seconds: float = STAGED_SECONDS,
    **settings: Any,
) -> Broker:
    """A broker over a data directory; `settings` are those of its host."""
    host = Host(filesystem, **settings)
    return Broker(clock, decoder, host=host, staging=staging, staged_seconds=staged_seconds)
