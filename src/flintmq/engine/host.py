"""The host: what a node has once. Directory, journal, the thread that syncs.

It opens the directory, recovers the shards, and carries their commands to the disk. A node alone
has one shard, that of group 0; those of a cluster have many, over one journal and one sync. What
the disk does then (it fails, it is full, it is slow, it has damaged something) is told from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..clock import Clock, SteadyClock
from ..errors import Corrupt, FlintError, InvalidRequest, StorageFull
from ..fsync_policy import FsyncPolicy
from ..observe.logs import event
from ..observe.metrics import LONG_SECONDS, Histogram
from ..rows import Decoder
from ..storage.filesystem import FileLock, FileSystem, LocalFileSystem
from ..storage.frames import HAS_LEFT
from ..storage.group_commit import GroupCommit
from ..storage.group_files import GROUPS, groups_in, make_directories
from ..storage.journal import FILE_BYTES, FIRST_FILE_BYTES, Journal
from ..storage.loading import READING_THREADS
from ..storage.objects import Objects, ObjectStores
from . import flushing
from .backups import back_up_to
from .broker import Broker
from .checkpoints import aside
from .command_log import KeptLog
from .damages import Damages
from .figures import JournalFigures
from .journal_log import JournalLog
from .kept import KeptShard
from .proposer import QUEUE_BYTES_MAX
from .recovery import (
    JOURNAL,
    RECOVERY_STEP_SECONDS,
    SEGMENTS,
    Recovery,
    RecoveryPace,
    check_segments,
    opened,
    replay,
    restore,
    tell_recovered,
)
from .shard import Shard
from .slow_disks import is_stalled, was_slow
from .state.producers import PRODUCER_BYTES, PRODUCER_SECONDS
from .state.staging import STAGED_SECONDS, Staging
from .waiting import again

_log = logging.getLogger(__name__)

CHECKPOINT_BYTES = 32 * 1024 * 1024
"""How much the journal grows between two checkpoints."""

PINNED_TIMES = 2
"""How much of the journal, by that figure, a shard that writes little may keep from being let go
before it has a checkpoint of its own."""

FAR_THREADS = 4
"""They read objects: each mostly waits for the network."""

SLOW_DISK_SECONDS = 1.0
"""A write with its sync that takes longer is told."""


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
        sync_on_loop: bool = False,
        reclaim_seconds: float = 0.0,
        scrub_bytes_per_second: int = 0,
        producer_seconds: float = PRODUCER_SECONDS,
        producer_bytes: int = PRODUCER_BYTES,
        log_of: Callable[[int], KeptLog] = JournalLog,
        objects: Objects | None = None,
    ) -> None:
        """What was handed out when the process before this one ended is kept `reclaim_seconds` for
        consumers that come back; 0 where they ended with it.

        `sync_on_loop`: the loop may sync a lone message itself where the disk is quick. For a
        process that does nothing else, and never for a member of a cluster."""
        self.filesystem = filesystem
        self._policy = fsync or FsyncPolicy()
        self.log_of = log_of
        """Makes the log of a group."""
        self.checkpoint_bytes = checkpoint_bytes
        self._journal_file_bytes = journal_file_bytes
        self._queue_bytes_max = queue_bytes_max
        self.slow_disk_seconds = slow_disk_seconds
        self._sync_on_loop = sync_on_loop
        self._reclaim_seconds = reclaim_seconds
        self.producer_limits: tuple[int, int] | None = (
            round(producer_seconds * 1000),
            producer_bytes,
        )
        """None: as they are."""
        self.on_failed: Callable[[FlintError], None] | None = None
        """Told when the disk has failed, or the broker itself: nothing is written any more until
        the next start."""
        self.recovery: Recovery | None = None
        self.is_threaded = True
        self.is_closing = False
        self.kept: dict[int, KeptShard] = {}
        """The shards, by their groups."""
        self._lock: FileLock | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._far: ThreadPoolExecutor | None = None
        self.journal_full: StorageFull | None = None
        self._full_since: float | None = None
        self.objects: Objects = objects or ObjectStores()
        self.damages = Damages(filesystem, self.kept, scrub_bytes_per_second)
        self.checkpoint_seconds = Histogram(LONG_SECONDS)
        self._replayed_bytes = 0
        self._journal: Journal
        self._commit: GroupCommit

    def keep(self, shard: Shard, clock: SteadyClock, group: int = 0) -> KeptShard:
        """This is the shard of a group, whose commands are kept here. All of them are told before
        the directory is opened."""
        assert self._lock is None, "a shard comes before the directory is opened"
        assert group not in self.kept, "a group has one shard"
        shard.on_fault = self._tell_failed
        kept = self.kept[group] = KeptShard(self, group, shard, clock)
        return kept

    @property
    def _clock(self) -> Clock:
        """Of any shard: for how long something takes, they are the same."""
        return next(iter(self.kept.values())).clock

    # --- opening

    async def open(self, *, threaded: bool = True) -> None:
        """Lock the directory, recover, and begin to write.

        Without threads nothing is written but by `step()`, and checkpoints hold up the loop.
        """
        self.is_threaded = threaded
        filesystem, clock = self.filesystem, self._clock
        self._lock = filesystem.lock("lock")
        try:
            # Also for what a process before us made and did not come to sync: the directories, or
            # a manifest whose predecessor refers to the files that are about to be removed.
            make_directories(filesystem, 0, SEGMENTS, JOURNAL)
            began = clock.monotonic()
            records = await self._recover()
            seconds = clock.monotonic() - began
            states = [kept.shard.state for kept in self.kept.values()]
            torn = self._journal.recovered.torn_tail
            self.recovery = tell_recovered(filesystem, states, records, torn, seconds)
        except BaseException:
            for kept in self.kept.values():
                kept.store.close()
            self._lock.release()
            self._lock = None
            raise
        for kept in self.kept.values():
            kept.limit_producers(self.producer_limits)
        if threaded:
            self._pool = ThreadPoolExecutor(READING_THREADS, thread_name_prefix="flintmq-read")
            self._far = ThreadPoolExecutor(FAR_THREADS, thread_name_prefix="flintmq-far")
            self.damages.start()
            self._commit.start()
            for kept in self.kept.values():
                kept.store.read_aside(self._pool, self._far)
                if kept.is_checkpoint_due():
                    # A process that died over a large journal leaves all of it in our memory.
                    kept.checkpoints.begin()

    def step(self) -> bool:
        """Without threads: write what waits, and apply it. Whether there was anything to do."""
        return self._commit.step()

    async def _recover(self) -> int:
        """Take up what is there; how many records of the journal that were."""
        for kept in self.kept.values():
            kept.manifest = opened(kept.checkpoints.manifest, self.filesystem, kept.group)
            if kept.log.leads_alone and kept.manifest is not None and kept.manifest.members:
                raise InvalidRequest(
                    f"{self.filesystem.describe()} is the directory of a node of a cluster: open "
                    "it as that node"
                )
        self._journal = Journal.open(
            self.filesystem,
            JOURNAL,
            file_bytes=self._journal_file_bytes,
            first_file_bytes=self.first_file_bytes,
        )
        logs = [kept.log for kept in self.kept.values()]
        is_one = len(logs) == 1
        self._commit = GroupCommit(
            self._journal,
            self._policy,
            on_durable=logs[0].durable_up_to if is_one else self._durable_up_to,
            on_failed=self.failed,
            on_written=logs[0].written_up_to if is_one else self._written_up_to,
            on_full=self._ran_full,
            on_room=self._has_room,
            on_slow=partial(was_slow, self.filesystem.describe()),
            on_stalled=partial(is_stalled, self.filesystem.describe()),
            sync_on_loop=self._sync_on_loop and is_one,
            is_slow=lambda seconds: seconds > self.slow_disk_seconds,
        )
        pace = RecoveryPace(self.is_threaded, RECOVERY_STEP_SECONDS)
        try:
            self._check_groups()
            for group, kept in self.kept.items():
                make_directories(self.filesystem, group, SEGMENTS)
                kept.connect(self._commit, self._queue_bytes_max)
                if kept.manifest is not None:
                    check_segments(kept.files, kept.manifest)
                    await restore(kept.shard.state, kept.manifest, kept.store, pace)
            found = await replay(self._journal, self._checkpoints(), self.kept, pace)
            self._replayed_bytes = sum(replayed.bytes for replayed in found.values())
            for group, kept in self.kept.items():
                kept.go_on_behind(found[group])
                if kept.log.leads_alone:
                    await kept.take_lead(self._reclaim_seconds, pace.step_aside)
                kept.remove_unfinished()
        except BaseException:
            self._journal.abandon()
            raise
        return sum(replayed.records for replayed in found.values())

    def _check_groups(self) -> None:
        """Nothing of a group that nobody keeps here may be let go, and none may be missing."""
        filesystem, there = self.filesystem, set(groups_in(self.filesystem))
        states = self._journal.states()
        left = {group for group, state in states.items() if state.flags & HAS_LEFT}
        known = (states.keys() | self._journal.groups().keys()) - left
        if others := sorted((there | known) - {0} - self.kept.keys()):
            raise InvalidRequest(
                f"{filesystem.describe()} holds group{'s' if others[1:] else ''} "
                f"{', '.join(map(str, others))} of a cluster: open it as a node of that cluster"
            )
        if lost := sorted(known - there):
            raise Corrupt(
                f"the files of group {lost[0]} are missing in {filesystem.describe(GROUPS)}, but "
                "the journal has records of it; restore a backup"
            )

    def _checkpoints(self) -> dict[int, int]:
        """Up to which index each group is in segments."""
        return {
            group: kept.checkpoints.manifest.head.checkpoint for group, kept in self.kept.items()
        }

    # --- settings

    def set_sizes(self, *, checkpoint_bytes: int, queue_bytes_max: int) -> None:
        """How much the journal grows between checkpoints, and how much may wait for the disk."""
        self.checkpoint_bytes, self._queue_bytes_max = checkpoint_bytes, queue_bytes_max
        for kept in self.kept.values():
            kept.set_sizes(checkpoint_bytes, queue_bytes_max)

    def set_producer_limits(self, seconds: float, bytes_max: int) -> None:
        """How long, and in how many bytes, producers are remembered."""
        self.producer_limits = (round(seconds * 1000), bytes_max)
        for kept in self.kept.values():
            kept.limit_producers(self.producer_limits)

    # --- what the journal tells

    def _durable_up_to(self, ticket: int) -> None:
        for kept in self.kept.values():
            kept.log.durable_up_to(ticket)

    def _written_up_to(self, ticket: int) -> None:
        for kept in self.kept.values():
            kept.log.written_up_to(ticket)

    def failed(self, error: FlintError) -> None:
        event(
            _log,
            logging.ERROR,
            "disk_failed",
            f"the disk failed; nothing is written until the next start: {error}",
            directory=self.filesystem.describe(),
        )
        for kept in self.kept.values():
            kept.shard.proposer.fail(error)
            for topic in kept.shard.topics.values():
                topic.wake_publisher()
        self._tell_failed(error)

    def _tell_failed(self, error: FlintError) -> None:
        if self.on_failed is not None:
            self.on_failed(error)

    def _ran_full(self, error: StorageFull) -> None:
        self.journal_full = error
        self.note_room()
        for kept in self.kept.values():
            kept.checkpoints.begin()  # they give files of the journal back

    def _has_room(self) -> None:
        self.journal_full = None
        self.note_room()

    def note_room(self) -> None:
        """Tell when publishers begin to be refused, and when that is over."""
        found = (kept.checkpoints.full for kept in self.kept.values())
        full = self.journal_full or next(filter(None, found), None)
        for kept in self.kept.values():
            kept.shard.proposer.full = full
        now = self._clock.monotonic()
        if full is not None and self._full_since is None:
            self._full_since = now
            event(
                _log,
                logging.ERROR,
                "disk_full",
                f"publishes are rejected, consumers continue: {full}",
                directory=self.filesystem.describe(),
            )
        elif full is None and self._full_since is not None:
            since, self._full_since = self._full_since, None
            event(
                _log,
                logging.WARNING,
                "disk_has_room",
                "the disk has space again: publishes are accepted",
                directory=self.filesystem.describe(),
                seconds=now - since,
            )

    # --- checkpoints

    async def checkpoint(self) -> None:
        """Write what is in memory to segments, and let the journal's past go."""
        for kept in self.kept.values():
            await kept.checkpoints.checkpoint()

    def checkpoint_ended(self) -> None:
        """A shard has a new checkpoint. The journal is let go as far as no shard needs it: those
        that have nothing in it but what is in their checkpoints need nothing of it."""
        needed = {
            group: self.kept[group].log.needed_behind(checkpoint)
            for group, checkpoint in self._checkpoints().items()
        }
        self._commit.release_before(self._journal.needed_from(needed))
        if self.is_closing:
            return
        # One that writes little keeps what all others write since its last one.
        for kept in self.kept.values():
            pinned = self.journal_bytes() - kept.journal_bytes
            if pinned >= self.checkpoint_bytes * PINNED_TIMES and kept.has_news():
                kept.checkpoints.begin()

    def journal_bytes(self) -> int:
        """What the journal had to be replayed at the start, and was given since."""
        return self._replayed_bytes + self._commit.writer.written_bytes

    # --- looking

    def figures(self) -> JournalFigures | None:
        if self._lock is None:
            return None
        writer, all = self._commit.writer, self.kept.values()
        proposers = [kept.shard.proposer for kept in all]
        return JournalFigures(
            sync_seconds=writer.sync_seconds,
            written_bytes=writer.written_bytes,
            frames=writer.written_frames,
            waiting_bytes=sum(proposer.queued_bytes for proposer in proposers),
            unflushed_bytes=sum(max(0, kept.unflushed()) for kept in all),
            checkpoint_seconds=self.checkpoint_seconds,
            checkpoint_failures=sum(kept.checkpoints.failures for kept in all),
            is_full=any(proposer.full is not None for proposer in proposers),
            last_index=sum(proposer.log.index for proposer in proposers),
            applied_index=sum(proposer.applied for proposer in proposers),
            damaged_messages=self.damages.messages(),
            scrub_bytes=self.damages.scrubber.read_bytes,
            tier_bytes=sum(kept.tiering.uploaded_bytes for kept in all),
            tier_failures=sum(kept.tiering.failures for kept in all),
            scrub_passes=self.damages.scrubber.passes,
            loop_syncs=self._commit.loop_syncs.count,
            stalled_syncs=self._commit.watch.stalled,
        )

    async def settled(self) -> bool:
        """Wait until nothing is on its way to the disk; whether there was anything to wait for."""
        if self._lock is None:
            return False
        waited = False
        for kept in self.kept.values():
            proposer, checkpoints = kept.shard.proposer, kept.checkpoints
            while (
                not proposer.is_quiet()
                or checkpoints.running is not None
                or await kept.store.settled()
            ):
                waited = True
                if checkpoints.running is not None:
                    await asyncio.wait([checkpoints.running])
                await proposer.wait_quiet()
        return waited

    async def back_up(self, directory: str) -> None:
        await self.back_up_to(LocalFileSystem(Path(directory)))

    async def back_up_to(self, target: FileSystem) -> None:
        """Copy everything up to now to an empty place. Publishing goes on meanwhile."""
        await back_up_to(target, self)

    # --- the end

    async def close(self) -> None:
        """Write what is left; then everybody hears of the end."""
        if self._lock is None:
            self._end()
            return
        self.is_closing = True
        all = self.kept.values()
        for kept in all:
            await kept.tiering.close()
        had_failed = {kept.group for kept in all if kept.shard.failure is not None}
        try:
            for kept in all:
                kept.shard.proposer.end_turn()
            for kept in all:
                if kept.resting_bytes() > flushing.OWN_SEGMENT_BYTES_MAX:
                    continue  # to copy a large commit takes long; the next start has the journal
                with suppress(FlintError):  # the journal has what a checkpoint could not write
                    await kept.checkpoints.checkpoint()
        finally:
            # Whatever went wrong: nothing is acknowledged any more before the lock is given back.
            try:
                if self.damages.scrubber.is_running:
                    await aside(self, self.damages.scrubber.stop)
                self._end()
            finally:
                try:
                    await self._commit.close()
                finally:
                    for pool in (self._pool, self._far):
                        if pool is not None:
                            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
                    for kept in all:
                        kept.checkpoints.end()
                        kept.store.close()
                    self._lock.release()
        for kept in all:
            if kept.shard.failure is not None and kept.group not in had_failed:
                raise again(kept.shard.failure)  # a fault of ours: nobody else has heard of it

    def _end(self) -> None:
        for kept in self.kept.values():
            kept.shard.close()


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
