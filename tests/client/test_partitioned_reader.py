"""A reader of several partitions behaves as a naive model of it says, whatever is done with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

import flintmq
from flintmq.batch import key_hash
from flintmq.testing import ManualClock, settle

T = TypeVar("T")
KEEP = 6


class ModelPartition:
    """A list of values of which the last few are kept; positions by name."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    @property
    def first(self) -> int:
        return max(0, len(self.values) - KEEP)


class ModelName:
    """One name: positions and what was committed, by partition; how many readers are open."""

    def __init__(self, partitions: int) -> None:
        self.position = [0] * partitions
        self.committed: list[int] = [0] * partitions
        self.missed = 0
        self.members = 0
        self.held: dict[flintmq.Reader, set[tuple[int, int]]] = {}
        """By reader: what it was handed and has not committed, as partition and offset."""
        self.returned: set[tuple[int, int]] = set()
        """What a reader held that has closed."""
        self.gone: Counter[int] = Counter()
        """How much of that retention took, by partition: it is missed, and told once."""

    def drop_gone(self, row: list[ModelPartition]) -> None:
        for place in [place for place in self.returned if place[1] < row[place[0]].first]:
            self.returned.discard(place)
            self.gone[place[0]] += 1

    def forget(self, partition: int) -> None:
        del self.gone[partition]
        for places in (self.returned, *self.held.values()):
            places -= {place for place in places if place[0] == partition}


class Partitions(RuleBasedStateMachine):
    """Publishing, reading, seeking, committing, growing and closing in any order."""

    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.mq = flintmq.connect("memory://", clock=self.clock)
        self.row = [ModelPartition(), ModelPartition()]
        self.names: dict[str, ModelName] = {}
        self.number = 0
        self.do(self.mq.create_topic("t", partitions=2, retention_count=KEEP))

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        async def and_settle() -> T:
            outcome = await call
            await settle()
            return outcome

        return self.loop.run_until_complete(and_settle())

    def teardown(self) -> None:
        self.do(self.mq.close())
        self.loop.close()

    # --- the outside

    @rule(keys=st.lists(st.sampled_from([None, "a", "b", "c", "d", "e"]), min_size=1, max_size=8))
    def publish(self, keys: list[str | bytes | None]) -> None:
        values = [b"%d" % (self.number + n) for n in range(len(keys))]
        self.number += len(keys)
        receipt = self.do(self.mq.publish_batch("t", values, key=keys))
        assert receipt.count == len(keys)
        where: dict[str | bytes | None, int] = {}
        for key in keys:  # the model asks where, not why
            if key is not None and key not in where:
                where[key] = self._partition_of(key)
        rest = {part.partition for part in receipt.parts} - set(where.values())
        counts = {part.partition: part.count for part in receipt.parts}
        for key in keys:
            if key is not None:
                counts[where[key]] -= 1
        if None in keys:
            (keyless,) = [partition for partition, count in counts.items() if count]
            assert rest <= {keyless}
            where[None] = keyless
        for key, value in zip(keys, values, strict=True):
            self.row[where[key]].values.append(value)

    def _partition_of(self, key: str | bytes) -> int:
        return key_hash(key) % len(self.row)

    @rule(more=st.integers(1, 2))
    def add_partitions(self, more: int) -> None:
        if len(self.row) + more > 6:
            return
        self.do(self.mq.configure_topic("t", partitions=len(self.row) + more))
        self.row += [ModelPartition() for _ in range(more)]
        for name in self.names.values():
            name.position += [0] * more
            name.committed += [0] * more

    # --- readers

    @rule(target=readers, name=st.sampled_from(["x", "y"]))
    def open(self, name: str) -> tuple[str, flintmq.Reader]:
        async def opened() -> flintmq.Reader:
            return await self.mq.reader("t", name=name)

        if name not in self.names:
            self.names[name] = ModelName(len(self.row))
            self.names[name].position = [partition.first for partition in self.row]
            self.names[name].committed = list(self.names[name].position)
        self.names[name].members += 1
        reader = self.do(opened())
        self.names[name].held[reader] = set()
        return name, reader

    @rule(reader=readers, count=st.integers(1, 10), at_once=st.booleans())
    def read(self, reader: tuple[str, flintmq.Reader], count: int, at_once: bool) -> None:
        name, opened = self.names[reader[0]], reader[1]
        if opened._closed:
            return

        async def read_nowait() -> flintmq.Rows:
            return opened.read_batch_nowait(count)

        if at_once:  # partitions that were added just now may come with the next read
            rows = self.do(read_nowait())
        else:
            assert self.do(opened.positions()) == dict(enumerate(name.position))
            rows = self.do(opened.read_batch(count, timeout=0))
            name.drop_gone(self.row)
            assert bool(rows) == (
                bool(name.returned)
                or any(
                    position < len(partition.values)
                    for position, partition in zip(name.position, self.row, strict=True)
                )
            )
        assert len(rows) <= count
        name.drop_gone(self.row)
        gap = rows.missed
        for message in rows:
            partition = self.row[message.partition]
            position = name.position[message.partition]
            place = (message.partition, message.offset or 0)
            name.held[opened].add(place)
            if place in name.returned:  # another reader had it, and did not commit it
                assert message.value == partition.values[place[1]]
                name.returned.discard(place)
                continue
            if position < partition.first:
                missed = partition.first - position + name.gone.pop(message.partition, 0)
                assert missed == gap, "a gap is told with the rows behind it"
                gap, position = 0, partition.first
                name.missed += missed
            assert message.offset == position, "no duplicates, no gaps, in order"
            assert message.value == partition.values[position]
            name.position[message.partition] = position + 1
        if gap:  # of what another reader had
            (number, *_) = [number for number, lost in name.gone.items() if lost == gap]
            name.missed += name.gone.pop(number)

    @rule(reader=readers, data=st.data())
    def seek(self, reader: tuple[str, flintmq.Reader], data: st.DataObject) -> None:
        name, opened = self.names[reader[0]], reader[1]
        if opened._closed:
            return
        number = data.draw(st.integers(0, len(self.row) - 1))
        partition = self.row[number]
        offset = data.draw(st.integers(partition.first, len(partition.values)))
        self.do(opened.seek({number: offset}))
        name.position[number] = offset
        name.forget(number)

    @rule(reader=readers, to=st.sampled_from(["earliest", "latest"]))
    def seek_all(self, reader: tuple[str, flintmq.Reader], to: Any) -> None:
        name, opened = self.names[reader[0]], reader[1]
        if opened._closed:
            return
        self.do(opened.seek(to))
        name.position = [p.first if to == "earliest" else len(p.values) for p in self.row]
        for number in range(len(self.row)):
            name.forget(number)

    @rule(reader=readers)
    def commit(self, reader: tuple[str, flintmq.Reader]) -> None:
        name, opened = self.names[reader[0]], reader[1]
        if opened._closed:
            return
        name.held[opened].clear()
        name.drop_gone(self.row)
        undone = set.union(name.returned, *name.held.values())
        name.committed = [
            min([position, *(offset for where, offset in undone if where == number)])
            for number, position in enumerate(name.position)
        ]
        assert self.do(opened.commit()) == sum(name.committed)

    @rule(reader=readers)
    def close(self, reader: tuple[str, flintmq.Reader]) -> None:
        name, opened = self.names[reader[0]], reader[1]
        if opened._closed:
            return
        self.do(opened.close())
        name.members -= 1
        name.returned |= name.held.pop(opened)
        if not name.members:
            name.returned.clear()
            name.gone.clear()
            name.position = [
                max(committed, min(position, partition.first))
                for committed, position, partition in zip(
                    name.committed, name.position, self.row, strict=True
                )
            ]

    @invariant()
    def figures_agree(self) -> None:
        stats = self.do(self.mq.topic_stats("t"))
        assert [p.next_offset for p in stats.partitions] == [len(p.values) for p in self.row]
        assert [p.first_offset for p in stats.partitions] == [p.first for p in self.row]
        assert stats.lag == {
            label: sum(
                len(partition.values) - max(position, partition.first)
                for position, partition in zip(name.position, self.row, strict=True)
            )
            + sum(offset >= self.row[number].first for number, offset in name.returned)
            for label, name in self.names.items()
        }


Partitions.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestPartitions = Partitions.TestCase
