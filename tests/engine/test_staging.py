"""Staging as a state, against a plain model; and through restarts and crashes at every call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder, RecordBatch
from flintmq.engine.broker import Broker
from flintmq.engine.commands import (
    AbortStages,
    CommitPlace,
    CommitStage,
    Stage,
    StagedBatch,
    decode_command,
    encode_command,
)
from flintmq.engine.host import durable_broker
from flintmq.engine.state.staging import Staging
from flintmq.errors import FlintError, InvalidRequest, NotStaged, QueueFull
from flintmq.model import Receipt
from flintmq.testing import Crashed, ManualClock, SimulatedFileSystem


def batch(*values: bytes, offset: int = 0) -> RecordBatch:
    sealed = BatchBuilder.of(list(values)).seal()
    sealed.stamp(offset, 1)
    return sealed


def stage(writer: str, number: int, part: str, *values: bytes, time: int = 1) -> Stage:
    return Stage(writer, number, part, time, [StagedBatch(1, "orders", batch(*values))])


def test_a_stage_is_the_same_after_a_way_through_the_journal() -> None:
    command = Stage(
        "job",
        7,
        "part",
        99,
        [
            StagedBatch(1, "orders", batch(b"a", b"bc", offset=5)),
            StagedBatch(3, "bills/0", batch(b"x" * 1000, offset=7)),
        ],
    )

    decoded = decode_command(b"".join(encode_command(command)))

    assert isinstance(decoded, Stage)
    assert decoded[:4] == ("job", 7, "part", 99)
    assert [
        (staged.topic, staged.name, staged.batch.base_offset, staged.batch.values())
        for staged in decoded.batches
    ] == [(1, "orders", 5, (b"a", b"bc")), (3, "bills/0", 7, (b"x" * 1000,))]


@pytest.mark.parametrize(
    "command",
    [
        CommitStage("job", 3, ["a", "b"], [CommitPlace(1, "orders", 10, 2, 99)]),
        AbortStages([("job", 3), ("other", 4)], 99),
    ],
)
def test_commits_and_aborts_too(command: CommitStage | AbortStages) -> None:
    assert decode_command(b"".join(encode_command(command))) == command


def test_a_writer_has_so_much_room_and_no_more() -> None:
    size = batch(b"a").byte_length
    staging = Staging(writer_bytes_max=2 * size, staged_bytes_max=3 * size)
    for writer, part in (("a", "0"), ("a", "1"), ("b", "0")):
        staging.check_room(writer, 1, part, size)
        staging.apply(stage(writer, 1, part, b"a"))

    staging.check_room("a", 1, "0", size)  # in place of what is there
    with pytest.raises(QueueFull, match="writer 'a'"):
        staging.check_room("a", 2, "0", size)
    with pytest.raises(QueueFull, match="all writers"):
        staging.check_room("c", 1, "0", size)

    staging.apply(AbortStages([("b", 1)], 2))
    staging.check_room("c", 1, "0", size)


WRITERS, NUMBERS, PARTS = ("a", "b"), range(4), ("x", "y", "z")
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("stage"),
            st.sampled_from(WRITERS),
            st.sampled_from(NUMBERS),
            st.sampled_from(PARTS),
        ),
        st.tuples(
            st.just("commit"),
            st.sampled_from(WRITERS),
            st.sampled_from(NUMBERS),
            st.lists(st.sampled_from(PARTS), unique=True),
        ),
        st.tuples(st.just("abort"), st.sampled_from(WRITERS), st.sampled_from(NUMBERS)),
        st.tuples(st.just("wait"), st.sampled_from([1000.0, 3000.0])),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


class Model:
    """What staged writes promise, in the plainest terms."""

    def __init__(self) -> None:
        self.staged: dict[tuple[str, int], dict[str, tuple[float, bytes]]] = {}
        self.last: dict[str, int] = {}
        self.topic: list[bytes] = []
        self.now = 0.0

    def is_done(self, writer: str, number: int) -> bool:
        return number <= self.last.get(writer, -1)

    def stage(self, writer: str, number: int, part: str, value: bytes) -> None:
        if not self.is_done(writer, number):
            self.staged.setdefault((writer, number), {})[part] = (self.now, value)

    def commit(self, writer: str, number: int, parts: list[str]) -> bool:
        """Whether it is refused."""
        if self.is_done(writer, number):
            return False
        there = self.staged.get((writer, number), {})
        if any(part not in there for part in parts):
            return True
        self.topic += [there[part][1] for part in parts]
        self.last[writer] = number
        for key in [key for key in self.staged if key[0] == writer and key[1] <= number]:
            del self.staged[key]
        return False

    def abort(self, writer: str, number: int) -> None:
        self.staged.pop((writer, number), None)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for key, parts in list(self.staged.items()):
            if max(time for time, _ in parts.values()) + 3600 <= self.now:
                del self.staged[key]


class Driver:
    """A durable broker on a simulated disk, without threads: calls are carried out by steps."""

    def __init__(self, disk: SimulatedFileSystem, clock: ManualClock) -> None:
        self.disk, self.clock = disk, clock
        self.broker = self._new()

    def _new(self) -> Broker:
        return durable_broker(
            self.disk, clock=self.clock, checkpoint_bytes=1 << 30, journal_file_bytes=64 * 1024
        )

    async def open(self) -> None:
        self.broker.host.first_file_bytes = 8192
        await self.broker.open(threaded=False)

    async def carry_out(self, call: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(call)
        while not task.done():
            await asyncio.sleep(0)
            self.broker.host.step()
        return await task

    async def settle(self) -> None:
        await self.carry_out(self.broker.settled())

    async def restart(self) -> None:
        """As after `kill -9`."""
        self.disk = self.disk.crash("everything")
        self.broker = self._new()
        await self.open()


def rows(values: list[bytes]) -> BatchBuilder:
    return BatchBuilder.of(values)


def stored(broker: Broker, topic: str) -> list[bytes]:
    found = broker.shard.topics.get(topic)
    if found is None:
        return []
    values: list[bytes] = []
    offset = found.log.first_offset
    while offset < found.log.next_offset:
        source, row, stop = found.log.locate(offset)
        values += source.values(row, stop)
        offset += stop - row
    return values


async def run_steps(steps: list[Any]) -> None:
    model, clock = Model(), ManualClock()
    driver = Driver(SimulatedFileSystem(), clock)
    await driver.open()
    await driver.carry_out(driver.broker.create_topic("orders", {}))
    for count, (kind, *arguments) in enumerate(steps):
        broker = driver.broker
        if kind == "stage":
            value = b"%d" % count
            writer, number, part = arguments
            model.stage(writer, number, part, value)
            batches = [("orders", rows([value]))]
            await driver.carry_out(broker.stage(writer, number, part, batches, auto_create=False))
        elif kind == "commit":
            if model.commit(*arguments):
                with pytest.raises(NotStaged):
                    await driver.carry_out(broker.commit(*arguments))
            else:
                await driver.carry_out(broker.commit(*arguments))
        elif kind == "abort":
            model.abort(*arguments)
            await driver.carry_out(broker.abort(*arguments))
        elif kind == "wait":
            model.wait(*arguments)
            await clock.advance(*arguments)
            await driver.settle()
        elif kind == "checkpoint":
            await broker.host.checkpoint()
        else:
            await driver.restart()
        staging = driver.broker.shard.state.staging
        assert stored(driver.broker, "orders") == model.topic
        assert {
            (name, number): {part: staged.batches[0].batch.value(0) for part, staged in p.items()}
            for name, writer in staging.writers.items()
            for number, p in writer.parts.items()
        } == {key: {p: value for p, (_, value) in v.items()} for key, v in model.staged.items()}
        assert staging.size == sum(s.batch.byte_length for s in staging.staged())
        assert staging.size == sum(writer.size for writer in staging.writers.values())
    await driver.broker.close()


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_staged_writes_do_what_the_model_does_across_restarts(steps: list[Any]) -> None:
    asyncio.run(run_steps(steps))


async def script(driver: Driver, note: Callable[[str, Any], None]) -> None:
    """Three commits with everything around them; each call's answer is noted when it comes."""
    await driver.open()
    for number in (1, 2, 3):
        for part in ("x", "y"):
            value = b"%d%s" % (number, part.encode())
            batches = [("orders", rows([value])), ("bills", rows([value, value]))]
            await driver.carry_out(
                driver.broker.stage("job", number, part, batches, auto_create=True)
            )
            note("staged", (number, part))
        if number == 2:
            await driver.broker.host.checkpoint()
        receipts = await driver.carry_out(driver.broker.commit("job", number, ["y", "x"]))
        note("committed", (number, receipts))
    await driver.broker.host.checkpoint()
    await driver.broker.close()


def expected(numbers: int) -> tuple[list[bytes], list[bytes]]:
    orders = [b"%d%s" % (n, p) for n in range(1, numbers + 1) for p in (b"y", b"x")]
    return orders, [value for value in orders for _ in range(2)]


async def crash_after(calls: int, keep: Any) -> bool:
    """Stop the disk after so many calls, reopen, and look. Whether the script came to its end."""
    disk = SimulatedFileSystem()
    disk.stop_after(calls)
    staged: list[tuple[int, str]] = []
    committed: list[tuple[int, list[Receipt]]] = []
    notes: dict[str, list[Any]] = {"staged": staged, "committed": committed}
    driver = Driver(disk, ManualClock())
    ended = True
    try:
        await script(driver, lambda kind, what: notes[kind].append(what))
    except (Crashed, FlintError):
        ended = False
    again = Driver(disk.crash(keep), ManualClock())
    await again.open()
    last = again.broker.shard.state.staging.writers["job"].last if committed or staged else 0
    last = max(last, 0)
    assert last >= len(committed)
    orders, bills = expected(last)
    assert stored(again.broker, "orders") == orders
    assert stored(again.broker, "bills") == bills
    # Whoever goes on where the answers ended gets everything in, once.
    for number in (1, 2, 3):
        for part in ("x", "y"):
            if (number, part) in staged:
                continue
            value = b"%d%s" % (number, part.encode())
            batches = [("orders", rows([value])), ("bills", rows([value, value]))]
            await again.carry_out(
                again.broker.stage("job", number, part, batches, auto_create=True)
            )
        await again.carry_out(again.broker.commit("job", number, ["y", "x"]))
    assert (stored(again.broker, "orders"), stored(again.broker, "bills")) == expected(3)
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["nothing", "everything", Random(1), Random(2)])
def test_a_crash_at_any_call_leaves_each_commit_whole_or_undone(keep: Any) -> None:
    calls = 1
    while not asyncio.run(crash_after(calls, keep)):
        calls += 1
    assert calls > 50


async def test_a_durable_broker_stages_for_durable_topics_only() -> None:
    driver = Driver(SimulatedFileSystem(), ManualClock())
    await driver.open()
    await driver.carry_out(driver.broker.create_topic("fleeting", {"storage": "memory"}))

    batches = [("fleeting", rows([b"a"]))]
    with pytest.raises(InvalidRequest, match="in memory"):
        await driver.carry_out(driver.broker.stage("job", 1, 0, batches, auto_create=False))
    await driver.broker.close()


async def test_segments_of_staged_parts_go_when_nothing_needs_them() -> None:
    driver = Driver(SimulatedFileSystem(), ManualClock())
    await driver.open()
    batches = [("orders", rows([b"a"]))]
    await driver.carry_out(driver.broker.stage("job", 1, 0, batches, auto_create=True))
    await driver.broker.host.checkpoint()
    (held,) = driver.broker.host.kept[0].checkpoints.manifest.files()
    await driver.broker.host.checkpoint()
    assert driver.disk.exists(held)

    await driver.carry_out(driver.broker.commit("job", 1, [0]))
    await driver.broker.host.checkpoint()

    assert not driver.disk.exists(held)
    assert stored(driver.broker, "orders") == [b"a"]
    await driver.broker.close()


async def test_a_shorter_time_for_what_is_staged_counts_for_what_is_staged_already() -> None:
    clock = ManualClock()
    broker = Broker(clock)
    await broker.stage("job", 1, 0, [("orders", rows([b"a"]))], auto_create=True)
    await clock.advance(10)

    broker.set_staged_seconds(15)
    await clock.advance(4)
    assert broker.shard.state.staging.size > 0
    await clock.advance(2)
    assert broker.shard.state.staging.size == 0
    await broker.close()
