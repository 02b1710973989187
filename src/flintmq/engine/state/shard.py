"""The state of a shard: its topics, what is staged, and the numbers that are never used again.

Always true:

- topic ids only grow and never come again: segments, manifest and journal know topics by them, and
  a command that comes after its topic was deleted finds none, not another
- `topics` and `by_id` hold the same topics; a name has one of them
- every topic that is not as the last checkpoint has it is in `changed`: a start relies on that

`apply` is the one way in, for who leads, for who follows and for a replay; all that it looks at is
in here and in the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Protocol

from ...batch import RecordBatch, RestingRows, twin_of
from ...cluster_model import NodeEntry
from ...model import TopicOptions
from ..commands import (
    AbortStages,
    Append,
    Appends,
    BeginEpoch,
    CheckState,
    Command,
    CommitStage,
    ConfigureTopics,
    CreateTopics,
    Define,
    DeleteTopics,
    DropObjects,
    ForgetObjects,
    GroupChanges,
    LimitProducers,
    Move,
    PlanObject,
    SetNodes,
    Stage,
    StagedBatch,
    TierSection,
    TopicChange,
    topics_of,
)
from .definitions import Definitions
from .digests import StateDigests
from .memory_log import TopicLogApi
from .producers import Remembered
from .staging import Staging
from .topic import TopicState


class ShardObserver(Protocol):
    """Who leads hears what was applied, in the same step."""

    def topic_made(self, topic: TopicState) -> None: ...
    def topic_configured(self, topic: TopicState) -> None: ...
    def topics_gone(self, topics: list[TopicState]) -> None: ...


class ShardState:
    def __init__(
        self, new_log: Callable[[int, str, TopicOptions], TopicLogApi], staging: Staging
    ) -> None:
        self._new_log = new_log
        self.topics: dict[str, TopicState] = {}
        self.by_id: dict[int, TopicState] = {}
        self.last_topic_id = 0
        self.epoch = 0
        """What lease tokens have begun with, by the last checkpoint, or by an earlier version: who
        begins to lead takes a term above it. A checkpoint has the term here, so it may differ."""
        self.staging = staging
        self.definitions = Definitions()
        self.remembered = Remembered()
        """Of durable topics: it follows from commands, and from nothing else."""
        self.remembered_in_memory = Remembered()
        self.loose: dict[str, None] = {}
        """Objects that may be in object storage and belong to no topic: who leads removes them."""
        self.nodes: dict[int, NodeEntry] = {}
        """The nodes of the cluster, removed ones too; of a broker alone there are none."""
        self.on_nodes: Callable[[], object] | None = None
        """Told when they change."""
        self.read_resting: Callable[[RestingRows], Iterable[RecordBatch]] = _cannot_read
        """Reads staged rows of which each counts for itself: where they were a large number's once,
        and were replaced by fewer."""
        self.observer: ShardObserver | None = None
        self.changed: set[int] = set()
        """Topics that are not as the last checkpoint has them."""
        self.noted: set[int] = set()
        """Those of which `on_change` was told. Whoever wants to hear of them again empties it."""
        self.on_change: Callable[[int], object] | None = None
        """Told of topics before they change and are none of those: a checkpoint may have to take
        them as they are."""
        self.digests = StateDigests(self)
        self.on_check: Callable[[], object] | None = None
        """Told that `digests` has begun to work out what the state comes to."""

    def note_changes(self, on_change: Callable[[int], object]) -> None:
        def note(id: int) -> None:
            self.noted.add(id)
            self.digests.changing(id)
            on_change(id)

        self.on_change = self.remembered.on_change = note

    def clear(self) -> None:
        """Nothing is here any more: another state is about to be taken up."""
        self.topics.clear()
        self.by_id.clear()
        self.last_topic_id = self.epoch = 0
        self.staging.clear()
        self.definitions.clear()
        self.loose = {}
        self.nodes = {}
        on_change, self.remembered = self.remembered.on_change, Remembered()
        self.remembered.on_change = on_change
        memory = self.remembered_in_memory
        self.remembered_in_memory = Remembered(memory.age_ms, memory.bytes_max)
        self.changed, self.noted = set(), set()
        self.digests.clear()

    def apply(self, command: Command) -> None:
        """Make a change that was decided. Refuses nothing."""
        if self.on_change is not None:
            if type(command) is Appends:
                for rows in command.rows:
                    if rows[0] not in self.noted:
                        self.on_change(rows[0])
            else:
                for id in topics_of(command):
                    if id not in self.noted:
                        self.on_change(id)
        if type(command) is Appends:  # as most are
            self._append_all(command)
        elif type(command) is Append:
            topic = self.by_id.get(command.topic)
            if topic is not None:
                topic.append(command.batch)
        else:
            _APPLY.get(type(command), ShardState._change_topic)(self, command)

    def _append_all(self, command: Appends) -> None:
        by_id, time, producers = self.by_id, command.time, command.producers
        batches = iter(command.batches)
        for id, offset, values, content_type, producer, sequence in command.rows:
            topic = by_id.get(id)
            if not values:
                batch = next(batches)
                if topic is not None:
                    topic.append(batch)
            elif topic is not None:
                name = producers[producer] if producer >= 0 else None
                topic.append_rows(offset, values, content_type, time, name, sequence)

    def _change_groups(self, command: GroupChanges) -> None:
        for change in command.changes:
            self._change_topic(change)

    # Where a topic is not there, it was deleted after the command was decided.

    def _change_topic(self, command: TopicChange) -> None:
        topic = self.by_id.get(command.topic)
        if topic is not None:
            topic.apply(command)

    def _create(self, command: CreateTopics) -> None:
        for id, name in command.topics:
            self.create(id, name, command.options)

    def create(self, id: int, name: str, options: TopicOptions) -> TopicState:
        self.last_topic_id = max(self.last_topic_id, id)
        topic = self._new_topic(id, name, options)
        if self.observer is not None:
            self.observer.topic_made(topic)
        return topic

    def _new_topic(self, id: int, name: str, options: TopicOptions) -> TopicState:
        is_durable = options.storage != "memory"
        remembered = self.remembered if is_durable else self.remembered_in_memory
        topic = TopicState(id, name, options, self._new_log(id, name, options), remembered)
        self.topics[name] = self.by_id[id] = topic
        return topic

    def follow(self) -> None:
        """Nobody leads here any more. What was in memory only is gone with who led: those topics
        begin anew, empty."""
        for topic in list(self.by_id.values()):
            if topic.is_durable:
                topic.follow()
            else:
                topic.producers.forget()
                self._new_topic(topic.id, topic.name, topic.options)

    def _configure(self, command: ConfigureTopics) -> None:
        for id in command.topics:
            topic = self.by_id[id]
            topic.configure(command.options)
            if self.observer is not None:
                self.observer.topic_configured(topic)
        for id, name in command.added:
            self.create(id, name, command.options)

    def _delete(self, command: DeleteTopics) -> None:
        gone = [self.by_id.pop(id) for id in command.topics]
        for topic in gone:
            del self.topics[topic.name]
            topic.producers.forget()
        if self.observer is not None:
            self.observer.topics_gone(gone)
        for topic in gone:
            self.loose |= dict.fromkeys(topic.log.drop_objects(topic.log.next_offset))
            topic.log.let_go()
        self.definitions.topics_gone({topic.name.partition("/")[0] for topic in gone})

    def _commit(self, command: CommitStage) -> None:
        offsets = {place.topic: place.offset for place in command.places}
        times = {place.topic: place.time for place in command.places}
        for part in self.staging.apply(command):
            for id, run in groupby(part, key=_topic_of):
                topic = self.by_id.get(id)
                if topic is None:
                    continue
                placed: list[RecordBatch | RestingRows] = []
                for staged in run:
                    offset, batch = offsets[id], staged.batch
                    offsets[id] += batch.row_count
                    if staged.damage:  # it stands for rows that the disk has damaged
                        where = staged.file or "segments"
                        topic.log.note_damage(offset, offsets[id], where, staged.damage)
                    if isinstance(batch, RestingRows):
                        rows = batch.at(offset, times[id])
                        placed += [rows] if command.evenly else self.read_resting(rows)
                    else:
                        twin = twin_of(batch)  # a checkpoint may be writing the staged one
                        twin.stamp(offset, times[id])
                        placed.append(twin)
                if command.evenly:
                    topic.append_evenly(placed)
                else:
                    for batch in placed:
                        assert isinstance(batch, RecordBatch)
                        topic.append(batch)

    def _stage(self, command: Stage | AbortStages) -> None:
        self.staging.apply(command)

    def _move(self, move: Move) -> None:
        target, source = self.by_id.get(move.target), self.by_id.get(move.source)
        if target is not None:
            start = target.append(move.batch)
            target.only_for(move.only_for, start, start + move.batch.row_count)
        if source is not None:
            source.settle(move.group, move.ranges)

    def _limit_producers(self, command: LimitProducers) -> None:
        self.remembered.set_limits(command.age_ms, command.bytes_max)

    def _define(self, command: Define) -> None:
        self.definitions.apply(command)

    def _set_nodes(self, command: SetNodes) -> None:
        self.set_nodes(command.nodes)

    def set_nodes(self, nodes: list[NodeEntry]) -> None:
        self.nodes.update((node.id, node) for node in nodes)
        if self.on_nodes is not None:
            self.on_nodes()

    def _plan_object(self, command: PlanObject) -> None:
        self.loose[command.url] = None

    def _tier(self, command: TierSection) -> None:
        topic = self.by_id.get(command.topic)
        if topic is not None:  # else it is loose
            self.loose.pop(command.section.file, None)
            topic.log.add_object(command.section, command.due_ms)

    def _drop_objects(self, command: DropObjects) -> None:
        topic = self.by_id.get(command.topic)
        if topic is not None:
            self.loose |= dict.fromkeys(topic.log.drop_objects(command.up_to))

    def _forget_objects(self, command: ForgetObjects) -> None:
        for url in command.urls:
            self.loose.pop(url, None)

    def _begin_epoch(self, command: BeginEpoch) -> None:
        self.epoch = max(self.epoch, command.epoch)

    def _check(self, command: CheckState) -> None:
        self.digests.begin(command.number)
        self.noted = set()
        if self.on_check is not None:
            self.on_check()


def _topic_of(staged: StagedBatch) -> int:
    return staged.topic


def _cannot_read(rows: RestingRows) -> Iterable[RecordBatch]:
    raise AssertionError("what is in memory rests in no segment")


# What is not in here concerns one topic.
_APPLY: dict[type, Callable[[ShardState, Any], None]] = {
    CreateTopics: ShardState._create,
    ConfigureTopics: ShardState._configure,
    DeleteTopics: ShardState._delete,
    Stage: ShardState._stage,
    CommitStage: ShardState._commit,
    AbortStages: ShardState._stage,
    GroupChanges: ShardState._change_groups,
    Move: ShardState._move,
    LimitProducers: ShardState._limit_producers,
    BeginEpoch: ShardState._begin_epoch,
    Define: ShardState._define,
    SetNodes: ShardState._set_nodes,
    CheckState: ShardState._check,
    PlanObject: ShardState._plan_object,
    TierSection: ShardState._tier,
    DropObjects: ShardState._drop_objects,
    ForgetObjects: ShardState._forget_objects,
}
