"""tokio-memq's partitions, line by line: what it does we do, and what it breaks we keep.

The names of the tests follow the reference: 1.9 (partitions), the lines of 1.1 on partitioned
topics, 1.2 (publishers), and bug 17.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import flintmq
from flintmq.testing import ManualClock


@pytest.fixture
async def mq(clock: ManualClock) -> Any:
    async with flintmq.connect("memory://", clock=clock) as client:
        yield client


# --- 1.1, the lines on partitioned topics


async def test_1_1_create_partitioned_topic_is_idempotent_and_the_option_counts(
    mq: flintmq.Client,
) -> None:
    info = await mq.create_topic("t", partitions=3)
    assert await mq.create_topic("t", partitions=3) == info
    assert info.options.partitions == 3


async def test_1_1_another_count_is_a_conflict_not_ignored(mq: flintmq.Client) -> None:
    await mq.create_topic("t", partitions=3)
    with pytest.raises(flintmq.TopicExists):
        await mq.create_topic("t", partitions=4)


async def test_1_1_publish_and_publish_batch_to_partitioned_are_routed(mq: flintmq.Client) -> None:
    await mq.create_topic("t", partitions=3)
    single = await mq.publish("t", b"x", key="k")
    batch = await mq.publish_batch("t", [b"y", b"z"], key="k")
    assert single.partition == batch.partition
    assert (single.offset, batch.offset) == (0, 1)


async def test_1_1_publish_to_a_partitioned_topic_that_is_absent_is_an_error(
    mq: flintmq.Client,
) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="no partitions"):
        await mq.publish("t", b"x", partition=0)
    with pytest.raises(flintmq.TopicNotFound):
        await mq.publish("t", b"x", auto_create=False)
    assert await mq.topics() == []


async def test_1_1_subscribe_partition_reads_one_partition_in_every_start_mode(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("t", partitions=2)
    await mq.publish_batch("t", [b"0", b"1", b"2"], partition=1)
    for start, values in (
        ("earliest", [b"0", b"1", b"2"]),
        (1, [b"1", b"2"]),
        ("latest", []),
    ):
        async with mq.reader("t/1", start=start) as reader:  # type: ignore[arg-type]
            assert list((await reader.read_batch(timeout=0)).values) == values


async def test_1_1_subscribe_partition_with_an_id_shares_its_position(mq: flintmq.Client) -> None:
    await mq.create_topic("t", partitions=2)
    await mq.publish_batch("t", [b"0", b"1"], partition=1)
    async with mq.reader("t/1", name="g") as a, mq.reader("t", name="g", partitions=[1]) as b:
        got = [message.value for r in (a, b) if (message := r.read_nowait()) is not None]
        assert got == [b"0", b"1"]


@pytest.mark.parametrize("partition", [2, 7, -1])
async def test_1_1_subscribe_partition_out_of_range_is_an_error(
    mq: flintmq.Client, partition: int
) -> None:
    await mq.create_topic("t", partitions=2)
    with pytest.raises(flintmq.InvalidRequest):
        await mq.reader("t", partitions=[partition])
    with pytest.raises(flintmq.InvalidRequest):
        await mq.reader(f"t/{partition}")


async def test_1_1_subscribing_to_a_partition_never_makes_a_topic_of_partition_plus_one(
    mq: flintmq.Client,
) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        await mq.reader("t/4")
    with pytest.raises(flintmq.InvalidRequest):
        await mq.reader("t", partitions=[4])
    assert await mq.topics() == []


async def test_1_1_partition_stats_of_one_and_of_all(mq: flintmq.Client) -> None:
    await mq.create_topic("t", partitions=3)
    await mq.publish_batch("t", [b"x"] * 4, partition=2)
    assert (await mq.topic_stats("t/2")).message_count == 4
    stats = await mq.topic_stats("t")
    assert [part.message_count for part in stats.partitions] == [0, 0, 4]
    with pytest.raises(flintmq.FlintError):
        await mq.topic_stats("t/3")


async def test_1_1_routing_is_said_by_publisher_or_call_and_wrong_ones_are_errors(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("t", partitions=3)
    async with mq.publisher("t", partition=2) as publisher:
        publisher.send(b"x")
        await publisher.flush()
        assert publisher.last_receipt is not None
        assert publisher.last_receipt.partition == 2
    with pytest.raises(flintmq.InvalidRequest):
        await mq.publish("t", b"x", partition="random")  # type: ignore[arg-type]


async def test_1_1_one_delete_and_one_list_for_plain_and_partitioned_topics(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("rows", partitions=3)
    await mq.create_topic("plain")
    assert await mq.topics() == ["plain", "rows"]
    await mq.delete_topic("rows")
    assert await mq.topics() == ["plain"]
    with pytest.raises(flintmq.TopicNotFound):
        await mq.delete_topic("rows")


async def test_1_2_a_publisher_writes_to_a_partitioned_topic_and_makes_no_plain_one(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("t", partitions=3)
    async with mq.publisher("t") as publisher:
        publisher.send(b"x", key="k")
    assert await mq.topics() == ["t"]
    assert (await mq.topic_stats("t")).message_count == 1


# --- 1.9


async def test_1_9_round_robin_is_the_default_without_keys(mq: flintmq.Client) -> None:
    await mq.create_topic("t", partitions=3)
    receipts = [await mq.publish("t", b"x") for _ in range(6)]
    assert [receipt.partition for receipt in receipts] == [0, 1, 2, 0, 1, 2]


async def test_1_9_hash_uses_the_key_of_the_message_and_no_magic_word(mq: flintmq.Client) -> None:
    await mq.create_topic("t", partitions=8)
    receipts = [await mq.publish("t", b"x", key=f"key-{n}") for n in range(64)]
    again = [await mq.publish("t", b"x", key=f"key-{n}") for n in range(64)]
    assert [r.partition for r in receipts] == [r.partition for r in again]
    assert len({r.partition for r in receipts}) == 8


async def test_1_9_messages_without_a_key_do_not_all_land_in_one_partition(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("t", partitions=4)
    places = Counter([(await mq.publish("t", b"x")).partition for _ in range(8)])
    assert places == {0: 2, 1: 2, 2: 2, 3: 2}


async def test_1_9_random_routing_is_a_function(mq: flintmq.Client) -> None:
    import random

    chance = random.Random(1)
    await mq.create_topic("t", partitions=4)
    receipt = await mq.publish_batch(
        "t", [b"x"] * 100, partition=lambda key, value, count: chance.randrange(count)
    )
    assert {part.partition for part in receipt.parts} == {0, 1, 2, 3}


async def test_1_9_the_hash_is_ours_and_stable_not_that_of_a_library_version(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("t", partitions=1000)
    assert (await mq.publish("t", b"x", key="user-1")).partition == 187


async def test_1_9_fixed_is_checked_alike_for_singles_and_batches(mq: flintmq.Client) -> None:
    await mq.create_topic("t", partitions=2)
    with pytest.raises(flintmq.InvalidRequest, match="0 to 1"):
        await mq.publish("t", b"x", partition=2)
    with pytest.raises(flintmq.InvalidRequest, match="0 to 1"):
        await mq.publish_batch("t", [b"x"], partition=2)


async def test_1_9_offsets_are_per_partition(mq: flintmq.Client) -> None:
    await mq.create_topic("t", partitions=2)
    offsets = [(await mq.publish("t", b"x", partition=n % 2)).offset for n in range(6)]
    assert offsets == [0, 0, 1, 1, 2, 2]


async def test_1_9_one_reader_can_read_all_partitions(mq: flintmq.Client) -> None:
    await mq.create_topic("t", partitions=3)
    await mq.publish_batch("t", [b"x"] * 30, key=[f"k{n}" for n in range(30)])
    async with mq.reader("t") as reader:
        assert len(await reader.read_batch()) == 30


async def test_1_9_a_batch_is_appended_once_per_partition_not_message_by_message(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("t", partitions=2)
    receipt = await mq.publish_batch("t", [b"x"] * 100)
    assert [(part.offset, part.count) for part in receipt.parts] == [(0, 100)]


# --- bug 17


@pytest.mark.parametrize("partitions", [0, -1])
async def test_bug_17_no_partitions_is_an_error_when_the_topic_is_made_not_a_crash_later(
    mq: flintmq.Client, partitions: int
) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="at least 1"):
        await mq.create_topic("t", partitions=partitions)


async def test_bug_17_stats_of_all_partitions_block_nobody(mq: flintmq.Client) -> None:
    await mq.create_topic("t", partitions=8)

    async def publish() -> None:
        for _ in range(50):
            await mq.publish("t", b"x")

    async def look() -> int:
        counts = [(await mq.topic_stats("t")).message_count for _ in range(50)]
        assert counts == sorted(counts)
        return counts[-1]

    await asyncio.gather(publish(), look(), publish(), look())
    assert (await mq.topic_stats("t")).message_count == 100


async def test_bug_17_time_ends_messages_of_partitioned_topics_too(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("t", partitions=4, ttl=10)
    for partition in range(4):
        await mq.publish("t", b"x", partition=partition)
    await clock.advance(11)
    stats = await mq.topic_stats("t")
    assert (stats.message_count, stats.drops) == (0, {"expired": 4})
    assert clock.pending() == 0
