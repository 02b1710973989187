"""Checkpoints: what topics hold in memory is written to segments, then a manifest that names them.

Segments, their directory, the manifest, its directory; then what that makes obsolete. Whatever a
power cut leaves of that, there is one whole manifest, and everything it refers to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

import msgspec

from ..clock import Timer
from ..errors import FlintError, StorageFailed, StorageFull
from ..storage.manifest import Manifest, ManifestStore, TopicRecord
from ..storage.scrub import FoundDamage
from ..storage.segments import Section, SegmentWriter
from ..storage.tiered import count_to_leave
from ..storage.topic_log import TopicLog
from . import flushing
from .flushing import Flush, Flushing
from .recovery import RecoveryPace
from .rewriting import Rewriter, Rewritten, Sparse
from .staged_segments import note_written, states_of, write_staged
from .state.producers import ProducerSnapshot
from .state.staging import Staging
from .state.topic import TopicState as AppliedTopic
from .stored import stored_topic
from .waiting import again

if TYPE_CHECKING:
    from .host import Host
    from .kept import KeptShard
    from .shard import Shard

P = ParamSpec("P")
T = TypeVar("T")

SHARED_SECTIONS_MAX = 8
"""How many small sections a topic has before they are written anew as one."""

RETRY_SECONDS = 1.0
"""How soon a checkpoint that found the disk full is tried again."""

CHECKPOINT_STEP_SECONDS = 0.003
"""How long a checkpoint keeps the event loop to itself."""

SEGMENTS = "segments"


class Checkpoints:
    def __init__(self, host: Host, kept: KeptShard) -> None:
        self._host, self._kept, self._shard = host, kept, kept.shard
        self._files = kept.files
        self.manifest = ManifestStore(kept.files)
        self._plan: CheckpointPlan | None = None
        """The checkpoint that is being planned."""
        self.next_file = 1
        self.litter: list[str] = []
        """Segments that no manifest refers to, to be removed."""
        self.copied: list[set[str]] = []
        """Segments that backups are copying: they stay meanwhile."""
        self.running: asyncio.Task[FlintError | None] | None = None
        self._timer: Timer | None = None
        self.failures = 0
        self.full: StorageFull | None = None
        """Where there was no room for the last one."""
        self._mended: list[Rewritten] = []
        """Sections that were got from another node, for the next checkpoint to put in place."""
        self._rewriter = Rewriter(kept.files, self.new_segment)
        self._flushing = Flushing(kept.files, self.new_segment, self._rewriter)
        kept.shard.state.note_changes(self._note_change)

    async def checkpoint(self) -> None:
        """Write what is in memory to segments, and let the journal's past go."""
        while self.running is not None:
            await asyncio.wait([self.running])
        task = self.begin()
        await asyncio.wait([task])  # which goes on if we are cancelled
        if (error := task.result()) is not None:
            raise again(error)

    def begin(self) -> asyncio.Task[FlintError | None]:
        if self.running is None:
            self.running = asyncio.get_running_loop().create_task(self._run())
        return self.running

    async def replace(self, work: Awaitable[FlintError | None]) -> FlintError | None:
        """Have the files of the shard replaced; no checkpoint is written meanwhile."""
        while self.running is not None:
            await asyncio.wait([self.running])
        running = self.running = asyncio.get_running_loop().create_task(self._replace(work))
        await asyncio.wait([running])
        return running.result()

    async def _replace(self, work: Awaitable[FlintError | None]) -> FlintError | None:
        try:
            return await work
        finally:
            self.running = None

    async def _run(self) -> FlintError | None:
        began = perf_counter()
        host, kept = self._host, self._kept
        is_done, plan = False, None
        try:
            failure = self._shard.proposer.failure
            if failure is not None:
                return failure
            plan = self.begin_plan()
            kept.checkpoint_begins()
            pace = RecoveryPace(host.is_threaded, CHECKPOINT_STEP_SECONDS)
            await self.take_states(plan, pace)
            done = await self.aside(self.write, plan)
            await self.install(plan, done, pace)
            is_done = True
            # Only now: until the sections were put in place, readers went by the old ones.
            await self.aside(self.remove_litter)
            host.checkpoint_ended()
            host.checkpoint_seconds.observe(perf_counter() - began)
            self.full = None
            host.note_room()
            if host.journal_full is not None:
                self._try_later()
        except StorageFull as error:
            if plan is not None:
                self._shard.state.changed |= plan.changed
            self.failures += 1
            self.full = error
            host.note_room()
            self._try_later()
            await self._shed()
            return error
        except StorageFailed as error:
            host.failed(error)
            return error
        except Exception as error:
            self._shard.fault("writing a checkpoint", error)
            return self._shard.proposer.failure
        finally:
            self.running = self._plan = None
            kept.checkpoint_ends(is_done)
        if kept.is_checkpoint_due() and not host.is_closing:
            self.begin()
        return None

    def aside(self, work: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> Awaitable[T]:
        """In a thread, where there are any."""
        return aside(self._host, work, *args, **keywords)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # --- where the disk is full

    async def _shed(self) -> None:
        """Where there is no room for a checkpoint: give back what only the last one refers to.

        Its index stays, so the journal is replayed over it. What is gone from it is what the
        journal drops or deletes behind that index.
        """
        by_id, known = self._shard.state.by_id, self.manifest.topics
        changed = [
            left
            for id in self._shard.state.changed
            if (state := known.get(id)) is not None
            and (left := _without(state, by_id.get(id))).sections != state.sections
        ]
        if not changed:
            return
        head = msgspec.structs.replace(self.manifest.head, next_file=self.next_file)
        try:
            await self.aside(self._write_manifest, head, changed, set())
            self.forget_obsolete()
            await self.aside(self.remove_litter)
        except StorageFull:
            return
        except FlintError as error:
            self._host.failed(error)

    def _try_later(self) -> None:
        shard = self._shard
        if not self._host.is_closing and self._timer is None:
            self._timer = shard.clock.call_later(RETRY_SECONDS, shard.guarded(self._retry))

    def _retry(self) -> None:
        """On a full disk: what was deleted or has had its time gives room with a checkpoint."""
        self._timer = None
        journal_full = self._host.journal_full is not None
        if self.full is not None or (journal_full and self._kept.has_news()):
            self.begin()
        elif journal_full:
            self._try_later()

    def mend(self, one: Rewritten) -> None:
        """Have a section take the place of a damaged one with the next checkpoint. Its file is
        written, by a number of `new_segment`."""
        self._mended.append(one)
        self._shard.state.changed.add(one.topic)

    def sync_segments(self) -> None:
        """The names of new segments are durable from now on."""
        self._files.sync_directory(SEGMENTS)

    def remove_litter(self) -> None:
        """Remove segments that no manifest refers to, for good."""
        filesystem = self._files
        kept = set().union(*self.copied)
        for path in self.litter:
            if path not in kept and filesystem.exists(path):
                filesystem.remove(path)
        if self.litter:
            filesystem.sync_directory(SEGMENTS)
        self.litter = [path for path in self.litter if path in kept]

    # --- what is written

    def _note_change(self, id: int) -> None:
        """A topic is about to change: the checkpoint that is being planned takes it as it is."""
        if self._plan is not None and id in self._plan.due:
            self._take_state(self._plan, id)
        self._shard.state.changed.add(id)

    def begin_plan(self) -> CheckpointPlan:
        """A checkpoint of what is applied right now. The states of topics are taken in steps, and
        of those that change meanwhile before they do."""
        state, applied = self._shard.state, self._shard.proposer.applied
        state.changed |= set(topics_to_relieve(self._shard))
        remembered = state.remembered
        head = Manifest(
            applied,
            self._kept.position_behind(applied),
            state.last_topic_id,
            epoch=max(state.epoch, self._shard.term),
            term=self._kept.term_of(applied),
            group=self._kept.group,
            members=self._kept.log.members,
            nodes=list(state.nodes.values()),
            time_ms=self._shard.clock.now_ms(),
            producer_limits=(remembered.age_ms, remembered.bytes_max),
            producer_time=remembered.time_ms,
            definitions=state.definitions.all(),
            last_definition=state.definitions.last_version,
            loose=list(state.loose),
        )
        staging, fresh = state.staging.copy(), list(state.staging.fresh)
        self._plan = CheckpointPlan(head, staging, fresh, state.changed.copy(), state.changed)
        state.changed, state.noted = set(), set()
        return self._plan

    async def take_states(self, plan: CheckpointPlan, pace: RecoveryPace) -> None:
        for id in sorted(plan.due):
            if id in plan.due:
                self._take_state(plan, id)
                await pace.step_aside()
        self._plan = None

    def _take_state(self, plan: CheckpointPlan, id: int) -> None:
        """What a topic has to write, as of now."""
        plan.due.discard(id)
        topic = self._shard.state.by_id.get(id)
        if topic is None:
            plan.deleted.add(id)
            return
        log = topic.log
        if isinstance(log, TopicLog):
            log.drop_sections(len(log.sections_to_drop()))
            if log.far:
                log.drop_sections(sections_to_leave(topic, log, self._shard.clock.now_ms()))
            plan.mended += [
                (log, one) for one in self._mended if one.topic == id and one.old[0] in log.sections
            ]
            is_compact = topic.options.compact is not None
            gone = topic.discarded.copy() if is_compact and topic.discarded else None
            if gone is not None:
                whole = [section for section in log.sections if not log.is_damaged(section)]
                if len(whole) == len(log.sections):
                    plan.sparse.append(Sparse(id, log, whole, gone))
            if tail := log.tail():
                small = 0
                for section in () if is_compact else reversed(log.sections):
                    if section.size >= flushing.OWN_SEGMENT_BYTES or log.is_damaged(section):
                        break
                    small += 1
                merge = small if small >= SHARED_SECTIONS_MAX else 0
                merged = log.sections[-merge:] if merge else []
                plan.flushes.append(Flush(id, log, tail, merge, merged, gone))
            if topic.producers:
                plan.windows[id] = topic.producers.snapshot()
        plan.states.append(stored_topic(topic))

    def write(self, plan: CheckpointPlan) -> WrittenFiles:
        """In a thread: segments, then the manifest that refers to them."""
        first_file, filesystem = self.next_file, self._files
        try:
            staged_file = write_staged(plan.staging, plan.fresh, self.new_segment)
            if staged_file is not None:
                filesystem.sync_directory(SEGMENTS)
            stages = states_of(plan.staging, staged_file)
            self._rewriter.forget(plan.deleted, ())
            rewritten = self._rewriter.rewrite(plan.sparse)
            rewritten += [one for _, one in plan.mended]
            sections, merged, found = self._flushing.write(plan.flushes)
            if rewritten:
                filesystem.sync_directory(SEGMENTS)
            states = []
            plan.states.sort(key=lambda state: state.id, reverse=True)
            while plan.states:  # freed one by one, not all at the end on the event loop
                state = _with_rewritten(plan.states.pop(), rewritten)
                state = _with_section(state, sections, merged)
                states.append(_with_windows(state, plan.windows.pop(state.id, None)))
            head = msgspec.structs.replace(plan.head, next_file=self.next_file, stages=stages)
            self._write_manifest(head, states, plan.deleted)
        except StorageFull:
            # The manifest is the old one: a full disk is noticed before the new one has its name.
            # Numbers are not used again, so that what cannot be removed now is in nobody's way.
            self.litter += [segment_name(n) for n in range(first_file, self.next_file)]
            with suppress(FlintError):
                self.remove_litter()
            raise
        return WrittenFiles(sections, merged, found, staged_file, rewritten)

    def _write_manifest(
        self, head: Manifest, changed: list[TopicRecord], deleted: AbstractSet[int]
    ) -> None:
        self.manifest.write(head, changed, deleted, self.litter)
        self.next_file = self.manifest.head.next_file

    def new_segment(self) -> SegmentWriter:
        number, self.next_file = self.next_file, self.next_file + 1
        return SegmentWriter(self._files, segment_name(number))

    async def install(self, plan: CheckpointPlan, done: WrittenFiles, pace: RecoveryPace) -> None:
        by_id = self._shard.state.by_id
        logs = {sparse.topic: sparse.log for sparse in plan.sparse}
        logs.update((one.topic, log) for log, one in plan.mended)
        for one in done.rewritten:
            if one.topic in by_id:
                logs[one.topic].rewritten(one.old, one.new)
        while plan.flushes:
            flush = plan.flushes.pop()
            replaced = done.merged.get(flush.topic, 0)
            for section in done.sections.get(flush.topic, ()) if flush.topic in by_id else ():
                flush.log.flushed(section, replaced)
                replaced = 0
            await pace.step_aside()
        put = {one.new.file for _, one in plan.mended}
        stale = [one.new.file for one in self._mended if one.new.file not in put]
        self._mended = []
        for found in done.found:
            self._host.damages.found(found, self._kept)
        if done.staged_file is not None:
            staging, view = self._shard.state.staging, self._shard.staging
            note_written(staging, view, plan.fresh, plan.staging, done.staged_file)
        self.forget_obsolete()
        self.litter += stale  # what was damaged is gone by itself

    def adopt(self, manifest: Manifest) -> None:
        """In a thread: write a manifest in place of ours. Its segments are in place already, by
        numbers that were free."""
        gone = self.manifest.topics.keys() - {topic.id for topic in manifest.topics}
        self._write_manifest(manifest, manifest.topics, gone)

    def forget_obsolete(self) -> None:
        self.litter = list(self.manifest.head.obsolete)
        self._rewriter.forget((), self.litter)
        for name in self.litter:
            self._kept.store.forget(name)


def sections_to_leave(topic: AppliedTopic, log: TopicLog, now_ms: int) -> int:
    """How many sections, from the first on, this disk need not keep: objects have them."""
    options, age = topic.options, topic.options.local_retention_age
    before_ms = None if age is None else now_ms - round(age * 1000)
    served_ms = topic.lanes.served_ms or now_ms
    return count_to_leave(
        log.far, log.sections, options.local_retention_bytes, before_ms, served_ms
    )


def topics_to_relieve(shard: Shard) -> Iterator[int]:
    """The topics with sections that this disk need not keep."""
    now_ms = shard.clock.now_ms()
    for id, topic in shard.state.by_id.items():
        log = topic.log
        if topic.options.tier is None or not isinstance(log, TopicLog):
            continue
        if sections_to_leave(topic, log, now_ms):
            yield id


@dataclass(slots=True)
class CheckpointPlan:
    """A checkpoint: what it has to write."""

    head: Manifest
    staging: Staging
    fresh: list[tuple[str, int, str]]
    due: set[int]
    """The topics whose states are not taken yet."""
    changed: set[int]
    flushes: list[Flush] = field(default_factory=list)
    states: list[TopicRecord] = field(default_factory=list)
    deleted: set[int] = field(default_factory=set)
    windows: dict[int, ProducerSnapshot] = field(default_factory=dict)
    sparse: list[Sparse] = field(default_factory=list)
    mended: list[tuple[TopicLog, Rewritten]] = field(default_factory=list)


class WrittenFiles(NamedTuple):
    sections: dict[int, list[Section]]
    merged: dict[int, int]
    found: list[FoundDamage]
    staged_file: str | None
    rewritten: list[Rewritten]


def aside(host: Host, work: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> Awaitable[T]:
    """In a thread, where there are any."""
    if host.is_threaded:
        return asyncio.to_thread(work, *args, **keywords)
    return _here(work, *args, **keywords)


async def _here(work: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
    return work(*args, **keywords)


def segment_name(number: int) -> str:
    return f"{SEGMENTS}/{number:016d}.seg"


def _without(state: TopicRecord, topic: AppliedTopic | None) -> TopicRecord:
    """A topic of an earlier checkpoint without what was dropped since; None: it was deleted."""
    first = state.next_offset
    if topic is not None:
        first = max(state.first_offset, min(first, topic.log.first_offset))
    sections = [section for section in state.sections if section.next > first]
    sizes = state.sizes if sections else []  # the less is written the better: there is no room
    return msgspec.structs.replace(state, first_offset=first, sections=sections, sizes=sizes)


def _with_windows(state: TopicRecord, windows: ProducerSnapshot | None) -> TopicRecord:
    if windows is None:
        return state
    return msgspec.structs.replace(state, windows=windows.encoded())


def _with_rewritten(state: TopicRecord, rewritten: list[Rewritten]) -> TopicRecord:
    for one in rewritten:
        if one.topic == state.id:
            at = state.sections.index(one.old[0])
            sections = [*state.sections[:at], one.new, *state.sections[at + len(one.old) :]]
            state = msgspec.structs.replace(state, sections=sections)
    return state


def _with_section(
    state: TopicRecord, sections: dict[int, list[Section]], merged: dict[int, int]
) -> TopicRecord:
    added = sections.get(state.id)
    if added is None:
        return state
    kept = state.sections[: len(state.sections) - merged.get(state.id, 0)]
    return msgspec.structs.replace(state, sections=[*kept, *added])
