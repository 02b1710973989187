"""A partitioned topic is a row of plain topics that is used as one; order holds by partition."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background

from .queues import deleted

# Among 4 partitions, these keys go to partition 0, 1, 2 and 3; see tests/client/test_routing.py.
KEYS = ["a" * 1000, "a", "größer", "42"]


async def _make(mq: flintmq.Client, partitions: int = 4, **options: Any) -> None:
    await mq.create_topic("orders", partitions=partitions, **options)


async def _fill(mq: flintmq.Client, each: int = 3, partitions: int = 4) -> None:
    """`each` messages in every partition: the value says partition and number."""
    for partition in range(partitions):
        values = [b"%d.%d" % (partition, n) for n in range(each)]
        await mq.publish_batch("orders", values, partition=partition)


def _values(each: int = 3, partitions: int = 4, first: int = 0) -> list[bytes]:
    return [b"%d.%d" % (p, n) for p in range(partitions) for n in range(first, each)]


async def _rest(reader: flintmq.Reader) -> list[bytes]:
    """What is there right now, sorted."""
    values: list[bytes] = []
    while rows := await reader.read_batch(timeout=0):
        values += rows.values
    return sorted(values)


# --- making them


async def test_a_partitioned_topic_is_one_topic_by_name(mq: flintmq.Client) -> None:
    info = await mq.create_topic("orders", partitions=4)
    assert (info.name, info.options.partitions) == ("orders", 4)
    assert await mq.topics() == ["orders"]
    assert await mq.topic_info("orders") == info


async def test_creating_it_again_alike_is_fine(mq: flintmq.Client) -> None:
    info = await mq.create_topic("orders", partitions=4, ttl=60)
    assert await mq.create_topic("orders", partitions=4) == info
    assert await mq.create_topic("orders") == info


@pytest.mark.parametrize("other", [{"partitions": 8}, {"partitions": None}, {"ttl": 60}])
async def test_creating_it_again_otherwise_is_a_conflict(
    mq: flintmq.Client, other: dict[str, Any]
) -> None:
    await _make(mq)
    with pytest.raises(flintmq.TopicExists) as caught:
        await mq.create_topic("orders", **other)
    assert set(caught.value.differing) == set(other)


async def test_a_plain_topic_does_not_become_a_row(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"x")
    with pytest.raises(flintmq.TopicExists):
        await mq.create_topic("orders", partitions=2)
    with pytest.raises(flintmq.InvalidRequest, match="without partitions"):
        await mq.configure_topic("orders", partitions=2)


@pytest.mark.parametrize("partitions", [0, -1, 1.5, True, "4", 1025])
async def test_a_number_of_partitions_that_cannot_be_is_refused(
    mq: flintmq.Client, partitions: Any
) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="partitions"):
        await mq.create_topic("orders", partitions=partitions)
    assert await mq.topics() == []


async def test_one_partition_and_very_many_are_fine(mq: flintmq.Client) -> None:
    await mq.create_topic("one", partitions=1)
    await mq.create_topic("many", partitions=1024)
    receipt = await mq.publish("one", b"x", key="k")
    assert (receipt.partition, receipt.offset) == (0, 0)
    assert (await mq.publish("many", b"x", key="42")).partition == 791


# --- publishing


async def test_a_single_message_has_a_receipt_with_its_partition(mq: flintmq.Client) -> None:
    await _make(mq)
    for n in range(2):
        for partition, key in enumerate(KEYS):
            receipt = await mq.publish("orders", b"x", key=key)
            assert (receipt.topic, receipt.partition, receipt.offset) == ("orders", partition, n)
            assert (receipt.count, receipt.parts) == (1, ())


async def test_a_batch_that_is_spread_has_a_part_for_each_partition(mq: flintmq.Client) -> None:
    await _make(mq)
    await mq.publish("orders", b"before", key=KEYS[1])
    keys: list[str | bytes | None] = [KEYS[1], KEYS[3], KEYS[1], KEYS[0]]
    receipt = await mq.publish_batch("orders", [b"0", b"1", b"2", b"3"], key=keys)
    assert (receipt.topic, receipt.count, receipt.offset) == ("orders", 4, None)
    parts = {part.partition: (part.topic, part.offset, part.count) for part in receipt.parts}
    assert parts == {1: ("orders", 1, 2), 3: ("orders", 0, 1), 0: ("orders", 0, 1)}


async def test_a_batch_that_stays_together_has_one_part_and_its_offset(mq: flintmq.Client) -> None:
    await _make(mq)
    receipt = await mq.publish_batch("orders", [b"0", b"1"], key=KEYS[2])
    assert (receipt.partition, receipt.offset, receipt.count) == (2, 0, 2)
    assert [(part.partition, part.offset, part.count) for part in receipt.parts] == [(2, 0, 2)]


@pytest.mark.slow
async def test_an_empty_batch_goes_nowhere(mq: flintmq.Client) -> None:
    await _make(mq)
    assert (await mq.publish_batch("orders", [])).count == 0
    assert (await mq.publish("orders", b"x")).partition == 0  # and takes no turn


async def test_what_has_no_key_goes_round_robin_batch_by_batch(mq: flintmq.Client) -> None:
    await _make(mq, 3)
    singles = [(await mq.publish("orders", b"x")).partition for _ in range(4)]
    batches = [(await mq.publish_batch("orders", [b"x"] * 5)).partition for _ in range(3)]
    assert (singles, batches) == ([0, 1, 2, 0], [1, 2, 0])


async def test_publish_many_has_a_receipt_for_each_message(mq: flintmq.Client) -> None:
    await _make(mq)
    receipts = await mq.publish_many(
        [("orders", b"0"), ("bills", b"1"), ("orders", b"2"), ("orders/3", b"3")]
    )
    assert [(r.topic, r.partition, r.offset, r.count) for r in receipts] == [
        ("orders", 0, 0, 1),
        ("bills", 0, 0, 1),
        ("orders", 0, 1, 1),
        ("orders", 3, 0, 1),
    ]


async def test_a_publisher_routes_each_message_by_its_key(mq: flintmq.Client) -> None:
    await _make(mq)
    async with mq.publisher("orders") as publisher:
        for n in range(12):
            publisher.send(b"%d" % n, key=KEYS[n % 4])
        await publisher.flush()
        assert (publisher.sent, publisher.acknowledged) == (12, 12)
    async with mq.reader("orders", partitions=[2]) as reader:
        assert list((await reader.read_batch()).values) == [b"2", b"6", b"10"]


@pytest.mark.parametrize("route", [2, lambda key, value, count: 2])
async def test_a_publisher_may_have_a_route_of_its_own(mq: flintmq.Client, route: Any) -> None:
    await _make(mq)
    async with mq.publisher("orders", partition=route) as publisher:
        publisher.send(b"x", key=KEYS[0])
        await publisher.flush()
        assert publisher.last_receipt is not None
        assert publisher.last_receipt.partition == 2


async def test_a_publish_may_name_its_partition_or_a_function(mq: flintmq.Client) -> None:
    await _make(mq)
    assert (await mq.publish("orders", b"x", key=KEYS[0], partition=3)).partition == 3
    receipt = await mq.publish_batch(
        "orders", [b"aa", b"b", b"cc"], partition=lambda key, value, count: len(value) % count
    )
    assert {part.partition: part.count for part in receipt.parts} == {2: 2, 1: 1}
    round_robin = [
        (await mq.publish("orders", b"x", key=KEYS[3], partition="round_robin")).partition
        for _ in range(4)
    ]
    assert round_robin == [0, 1, 2, 3]


@pytest.mark.parametrize("route", [4, -1, True, "three", lambda k, v, n: n, lambda k, v, n: 1 / 0])
async def test_a_route_that_leads_nowhere_publishes_nothing(mq: flintmq.Client, route: Any) -> None:
    await _make(mq)
    with pytest.raises(flintmq.InvalidRequest):
        await mq.publish("orders", b"x", partition=route)
    with pytest.raises(flintmq.InvalidRequest):
        await mq.publish_batch("orders", [b"x", b"y"], partition=route)
    publisher = mq.publisher("orders", partition=route)
    publisher.send(b"x")
    with pytest.raises(flintmq.InvalidRequest) as caught:
        await publisher.close()
    assert "1 messages sent to 'orders' were not published" in caught.value.__notes__
    assert (await mq.topic_stats("orders")).published == 0


async def test_a_function_that_fails_on_one_message_publishes_none_of_its_batch(
    mq: flintmq.Client,
) -> None:
    await _make(mq)

    def route(key: Any, value: bytes, count: int) -> int:
        return int(value)

    with pytest.raises(flintmq.RoutingFailed, match="ValueError"):
        await mq.publish_batch("orders", [b"0", b"1", b"two"], partition=route)
    assert (await mq.topic_stats("orders")).published == 0


@pytest.mark.parametrize("route", [0, "round_robin", lambda key, value, count: 0])
async def test_a_plain_topic_has_no_partition_to_choose(mq: flintmq.Client, route: Any) -> None:
    await mq.create_topic("plain")
    for topic in ("plain", "missing"):
        with pytest.raises(flintmq.InvalidRequest, match="no partitions"):
            await mq.publish(topic, b"x", partition=route)
        with pytest.raises(flintmq.InvalidRequest, match="no partitions"):
            await mq.publish_batch(topic, [b"x"], partition=route)
    with pytest.raises(flintmq.InvalidRequest, match="no partitions"):
        await mq.reader("plain", partitions=[0])
    assert await mq.topics() == ["plain"]


async def test_an_error_in_one_part_carries_the_receipts_of_those_before_it(
    mq: flintmq.Client,
) -> None:
    await _make(mq, retention_count=2, overflow="reject")
    await mq.publish_batch("orders", [b"x"] * 2, partition=3)
    keys: list[str | bytes | None] = [KEYS[0], KEYS[1], KEYS[3], KEYS[2]]
    with pytest.raises(flintmq.TopicFull, match="orders/3") as caught:
        await mq.publish_batch("orders", [b"a", b"b", b"c", b"d"], key=keys)
    receipts = [(r.topic, r.partition, r.offset, r.count) for r in caught.value.receipts]
    assert receipts == [("orders", 0, 0, 1), ("orders", 1, 0, 1)]
    stats = await mq.topic_stats("orders")
    assert [part.message_count for part in stats.partitions] == [1, 1, 0, 2]


async def test_the_time_to_wait_is_for_all_parts_together(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await _make(mq, retention_count=1, overflow="block")
    async with mq.reader("orders", partitions=[0, 1]) as reader:
        for partition in (0, 1):
            await mq.publish("orders", b"x", partition=partition)
        publishing = await background.waiting(
            mq.publish_batch("orders", [b"a", b"b"], key=[KEYS[0], KEYS[1]], timeout=10)
        )
        await clock.advance(6)
        while (message := (await reader.read(timeout=0))) is not None and message.partition != 0:
            await reader.seek({1: 0})  # partition 1 stays full
        await clock.advance(3.9)
        assert not publishing.done()
        await clock.advance(0.2)
        assert publishing.done()
        with pytest.raises(flintmq.TopicFull) as caught:
            await publishing
        assert [receipt.partition for receipt in caught.value.receipts] == [0]


async def test_a_full_partition_holds_up_its_own_publishers_only(
    mq: flintmq.Client, background: Background
) -> None:
    await _make(mq, retention_count=1, overflow="block")
    async with mq.reader("orders") as reader:
        await mq.publish("orders", b"first", key=KEYS[1])
        waits = await background.waiting(mq.publish("orders", b"second", key=KEYS[1]))
        await mq.publish("orders", b"other", key=KEYS[2])
        assert await _rest(reader) == [b"first", b"other"]
        assert (await waits).offset == 1


async def test_what_is_dropped_is_counted_over_the_parts(mq: flintmq.Client) -> None:
    await _make(mq, retention_count=2, overflow="drop_new")
    keys: list[str | bytes | None] = [KEYS[0], KEYS[0], KEYS[0], KEYS[1]]
    receipt = await mq.publish_batch("orders", [b"x"] * 4, key=keys)
    assert (receipt.count, receipt.dropped) == (3, 1)
    assert [(part.partition, part.count, part.dropped) for part in receipt.parts] == [
        (0, 2, 1),
        (1, 1, 0),
    ]


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
async def test_batches_may_be_compressed_part_by_part(mq: flintmq.Client, compression: str) -> None:
    await _make(mq)
    keys: list[str | bytes | None] = [KEYS[n % 4] for n in range(100)]
    values = [b"%03d" % n for n in range(100)]
    await mq.publish_batch("orders", values, key=keys, batch_compression=compression)
    async with mq.reader("orders") as reader:
        assert await _rest(reader) == values


async def test_the_format_of_a_topic_holds_in_every_partition(mq: flintmq.Client) -> None:
    await _make(mq, format="msgpack")
    for n in range(4):
        await mq.publish("orders", {"n": n}, partition=n)
    async with mq.reader("orders") as reader:
        rows = await reader.read_batch()
        assert sorted(row["n"] for row in rows.decode()) == [0, 1, 2, 3]


async def test_objects_are_passed_through_partitions_by_reference(mq: flintmq.Client) -> None:
    await _make(mq, format="object")
    things = [object() for _ in range(8)]
    keys: list[str | bytes | None] = [KEYS[n % 4] for n in range(8)]
    await mq.publish_batch("orders", things, key=keys)
    async with mq.reader("orders") as reader:
        values = (await reader.read_batch()).values
    assert {id(value) for value in values} == {id(thing) for thing in things}


# --- reading


async def test_a_reader_reads_all_partitions_and_keeps_the_order_in_each(
    mq: flintmq.Client,
) -> None:
    await _make(mq)
    await _fill(mq, 50)
    async with mq.reader("orders") as reader:
        rows = await reader.read_batch(1000)
        assert len(rows) == 200
        by_partition = defaultdict(list)
        for message in rows:
            assert message.topic == "orders"
            by_partition[message.partition].append(message.offset)
        assert by_partition == {partition: list(range(50)) for partition in range(4)}
        assert await reader.read_batch(timeout=0) == []


async def test_a_batch_has_at_most_as_many_as_were_asked_for(mq: flintmq.Client) -> None:
    await _make(mq)
    await _fill(mq, 5)
    async with mq.reader("orders") as reader:
        sizes = [len(await reader.read_batch(7)) for _ in range(3)]
        assert sizes == [7, 7, 6]


async def test_no_partition_is_starved(mq: flintmq.Client) -> None:
    await _make(mq)
    await _fill(mq, 100)
    async with mq.reader("orders") as reader:
        singles = [message.partition for _ in range(8) if (message := await reader.read())]
        assert sorted(singles) == [0, 0, 1, 1, 2, 2, 3, 3]
        batches = [{m.partition for m in await reader.read_batch(5)} for _ in range(4)]
        assert set().union(*batches) == {0, 1, 2, 3}


@pytest.mark.parametrize("wanted", [[0], [3, 1], (2,), [1, 1, 2], range(1, 3)])
async def test_a_reader_may_read_given_partitions_only(mq: flintmq.Client, wanted: Any) -> None:
    await _make(mq)
    await _fill(mq)
    async with mq.reader("orders", partitions=wanted) as reader:
        assert {message.partition for message in await reader.read_batch()} == set(wanted)
        assert sorted(await reader.positions()) == sorted(set(wanted))
        assert await reader.lag() == 0


@pytest.mark.parametrize("wanted", [[], [4], [-1], [0, 9], ["0"], [1.0], [True], 2, "01", {0}])
async def test_partitions_that_are_not_there_are_refused(mq: flintmq.Client, wanted: Any) -> None:
    await _make(mq)
    with pytest.raises(flintmq.InvalidRequest, match="partitions"):
        await mq.reader("orders", partitions=wanted)
    assert (await mq.topic_stats("orders")).subscribers == 0


async def test_a_waiting_reader_is_woken_by_any_partition(
    mq: flintmq.Client, background: Background
) -> None:
    await _make(mq)
    async with mq.reader("orders") as reader:
        for partition in range(4):
            reading = await background.waiting(reader.read())
            await mq.publish("orders", b"%d" % partition, partition=partition)
            message = await reading
            assert message is not None
            assert message.partition == partition


async def test_a_reader_of_some_partitions_is_not_woken_by_others(
    mq: flintmq.Client, background: Background
) -> None:
    await _make(mq)
    async with mq.reader("orders", partitions=[1, 2]) as reader:
        reading = await background.waiting(reader.read())
        await mq.publish("orders", b"x", partition=0)
        await background.settle()
        assert not reading.done()
        await mq.publish("orders", b"y", partition=2)
        message = await reading
        assert message is not None
        assert message.value == b"y"


async def test_waiting_ends_when_its_time_is_up(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await _make(mq)
    async with mq.reader("orders") as reader:
        reading = await background.waiting(reader.read_batch(timeout=5))
        await clock.advance(4.9)
        assert not reading.done()
        await clock.advance(0.1)
        assert await reading == []
    assert clock.pending() == 0


async def test_several_tasks_may_wait_at_one_reader(
    mq: flintmq.Client, background: Background
) -> None:
    await _make(mq)
    async with mq.reader("orders") as reader:
        reading = [await background.waiting(reader.read()) for _ in range(3)]
        for n in range(3):
            await mq.publish("orders", b"%d" % n)
            await background.settle()
        values = [message.value for task in reading if (message := await task)]
        assert sorted(values) == [b"0", b"1", b"2"]


async def test_a_cancelled_read_has_taken_nothing(
    mq: flintmq.Client, background: Background
) -> None:
    await _make(mq)
    async with mq.reader("orders") as reader:
        reading = await background.waiting(reader.read())
        other = await background.waiting(reader.read())
        await mq.publish("orders", b"x")
        reading.cancel()
        await asyncio.wait([reading])
        # Where publishing takes its time, the first may have been faster than we are.
        message = await other if reading.cancelled() else reading.result()
        assert message is not None
        assert message.value == b"x"


async def test_closing_ends_a_read_that_waits_and_an_iteration(
    mq: flintmq.Client, background: Background
) -> None:
    await _make(mq)
    reader = await mq.reader("orders")

    async def iterate() -> str:
        async for _ in reader:
            pass
        return "ended"

    iterating = await background.waiting(iterate())
    reading = await background.waiting(reader.read())
    await reader.close()
    assert await iterating == "ended"
    with pytest.raises(flintmq.Closed):
        await reading
    assert (await mq.topic_stats("orders")).subscribers == 0


async def test_an_offset_is_no_start_for_several_partitions(mq: flintmq.Client) -> None:
    await _make(mq)
    with pytest.raises(flintmq.InvalidRequest, match=r"seek\({partition: offset}\)"):
        await mq.reader("orders", start=5)


async def test_a_reader_that_cannot_be_opened_everywhere_is_opened_nowhere(
    mq: flintmq.Client,
) -> None:
    await _make(mq)
    async with mq.reader("orders", name="n", partitions=[2], filter=lambda message: True):
        with pytest.raises(flintmq.InvalidRequest, match="another filter"):
            await mq.reader("orders", name="n", filter=lambda message: False)
        stats = await mq.topic_stats("orders")
        assert [part.subscribers for part in stats.partitions] == [0, 0, 1, 0]


# --- positions


async def test_positions_are_by_partition_and_position_is_their_sum(mq: flintmq.Client) -> None:
    await _make(mq)
    await _fill(mq, 3)
    async with mq.reader("orders") as reader:
        assert await reader.positions() == {0: 0, 1: 0, 2: 0, 3: 0}
        await reader.seek({0: 3, 2: 1})
        assert await reader.positions() == {0: 3, 1: 0, 2: 1, 3: 0}
        assert (await reader.position(), await reader.lag()) == (4, 8)
        assert await _rest(reader) == [b"1.0", b"1.1", b"1.2", b"2.1", b"2.2", *_values()[9:]]


async def test_seek_goes_to_the_ends_everywhere(mq: flintmq.Client) -> None:
    await _make(mq)
    await _fill(mq)
    async with mq.reader("orders") as reader:
        await reader.seek("latest")
        assert (await reader.positions(), await reader.lag()) == (dict.fromkeys(range(4), 3), 0)
        await reader.seek("earliest")
        assert await reader.positions() == dict.fromkeys(range(4), 0)


async def test_seek_by_time_finds_the_place_in_each_partition(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await _make(mq)
    await mq.publish_batch("orders", [b"old"] * 2, partition=1)
    await clock.advance(60)
    then = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    await mq.publish("orders", b"new", partition=1)
    await mq.publish("orders", b"new", partition=3)
    async with mq.reader("orders") as reader:
        await reader.seek(then)
        assert await reader.positions() == {0: 0, 1: 2, 2: 0, 3: 0}
    async with mq.reader("orders", start=then) as reader:
        assert await _rest(reader) == [b"new", b"new"]


@pytest.mark.parametrize(
    "to", [5, {0: 1, 7: 0}, {0: 1, 1: -1}, {0: 1, 1: "earliest"}, {0: 1, 1: True}, "middle", None]
)
async def test_a_seek_that_cannot_be_moves_nothing(mq: flintmq.Client, to: Any) -> None:
    await _make(mq)
    await _fill(mq)
    async with mq.reader("orders") as reader:
        with pytest.raises(flintmq.InvalidRequest):
            await reader.seek(to)
        assert await reader.positions() == dict.fromkeys(range(4), 0)


async def test_a_reader_of_one_partition_takes_plain_offsets(mq: flintmq.Client) -> None:
    await _make(mq)
    await _fill(mq)
    async with mq.reader("orders", name="n", partitions=[2]) as reader:
        await reader.seek(2)
        assert await reader.positions() == {2: 2}
        assert await reader.commit(1) == 1


async def test_commit_without_an_argument_keeps_all_partitions(mq: flintmq.Client) -> None:
    await _make(mq)
    await _fill(mq, 5)
    async with mq.reader("orders", name="n") as reader:
        await reader.read_batch(7)
        positions = await reader.positions()
        assert await reader.commit() == 7
        await reader.read_batch(7)
    async with mq.reader("orders", name="n") as reader:
        assert await reader.positions() == positions


async def test_commit_of_a_message_concerns_its_partition_alone(mq: flintmq.Client) -> None:
    await _make(mq)
    await _fill(mq, 5)
    async with mq.reader("orders", name="n") as reader:
        rows = await reader.read_batch()
        message = next(m for m in rows if (m.partition, m.offset) == (2, 3))
        assert await reader.commit(message) == 4
    async with mq.reader("orders", name="n") as reader:
        assert await reader.positions() == {0: 0, 1: 0, 2: 4, 3: 0}


async def test_commit_of_a_bare_number_is_refused_over_several_partitions(
    mq: flintmq.Client,
) -> None:
    await _make(mq)
    async with mq.reader("orders", name="n") as reader:
        with pytest.raises(flintmq.InvalidRequest, match="commit a message"):
            await reader.commit(0)


async def test_only_what_was_read_here_can_be_committed(mq: flintmq.Client) -> None:
    await _make(mq)
    await _fill(mq)
    await mq.publish("bills", b"x")
    async with (
        mq.reader("orders", name="n", partitions=[0, 1]) as some,
        mq.reader("orders/2", name="n") as one,
        mq.reader("bills", name="n") as bills,
        mq.reader("orders/3") as other,
    ):
        foreign = (await other.read_batch(1))[0]
        for reader in (some, one, bills):
            with pytest.raises(flintmq.InvalidRequest):
                await reader.commit(foreign)
        assert await one.commit((await one.read_batch(2))[1]) == 2


async def test_an_unnamed_reader_has_nothing_to_commit_to(mq: flintmq.Client) -> None:
    await _make(mq)
    async with mq.reader("orders") as reader:
        with pytest.raises(flintmq.InvalidRequest, match="name"):
            await reader.commit()


# --- names


async def test_readers_of_one_name_split_the_messages_of_all_partitions(
    mq: flintmq.Client,
) -> None:
    await _make(mq)
    await _fill(mq, 10)
    async with mq.reader("orders", name="n") as a, mq.reader("orders", name="n") as b:
        got_a = list((await a.read_batch(13)).values)
        got_b = list((await b.read_batch(13)).values)
        got_a += (await a.read_batch(100)).values
        assert sorted(got_a + got_b) == sorted(_values(10))
        assert await a.positions() == await b.positions()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_many_members_of_a_name_get_each_message_once(mq: flintmq.Client, seed: int) -> None:
    chance = random.Random(seed)
    await _make(mq)
    got: list[list[flintmq.Message]] = []

    async def consume() -> None:
        mine: list[flintmq.Message] = []
        got.append(mine)
        async with mq.reader("orders", name="shared") as reader:
            while sum(map(len, got)) < 600:
                way = chance.randrange(3)
                if way == 0 or way == 1:
                    mine += await reader.read_batch(chance.randrange(1, 20), timeout=0)
                elif (message := (await reader.read(timeout=0))) is not None:
                    mine.append(message)
                await asyncio.sleep(0)
            await reader.commit()  # else the others get what this one had

    async def produce() -> None:
        n = 0
        while n < 600:
            count = min(chance.choice((1, 3, 40)), 600 - n)
            keys: list[str | bytes | None] = [chance.choice([*KEYS, None]) for _ in range(count)]
            await mq.publish_batch("orders", [b"%d" % i for i in range(n, n + count)], key=keys)
            n += count
            await asyncio.sleep(0)

    async with mq.reader("orders", name="shared"):
        await asyncio.gather(produce(), *(consume() for _ in range(5)))
    assert sorted(int(m.value) for mine in got for m in mine) == list(range(600))
    for mine in got:
        offsets: dict[int, list[int]] = defaultdict(list)
        for message in mine:
            assert message.offset is not None
            offsets[message.partition].append(message.offset)
        assert all(part == sorted(part) for part in offsets.values())


async def test_waiting_members_share_what_comes(mq: flintmq.Client, background: Background) -> None:
    await _make(mq)
    async with mq.reader("orders", name="n") as a, mq.reader("orders", name="n") as b:
        reading = [await background.waiting(reader.read()) for reader in (a, b)]
        await mq.publish("orders", b"first")
        await background.settle()
        assert sum(task.done() for task in reading) == 1
        await mq.publish("orders", b"second")
        values = {message.value for task in reading if (message := await task)}
        assert values == {b"first", b"second"}


async def test_members_may_have_partitions_of_their_own(mq: flintmq.Client) -> None:
    await _make(mq)
    await _fill(mq)
    async with (
        mq.reader("orders", name="n", partitions=[0, 1]) as a,
        mq.reader("orders", name="n", partitions=[2, 3]) as b,
    ):
        assert sorted((await a.read_batch()).values) == _values()[:6]
        assert sorted((await b.read_batch()).values) == _values()[6:]
        assert (await mq.topic_stats("orders")).lag == {"n": 0}


@pytest.mark.parametrize("commits", [True, False])
async def test_what_a_member_leaves_others_go_on_with(mq: flintmq.Client, commits: bool) -> None:
    await _make(mq)
    await _fill(mq)
    async with mq.reader("orders", name="n") as a:
        async with mq.reader("orders", name="n") as b:
            taken = list((await b.read_batch(5)).values)
            if commits:
                await b.commit()
        rest = await _rest(a)
        assert sorted(taken + rest if commits else rest) == _values()


# --- live feeds


@pytest.mark.parametrize("pattern", ["orders", "*", ">"])
async def test_a_feed_gets_what_goes_to_any_partition(mq: flintmq.Client, pattern: str) -> None:
    await _make(mq)
    async with mq.live(pattern) as feed:
        keys: list[str | bytes | None] = [*KEYS]
        await mq.publish_batch("orders", [b"0", b"1", b"2", b"3"], key=keys)
        await mq.publish("orders", b"4", qos=0, partition=2)
        got = [(m.topic, m.partition, m.value, m.offset) for m in await feed.read_batch()]
        assert got == [("orders", n, b"%d" % n, 0) for n in range(4)] + [("orders", 2, b"4", None)]


async def test_a_pattern_sees_partitioned_and_plain_topics_alike(mq: flintmq.Client) -> None:
    await mq.create_topic("orders.eu", partitions=2)
    async with mq.live("orders.*") as feed:
        await mq.publish("orders.eu", b"a")
        await mq.publish("orders.us", b"b")
        assert [m.topic for m in await feed.read_batch()] == ["orders.eu", "orders.us"]


async def test_a_feed_that_is_full_refuses_in_any_partition(mq: flintmq.Client) -> None:
    await _make(mq)
    async with mq.live("orders", capacity=1, overflow="reject") as feed:
        await mq.publish("orders", b"a", partition=0)
        with pytest.raises(flintmq.QueueFull):
            await mq.publish("orders", b"b", partition=1)
        assert list((await feed.read_batch()).values) == [b"a"]


async def test_a_delayed_message_reaches_feeds_when_it_is_due(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await _make(mq)
    async with mq.live("orders") as feed:
        await mq.publish("orders", b"later", key=KEYS[2], delay=10)
        await mq.publish("orders", b"sooner", key=KEYS[1], delay=5)
        await clock.advance(10)
        assert list((await feed.read_batch()).values) == [b"sooner", b"later"]


# --- retention, expiry, gaps


async def test_limits_hold_for_each_partition(mq: flintmq.Client) -> None:
    await _make(mq, retention_count=2)
    await mq.publish_batch("orders", [b"x"] * 5, partition=1)
    await mq.publish_batch("orders", [b"x"] * 2, partition=2)
    stats = await mq.topic_stats("orders")
    assert [part.message_count for part in stats.partitions] == [0, 2, 2, 0]
    assert [part.first_offset for part in stats.partitions] == [0, 3, 0, 0]
    assert (stats.message_count, stats.drops) == (4, {"count": 3})


async def test_age_ends_messages_in_every_partition_without_anybody_reading(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await _make(mq, retention_age=60)
    await _fill(mq)
    await clock.advance(30)
    await mq.publish("orders", b"young", partition=3)
    await clock.advance(31)
    stats = await mq.topic_stats("orders")
    assert [part.message_count for part in stats.partitions] == [0, 0, 0, 1]


async def test_nobody_is_handed_an_expired_message(mq: flintmq.Client, clock: ManualClock) -> None:
    await _make(mq)
    keys: list[str | bytes | None] = [*KEYS]
    await mq.publish_batch("orders", [b"0", b"1", b"2", b"3"], key=keys, ttl=[5, None, 5, 60])
    await clock.advance(6)
    async with mq.reader("orders") as reader:
        assert await _rest(reader) == [b"1", b"3"]


async def test_each_gap_is_told_once_and_before_what_follows_it(mq: flintmq.Client) -> None:
    await _make(mq, retention_count=2)
    async with mq.reader("orders") as reader:
        for partition, count in enumerate((1, 3, 5, 2)):
            values = [b"%d.%d" % (partition, n) for n in range(count)]
            await mq.publish_batch("orders", values, partition=partition)
        gaps = {}
        values = []
        while rows := await reader.read_batch(timeout=0):
            values += rows.values
            if rows.gap is not None:
                gaps[rows.gap.topic] = rows.gap
                assert f"{rows[0].topic}/{rows[0].partition}" == rows.gap.topic
                assert rows[0].offset == rows.gap.next
        assert gaps == {
            "orders/1": flintmq.Missed("orders/1", 0, 1, 1),
            "orders/2": flintmq.Missed("orders/2", 0, 3, 3),
        }
        assert sorted(values) == [b"0.0", b"1.1", b"1.2", b"2.3", b"2.4", b"3.0", b"3.1"]
        assert reader.missed == 4


async def test_events_tell_of_gaps_in_the_place_where_they_are(mq: flintmq.Client) -> None:
    await _make(mq, 2, retention_count=1)
    async with mq.reader("orders") as reader:
        for partition in (0, 1):
            await mq.publish_batch("orders", [b"a", b"b"], partition=partition)
        events = reader.events()
        seen = [await anext(events) for _ in range(4)]
        for gap, message in zip(seen[::2], seen[1::2], strict=True):
            assert isinstance(gap, flintmq.Missed)
            assert isinstance(message, flintmq.Message)
            assert gap.topic == f"orders/{message.partition}"


# --- filters


@pytest.mark.parametrize("wanted", ["value.n >= 6", lambda message: message.decode()["n"] >= 6])
async def test_filters_work_over_partitions(mq: flintmq.Client, wanted: Any) -> None:
    await _make(mq, format="json")
    for n in range(8):
        await mq.publish("orders", {"n": n}, key=KEYS[n % 4])
    async with (
        mq.reader("orders", name="n", filter=wanted) as reader,
        mq.live("orders", filter=wanted) as feed,
    ):
        assert sorted(m.decode()["n"] for m in await reader.read_batch()) == [6, 7]
        assert await reader.position() == 8
        await mq.publish("orders", {"n": 5})
        await mq.publish("orders", {"n": 9})
        assert [m.decode()["n"] for m in await feed.read_batch()] == [9]
        filters = (await mq.topic_stats("orders")).filters
        assert filters["n"] == {"matched": 2, "rejected": 6}
        assert filters["live orders"] == {"matched": 1, "rejected": 1}


async def test_a_filter_that_raises_in_one_partition_loses_nothing_of_the_others(
    mq: flintmq.Client,
) -> None:
    await _make(mq)
    for partition, value in enumerate((b"1", b"x", b"2", b"3")):
        await mq.publish("orders", value, partition=partition)
    async with mq.reader("orders", filter=lambda message: int(message.value) > 0) as reader:
        got: list[bytes] = []
        failures: list[tuple[str, int | None]] = []
        for _ in range(6):
            try:
                message = (await reader.read(timeout=0)) if len(got) % 2 else None
                rows = [message] if message else (await reader.read_batch(timeout=0))
            except flintmq.FilterFailed as error:
                failures.append((error.topic, error.offset))
                continue
            got += [message.value for message in rows]
        assert (sorted(got), failures) == ([b"1", b"2", b"3"], [("orders/1", 0)])
        assert await reader.lag() == 0


# --- figures


async def test_stats_are_sums_and_each_partition_has_its_own(mq: flintmq.Client) -> None:
    await _make(mq)
    await _fill(mq, 3)
    await mq.publish("orders", b"4.0", partition=1)
    async with (
        mq.reader("orders", name="n") as reader,
        mq.reader("orders", name="n"),
        mq.live("orders"),
    ):
        await reader.read_batch(5)
        stats = await mq.topic_stats("orders")
        assert (stats.name, stats.message_count, stats.byte_count) == ("orders", 13, 39)
        assert (stats.published, stats.delivered, stats.lag) == (13, 5, {"n": 8})
        assert (stats.subscribers, stats.next_offset, stats.first_offset) == (3, 13, 0)
        assert [part.name for part in stats.partitions] == [f"orders/{n}" for n in range(4)]
        assert [part.next_offset for part in stats.partitions] == [3, 4, 3, 3]
        assert sum(part.lag["n"] for part in stats.partitions) == 8
        assert (await mq.topic_stats("orders/1")).message_count == 4
        assert (await mq.topic_stats("orders/1")).partitions == []


# --- deleting


async def test_deleting_ends_readers_feeds_and_publishers_of_every_partition(
    mq: flintmq.Client, background: Background
) -> None:
    await _make(mq, retention_count=1, overflow="block")
    async with (
        mq.reader("orders", name="n") as reader,
        mq.reader("orders", partitions=[2]) as idle,
        mq.live("orders") as feed,
    ):
        await mq.publish("orders", b"x", partition=1)
        await feed.read()
        await reader.read()
        calls = [await background.waiting(call.read()) for call in (reader, idle, feed)]
        await mq.publish("orders", b"y", partition=2, timeout=0)
        await asyncio.gather(*calls[:3])
        waits = [await background.waiting(call.read()) for call in (reader, idle, feed)]
        await deleted(mq, "orders")
        for waiting in waits:
            with pytest.raises(flintmq.TopicDeleted):
                await waiting
        with pytest.raises(flintmq.TopicDeleted):
            (await reader.read(timeout=0))
    assert await mq.topics() == []
    with pytest.raises(flintmq.TopicNotFound):
        await mq.topic_stats("orders")


async def test_a_topic_made_anew_is_another_also_for_a_reader_that_was_there(
    mq: flintmq.Client,
) -> None:
    await _make(mq, 2)
    async with mq.reader("orders") as reader:
        old = await mq.topic_info("orders")
        await deleted(mq, "orders")
        new = await mq.create_topic("orders", partitions=4)
        assert new.id != old.id
        await _fill(mq)
        for _ in range(5):
            with pytest.raises(flintmq.TopicDeleted):
                await reader.read_batch()
    async with mq.reader("orders") as reader:
        assert await _rest(reader) == _values()


async def test_a_deleted_name_may_become_plain_and_the_other_way(mq: flintmq.Client) -> None:
    await _make(mq)
    await deleted(mq, "orders")
    assert (await mq.publish("orders", b"x")).parts == ()
    with pytest.raises(flintmq.InvalidRequest, match="partition 3 of 'orders': it has none"):
        await mq.publish("orders/3", b"x")
    await deleted(mq, "orders")
    await _make(mq, 2)
    assert (await mq.publish("orders", b"x", key="a")).partition == 1


# --- changing


async def test_options_are_changed_in_every_partition(mq: flintmq.Client) -> None:
    await _make(mq)
    await _fill(mq, 5)
    info = await mq.configure_topic("orders", retention_count=2)
    assert (info.options.retention_count, info.options.partitions) == (2, 4)
    stats = await mq.topic_stats("orders")
    assert [part.message_count for part in stats.partitions] == [2, 2, 2, 2]


@pytest.mark.parametrize("partitions", [3, 1, None])
async def test_partitions_are_never_taken_away(mq: flintmq.Client, partitions: int | None) -> None:
    await _make(mq)
    with pytest.raises(flintmq.InvalidRequest, match="added, not removed"):
        await mq.configure_topic("orders", partitions=partitions)
    assert (await mq.topic_info("orders")).options.partitions == 4


async def test_what_is_stored_stays_when_partitions_are_added_and_keys_move(
    mq: flintmq.Client,
) -> None:
    await _make(mq)
    assert (await mq.publish("orders", b"before", key="42")).partition == 3
    await mq.configure_topic("orders", partitions=8)
    assert (await mq.publish("orders", b"after", key="42")).partition == 7
    async with mq.reader("orders") as reader:
        places = {message.value: message.partition for message in await reader.read_batch()}
    assert places == {b"before": 3, b"after": 7}


async def test_a_reader_that_waits_goes_on_with_added_partitions(
    mq: flintmq.Client, background: Background
) -> None:
    await _make(mq)
    async with mq.reader("orders", start="latest") as reader:
        reading = await background.waiting(reader.read())
        await mq.configure_topic("orders", partitions=6)
        await mq.publish("orders", b"new", partition=5)
        message = await reading
        assert message is not None
        assert (message.partition, message.offset) == (5, 0)
        assert sorted(await reader.positions()) == [0, 1, 2, 3, 4, 5]


async def test_a_reader_that_never_waits_goes_on_with_added_partitions_too(
    mq: flintmq.Client, background: Background
) -> None:
    await _make(mq)
    await _fill(mq, 100)
    async with mq.reader("orders") as reader:
        await reader.read_batch(10)
        await mq.configure_topic("orders", partitions=5)
        await mq.publish("orders", b"new", partition=4)
        seen = set()
        for _ in range(10):
            seen |= {message.partition for message in (await reader.read_batch(10, timeout=0))}
            await background.settle()
        assert 4 in seen


async def test_positions_and_seek_know_added_partitions_at_once(mq: flintmq.Client) -> None:
    await _make(mq, 2)
    async with mq.reader("orders", name="n") as reader:
        await mq.configure_topic("orders", partitions=4)
        await _fill(mq)
        assert await reader.lag() == 12
        await reader.seek({3: 2})
        assert await reader.positions() == {0: 0, 1: 0, 2: 0, 3: 2}
        await mq.configure_topic("orders", partitions=5)
        assert await reader.commit() == 2


async def test_a_reader_of_given_partitions_stays_with_them(mq: flintmq.Client) -> None:
    await _make(mq)
    async with mq.reader("orders", partitions=[0, 1]) as reader:
        await mq.configure_topic("orders", partitions=6)
        await _fill(mq, 1, 6)
        assert await _rest(reader) == [b"0.0", b"1.0"]
        assert sorted(await reader.positions()) == [0, 1]


async def test_a_known_name_misses_nothing_of_partitions_added_while_it_rests(
    mq: flintmq.Client,
) -> None:
    await _make(mq, 2)
    async with mq.reader("orders", name="n", start="latest"):
        pass
    await mq.configure_topic("orders", partitions=4)
    await _fill(mq)
    assert (await mq.topic_stats("orders")).lag == {"n": 12}
    async with mq.reader("orders", name="n", start="latest") as reader:
        assert await _rest(reader) == _values()


async def test_members_with_a_filter_take_it_to_added_partitions(mq: flintmq.Client) -> None:
    await _make(mq, 2)
    wanted = 'key == "yes"'
    async with mq.reader("orders", name="n", filter=wanted) as reader:
        await mq.configure_topic("orders", partitions=4)
        for partition in range(4):
            for key in ("yes", "no"):
                await mq.publish("orders", b"x", key=key, partition=partition)
        assert await reader.lag() == 8
        assert [m.key for m in await reader.read_batch()] == ["yes"] * 4


# --- one partition by name


async def test_one_partition_is_addressed_by_its_number(mq: flintmq.Client) -> None:
    await _make(mq)
    receipt = await mq.publish("orders/3", b"x", key=KEYS[0])
    assert (receipt.topic, receipt.partition, receipt.offset, receipt.parts) == ("orders", 3, 0, ())
    assert (await mq.publish_batch("orders/3", [b"y"])).partition == 3
    async with mq.publisher("orders/3") as publisher:
        publisher.send(b"z")
    async with mq.reader("orders/3") as reader:
        assert [(m.topic, m.partition) for m in await reader.read_batch()] == [("orders", 3)] * 3
        assert await reader.positions() == {3: 3}
        await reader.seek({3: 1})
        with pytest.raises(flintmq.InvalidRequest):
            await reader.seek({2: 1})
    assert (await mq.topic_info("orders/3")).options.partitions == 4


@pytest.mark.parametrize("name", ["orders/4", "orders/-1", "orders/03", "orders/x", "orders/"])
async def test_a_partition_that_is_not_there_is_an_error_that_says_the_range(
    mq: flintmq.Client, name: str
) -> None:
    await _make(mq)
    for call in (mq.publish(name, b"x"), mq.topic_stats(name), mq.topic_info(name)):
        with pytest.raises(flintmq.InvalidRequest, match="'orders': it has 4, 0 to 3"):
            await call
    with pytest.raises(flintmq.InvalidRequest, match="'orders': it has 4, 0 to 3"):
        await mq.reader(name)


async def test_names_with_a_slash_are_refused_elsewhere(mq: flintmq.Client) -> None:
    await _make(mq)
    with pytest.raises(flintmq.InvalidRequest, match="/"):
        await mq.create_topic("orders/4")
    with pytest.raises(flintmq.InvalidRequest, match="/"):
        await mq.publish("bills/0", b"x")
    with pytest.raises(flintmq.InvalidRequest, match="/"):
        await mq.live("orders/3")
    with pytest.raises(flintmq.InvalidRequest, match="no partitions"):
        await mq.publish("orders/3", b"x", partition=3)
    with pytest.raises(flintmq.InvalidRequest, match="no partitions"):
        await mq.reader("orders/3", partitions=[3])


async def test_a_partition_is_not_deleted_or_changed_on_its_own(mq: flintmq.Client) -> None:
    await _make(mq)
    with pytest.raises(flintmq.InvalidRequest, match="as a whole"):
        await mq.delete_topic("orders/3")
    with pytest.raises(flintmq.InvalidRequest, match="as a whole"):
        await mq.configure_topic("orders/3", retention_count=5)
    assert len((await mq.topic_stats("orders")).partitions) == 4


# --- order by key


def _check_order_by_key(messages: list[flintmq.Message], publishers: int, each: int) -> None:
    """Everything is there, every key is in one partition, and each publisher's are in order."""
    by_key: dict[tuple[Any, int], list[int]] = defaultdict(list)
    places: dict[Any, set[int]] = defaultdict(set)
    for message in messages:
        publisher, number = map(int, message.value.split(b"."))
        by_key[message.key, publisher].append(number)
        places[message.key].add(message.partition)
    assert sum(map(len, by_key.values())) == publishers * each
    assert all(len(place) == 1 for place in places.values())
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


@pytest.mark.slow
@pytest.mark.parametrize("overflow", ["drop_oldest", "block"])
@pytest.mark.parametrize("seed", range(3))
async def test_order_by_key_is_kept_under_eight_concurrent_publishers(
    mq: flintmq.Client, seed: int, overflow: str
) -> None:
    chance = random.Random(seed)
    limit = {"retention_count": 7} if overflow == "block" else {}
    await _make(mq, overflow=overflow, **limit)
    keys = [f"key-{n}" for n in range(20)]
    messages: list[flintmq.Message] = []

    async def publish(publisher: int) -> None:
        n = 0
        while n < 100:
            count = min(chance.choice((1, 1, 5)), 100 - n)
            values = [b"%d.%d" % (publisher, i) for i in range(n, n + count)]
            if count == 1:
                await mq.publish("orders", values[0], key=chance.choice(keys), timeout=1)
            else:
                picked: list[str | bytes | None] = [chance.choice(keys) for _ in values]
                await mq.publish_batch("orders", values, key=picked, timeout=1)
            n += count
            if chance.random() < 0.5:
                await asyncio.sleep(0)

    async def consume() -> None:
        async with mq.reader("orders", name="n") as reader:
            while len(messages) < 800:
                messages.extend(await reader.read_batch(chance.randrange(1, 30)))

    async with mq.reader("orders", name="n"):
        await asyncio.gather(consume(), *(publish(n) for n in range(8)))
    _check_order_by_key(messages, 8, 100)


@pytest.mark.slow
@pytest.mark.parametrize("overflow", ["drop_oldest", "block"])
async def test_order_by_key_is_kept_under_eight_publishers_that_batch(
    mq: flintmq.Client, overflow: str
) -> None:
    chance = random.Random(8)
    limit = {"retention_count": 40} if overflow == "block" else {}
    await _make(mq, overflow=overflow, **limit)
    messages: list[flintmq.Message] = []

    async def publish(number: int) -> None:
        async with mq.publisher("orders", timeout=1) as publisher:
            for n in range(200):
                publisher.send(b"%d.%d" % (number, n), key=f"key-{chance.randrange(20)}")
                if chance.random() < 0.3:
                    await asyncio.sleep(0)

    async def consume() -> None:
        async with mq.reader("orders", name="n") as reader:
            while len(messages) < 1600:
                messages.extend(await reader.read_batch(25))

    async with mq.reader("orders", name="n"):
        await asyncio.gather(consume(), *(publish(n) for n in range(8)))
    _check_order_by_key(messages, 8, 200)
