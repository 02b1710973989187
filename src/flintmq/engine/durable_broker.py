"""The broker over a data directory: the same engine, with a journal between deciding and applying.

Opening takes up what the last checkpoint holds and replays the journal from there. A checkpoint
writes what the topics hold in memory into segments, then a manifest, and lets the journal go on
without what was before it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, ParamSpec, TypeVar

import msgspec

from ..batch import BatchBuilder, RecordBatch
from ..broker_api import Filter
from ..clock import Clock, Timer
from ..errors import (
    BrokerFailed,
    Corrupt,
    FlintError,
    InvalidRequest,
    StorageFailed,
    StorageFull,
)
from ..fsync_policy import FsyncPolicy
from ..logs import event, limited
from ..metrics import LONG_SECONDS, Histogram
from ..model import MEMORY_RETENTION_BYTES, Durability, Receipt, Start, TopicInfo, TopicOptions
from ..patterns import check_name
from ..rows import Decoder
from ..storage.backup import Progress, back_up, check_empty
from ..storage.filesystem import FileSystem, LocalFileSystem, Lock
from ..storage.frames import ENTRY, RESTART, Record
from ..storage.group_commit import GroupCommit
from ..storage.journal import FILE_BYTES, FIRST_FILE_BYTES, TORN, Journal
from ..storage.manifest import CursorState, Manifest, ManifestStore, TopicState, check_not_lost
from ..storage.scrub import Found, Scrubber, cause_of
from ..storage.segments import (
    HIDDEN_TOPIC,
    Section,
    SegmentStore,
    SegmentWriter,
    is_damage,
    joined,
)
from ..storage.topic_log import Damage, TopicLog
from .broker import Broker
from .commands import (
    AbortStages,
    Append,
    BeginEpoch,
    Buffer,
    Change,
    Command,
    CommitStage,
    CreateTopics,
    LimitProducers,
    SetCursor,
    Stage,
    StagedBatch,
    decode_command,
    topics_of,
)
from .dedup import PRODUCER_BYTES, PRODUCER_SECONDS, Remembered, Snapshot
from .durable_topic import DurableTopic
from .figures import JournalFigures
from .in_turn import InTurn
from .log import CHUNK_BYTES, CHUNK_ROWS
from .pending import Pending
from .proposer import QUEUE_BYTES_MAX, Proposer
from .readers import Reader
from .staged_segments import note_written, restore_staging, states_of, write_staged
from .staging import STAGED_SECONDS, Staging
from .topic import Topic
from .waiting import again

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

CHECKPOINT_BYTES = 32 * 1024 * 1024
"""How much the journal grows between two checkpoints."""

BACKLOG_TIMES = 1.75
"""How much may be in memory and in no segment, by that figure, before publishers have to wait."""

OWN_SEGMENT_BYTES = 256 * 1024
"""Topics with less than this to flush share a segment."""

SHARED_SECTIONS_MAX = 8
"""How many small sections a topic has before they are written anew as one."""

CHECKPOINT_RETRY_SECONDS = 1.0
"""How soon a checkpoint that found the disk full is tried again."""

SLOW_DISK_SECONDS = 1.0
"""A write with its sync that takes longer is told."""

RECOVERY_STEP_SECONDS = 0.02
"""How long recovery keeps the event loop to itself."""

CHECKPOINT_STEP_SECONDS = 0.003
"""How long a checkpoint does."""

TOPICS_MADE_AT_ONCE = 128
"""How many one command makes on the fly: more would keep the event loop too long."""

_GROUP = 0
_TERM = 1
SEGMENTS = "segments"
JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening found and did."""

    topics: int
    groups: int
    messages: int
    records_replayed: int
    torn_bytes: int
    seconds: float


class DurableBroker(Broker):
    first_file_bytes = FIRST_FILE_BYTES
    """How large the journal's first file is; those after it double."""

    def __init__(
        self,
        filesystem: FileSystem,
        *,
        clock: Clock | None = None,
        decoder: Decoder | None = None,
        fsync: FsyncPolicy | None = None,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        journal_file_bytes: int = FILE_BYTES,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        staging: Staging | None = None,
        staged_seconds: float = STAGED_SECONDS,
        slow_disk_seconds: float = SLOW_DISK_SECONDS,
        reclaim_seconds: float = 0.0,
        scrub_bytes_per_second: int = 0,
        producer_seconds: float = PRODUCER_SECONDS,
        producer_bytes: int = PRODUCER_BYTES,
    ) -> None:
        """What was handed out when the process before this one ended is kept `reclaim_seconds` for
        consumers that come back; 0 where they ended with it."""
        super().__init__(clock, decoder, staging=staging, staged_seconds=staged_seconds)
        self._defaults = TopicOptions(storage="durable", retention_bytes=None)
        self._filesystem = filesystem
        self._policy = fsync or FsyncPolicy()
        self._checkpoint_bytes = checkpoint_bytes
        self._journal_file_bytes = journal_file_bytes
        self._queue_bytes_max = queue_bytes_max
        self.on_failed: Callable[[FlintError], None] | None = None
        """Told when the disk has failed, or the broker itself: nothing is written any more until
        the next start."""
        self.slow_disk_seconds = slow_disk_seconds
        self._reclaim_seconds = reclaim_seconds
        self._producer_limits = (round(producer_seconds * 1000), producer_bytes)
        self._limits_decided = (0, 0)
        self._durably_remembered = Remembered()
        """Of durable topics: it follows from the journal, and from nothing else."""
        self.recovery: Recovery | None = None
        self._being_made = InTurn()
        self._wanted: dict[str, None] = {}
        self._making: asyncio.Task[None] | None = None
        self._lock: Lock | None = None
        self._store = SegmentStore(filesystem)
        self._manifest = ManifestStore(filesystem)
        self._changed: set[int] = set()
        """Topics that are not as the last checkpoint has them."""
        self._plan: _Plan | None = None
        """The checkpoint that is being planned."""
        self._durably_remembered.on_change = self._note_change
        self._index = 0
        self._journal_is_behind = False
        self._next_file = 1
        self._litter: list[str] = []
        self._copied: list[set[str]] = []
        self._since_checkpoint = self._being_flushed = 0
        self._checkpointing: asyncio.Task[FlintError | None] | None = None
        self._checkpoint_timer: Timer | None = None
        self._checkpoint_seconds = Histogram(LONG_SECONDS)
        self._checkpoint_failures = 0
        self._changing = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._last_change: asyncio.Future[None] | None = None
        self._journal_full: StorageFull | None = None
        self._segments_full: StorageFull | None = None
        self._full_since: float | None = None
        self._threaded = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._journal: Journal
        self._commit: GroupCommit
        self._proposer: Proposer
        self._tickets: list[tuple[int, int]] = []
        self._epoch_number = 0
        self._epoch_begun: asyncio.Future[None] | None = None
        self._on_written: deque[tuple[int, Callable[[], None]]] = deque()
        self._damaged: set[int] = set()
        """Topics that had damage when it was found."""
        self.on_damage: Callable[[], None] = lambda: None
        """Told when messages were found damaged: `damages()` has them all."""
        self.scrubber = Scrubber(
            filesystem, lambda: self._manifest.files(), self._scrub_found, scrub_bytes_per_second
        )

    # --- opening

    async def open(self, *, threaded: bool = True) -> None:
        """Lock the directory, recover, and begin to write.

        Without threads nothing is written but by `step()`, and checkpoints hold up the loop.
        """
        self._threaded = threaded
        filesystem = self._filesystem
        self._lock = filesystem.lock("lock")
        try:
            for directory in (SEGMENTS, JOURNAL):
                if not filesystem.exists(directory):
                    filesystem.make_directory(directory)
            # Also for what a process before us made and did not come to sync: the directories, or
            # a manifest whose predecessor refers to the files that are about to be removed.
            filesystem.sync_directory("")
            began = self.clock.monotonic()
            records = await self._recover()
            self._tell_recovered(records, self.clock.monotonic() - began)
        except BaseException:
            self._lock.release()
            self._lock = None
            raise
        known = self._durably_remembered
        self._limits_decided = (known.age_ms, known.bytes_max)
        self._limit_producers()
        if threaded:
            self._loop = asyncio.get_running_loop()
            if self.scrubber.bytes_per_second:
                self.scrubber.start()
            self._commit.start()
            if self._since_checkpoint >= self._checkpoint_bytes:
                # A process that died over a large journal leaves all of it in our memory.
                self._begin_checkpoint()

    def set_sizes(self, *, checkpoint_bytes: int, queue_bytes_max: int) -> None:
        """How much the journal grows between checkpoints, and how much may wait for the disk."""
        self._checkpoint_bytes, self._queue_bytes_max = checkpoint_bytes, queue_bytes_max
        self._proposer.queue_bytes_max = queue_bytes_max
        self._note_backlog()
        self._proposer.let_go_on()

    def set_producer_limits(self, seconds: float, bytes_max: int) -> None:
        """How long, and in how many bytes, producers are remembered."""
        self._producer_limits = (round(seconds * 1000), bytes_max)
        self._limit_producers()

    def _limit_producers(self) -> None:
        self._remembered.set_limits(*self._producer_limits)
        if self._limits_decided != self._producer_limits and self._proposer.failure is None:
            self._limits_decided = self._producer_limits
            self._proposer.propose(LimitProducers(*self._limits_decided))

    def step(self) -> bool:
        """Without threads: write what waits, and apply it. Whether there was anything to do."""
        return self._commit.step()

    async def _recover(self) -> int:
        """Take up what is there; how many records of the journal that were."""
        manifest = self._manifest.open()
        if manifest is None:
            check_not_lost(self._filesystem, SEGMENTS, JOURNAL)
        else:
            self._check_journal(manifest)
        self._journal = Journal.open(
            self._filesystem,
            JOURNAL,
            file_bytes=self._journal_file_bytes,
            first_file_bytes=self.first_file_bytes,
        )
        self._commit = GroupCommit(
            self._journal,
            self._policy,
            on_durable=self._durable_up_to,
            on_failed=self._failed,
            on_written=self._written_up_to,
            on_full=self._ran_full,
            on_room=self._has_room,
            on_slow=self._was_slow,
            is_slow=lambda seconds: seconds > self.slow_disk_seconds,
        )
        durability: Durability = "synced" if self._policy.acknowledges_after_sync else "written"
        self._proposer = Proposer(self._submit, self.apply, durability, self._fault)
        self._proposer.queue_bytes_max = self._queue_bytes_max
        self._proposer.is_recovering = True
        pace = _Pace(self._threaded, RECOVERY_STEP_SECONDS)
        try:
            if manifest is not None:
                self._check_segments(manifest)
                await self._take_up(manifest, pace)
            records = await self._replay(pace)
        except BaseException:
            self._journal.abandon()
            raise
        self._proposer.is_recovering = False
        self._proposer.applied = self._index
        times = (topic.log.last_time for topic in self._by_id.values())
        self.clock.begin_at(max(self._manifest.head.time_ms, *times, 0))
        self._staging_view = self._staging.copy()
        self._arm_staging()
        for topic in self._by_id.values():
            if isinstance(topic, DurableTopic):
                topic.take_up(self._reclaim_seconds)
        self._remove_unfinished(manifest)
        return records

    def _tell_recovered(self, records: int, seconds: float) -> None:
        topics = list(self._by_id.values())
        torn = self._journal.recovered.torn_tail
        self.recovery = Recovery(
            topics=len(topics),
            groups=sum(len(topic.queues) for topic in topics),
            messages=sum(topic.log.next_offset - topic.log.first_offset for topic in topics),
            records_replayed=records,
            torn_bytes=torn.bytes if torn is not None else 0,
            seconds=seconds,
        )
        event(
            _log,
            logging.INFO,
            "recovered",
            "the data directory is recovered",
            directory=self._filesystem.describe(),
            **asdict(self.recovery),
        )
        if torn is not None:
            event(
                _log,
                logging.WARNING,
                "journal_cut",
                "the last write of the journal is not whole: it was cut off and saved aside; "
                + TORN,
                file=torn.file,
                at=torn.offset,
                bytes=torn.bytes,
                saved_as=torn.saved_as,
            )

    def _check_segments(self, manifest: Manifest) -> None:
        """Segments that the manifest names and that are gone are told now, not to some reader."""
        there = {f"{SEGMENTS}/{name}" for name in self._filesystem.list(SEGMENTS)}
        named = {section.file for topic in manifest.topics for section in topic.sections}
        if missing := sorted(named - there):
            self._journal.abandon()
            raise Corrupt(
                f"segment {missing[0]}"
                + (f" and {len(missing) - 1} more are" if missing[1:] else " is")
                + " missing; restore a backup, or see what `flintmq log repair` can save"
            )

    def _check_journal(self, manifest: Manifest) -> None:
        """A journal that is gone is told every time, so before a new one is begun."""
        names = self._filesystem.list(JOURNAL)
        if manifest.position and not any(name.startswith("journal-") for name in names):
            raise Corrupt(
                f"the last checkpoint ends with index {manifest.checkpoint} of a journal that is "
                "not there: what was acknowledged since is missing; restore a backup, or run "
                "`flintmq log repair --cut-journal` to go on without it"
            )

    async def _replay(self, pace: _Pace) -> int:
        records = 0
        self._index = self._manifest.head.checkpoint
        known = self._journal.groups().get(_GROUP)
        if known is None:
            return 0
        if known.first_index > self._index + 1:
            raise Corrupt(
                f"the journal begins with index {known.first_index}, but the last checkpoint "
                f"ends with {self._index}: files are missing; restore a backup, or see what "
                "`flintmq log repair` can save"
            )
        # Without `always` a power cut may leave the journal behind the checkpoint. It then goes on
        # with other frames at the same positions: where to read is asked of the journal.
        self._journal_is_behind = known.next_index <= self._index
        for _, record in self._journal.replay(self._journal.position_of(_GROUP, self._index + 1)):
            if record.group == _GROUP and record.index > self._index:
                assert record.index == self._index + 1, "the journal has no gaps"
                # What is read is a view of a large buffer; what is kept is a copy of its own.
                self._apply_again(record.index, decode_command(bytes(record.payload)))
                self._index = record.index
                self._since_checkpoint += len(record.payload)
                records += 1
                await pace.step_aside()
        return records

    def _apply_again(self, index: int, command: Command) -> None:
        try:
            self.apply(command)
        except FlintError:
            raise
        except Exception as error:
            where = f"applying {type(command).__name__}, index {index} of the journal, again"
            raise BrokerFailed(where, f"{type(error).__name__}: {error}") from error

    async def _take_up(self, manifest: Manifest, pace: _Pace) -> None:
        self._last_topic_id = manifest.last_topic_id
        self._epoch_number = manifest.epoch
        for state in manifest.topics:
            await pace.step_aside()
            self._create([(state.id, state.name)], state.options)
            topic = self._by_id[state.id]
            if isinstance(topic, DurableTopic):
                topic.log.restore(
                    list(state.sections),
                    state.first_offset,
                    state.next_offset,
                    state.last_time,
                    state.sizes,
                )
                topic.producers.restore_older(state.producers, state.last_time)
                for _ in topic.producers.restoring(state.windows):
                    await pace.step_aside()
                for cursor in state.cursors:
                    topic.apply_cursor(cursor.name, cursor.began, cursor.committed)
                topic.restore_groups(state.groups, state.cancelled, state.discarded)
                if not state.sizes:
                    self._changed.add(state.id)  # it is of an earlier version
        remembered = self._durably_remembered
        remembered.time_ms = max(remembered.time_ms, manifest.producer_time)
        if manifest.producer_limits is not None:
            remembered.set_limits(*manifest.producer_limits)
        restore_staging(self._staging, manifest.stages, self._store)

    def _remove_unfinished(self, manifest: Manifest | None) -> None:
        """Remove segments that the manifest let go, and those of a checkpoint that never ended.

        Without a manifest only if the journal has everything from the beginning on: what else is
        there may be all that is left, and stays.
        """
        numbers = {
            f"{SEGMENTS}/{name}": int(name.partition(".")[0])
            for name in self._filesystem.list(SEGMENTS)
            if _SEGMENT_NAME.fullmatch(name)
        }
        head = self._manifest.head
        self._next_file = max(head.next_file, 1 + max(numbers.values(), default=0))
        known = self._journal.groups().get(_GROUP)
        if manifest is None and (known is None or known.first_index != 1):
            return
        gone = set(head.obsolete)
        self._litter = [
            path for path, number in numbers.items() if path in gone or number >= head.next_file
        ]
        self._remove_litter()

    def _remove_litter(self) -> None:
        """Remove segments that no manifest refers to, for good."""
        kept = set().union(*self._copied)
        for path in self._litter:
            if path not in kept and self._filesystem.exists(path):
                self._filesystem.remove(path)
        if self._litter:
            self._filesystem.sync_directory(SEGMENTS)
        self._litter = [path for path in self._litter if path in kept]

    # --- between deciding and applying

    def _submit(
        self, buffers: Sequence[Buffer], on_written: Callable[[], None] | None = None
    ) -> int:
        index = self._index + 1
        kind = RESTART if self._journal_is_behind else ENTRY
        ticket = self._commit.submit(
            [Record(_GROUP, _TERM, index, tuple(buffers), kind)],
            tell_when_written=on_written is not None,
        )
        if on_written is not None:
            self._on_written.append((ticket, on_written))
        self._journal_is_behind = False
        self._index = index
        self._tickets.append((ticket, index))
        self._since_checkpoint += sum(map(len, buffers))
        self._note_backlog()
        return index

    def _written_up_to(self, ticket: int) -> None:
        while self._on_written and self._on_written[0][0] <= ticket:
            self._on_written.popleft()[1]()

    def _note_backlog(self) -> None:
        """Hold publishers back where checkpoints are slower than they: memory is bounded."""
        unflushed = self._since_checkpoint + self._being_flushed
        self._proposer.is_behind = unflushed >= self._checkpoint_bytes * BACKLOG_TIMES

    def _durable_up_to(self, ticket: int) -> None:
        index = 0
        count = 0
        for known, known_index in self._tickets:
            if known > ticket:
                break
            index = known_index
            count += 1
        del self._tickets[:count]
        self._proposer.committed(index)
        if self._since_checkpoint >= self._checkpoint_bytes and self._segments_full is None:
            self._begin_checkpoint()

    def _failed(self, error: FlintError) -> None:
        event(
            _log,
            logging.ERROR,
            "disk_failed",
            f"the disk has failed, nothing is written any more until the next start: {error}",
            directory=self._filesystem.describe(),
        )
        self._proposer.fail(error)
        for topic in self._by_id.values():
            topic.wake_publishers()
        if self.on_failed is not None:
            self.on_failed(error)

    def _stop_for(self, failure: FlintError) -> None:
        self._proposer.fail(failure)
        for topic in self._by_id.values():
            if isinstance(topic, DurableTopic):
                topic.give_up(failure)
        super()._stop_for(failure)
        if self.on_failed is not None:
            self.on_failed(failure)

    def _ran_full(self, error: StorageFull) -> None:
        self._journal_full = error
        self._note_room()
        self._begin_checkpoint()  # it gives files of the journal back

    def _has_room(self) -> None:
        self._journal_full = None
        self._note_room()

    def _note_room(self) -> None:
        """Tell when publishers begin to be refused, and when that is over."""
        full = self._journal_full or self._segments_full
        now = self.clock.monotonic()
        if full is not None and self._full_since is None:
            self._full_since = now
            event(
                _log,
                logging.ERROR,
                "disk_full",
                f"publishers are refused, consumers go on: {full}",
                directory=self._filesystem.describe(),
            )
        elif full is None and self._full_since is not None:
            since, self._full_since = self._full_since, None
            event(
                _log,
                logging.WARNING,
                "disk_has_room",
                "the disk has room again: publishers are no longer refused",
                directory=self._filesystem.describe(),
                seconds=now - since,
            )

    def _was_slow(self, seconds: float, size: int) -> None:
        limited(
            _log,
            logging.WARNING,
            "slow_disk",
            self._filesystem.describe(),
            "the disk took long to write and sync; publishers wait for it",
            directory=self._filesystem.describe(),
            seconds=seconds,
            bytes=size,
        )

    def _check_room(self) -> None:
        full = self._journal_full or self._segments_full
        if full is not None:
            raise again(full)

    def journal_figures(self) -> JournalFigures | None:
        if self._lock is None:
            return None
        return JournalFigures(
            sync_seconds=self._commit.sync_seconds,
            written_bytes=self._commit.written_bytes,
            frames=self._commit.written_frames,
            waiting_bytes=self._proposer.queued_bytes,
            unflushed_bytes=max(0, self._since_checkpoint + self._being_flushed),
            checkpoint_seconds=self._checkpoint_seconds,
            checkpoint_failures=self._checkpoint_failures,
            is_full=self._journal_full is not None or self._segments_full is not None,
            last_index=self._index,
            applied_index=self._proposer.applied,
            damaged_messages=self.damaged_messages(),
            scrub_bytes=self.scrubber.read_bytes,
            scrub_passes=self.scrubber.passes,
        )

    async def settled(self) -> bool:
        """Wait until nothing is on its way to the disk; whether there was anything to wait for."""
        if self._lock is None:
            return False
        waited = False
        while not self._proposer.is_quiet() or self._checkpointing is not None:
            waited = True
            if self._checkpointing is not None:
                await asyncio.wait([self._checkpointing])
            await self._proposer.wait_quiet()
        return waited

    @asynccontextmanager
    async def _deciding(self) -> AsyncIterator[None]:
        """One change at a time is decided, each knowing the outcome of the one before, also if
        whoever asked for that did not wait for it."""
        async with self._changing:
            if self._last_change is not None and not self._last_change.done():
                await asyncio.wait([self._last_change])
            yield

    async def _change(self, command: Change) -> None:
        self._last_change = self._proposer.begin(command)
        await asyncio.shield(self._last_change)

    def apply(self, command: Command) -> None:
        if isinstance(command, Append):
            self._note_change(command.topic)
            if topic := self._durable(command.topic):
                topic.apply_append(command.batch)
            return
        for id in topics_of(command):
            self._note_change(id)
        match command:
            case SetCursor(id, name, began, committed):
                if topic := self._durable(id):
                    topic.apply_cursor(name, began, committed)
            case LimitProducers(age_ms, bytes_max):
                self._durably_remembered.set_limits(age_ms, bytes_max)
            case BeginEpoch(epoch):
                self._epoch_number = max(self._epoch_number, epoch)
            case _:
                super().apply(command)

    async def _epoch(self) -> int:
        """A number that no run before this one has used, durably so before it is used."""
        self._check_open()
        if self._epoch_begun is None:
            self._epoch_begun = self._proposer.begin(BeginEpoch(self._epoch_number + 1))
        await asyncio.shield(self._epoch_begun)
        return self._epoch_number

    def _durable(self, id: int) -> DurableTopic | None:
        """A topic; None if it was deleted after the command was decided."""
        topic = self._by_id.get(id)
        return topic if isinstance(topic, DurableTopic) else None

    def _new_topic(self, id: int, name: str, options: TopicOptions) -> Topic:
        if options.storage == "memory":
            return super()._new_topic(id, name, options)
        return DurableTopic(
            name,
            id,
            options,
            clock=self.clock,
            cache=self._cache,
            board=self._board,
            decoder=self._decoder,
            apply=self.apply,
            bury=self.bury,
            compile=self._compile,
            guarded=self.guarded,
            log=TopicLog(
                id,
                self._store,
                self._cache,
                name=name,
                on_damage=lambda damage: self._messages_damaged(id, name, damage),
            ),
            remembered=self._durably_remembered,
            proposer=self._proposer,
        )

    # --- damage

    def damages(self) -> dict[str, list[Damage]]:
        """What is known to be damaged on the disk, by topic."""
        return {
            topic.name: list(topic.log.damaged)
            for id in sorted(self._damaged)
            if (topic := self._durable(id)) is not None and topic.log.damaged
        }

    def damaged_messages(self) -> int:
        return sum(damage.next - damage.first for all in self.damages().values() for damage in all)

    def _messages_damaged(self, id: int, topic: str, damage: Damage) -> None:
        self._damaged.add(id)
        limited(
            _log,
            logging.ERROR,
            "messages_damaged",
            topic,
            f"messages of a topic are damaged on the disk, everything else goes on: {damage.cause}",
            amount=damage.next - damage.first,
            topic=topic,
            first_offset=damage.first,
            next_offset=damage.next,
            file=self._filesystem.describe(damage.file),
        )
        self.on_damage()

    def _scrub_found(self, found: Found) -> None:
        """In the thread that looks for damage."""
        if self._loop is None:
            self._take_note(found)
            return
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._take_note, found)

    def _take_note(self, found: Found) -> None:
        if found.what == "messages" and found.topic != HIDDEN_TOPIC:
            owner = self._durable(found.topic)
            if owner is not None and owner.log.holds(found.file, found.first):
                owner.log.note_damage(*found[4:6], found.file, found.cause, found.is_proven)
            return
        event(
            _log,
            logging.ERROR,
            "segment_damaged",
            f"a file of messages is damaged on the disk: {found.cause}"
            + ("; no message is lost by that" if found.what == "copy" else ""),
            file=self._filesystem.describe(found.file),
        )
        if found.what == "index":
            for topic in self._by_id.values():
                if isinstance(topic, DurableTopic):
                    topic.log.note_lost_index(found.file, found.cause, found.is_proven)

    # --- the verbs, where they differ

    def publish_value_nowait(self, topic: str, value: bytes) -> Receipt | Pending | None:
        if self._journal_full is not None or self._segments_full is not None:
            return None
        if topic in self._being_made:
            return None
        return super().publish_value_nowait(topic, value)

    def publish_nowait(
        self,
        topic: str,
        rows: BatchBuilder | RecordBatch,
        *,
        qos: int,
        auto_create: bool,
        timeout: float | None = None,
    ) -> Receipt | Pending | None:
        found = self._topics.get(topic)
        if found is None or topic in self._being_made:
            self._check_open()
            return None
        return self._published(found, rows, qos)

    async def publish(
        self,
        topic: str,
        rows: BatchBuilder | RecordBatch,
        *,
        qos: int,
        auto_create: bool,
        timeout: float | None,
    ) -> Receipt:
        found = self._topics.get(topic)
        if found is None or topic in self._being_made:
            # The topic is there before whoever had it made goes on: others must not overtake them.
            async with self._being_made.turn(topic):
                found = await self._obtain(topic, auto_create)
                receipt = self._published(found, rows, qos)
        else:
            receipt = self._published(found, rows, qos)
        if receipt is None:
            receipt = await found.publish_when_possible(rows, qos, timeout)
        return await receipt if isinstance(receipt, Pending) else receipt

    def _published(
        self, topic: Topic, rows: BatchBuilder | RecordBatch, qos: int
    ) -> Receipt | Pending | None:
        if qos and isinstance(topic, DurableTopic):
            self._check_room()
        return topic.publish(rows, qos)

    async def _obtain_with(self, name: str, options: TopicOptions) -> Topic:
        if name not in self._topics:
            async with self._deciding():
                if name not in self._topics:
                    self._check_open()
                    await self._change(CreateTopics(self._numbered([name]), options))
        return self._topics[name]

    async def _obtain(self, name: str, auto_create: bool) -> Topic:
        """A topic, made if need be."""
        self._check_open()
        if name not in self._topics and auto_create and self.auto_create and _may_be_made(name):
            self._wanted[name] = None
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(self._make_wanted())
            try:
                await asyncio.shield(self._making)
            except FlintError as error:
                raise again(error) from error
        return self._topic(name, auto_create=False)

    async def _make_wanted(self) -> None:
        """Make the topics that were asked for since the last were decided, by one command."""
        async with self._deciding():
            names, self._wanted, self._making = list(self._wanted), {}, None
            for start in range(0, len(names), TOPICS_MADE_AT_ONCE):
                await self._make(names[start : start + TOPICS_MADE_AT_ONCE])

    async def _make(self, names: list[str]) -> None:
        self._check_open()
        self._check_room()
        lots: list[tuple[TopicOptions, list[str]]] = []
        for name in names:
            if name not in self._topics and f"{name}/0" not in self._topics:
                options = self._fresh_options(name)
                if not lots or lots[-1][0] != options:
                    lots.append((options, []))
                lots[-1][1].append(name)
        for options, named in lots:
            await self._change(CreateTopics(self._numbered(named), options))

    def _durability(self) -> Durability:
        return self._proposer.durability

    async def _ready_to_stage(self) -> None:
        self._check_room()
        await self._proposer.wait_room()

    async def _topics_at_rest(self) -> None:
        async with self._deciding():
            pass

    async def _caught_up(self) -> None:
        await self._proposer.wait_applied()

    def _note_lost(self, topic: Topic, batch: RecordBatch, staged: StagedBatch) -> None:
        assert isinstance(topic, DurableTopic), "only they keep anything on the disk"
        first, next = batch.base_offset, batch.base_offset + batch.row_count
        topic.log.note_damage(first, next, staged.file or SEGMENTS, staged.damage)

    async def _change_staging(self, command: Stage | CommitStage | AbortStages) -> None:
        done = self._proposer.begin(command)
        self._staging_view.apply(command)
        await done

    def _begin_abort(self, command: AbortStages) -> None:
        if self._proposer.failure is None:
            self._proposer.propose(command)
            self._staging_view.apply(command)

    async def create_topic(self, name: str, options: dict[str, object]) -> TopicInfo:
        async with self._deciding():
            return await super().create_topic(name, options)

    async def _create_row(self, name: str, options: TopicOptions) -> TopicInfo:
        self._check_room()
        return await super()._create_row(name, options)

    async def _introduce(self, names: set[str], topic: Topic) -> None:
        for name in names:
            reader = topic.open_reader(name, "earliest", None)
            await reader.begin()
            await reader.close()

    async def configure_topic(self, name: str, options: dict[str, object]) -> TopicInfo:
        async with self._deciding():
            ours = self._whole_row(name)[0].options
            if options.get("storage", ours.storage) != ours.storage:
                raise InvalidRequest(
                    f"topic {name!r} was made with storage={ours.storage!r}; it stays so"
                )
            return await super().configure_topic(name, options)

    async def delete_topic(self, name: str) -> None:
        async with self._deciding():
            await super().delete_topic(name)

    def _options(self, options: TopicOptions, changes: dict[str, object]) -> TopicOptions:
        wanted = super()._options(options, changes)
        if wanted.format == "object" and wanted.storage != "memory":
            if "storage" in changes:
                raise InvalidRequest("format='object' passes references: it has storage='memory'")
            changes = {**changes, "storage": "memory"}
            wanted = super()._options(options, changes)
        became_memory = wanted.storage == "memory" and options.storage != "memory"
        if became_memory and "retention_bytes" not in changes:
            changes = {**changes, "retention_bytes": MEMORY_RETENTION_BYTES}
            wanted = super()._options(options, changes)
        return wanted

    async def open_reader(
        self,
        topic: str,
        *,
        name: str | None,
        start: Start | None,
        filter: Filter | None,
        auto_create: bool,
    ) -> Reader:
        if name is not None:
            check_name(name, "reader")
            found = await self._obtain_for(name, topic, auto_create)
        else:
            found = await self._obtain(topic, auto_create)
        is_new = name is not None and name not in found.queues and not found.has_cursor(name)
        reader = found.open_reader(name, start, filter)
        if is_new:
            try:
                await reader.begin()
            except BaseException:
                await reader.close()
                raise
        return reader

    # --- checkpoints

    async def checkpoint(self) -> None:
        """Write what is in memory to segments, and let the journal's past go."""
        while self._checkpointing is not None:
            await asyncio.wait([self._checkpointing])
        task = self._begin_checkpoint()
        await asyncio.wait([task])  # which goes on if we are cancelled
        if (error := task.result()) is not None:
            raise again(error)

    def _begin_checkpoint(self) -> asyncio.Task[FlintError | None]:
        if self._checkpointing is None:
            self._checkpointing = asyncio.get_running_loop().create_task(self._checkpoint_now())
        return self._checkpointing

    async def _checkpoint_now(self) -> FlintError | None:
        """Segments, their directory, the manifest, its directory; then what that makes obsolete."""
        began = perf_counter()
        try:
            if self._proposer.failure is not None:
                return self._proposer.failure
            plan = self._begin_plan()
            # What is proposed and not yet applied has to wait for the next one.
            self._being_flushed = self._since_checkpoint - self._proposer.queued_bytes
            self._since_checkpoint -= self._being_flushed
            pace = _Pace(self._threaded, CHECKPOINT_STEP_SECONDS)
            await self._take_states(plan, pace)
            done = await self._aside(self._write_checkpoint, plan)
            await self._install(plan, done, pace)
            self._being_flushed = 0
            # Only now: until the sections were put in place, readers went by the old ones.
            await self._aside(self._remove_litter)
            self._commit.release_before(plan.head.position)
            self._segments_full = None
            self._checkpoint_seconds.observe(perf_counter() - began)
            self._note_room()
            if self._journal_full is not None:
                self._checkpoint_later()
        except StorageFull as error:
            self._changed |= plan.changed
            self._checkpoint_failures += 1
            self._segments_full = error
            self._note_room()
            self._checkpoint_later()
            await self._shed()
            return error
        except StorageFailed as error:
            self._failed(error)
            return error
        except Exception as error:
            self._fault("writing a checkpoint", error)
            return self._failure
        finally:
            self._checkpointing = self._plan = None
            self._since_checkpoint += self._being_flushed  # of a checkpoint that failed
            self._being_flushed = 0
            self._note_backlog()
            self._proposer.let_go_on()
        if self._since_checkpoint >= self._checkpoint_bytes and self._closing is None:
            self._begin_checkpoint()
        return None

    async def _aside(self, work: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
        if self._threaded:
            return await asyncio.to_thread(work, *args, **keywords)
        return work(*args, **keywords)

    async def _shed(self) -> None:
        """Where there is no room for a checkpoint: give back what only the last one refers to.

        Its index stays, so the journal is replayed over it. What is gone from it is what the
        journal drops or deletes behind that index.
        """
        known = self._manifest.topics
        changed = [
            left
            for id in self._changed
            if (state := known.get(id)) is not None
            and (left := _without(state, self._durable(id))).sections != state.sections
        ]
        if not changed:
            return
        head = msgspec.structs.replace(self._manifest.head, next_file=self._next_file)
        try:
            await self._aside(self._write_manifest, head, changed, set())
            self._forget_obsolete()
            await self._aside(self._remove_litter)
        except StorageFull:
            return
        except FlintError as error:
            self._failed(error)

    def _checkpoint_later(self) -> None:
        if not self._closed and self._checkpoint_timer is None:
            self._checkpoint_timer = self.clock.call_later(
                CHECKPOINT_RETRY_SECONDS, self.guarded(self._retry_checkpoint)
            )

    def _retry_checkpoint(self) -> None:
        """On a full disk: what was deleted or has had its time gives room with a checkpoint."""
        self._checkpoint_timer = None
        has_news = self._proposer.applied > self._manifest.head.checkpoint
        if self._segments_full is not None or (self._journal_full is not None and has_news):
            self._begin_checkpoint()
        elif self._journal_full is not None:
            self._checkpoint_later()

    def _note_change(self, id: int) -> None:
        """A topic is about to change: the checkpoint that is being planned takes it as it is."""
        if self._plan is not None and id in self._plan.due:
            self._take_state(self._plan, id)
        self._changed.add(id)

    def _begin_plan(self) -> _Plan:
        """A checkpoint of what is applied right now. The states of topics are taken in steps, and
        of those that change meanwhile before they do."""
        applied, remembered = self._proposer.applied, self._durably_remembered
        head = Manifest(
            applied,
            self._journal.position_of(_GROUP, applied + 1),
            self._last_topic_id,
            epoch=self._epoch_number,
            time_ms=self.clock.now_ms(),
            producer_limits=(remembered.age_ms, remembered.bytes_max),
            producer_time=remembered.time_ms,
        )
        self._plan = _Plan(head, self._staging.copy(), self._changed.copy(), self._changed)
        self._changed = set()
        return self._plan

    async def _take_states(self, plan: _Plan, pace: _Pace) -> None:
        for id in sorted(plan.due):
            if id in plan.due:
                self._take_state(plan, id)
                await pace.step_aside()
        self._plan = None

    def _take_state(self, plan: _Plan, id: int) -> None:
        """What a topic has to write, as of now."""
        plan.due.discard(id)
        topic = self._by_id.get(id)
        if topic is None:
            plan.deleted.add(id)
            return
        if isinstance(topic, DurableTopic):
            log = topic.log
            log.drop_sections(len(log.sections_to_drop()))
            if tail := log.tail():
                small = 0
                for section in reversed(log.sections):
                    if section.size >= OWN_SEGMENT_BYTES or log.is_damaged(section):
                        break
                    small += 1
                merge = small if small >= SHARED_SECTIONS_MAX else 0
                merged = log.sections[-merge:] if merge else []
                plan.flushes.append(_Flush(topic, tail, merge, merged))
            if topic.producers:
                plan.windows[id] = topic.producers.snapshot()
        plan.states.append(self._state_of(topic))

    def _state_of(self, topic: Topic) -> TopicState:
        if not isinstance(topic, DurableTopic):
            return TopicState(topic.id, topic.name, topic.options, 0, 0, 0, [], [], [])
        log = topic.log
        return TopicState(
            topic.id,
            topic.name,
            topic.options,
            log.first_offset,
            log.next_offset,
            log.last_time,
            list(log.sections),
            [CursorState(*cursor) for cursor in topic.cursor_states()],
            [],
            topic.group_states(),
            topic.lanes.cancelled.ranges(),
            [] if topic.discarded is None else topic.discarded.ranges(),
            sizes=log.sizes.snapshot(),
        )

    def _write_checkpoint(self, plan: _Plan) -> _Done:
        """In a thread: segments, then the manifest that refers to them."""
        first_file = self._next_file
        try:
            staged_file = write_staged(plan.staging, self._new_segment)
            if staged_file is not None:
                self._filesystem.sync_directory(SEGMENTS)
            stages = states_of(plan.staging, staged_file)
            sections, merged, found = self._write_segments(plan.flushes)
            states = []
            plan.states.sort(key=lambda state: state.id, reverse=True)
            while plan.states:  # freed one by one, not all at the end on the event loop
                state = _with_section(plan.states.pop(), sections, merged)
                states.append(_with_windows(state, plan.windows.pop(state.id, None)))
            head = msgspec.structs.replace(plan.head, next_file=self._next_file, stages=stages)
            self._write_manifest(head, states, plan.deleted)
        except StorageFull:
            # The manifest is the old one: a full disk is noticed before the new one has its name.
            # Numbers are not used again, so that what cannot be removed now is in nobody's way.
            self._litter += [_segment_name(n) for n in range(first_file, self._next_file)]
            with suppress(FlintError):
                self._remove_litter()
            raise
        return _Done(sections, merged, found, staged_file)

    def _write_manifest(self, head: Manifest, changed: list[TopicState], deleted: set[int]) -> None:
        self._manifest.write(head, changed, deleted, self._litter)
        self._next_file = self._manifest.head.next_file

    def _write_segments(
        self, flushes: list[_Flush]
    ) -> tuple[dict[int, Section], dict[int, int], list[Found]]:
        """The sections by topic, how many earlier ones each takes the place of, and what of those
        was found damaged: then it takes the place of none."""
        sections: dict[int, Section] = {}
        merged: dict[int, int] = {}
        all_found: list[Found] = []
        shared: SegmentWriter | None = None
        own: SegmentWriter | None = None
        try:
            for flush in flushes:
                earlier, found = self._read_sections(flush)
                all_found += found
                if not found:
                    merged[flush.topic.id] = flush.merge
                size = sum(batch.byte_length for batch in flush.tail)
                if not found:
                    size += sum(section.size for section in flush.merged)
                if size >= OWN_SEGMENT_BYTES:
                    writer = own = self._new_segment()
                else:
                    writer = shared = shared or self._new_segment()
                for batch in joined([*earlier, *flush.tail], CHUNK_ROWS, CHUNK_BYTES):
                    writer.add(flush.topic.id, batch)
                if writer is own:
                    sections.update(own.seal())
            if shared is not None:
                sections.update(shared.seal())
        finally:
            for opened in (own, shared):
                if opened is not None:
                    opened.abandon()
        if flushes:
            self._filesystem.sync_directory(SEGMENTS)
        return sections, merged, all_found

    def _new_segment(self) -> SegmentWriter:
        number, self._next_file = self._next_file, self._next_file + 1
        return SegmentWriter(self._filesystem, _segment_name(number))

    def _read_sections(self, flush: _Flush) -> tuple[list[RecordBatch], list[Found]]:
        """The batches to be written anew; none where anything of them is damaged."""
        store, id = SegmentStore(self._filesystem, files_max=1), flush.topic.id
        batches: list[RecordBatch] = []
        found: list[Found] = []
        try:
            for section in flush.merged:
                try:
                    entries = store.segment(section.file).entries(id)
                except FlintError as error:
                    if not is_damage(error):
                        raise
                    found.append(Found("index", section.file, cause_of(error)))
                    continue
                for entry in entries:
                    if section.base <= entry.base < section.next:
                        try:
                            batches.append(store.segment(section.file).read(entry))
                        except FlintError as error:
                            if not is_damage(error):
                                raise
                            place = (id, entry.base, entry.next)
                            found.append(Found("messages", section.file, cause_of(error), *place))
        finally:
            store.close()
        return ([] if found else batches), found

    async def _install(self, plan: _Plan, done: _Done, pace: _Pace) -> None:
        while plan.flushes:
            flush = plan.flushes.pop()
            section = done.sections.get(flush.topic.id)
            if section is not None and flush.topic.id in self._by_id:
                flush.topic.log.flushed(section, done.merged.get(flush.topic.id, 0))
            await pace.step_aside()
        for found in done.found:
            self._take_note(found)
        if done.staged_file is not None:
            note_written(plan.staging, done.staged_file)
        self._forget_obsolete()

    def _forget_obsolete(self) -> None:
        self._litter = list(self._manifest.head.obsolete)
        for name in self._litter:
            self._store.forget(name)

    # --- backups

    async def backup(self, directory: str) -> None:
        self._check_open()
        await self.back_up_to(LocalFileSystem(Path(directory)))

    async def back_up_to(self, target: FileSystem) -> None:
        """Copy everything up to now to an empty place. Publishing goes on meanwhile."""
        check_empty(target)
        await self.checkpoint()
        manifest = self._manifest.whole()
        files = self._manifest.files()
        self._copied.append(files)  # from here on, no checkpoint removes them
        try:
            where = target.describe()
            event(
                _log,
                logging.INFO,
                "backup_begins",
                f"backup to {where}: {len(files)} segments",
                target=where,
                segments=len(files),
            )
            await self._aside(back_up, self._filesystem, manifest, target, self._tell_progress)
            event(
                _log,
                logging.INFO,
                "backup_done",
                f"backup to {where}: done, as of index {manifest.checkpoint}",
                target=where,
                index=manifest.checkpoint,
                damaged_messages=self.damaged_messages(),
            )
        finally:
            self._copied.remove(files)

    def _tell_progress(self, progress: Progress) -> None:
        self._check_open()
        limited(
            _log,
            logging.INFO,
            "backup_progress",
            "all" if progress.files_done == progress.files else "some",
            f"backup: {progress.files_done} of {progress.files} segments, "
            f"{progress.bytes_done} of {progress.bytes} bytes",
        )

    # --- the end

    def _check_open(self) -> None:
        super()._check_open()
        if self._lock is None:
            raise InvalidRequest(
                "the connection was not opened: `async with` it, or `await` it, before its use"
            )

    async def close(self) -> None:
        # Whoever waits for it may leave; the directory is let go only when all is written.
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._lock is None:
            await super().close()
            return
        had_failed = self._failure is not None
        try:
            self._proposer.end_turn()
            with suppress(FlintError):  # the journal has what a checkpoint could not write
                await self.checkpoint()
        finally:
            # Whatever went wrong: nothing is acknowledged any more before the lock is given back.
            try:
                if self.scrubber.is_running:
                    await self._aside(self.scrubber.stop)
                await super().close()
            finally:
                try:
                    await self._commit.close()
                finally:
                    if self._checkpoint_timer is not None:
                        self._checkpoint_timer.cancel()
                    self._store.close()
                    self._lock.release()
        if self._failure is not None and not had_failed:
            raise again(self._failure)  # a fault of ours: nobody else has heard of it


_SEGMENT_NAME = re.compile(r"[0-9]{16}\.seg", re.ASCII)


def _segment_name(number: int) -> str:
    return f"{SEGMENTS}/{number:016d}.seg"


def _may_be_made(name: object) -> bool:
    if not isinstance(name, str) or "/" in name:
        return False
    check_name(name)
    return True


class _Pace:
    """Lets the event loop go on now and then: whoever asks how it goes is answered."""

    def __init__(self, steps_aside: bool, seconds: float) -> None:
        self._steps_aside, self._seconds = steps_aside, seconds
        self._due = perf_counter() + seconds

    async def step_aside(self) -> None:
        if self._steps_aside and perf_counter() >= self._due:
            await asyncio.sleep(0)
            self._due = perf_counter() + self._seconds


class _Flush(NamedTuple):
    topic: DurableTopic
    tail: list[RecordBatch]
    merge: int
    merged: list[Section]


@dataclass(slots=True)
class _Plan:
    """A checkpoint: what it has to write."""

    head: Manifest
    staging: Staging
    due: set[int]
    """The topics whose states are not taken yet."""
    changed: set[int]
    flushes: list[_Flush] = field(default_factory=list)
    states: list[TopicState] = field(default_factory=list)
    deleted: set[int] = field(default_factory=set)
    windows: dict[int, Snapshot] = field(default_factory=dict)


class _Done(NamedTuple):
    sections: dict[int, Section]
    merged: dict[int, int]
    found: list[Found]
    staged_file: str | None


def _without(state: TopicState, topic: DurableTopic | None) -> TopicState:
    """A topic of an earlier checkpoint without what was dropped since; None: it was deleted."""
    first = state.next_offset
    if topic is not None:
        first = max(state.first_offset, min(first, topic.log.first_offset))
    sections = [section for section in state.sections if section.next > first]
    sizes = state.sizes if sections else []  # the less is written the better: there is no room
    return msgspec.structs.replace(state, first_offset=first, sections=sections, sizes=sizes)


def _with_windows(state: TopicState, windows: Snapshot | None) -> TopicState:
    if windows is None:
        return state
    return msgspec.structs.replace(state, windows=windows.encoded())


def _with_section(
    state: TopicState, sections: dict[int, Section], merged: dict[int, int]
) -> TopicState:
    section = sections.get(state.id)
    if section is None:
        return state
    kept = state.sections[: len(state.sections) - merged.get(state.id, 0)]
    return msgspec.structs.replace(state, sections=[*kept, section])
