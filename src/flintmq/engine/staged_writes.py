"""Staged writes: the verbs. What is staged, and what is committed, is in `state/staging.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from ..batch import RecordBatch, RestingRows, twin_of
from ..broker_api import Batches
from ..clock import Timer
from ..errors import InvalidRequest, TopicDeleted
from ..model import Receipt
from .commands import AbortStages, CommitPlace, CommitStage, Stage, StagedBatch
from .deciding import check_sizes
from .proposer import wait_for
from .shard import Shard
from .state.staging import check_writer, part_name, part_names
from .topic_verbs import TopicVerbs


class StagedWrites:
    def __init__(self, shard: Shard, topics: TopicVerbs, seconds: float) -> None:
        self._shard, self._topics = shard, topics
        self._rest_ms = round(seconds * 1000)
        self._timer: Timer | None = None
        shard.on_end.append(self._end_timer)

    async def stage(
        self, writer: str, number: int, part: str | int, batches: Batches, *, auto_create: bool
    ) -> None:
        check_writer(writer, number)
        name, shard = part_name(part), self._shard
        found = [(await self._topics.obtain(topic, auto_create), rows) for topic, rows in batches]
        for topic, _ in found:
            if topic.options.storage != shard.defaults.storage:
                raise InvalidRequest(
                    f"topic {topic.name!r} is one in memory; a durable broker stages for durable "
                    "topics only"
                )
        turns = {id: turn for turn, id in enumerate(dict.fromkeys(topic.id for topic, _ in found))}
        found.sort(key=lambda pair: turns[pair[0].id])  # what is for a topic lies together
        sealed = [
            StagedBatch(
                topic.id,
                topic.name,
                twin_of(rows) if isinstance(rows, RecordBatch) else rows.seal(),
            )
            for topic, rows in found
        ]
        for (topic, _), staged in zip(found, sealed, strict=True):
            if isinstance(staged.batch, RecordBatch):
                check_sizes(topic.state, staged.batch)
        shard.proposer.check_room()
        await shard.proposer.wait_room()
        shard.check_open()
        if shard.staging.is_done(writer, number):
            await shard.proposer.wait_applied()
            return
        size = sum(staged.batch.byte_length for staged in sealed)
        shard.staging.check_room(writer, number, name, size)
        now_ms, offset = shard.clock.now_ms(), shard.staging.next_offset
        for staged in sealed:
            assert isinstance(staged.batch, RecordBatch)
            staged.batch.stamp(offset, now_ms)
            offset += staged.batch.row_count
        await self._change(Stage(writer, number, name, now_ms, sealed))
        self.arm()

    async def commit(
        self, writer: str, number: int, parts: Sequence[str | int], *, ends: bool = False
    ) -> list[Receipt]:
        check_writer(writer, number)
        names, shard = part_names(parts), self._shard
        async with shard.deciding():
            pass  # no topic is about to be deleted
        shard.check_open()
        if shard.staging.is_done(writer, number):
            await shard.proposer.wait_applied()
            places = shard.staging.places(writer, number)
            return [self._receipt(place, True) for place in places]
        by_topic: dict[int, list[RecordBatch | RestingRows]] = {}
        evenly = False
        for staged in shard.staging.find(writer, number, names):
            evenly = evenly or isinstance(staged.batch, RestingRows)
            if staged.topic not in shard.by_id:
                raise TopicDeleted(staged.name.partition("/")[0])
            by_topic.setdefault(staged.topic, []).append(staged.batch)
        for id, batches in by_topic.items():
            shard.by_id[id].commits.check_fits(batches)
        now_ms = shard.clock.now_ms()
        placed = []
        for id, batches in by_topic.items():
            topic = shard.by_id[id]
            offset, time = topic.commits.place(batches, now_ms)
            count = sum(batch.row_count for batch in batches)
            placed.append(CommitPlace(id, topic.name, offset, count, time))
        is_durable = not shard.proposer.is_instant
        evenly = evenly or (is_durable and shard.staging.is_large(writer, number))
        ended = now_ms if ends else 0
        await self._change(CommitStage(writer, number, names, placed, evenly, ended))
        self.arm()
        return [self._receipt(place, False) for place in placed]

    async def abort(self, writer: str, number: int) -> None:
        check_writer(writer, number)
        shard = self._shard
        shard.check_open()
        if shard.staging.is_done(writer, number):
            await shard.proposer.wait_applied()
            return
        await self._change(AbortStages([(writer, number)], shard.clock.now_ms()))

    def writer_topics(self, writer: str) -> set[str]:
        return self._shard.staging.topics_of(writer)

    def _change(self, command: Stage | CommitStage | AbortStages) -> Awaitable[None]:
        shard = self._shard
        done = shard.proposer.change(command)
        if shard.staging is not shard.state.staging:
            shard.staging.apply(command)
        return wait_for(done)

    def _receipt(self, place: CommitPlace, is_repeat: bool) -> Receipt:
        base, _, partition = place.name.partition("/")
        durability = self._shard.proposer.durability
        return Receipt(
            base, place.offset, place.rows, int(partition or 0), 0, is_repeat, durability
        )

    # --- what rests

    def set_seconds(self, seconds: float) -> None:
        """How long a number may rest; also for what is staged now."""
        self._rest_ms = round(seconds * 1000)
        self._end_timer()
        self.arm()

    def arm(self) -> None:
        shard = self._shard
        due_ms = shard.staging.due(self._rest_ms)
        if due_ms is not None and self._timer is None and shard.refusal is None:
            wait_ms = max(0, due_ms - shard.clock.now_ms())
            self._timer = shard.clock.call_later(wait_ms / 1000, shard.guarded(self._drop_rested))

    def _drop_rested(self) -> None:
        """Drop what was staged and never committed, once its time is up."""
        self._timer = None
        shard = self._shard
        now_ms = shard.clock.now_ms()
        rested = shard.staging.rested_since(now_ms - self._rest_ms)
        if rested and shard.proposer.failure is None:
            command = AbortStages(rested, now_ms)
            shard.proposer.propose(command)
            if shard.staging is not shard.state.staging:
                shard.staging.apply(command)
        self.arm()

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
