"""Staging as a state, against a plain model; and through restarts and crashes at every call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder, RecordBatch, RestingRows
from flintmq.engine import flushing
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
from flintmq.engine.state.staging import LARGE_BYTES, Part, Staging
from flintmq.errors import Corrupt, FlintError, InvalidRequest, NotStaged, QueueFull, StorageFull
from flintmq.model import Overflow, Receipt
from flintmq.storage.resting import batches_of
from flintmq.storage.topic_log import TopicLog
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
        if isinstance(staged.batch, RecordBatch)
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
    """A durable broker on a simulated disk, without threads: calls are carried out by steps. With
    `large_bytes` below what is staged, a checkpoint lets go of it."""

    def __init__(
        self, disk: SimulatedFileSystem, clock: ManualClock, large_bytes: int = LARGE_BYTES
    ) -> None:
        self.disk, self.clock, self.large_bytes = disk, clock, large_bytes
        self.broker = self._new()

    def _new(self) -> Broker:
        return durable_broker(
            self.disk, clock=self.clock, checkpoint_bytes=1 << 30, journal_file_bytes=64 * 1024,
            staging=Staging(large_bytes=self.large_bytes),
        )  # fmt: skip

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


def values_staged(broker: Broker, part: Part) -> list[bytes]:
    """What a part has, in memory or in a segment."""
    values: list[bytes] = []
    for staged in part.batches:
        batch, store = staged.batch, broker.host.kept[0].store
        for one in [batch] if isinstance(batch, RecordBatch) else batches_of(store, batch):
            values += one.values()
    return values


async def run_steps(steps: list[Any], large_bytes: int) -> None:
    model, clock = Model(), ManualClock()
    driver = Driver(SimulatedFileSystem(), clock, large_bytes)
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
            (name, number): {
                part: values_staged(driver.broker, staged)[0] for part, staged in p.items()
            }
            for name, writer in staging.writers.items()
            for number, p in writer.parts.items()
        } == {key: {p: value for p, (_, value) in v.items()} for key, v in model.staged.items()}
        assert staging.size == sum(part.size for _, _, _, part in staging.parts())
        assert set(staging.fresh) == {
            (writer, number, part)
            for writer, number, part, staged in staging.parts()
            if any(one.file is None for one in staged.batches)
        }
        assert staging.size == sum(
            sum(writer.sizes.values()) for writer in staging.writers.values()
        )
        assert staging.size == sum(writer.size for writer in staging.writers.values())
    await driver.broker.close()


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from([LARGE_BYTES, 200, 0]))
def test_staged_writes_do_what_the_model_does_across_restarts(
    steps: list[Any], large_bytes: int
) -> None:
    asyncio.run(run_steps(steps, large_bytes))


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


async def crash_after(calls: int, keep: Any, large_bytes: int = LARGE_BYTES) -> bool:
    """Stop the disk after so many calls, reopen, and look. Whether the script came to its end."""
    disk = SimulatedFileSystem()
    disk.stop_after(calls)
    staged: list[tuple[int, str]] = []
    committed: list[tuple[int, list[Receipt]]] = []
    notes: dict[str, list[Any]] = {"staged": staged, "committed": committed}
    driver = Driver(disk, ManualClock(), large_bytes)
    ended = True
    try:
        await script(driver, lambda kind, what: notes[kind].append(what))
    except (Crashed, FlintError):
        ended = False
    again = Driver(disk.crash(keep), ManualClock(), large_bytes)
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
@pytest.mark.parametrize("large_bytes", [LARGE_BYTES, 0])
@pytest.mark.parametrize("keep", ["nothing", "everything", Random(1), Random(2)])
def test_a_crash_at_any_call_leaves_each_commit_whole_or_undone(
    keep: Any, large_bytes: int
) -> None:
    calls = 1
    while not asyncio.run(crash_after(calls, keep, large_bytes)):
        calls += 1
    assert calls > 50


async def publish(driver: Driver, value: bytes) -> None:
    publishing = driver.broker.publish(
        "orders", rows([value]), qos=1, auto_create=True, timeout=None
    )
    await driver.carry_out(publishing)


async def a_large_commit(driver: Driver) -> list[bytes]:
    """Two parts for two topics, of several batches each, committed from segments alone."""
    await driver.open()
    await publish(driver, b"before")
    for part in ("x", "y"):
        batches = [("orders", rows([f"{part}{n}".encode(), b"z" * n])) for n in range(3)]
        batches.insert(1, ("bills", rows([part.encode()])))
        await driver.carry_out(driver.broker.stage("job", 1, part, batches, auto_create=True))
    await driver.broker.host.checkpoint()
    held = [one for *_, part in driver.broker.shard.staging.parts() for one in part.batches]
    assert [type(one.batch) for one in held] == [RestingRows] * 4
    await publish(driver, b"between")
    await driver.carry_out(driver.broker.commit("job", 1, ["y", "x"]))
    await publish(driver, b"behind")
    parts = [
        value
        for part in "yx"
        for n in range(3)
        for value in (b"%s%d" % (part.encode(), n), b"z" * n)
    ]
    return [b"before", b"between", *parts, b"behind"]


async def test_a_large_commit_is_read_from_where_it_was_staged_and_then_from_the_topic() -> None:
    driver = Driver(SimulatedFileSystem(), ManualClock(), 0)
    expected = await a_large_commit(driver)
    log = driver.broker.shard.topics["orders"].log
    assert isinstance(log, TopicLog)
    named = driver.broker.host.kept[0].checkpoints.manifest.files()
    (hidden,) = named - {section.file for section in log.sections}
    assert stored(driver.broker, "orders") == expected

    await driver.restart()
    assert stored(driver.broker, "orders") == expected

    await driver.broker.host.checkpoint()
    assert stored(driver.broker, "orders") == expected
    assert stored(driver.broker, "bills") == [b"y", b"x"]
    assert not driver.disk.exists(hidden)
    await driver.restart()
    assert stored(driver.broker, "orders") == expected
    await driver.broker.close()


async def test_what_a_large_commit_counts_for_is_the_same_in_memory_and_on_the_disk() -> None:
    """Retention is decided where commands are applied, on each node by itself."""
    found = []
    for is_written in (True, False):
        driver = Driver(SimulatedFileSystem(), ManualClock(), 0)
        await driver.open()
        limits = {"retention_bytes": 1000}
        await driver.carry_out(driver.broker.create_topic("orders", limits))
        for part in range(4):
            batches = [("orders", rows([b"x" * (40 * n + part) for n in range(4)]))] * 2
            await driver.carry_out(driver.broker.stage("job", 1, part, batches, auto_create=False))
        if is_written:
            await driver.broker.host.checkpoint()
        await driver.carry_out(driver.broker.commit("job", 1, [2, 0, 1, 3]))
        log = driver.broker.shard.topics["orders"].log
        found.append((log.first_offset, log.next_offset, log.byte_count))
        await driver.broker.close()
    assert found[0] == found[1]
    assert 0 < found[0][2] <= 1000


async def test_a_writer_that_ends_is_forgotten_after_an_hour_and_a_named_one_never() -> None:
    clock = ManualClock()
    driver = Driver(SimulatedFileSystem(), clock)
    await driver.open()
    batches = [("orders", rows([b"a"]))]
    for writer in ("named", "unnamed"):
        await driver.carry_out(driver.broker.stage(writer, 0, 0, batches, auto_create=True))
        call = driver.broker.commit(writer, 0, [0], ends=writer == "unnamed")
        (receipt,) = await driver.carry_out(call)
    again = await driver.carry_out(driver.broker.commit("unnamed", 0, [0], ends=True))
    assert (again[0].offset, again[0].duplicate) == (receipt.offset, True)

    await clock.advance(1800)
    await driver.broker.host.checkpoint()
    await driver.restart()
    await clock.advance(1801)
    await driver.settle()

    assert set(driver.broker.shard.state.staging.writers) == {"named"}
    assert set(driver.broker.shard.staging.writers) == {"named"}
    await driver.broker.close()


def test_who_waits_for_how_long_is_known_without_looking_at_all_writers() -> None:
    staging = Staging()
    for number in range(3):
        staging.apply(stage("job", number, "part", b"a", time=10 * number))
    staging.apply(stage("job", 0, "other part", b"a", time=25))
    assert staging.due(100) == 110
    assert staging.rested_since(20) == [("job", 1), ("job", 2)]
    staging.apply(AbortStages([("job", 1)], 30))
    assert staging.due(100) == 120


async def test_staging_ends_where_the_disk_does_and_goes_on_when_there_is_room() -> None:
    driver = Driver(SimulatedFileSystem(), ManualClock(), 0)
    await driver.open()
    await publish(driver, b"before")
    driver.disk.size_max = 600_000
    parts = 0
    while True:
        batches = [("orders", rows([b"x" * 10_000]))]
        try:
            await driver.carry_out(driver.broker.stage("job", 1, parts, batches, auto_create=False))
            if parts % 4 == 3:
                await driver.broker.host.checkpoint()
        except StorageFull:
            break
        parts += 1
    assert parts > 20

    driver.disk.size_max = None
    await driver.clock.advance(5)
    await driver.settle()
    await driver.carry_out(driver.broker.abort("job", 1))
    await driver.broker.host.checkpoint()
    await publish(driver, b"behind")
    assert stored(driver.broker, "orders") == [b"before", b"behind"]
    await driver.broker.close()


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


async def resting(batches: list[tuple[str, BatchBuilder]], **options: Any) -> Driver:
    """A broker in whose segments these lie, staged as part 0 of number 1 of `job`."""
    driver = Driver(SimulatedFileSystem(), ManualClock(), 0)
    await driver.open()
    for topic in dict.fromkeys(topic for topic, _ in batches):
        await driver.carry_out(driver.broker.create_topic(topic, options))
    await driver.carry_out(driver.broker.stage("job", 1, 0, batches, auto_create=False))
    await driver.broker.host.checkpoint()
    return driver


async def test_priorities_and_delays_of_a_large_commit_count_as_of_any_other() -> None:
    mixed = BatchBuilder()
    mixed.append_row(b"low")
    mixed.append_row(b"late", deliver_at=60_000 + 10**12)
    mixed.append_row(b"high", priority=9)
    driver = await resting([("orders", rows([b"plain"])), ("orders", mixed)])
    await driver.carry_out(driver.broker.commit("job", 1, [0]))
    log = driver.broker.shard.topics["orders"].log

    assert list(log.delayed(0)) == [(60_000 + 10**12, 2, 0)]
    control, row, stop = log.control_at(3)
    assert (control is not None and control.priority(row), stop) == (9, 3)
    assert log.control_at(0)[0] is None
    assert log.time_of(3) == log.last_time
    assert log.offset_at_time(log.last_time) == 0
    await driver.broker.close()


@pytest.mark.parametrize(("overflow", "seen"), [("drop_oldest", []), ("reject", [b"a", b"b"])])
async def test_a_live_feed_that_may_refuse_gets_all_of_a_large_commit(
    overflow: Overflow, seen: list[bytes]
) -> None:
    driver = await resting([("orders", rows([b"a", b"b"]))])
    feed = await driver.broker.open_feed("orders", capacity=10, overflow=overflow, filter=None)
    await driver.carry_out(driver.broker.commit("job", 1, [0]))

    assert [message.value for message in feed.take(10)] == seen
    dropped = driver.broker.shard.topics["orders"].drops["feed"]
    assert dropped == 2 - len(seen)
    await driver.broker.close()


async def test_a_large_commit_that_a_live_feed_has_no_room_for_is_refused() -> None:
    driver = await resting([("orders", rows([b"a", b"b"]))])
    await driver.broker.open_feed("orders", capacity=1, overflow="reject", filter=None)
    with pytest.raises(QueueFull):
        await driver.carry_out(driver.broker.commit("job", 1, [0]))
    await driver.broker.close()


async def test_rows_of_a_large_commit_that_are_damaged_are_named_and_the_rest_is_read() -> None:
    whole, broken = rows([b"whole"]), rows([b"broken" * 10])
    driver = await resting([("orders", whole), ("orders", broken), ("orders", rows([b"last"]))])
    (name,) = driver.broker.host.kept[0].checkpoints.manifest.files()
    await driver.carry_out(driver.broker.commit("job", 1, [0]))
    with closing(driver.disk.open(name, writable=True)) as file:
        data = file.pread(driver.disk.size_of(name), 0)
        file.pwritev([b"BROKEN"], data.index(b"broken"))
    driver.broker.host.kept[0].store.forget(name)
    await driver.broker.host.checkpoint()

    log = driver.broker.shard.topics["orders"].log
    assert [log.locate(offset)[0].value(0) for offset in (0, 2)] == [b"whole", b"last"]
    with pytest.raises(Corrupt, match="offsets 1 to 1 of topic 'orders'"):
        log.locate(1)
    await driver.broker.close()


async def test_a_number_that_was_large_once_and_is_small_counts_each_row() -> None:
    """A node may have let go of what others still have in memory."""
    found = []
    for large_bytes in (0, LARGE_BYTES):
        driver = Driver(SimulatedFileSystem(), ManualClock(), large_bytes)
        await driver.open()
        values = [b"x" * n for n in range(10)]
        await driver.carry_out(
            driver.broker.stage("job", 1, 0, [("orders", rows(values))], auto_create=True)
        )
        await driver.broker.host.checkpoint()
        place = CommitPlace(1, "orders", 0, 10, 5)
        driver.broker.shard.state.apply(CommitStage("job", 1, ["0"], [place]))
        log = driver.broker.shard.state.topics["orders"].log
        found.append([log.size_between(0, n) for n in range(11)])
        await driver.broker.host.close()
    assert found[0] == found[1]
    assert found[0][3] == 0 + 1 + 2


async def test_a_large_commit_that_is_not_copied_yet_does_not_hold_up_the_end_of_a_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flushing, "OWN_SEGMENT_BYTES_MAX", 0)
    driver = Driver(SimulatedFileSystem(), ManualClock(), 0)
    expected = await a_large_commit(driver)
    checkpoint = driver.broker.host.kept[0].checkpoints.manifest.head.checkpoint
    assert driver.broker.host.kept[0].resting_bytes() > 0
    await driver.broker.close()
    assert driver.broker.host.kept[0].checkpoints.manifest.head.checkpoint == checkpoint

    driver.broker = driver._new()
    await driver.open()
    assert stored(driver.broker, "orders") == expected
    await driver.broker.host.checkpoint()
    assert driver.broker.host.kept[0].resting_bytes() == 0
    assert stored(driver.broker, "orders") == expected
    await driver.broker.close()
