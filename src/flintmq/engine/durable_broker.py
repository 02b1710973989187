"""The broker over a data directory: the same engine, with a journal between deciding and applying.

Opening takes up what the last checkpoint holds and replays the journal from there. A checkpoint
writes what the topics hold in memory into segments, then a manifest, and lets the journal go on
without what was before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from ..batch import BatchBuilder, RecordBatch
from ..broker_api import Filter
from ..clock import Clock
from ..errors import Corrupt, FlintError, InvalidRequest, StorageFull
from ..model import MEMORY_RETENTION_BYTES, Durability, Receipt, Start, TopicInfo, TopicOptions
from ..patterns import check_name
from ..rows import Decoder
from ..storage.filesystem import FileSystem, Lock
from ..storage.frames import Record
from ..storage.fsync_policy import FsyncPolicy
from ..storage.group_commit import GroupCommit
from ..storage.journal import FILE_BYTES, FIRST_FILE_BYTES, Journal
from ..storage.manifest import (
    CursorState,
    Manifest,
    TopicState,
    read_manifest,
    write_manifest,
)
from ..storage.segments import Section, SegmentStore, SegmentWriter, joined
from ..storage.topic_log import TopicLog
from .broker import Broker
from .commands import (
    AdvanceFirstOffset,
    Append,
    Buffer,
    Change,
    Command,
    CreateTopics,
    SetCursor,
    decode_command,
)
from .durable_topic import DurableTopic
from .log import CHUNK_BYTES, CHUNK_ROWS
from .pending import Pending
from .proposer import Proposer
from .readers import Reader
from .topic import Topic

CHECKPOINT_BYTES = 32 * 1024 * 1024
"""How much the journal grows between two checkpoints."""

OWN_SEGMENT_BYTES = 256 * 1024
"""Topics with less than this to flush share a segment."""

SHARED_SECTIONS_MAX = 8
"""How many small sections a topic has before they are written anew as one."""

_GROUP = 0
_TERM = 1
SEGMENTS = "segments"
JOURNAL = "journal"


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
    ) -> None:
        super().__init__(clock, decoder)
        self._defaults = TopicOptions(storage="durable", retention_bytes=None)
        self._filesystem = filesystem
        self._policy = fsync or FsyncPolicy()
        self._checkpoint_bytes = checkpoint_bytes
        self._journal_file_bytes = journal_file_bytes
        self._lock: Lock | None = None
        self._store = SegmentStore(filesystem)
        self._manifest = Manifest()
        self._index = self._began = 0
        self._since_checkpoint = 0
        self._checkpointing: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._full: StorageFull | None = None
        self._journal: Journal
        self._commit: GroupCommit
        self._proposer: Proposer
        self._tickets: list[tuple[int, int]] = []

    # --- opening

    async def open(self, *, threaded: bool = True) -> None:
        """Lock the directory, recover, and begin to write."""
        filesystem = self._filesystem
        self._lock = filesystem.lock("lock")
        try:
            for directory in (SEGMENTS, JOURNAL):
                if not filesystem.exists(directory):
                    filesystem.make_directory(directory)
                    filesystem.sync_directory("")
            self._recover()
        except BaseException:
            self._lock.release()
            raise
        if threaded:
            self._commit.start()

    def _recover(self) -> None:
        manifest = read_manifest(self._filesystem)
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
            on_full=self._ran_full,
            on_room=self._has_room,
        )
        durability: Durability = "synced" if self._policy.acknowledges_after_sync else "written"
        self._proposer = Proposer(self._submit, self.apply, durability)
        if manifest is not None:
            self._take_up(manifest)
        self._index = self._manifest.checkpoint
        self._began = self._index
        for _, record in self._journal.replay(self._manifest.position):
            if record.group == _GROUP and record.index > self._index:
                if record.index != self._index + 1:
                    raise Corrupt(
                        f"the journal goes on with index {record.index}, but the last checkpoint "
                        f"ends with {self._index}: files are missing; restore a backup"
                    )
                # What is read is a view of a large buffer; what is kept is a copy of its own.
                self.apply(decode_command(bytes(record.payload)))
                self._index = record.index
        self._proposer.applied = self._index
        for topic in self._by_id.values():
            if isinstance(topic, DurableTopic):
                topic.take_up()
        self._remove_obsolete()

    def _take_up(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._last_topic_id = manifest.last_topic_id
        for state in manifest.topics:
            self._create([(state.id, state.name)], state.options)
            topic = self._by_id[state.id]
            if isinstance(topic, DurableTopic):
                topic.log.restore(
                    list(state.sections), state.first_offset, state.next_offset, state.last_time
                )
                topic.producers.restore(state.producers)
                for cursor in state.cursors:
                    topic.apply_cursor(cursor.name, cursor.began, cursor.committed)

    def _remove_obsolete(self) -> None:
        """Remove segments that the manifest let go, and those of a checkpoint that never ended."""
        gone = set(self._manifest.obsolete)
        for name in self._filesystem.list(SEGMENTS):
            path = f"{SEGMENTS}/{name}"
            unfinished = name.split(".")[0].isdigit() and int(name.split(".")[0]) >= (
                self._manifest.next_file
            )
            if path in gone or unfinished:
                self._filesystem.remove(path)

    # --- between deciding and applying

    def _submit(self, buffers: Sequence[Buffer]) -> int:
        index = self._index + 1
        ticket = self._commit.submit([Record(_GROUP, _TERM, index, tuple(buffers))])
        self._index = index
        self._tickets.append((ticket, index))
        self._since_checkpoint += sum(map(len, buffers))
        return index

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
        if self._since_checkpoint >= self._checkpoint_bytes and self._checkpointing is None:
            self._checkpointing = asyncio.get_running_loop().create_task(self._checkpoint_now())

    def _failed(self, error: FlintError) -> None:
        self._proposer.fail(error)

    def _ran_full(self, error: StorageFull) -> None:
        self._full = error

    def _has_room(self) -> None:
        self._full = None

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

    async def _change(self, command: Change) -> None:
        await self._proposer.carry_out(command)

    def apply(self, command: Command) -> None:
        match command:
            case Append(topic, batch):
                self._durable(topic).apply_append(batch)
            case AdvanceFirstOffset(topic, offset, reason):
                self._durable(topic).apply_advance(offset, reason)
            case SetCursor(topic, name, began, committed):
                self._durable(topic).apply_cursor(name, began, committed)
            case _:
                super().apply(command)

    def _durable(self, id: int) -> DurableTopic:
        topic = self._by_id.get(id)
        if topic is None:
            return self._nowhere  # deleted since it was decided
        assert isinstance(topic, DurableTopic)
        return topic

    @property
    def _nowhere(self) -> DurableTopic:
        topic = self._new_topic(0, "nowhere", self._defaults)
        assert isinstance(topic, DurableTopic)
        return topic

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
            log=TopicLog(id, self._store, self._cache),
            proposer=self._proposer,
        )

    # --- the verbs, where they differ

    def publish_nowait(
        self, topic: str, rows: BatchBuilder | RecordBatch, *, qos: int, auto_create: bool
    ) -> Receipt | Pending | None:
        found = self._topics.get(topic)
        if found is None:
            self._check_open()
            return None
        if qos and isinstance(found, DurableTopic):
            self._check_room()
        return found.publish(rows, qos)

    async def publish(
        self,
        topic: str,
        rows: BatchBuilder | RecordBatch,
        *,
        qos: int,
        auto_create: bool,
        timeout: float | None,
    ) -> Receipt:
        found = self._topics.get(topic) or await self._obtain(topic, auto_create)
        if qos and self._full is not None and isinstance(found, DurableTopic):
            raise self._full
        receipt = found.publish(rows, qos)
        if receipt is None:
            receipt = await found.publish_when_possible(rows, qos, timeout)
        return await receipt if isinstance(receipt, Pending) else receipt

    async def _obtain(self, name: str, auto_create: bool) -> Topic:
        """A topic, made if need be."""
        self._check_open()
        if name not in self._topics and auto_create:
            async with self._changing:
                if name not in self._topics:
                    is_name = isinstance(name, str) and "/" not in name
                    if not is_name or f"{name}/0" in self._topics:
                        return self._topic(name, auto_create=False)
                    check_name(name)
                    self._check_open()
                    await self._change(CreateTopics(self._numbered([name]), self._defaults))
        return self._topic(name, auto_create=False)

    async def create_topic(self, name: str, options: dict[str, object]) -> TopicInfo:
        async with self._changing:
            return await super().create_topic(name, options)

    async def configure_topic(self, name: str, options: dict[str, object]) -> TopicInfo:
        async with self._changing:
            return await super().configure_topic(name, options)

    async def delete_topic(self, name: str) -> None:
        async with self._changing:
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
        found = await self._obtain(topic, auto_create)
        is_new = name is not None and not found.has_cursor(name)
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
            await self._checkpointing
        self._checkpointing = asyncio.get_running_loop().create_task(self._checkpoint_now())
        await self._checkpointing

    async def _checkpoint_now(self) -> None:
        try:
            plan = self._plan_checkpoint()
            self._since_checkpoint = 0
            done = await asyncio.to_thread(self._write_checkpoint, plan)
            self._install(plan, done)
        except StorageFull as error:
            self._full = error
        except FlintError as error:
            self._proposer.fail(error)
        finally:
            self._checkpointing = None

    def _plan_checkpoint(self) -> _Plan:
        """What a checkpoint has to write, as of what is applied right now."""
        flushes = []
        for topic in self._by_id.values():
            if isinstance(topic, DurableTopic):
                log = topic.log
                tail = log.tail()
                small = 0
                for section in reversed(log.sections):
                    if section.size >= OWN_SEGMENT_BYTES:
                        break
                    small += 1
                if tail:
                    merge = small if small >= SHARED_SECTIONS_MAX else 0
                    merged = log.sections[-merge:] if merge else []
                    flushes.append(_Flush(topic, tail, merge, merged))
        applied = self._proposer.applied
        position = 0
        if applied > self._began:
            position = self._journal.position_of(_GROUP, applied)
        elif applied:
            position = self._manifest.position
        return _Plan(
            applied,
            position,
            flushes,
            [self._state_of(topic) for topic in self._by_id.values()],
            self._last_topic_id,
        )

    def _state_of(self, topic: Topic) -> TopicState:
        if not isinstance(topic, DurableTopic):
            return TopicState(topic.id, topic.name, topic.options, 0, 0, 0, [], [], [])
        log = topic.log
        log.drop_sections(len(log.sections_to_drop()))
        return TopicState(
            topic.id,
            topic.name,
            topic.options,
            log.first_offset,
            log.next_offset,
            log.last_time,
            list(log.sections),
            [CursorState(*cursor) for cursor in topic.cursor_states()],
            topic.producers.snapshot(),
        )

    def _write_checkpoint(self, plan: _Plan) -> _Done:
        """In a thread: segments, then the manifest that refers to them."""
        filesystem = self._filesystem
        next_file = self._manifest.next_file
        writers: list[SegmentWriter] = []
        shared: SegmentWriter | None = None
        for flush in plan.flushes:
            size = sum(batch.byte_length for batch in flush.tail)
            size += sum(section.size for section in flush.merged)
            writer = shared
            if size >= OWN_SEGMENT_BYTES or writer is None:
                writer = SegmentWriter(filesystem, f"{SEGMENTS}/{next_file:016d}.seg")
                writers.append(writer)
                next_file += 1
                if size < OWN_SEGMENT_BYTES:
                    shared = writer
            batches = [*self._read_sections(flush), *flush.tail]
            for batch in joined(batches, CHUNK_ROWS, CHUNK_BYTES):
                writer.add(flush.topic.id, batch)
        sections: dict[int, Section] = {}
        for writer in writers:
            sections.update(writer.seal())
        if writers:
            filesystem.sync_directory(SEGMENTS)
        merged = {flush.topic.id: flush.merge for flush in plan.flushes}
        topics = [_with_section(state, sections, merged) for state in plan.topics]
        used = {section.file for state in topics for section in state.sections}
        before = {s.file for state in self._manifest.topics for s in state.sections}
        manifest = Manifest(
            plan.checkpoint, plan.position, plan.last_topic_id, next_file, topics, [],
            sorted(before - used),
        )  # fmt: skip
        write_manifest(filesystem, manifest)
        for name in manifest.obsolete:
            if filesystem.exists(name):
                filesystem.remove(name)
        return _Done(manifest, sections)

    def _read_sections(self, flush: _Flush) -> list[RecordBatch]:
        store = SegmentStore(self._filesystem, files_max=1)
        try:
            return [
                store.segment(section.file).read(entry)
                for section in flush.merged
                for entry in store.segment(section.file).entries(flush.topic.id)
                if section.base <= entry.base < section.next
            ]
        finally:
            store.close()

    def _install(self, plan: _Plan, done: _Done) -> None:
        for flush in plan.flushes:
            section = done.sections.get(flush.topic.id)
            if section is not None and flush.topic.id in self._by_id:
                flush.topic.log.flushed(section, flush.merge)
        for name in done.manifest.obsolete:
            self._store.forget(name)
        self._manifest = done.manifest
        self._commit.release_before(done.manifest.position)

    # --- the end

    async def close(self) -> None:
        if self._closed:
            return
        if self._proposer.failure is None:
            self._proposer.end_turn()
            await self.checkpoint()
        await super().close()
        await self._commit.close()
        self._store.close()
        if self._lock is not None:
            self._lock.release()


class _Flush(NamedTuple):
    topic: DurableTopic
    tail: list[RecordBatch]
    merge: int
    merged: list[Section]


class _Plan(NamedTuple):
    checkpoint: int
    position: int
    flushes: list[_Flush]
    topics: list[TopicState]
    last_topic_id: int


class _Done(NamedTuple):
    manifest: Manifest
    sections: dict[int, Section]


def _with_section(
    state: TopicState, sections: dict[int, Section], merged: dict[int, int]
) -> TopicState:
    section = sections.get(state.id)
    if section is None:
        return state
    kept = state.sections[: len(state.sections) - merged.get(state.id, 0)]
    return TopicState(
        state.id, state.name, state.options, state.first_offset, state.next_offset,
        state.last_time, [*kept, section], state.cursors, state.producers,
    )  # fmt: skip
