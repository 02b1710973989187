"""A durable broker on a simulated disk, driven step by step: the same calls in every run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from flintmq.batch import BatchBuilder
from flintmq.broker_api import ReaderOpening
from flintmq.engine import checkpoints, flushing, rewriting
from flintmq.engine.host import Host, durable_broker
from flintmq.engine.leading import compacting
from flintmq.engine.leading.topic import LeadingTopic
from flintmq.fsync_policy import ALWAYS, FsyncPolicy
from flintmq.model import Receipt
from flintmq.storage import manifest, topic_log
from flintmq.testing import ManualClock, SimulatedFileSystem

JOURNAL_FILE_BYTES = 2048
OWN_SEGMENT_BYTES = 700
SHARED_SECTIONS_MAX = 2
WHOLE_BYTES_MAX = 300
OPEN_ROWS_MAX = 5
_IDLE_STEPS_MAX = 20


class Stuck(Exception):
    """Nothing happens any more, and somebody waits."""


@contextmanager
def small_sizes() -> Iterator[None]:
    """Sizes that make every path of a checkpoint short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flushing, "OWN_SEGMENT_BYTES", OWN_SEGMENT_BYTES)
        patch.setattr(checkpoints, "SHARED_SECTIONS_MAX", SHARED_SECTIONS_MAX)
        patch.setattr(Host, "first_file_bytes", JOURNAL_FILE_BYTES)
        patch.setattr(manifest, "WHOLE_BYTES_MAX", WHOLE_BYTES_MAX)
        patch.setattr(topic_log, "OPEN_ROWS_MAX", OPEN_ROWS_MAX)
        patch.setattr(compacting, "LOOK_ROWS", 3)
        patch.setattr(compacting, "DROP_ROWS_MIN", 3)
        patch.setattr(rewriting, "DROPPED_MIN", 2)
        patch.setattr(rewriting, "GARBAGE_BYTES", 0)
        yield


class Life:
    """One process: from opening a directory to its end, whichever it is."""

    def __init__(self, disk: SimulatedFileSystem, policy: FsyncPolicy = ALWAYS) -> None:
        self.clock = ManualClock()
        self.disk = disk
        self.broker = durable_broker(
            disk,
            clock=self.clock,
            fsync=policy,
            journal_file_bytes=JOURNAL_FILE_BYTES,
        )

    async def open(self) -> Life:
        await self.broker.open(threaded=False)
        return self

    async def do(self, *works: Coroutine[Any, Any, Any]) -> list[Any]:
        """Begin all of them in one turn, and step until all have ended; results or errors."""
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            idle = 0
            while True:
                for _ in range(6):
                    await asyncio.sleep(0)
                if all(task.done() for task in tasks):
                    break
                idle = 0 if self.broker.host.step() else idle + 1
                if idle > _IDLE_STEPS_MAX:
                    raise Stuck
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [task.exception() or task.result() for task in tasks]

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        (result,) = await self.do(work)
        if isinstance(result, BaseException):
            raise result
        return result

    async def publish(self, topic: str, *values: bytes, **columns: Any) -> Receipt:
        receipt = await self.run(self.publishing(topic, *values, **columns))
        assert isinstance(receipt, Receipt)
        return receipt

    def publishing(
        self,
        topic: str,
        *values: bytes,
        producer: str | None = None,
        sequence: int = 0,
        timeout: float | None = None,
        **columns: Any,
    ) -> Coroutine[Any, Any, Receipt]:
        rows = BatchBuilder()
        for value in values:
            rows.append_row(value, **columns)
        return self.broker.publish(
            topic,
            rows if producer is None else rows.seal(producer=producer, base_sequence=sequence),
            qos=1,
            auto_create=False,
            timeout=timeout,
        )

    def topic(self, name: str) -> LeadingTopic | None:
        return self.broker.shard.topics.get(name)

    def messages(self, name: str) -> list[tuple[int, bytes]]:
        """Everything in a topic, as a reader gets it."""
        topic = self.topic(name)
        assert topic is not None
        found: list[tuple[int, bytes]] = []
        offset = topic.log.first_offset
        while offset < topic.log.next_offset:
            source, row, stop = topic.log.locate(offset)
            found += [(offset + i, source.value(row + i)) for i in range(stop - row)]
            offset += stop - row
        return found

    def segments(self) -> list[str]:
        return [f"segments/{name}" for name in self.disk.list("segments")]

    def referenced(self) -> set[str]:
        return self.broker.host.kept[0].checkpoints.manifest.files()


@dataclass
class Incarnation:
    """A topic from its creation to its deletion, as its users know it."""

    name: str
    keeps: int | None = None
    created: bool = False
    delete_asked: bool = False
    deleted: bool = False
    asked: list[bytes] = field(default_factory=list)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    commits_asked: list[int] = field(default_factory=list)
    committed: int | None = None
    purges_asked: list[int] = field(default_factory=list)
    purged: int = 0


class Story:
    """What was asked of a broker over its lives, and what it acknowledged."""

    def __init__(self) -> None:
        self.life: Life
        self.topics: dict[str, Incarnation] = {}
        self.ids: set[int] = set()
        self.sequences: dict[tuple[str, str, int], tuple[tuple[bytes, ...], int]] = {}
        self.counter = 0

    async def open(self, disk: SimulatedFileSystem, policy: FsyncPolicy = ALWAYS) -> Life:
        self.life = Life(disk, policy)
        return await self.life.open()

    async def create(self, name: str, **options: Any) -> None:
        made = self.topics[name] = Incarnation(name, options.get("retention_count"))
        names = [name]
        if partitions := options.get("partitions"):
            names = [f"{name}/{n}" for n in range(partitions)]
            del self.topics[name]
            for part in names:
                self.topics[part] = Incarnation(part, made.keeps)
        info = await self.life.run(self.life.broker.create_topic(name, options))
        assert info.id not in self.ids, "topic ids are never used again"
        for number, part in enumerate(names):
            self.ids.add(info.id + number)
            self.topics[part].created = True

    async def delete(self, name: str) -> None:
        topic = self.topics[name]
        topic.delete_asked = True
        await self.life.run(self.life.broker.delete_topic(name))
        topic.deleted = True

    async def purge(self, name: str, before: int) -> None:
        topic = self.topics[name]
        topic.purges_asked.append(before)
        await self.life.run(self.life.broker.purge_topic(name, before))
        topic.purged = before

    def values(self, count: int, size: int = 0) -> tuple[bytes, ...]:
        self.counter += count
        return tuple(
            (b"message %d " % n).ljust(size, b".")
            for n in range(self.counter - count, self.counter)
        )

    async def publish(self, name: str, count: int = 1, *, size: int = 0, **columns: Any) -> None:
        await self.publish_together((name, count), size=size, **columns)

    async def publish_together(
        self, *parts: tuple[str, int], size: int = 0, **columns: Any
    ) -> None:
        """Publishes of one turn of the loop."""
        works = []
        batches = [self.values(count, size) for _, count in parts]
        for (name, _), values in zip(parts, batches, strict=True):
            self.topics[name].asked += values
            works.append(self.life.publishing(name, *values, **columns))
        receipts = await self.life.do(*works)
        for (name, _), values, receipt in zip(parts, batches, receipts, strict=True):
            if isinstance(receipt, BaseException):
                raise receipt
            self._acknowledge(name, values, receipt)

    def _acknowledge(self, name: str, values: tuple[bytes, ...], receipt: Receipt) -> None:
        assert receipt.offset is not None
        for offset, value in enumerate(values, receipt.offset):
            known = self.topics[name].acknowledged.setdefault(offset, value)
            assert known == value, "an offset is given once"

    async def publish_once(self, name: str, producer: str, sequence: int, count: int = 1) -> None:
        key = (name, producer, sequence)
        if key in self.sequences:
            values, offset = self.sequences[key]
        else:
            values, offset = self.values(count), -1
            self.sequences[key] = values, offset
            self.topics[name].asked += values
        receipt = await self.life.publish(name, *values, producer=producer, sequence=sequence)
        assert receipt.offset is not None
        if offset >= 0:
            assert receipt.duplicate
            assert receipt.offset == offset
        self.sequences[key] = values, receipt.offset
        self._acknowledge(name, values, receipt)

    async def commit(self, name: str, offset: int) -> None:
        topic = self.topics[name]
        reader = await self.life.run(
            self.life.broker.open_reader(
                ReaderOpening(name, name="reader", start="earliest", filter=None, auto_create=False)
            )
        )
        topic.commits_asked.append(offset)
        await self.life.run(reader.commit(offset))
        topic.committed = offset
        await reader.close()

    async def checkpoint(self) -> None:
        await self.life.run(self.life.broker.host.checkpoint())

    async def close(self) -> None:
        await self.life.run(self.life.broker.close())

    # --- judging

    def check(self, life: Life) -> None:
        """A broker that was opened again has what was acknowledged, in order, once, no more."""
        for name, topic in self.topics.items():
            found = life.topic(name)
            if found is None:
                assert topic.delete_asked or not topic.created, f"{name} is gone"
                continue
            assert not topic.deleted, f"{name} is back"
            self._check_messages(life, topic)
            positions = {label: committed for label, (_, committed) in found.state.names.items()}
            committed = positions.get("reader")
            if topic.committed is not None or committed is not None:
                assert committed in topic.commits_asked
                if topic.committed is not None:
                    later = topic.commits_asked.index(topic.committed)
                    assert committed in topic.commits_asked[later:]
        assert set(life.broker.shard.topics) <= set(self.topics)
        assert life.broker.shard.state.last_topic_id >= max(self.ids, default=0)
        assert set(life.segments()) == life.referenced(), "files are neither missing nor left over"

    def _check_messages(self, life: Life, topic: Incarnation) -> None:
        found = life.topic(topic.name)
        assert found is not None
        messages = life.messages(topic.name)
        first, behind = found.log.first_offset, found.log.next_offset
        assert [offset for offset, _ in messages] == list(range(first, behind))
        if topic.purges_asked:
            assert first >= topic.purged, "what was purged is back"
            assert first in (topic.purged, *topic.purges_asked)
        else:
            kept = topic.keeps if topic.keeps is not None else behind
            assert first == max(0, behind - kept)
        by_offset = dict(messages)
        for offset, value in topic.acknowledged.items():
            assert offset < behind, f"offset {offset} of {topic.name} is lost"
            if offset >= first:
                assert by_offset[offset] == value
        values = [value for _, value in messages]
        places = [topic.asked.index(value) for value in values]
        assert len(set(places)) == len(places), "nothing comes twice"
        if topic.keeps is None:
            assert found.log.byte_count == sum(
                found.log.size_between(offset, offset + 1) for offset in by_offset
            )

    def take_over(self, life: Life) -> None:
        """From now on, what was found is what there is: what was asked for in vain is forgotten."""
        for name, topic in list(self.topics.items()):
            found = life.topic(name)
            if found is None:
                del self.topics[name]
                for key in [key for key in self.sequences if key[0] == name]:
                    del self.sequences[key]
                continue
            topic.created, topic.delete_asked = True, False
            self.ids.add(found.id)
            if topic.purges_asked:
                topic.purged = found.log.first_offset
                topic.purges_asked = [topic.purged]
            for offset, value in life.messages(name):
                topic.acknowledged[offset] = value
            positions = {label: committed for label, (_, committed) in found.state.names.items()}
            topic.committed = positions.get("reader")
            topic.commits_asked = [] if topic.committed is None else [topic.committed]

    async def go_on(self, life: Life) -> None:
        """The broker can be used: every topic takes a message, and repeats are known."""
        self.life = life
        for name, topic in list(self.topics.items()):
            found = life.topic(name)
            if found is None:
                if not topic.name.partition("/")[1]:
                    await self.create(name, retention_count=topic.keeps)
            elif topic.delete_asked or not topic.created:
                topic.delete_asked, topic.created = False, True
                self.ids.add(found.id)
        if "later" not in self.topics:
            await self.create("later")
        for name in self.topics:
            if life.topic(name) is not None:
                await self.publish(name)
        for (name, producer, sequence), (_, offset) in list(self.sequences.items()):
            if offset >= 0 and self.topics[name].acknowledged.get(offset):
                await self.publish_once(name, producer, sequence)
