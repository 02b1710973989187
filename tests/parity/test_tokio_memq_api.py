"""Every line of the tokio-memq reference, 1.1 to 1.9, works here or is better.

A test is named by its section and its line. Lines without a test here, and where they belong:

    1.1  create_partitioned_topic, publish_to_partitioned,       partitions, with the formats
         publish_batch_to_partitioned, subscribe_partition,
         subscribe_partition_with_options, get_partition_stats,
         get_all_partition_stats, set_partition_routing,
         delete_partitioned_topic, list_partitioned_topics
    1.2  publisher keys as a source of serialization defaults,   formats
         publish_with_format, publish_bincode,
         publish_batch_with_format, format tags of publish_bytes
    1.3  deserialize, deserialize_with_format, Native payloads,  formats
         serialization_format, from_bincode
    1.4  partitions                                              partitions
    1.6  recv_typed, recv_with_format, recv_bincode,             formats
         recv_batch_typed, recv_with_format_info
    1.9  all of it                                               partitions

    1.4  lru_enabled, idle_timeout, consume_idle_timeout are never read there; here an option that
         does nothing is an unknown option, which is an error (test_1_4_options_that_do_nothing).
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background


def _values(rows: flintmq.Rows) -> list[bytes]:
    return list(rows.values)


async def _publish(mq: flintmq.Client, count: int, topic: str = "t") -> None:
    await mq.publish_batch(topic, [b"%d" % n for n in range(count)])


# --- 1.1 MessageQueue


async def test_1_1_clones_share_state(mq: flintmq.Client) -> None:
    clone = mq
    await clone.publish("t", b"x")
    assert await mq.topics() == ["t"]


def test_1_1_new_works_outside_a_running_loop() -> None:
    mq = flintmq.connect("memory://")

    async def use() -> int | None:
        async with mq:
            return (await mq.publish("t", b"x")).offset

    assert asyncio.run(use()) == 0


async def test_1_1_publisher_is_sync_and_does_not_create_the_topic(mq: flintmq.Client) -> None:
    publisher = mq.publisher("t")
    assert await mq.topics() == []
    await publisher.close()
    assert await mq.topics() == []


async def test_1_1_subscriber_creates_the_topic_with_default_options(mq: flintmq.Client) -> None:
    async with mq.reader("t"):
        assert (await mq.topic_info("t")).options == flintmq.TopicOptions()


async def test_1_1_subscriber_with_options_is_create_topic_which_never_ignores_options(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("t", retention_count=5)
    with pytest.raises(flintmq.TopicExists):
        await mq.create_topic("t", retention_count=6)


@pytest.mark.parametrize(("mode", "first"), [("earliest", 0), ("latest", 3), (1, 1)])
async def test_1_1_subscriber_with_options_and_mode(
    mq: flintmq.Client, mode: Any, first: int
) -> None:
    await _publish(mq, 3)
    async with mq.reader("t", start=mode) as reader:
        assert await reader.position() == first


async def test_1_1_subscriber_group_shares_one_id(mq: flintmq.Client) -> None:
    await _publish(mq, 4)
    async with mq.reader("t", name="g") as one, mq.reader("t", name="g") as two:
        assert _values(await one.read_batch(2)) + _values(await two.read_batch(2)) == [
            b"0", b"1", b"2", b"3",
        ]  # fmt: skip


async def test_1_1_create_topic_is_idempotent_and_configure_topic_updates(
    mq: flintmq.Client,
) -> None:
    info = await mq.create_topic("t", retention_count=5)
    assert await mq.create_topic("t", retention_count=5) == info
    assert (await mq.configure_topic("t", retention_count=6)).options.retention_count == 6


async def test_1_1_delete_topic_says_whether_there_was_one(mq: flintmq.Client) -> None:
    await mq.create_topic("t")
    await mq.delete_topic("t")
    with pytest.raises(flintmq.TopicNotFound):
        await mq.delete_topic("t")


async def test_1_1_list_topics_in_order(mq: flintmq.Client) -> None:
    for name in ("b", "c", "a"):
        await mq.create_topic(name)
    assert await mq.topics() == ["a", "b", "c"]


async def test_1_1_get_topic_stats_of_an_absent_topic_is_an_error(mq: flintmq.Client) -> None:
    with pytest.raises(flintmq.TopicNotFound):
        await mq.topic_stats("t")


async def test_1_1_manager_publish_batch_may_mix_topics_and_keeps_order_within_one(
    mq: flintmq.Client,
) -> None:
    receipts = await mq.publish_many([("a", b"0"), ("b", b"1"), ("a", b"2")])
    assert [(receipt.topic, receipt.offset) for receipt in receipts] == [
        ("a", 0), ("b", 0), ("a", 1),
    ]  # fmt: skip


async def test_1_1_get_subscriber_count(mq: flintmq.Client) -> None:
    async with mq.reader("t"), mq.reader("t", name="g"), mq.live("t"):
        assert (await mq.topic_stats("t")).subscribers == 3
    assert (await mq.topic_stats("t")).subscribers == 0


# --- 1.2 Publisher


async def test_1_2_publish_returns_the_offset(mq: flintmq.Client) -> None:
    assert [(await mq.publish("t", b"x")).offset for _ in range(3)] == [0, 1, 2]


async def test_1_2_publish_batch_is_one_append_and_an_empty_list_is_fine(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.reader("t") as reader:
        reading = await background.waiting(reader.read_batch(10))
        assert (await mq.publish_batch("t", [])).count == 0
        await background.settle()
        assert not reading.done()
        assert (await mq.publish_batch("t", [b"a", b"b"])).count == 2
        assert _values(await reading) == [b"a", b"b"]


async def test_1_2_publish_string(mq: flintmq.Client) -> None:
    await mq.publish("t", '{"a": 1}')
    async with mq.reader("t") as reader:
        message = await reader.read()
        assert message is not None
        assert message.value == b'{"a": 1}'


async def test_1_2_publish_bytes_with_a_content_type(mq: flintmq.Client) -> None:
    await mq.publish("t", b"\x00\x01", content_type="application/x-mine")
    async with mq.reader("t") as reader:
        message = await reader.read()
        assert message is not None
        assert (message.value, message.content_type) == (b"\x00\x01", "application/x-mine")


async def test_1_2_publish_shared_bytes_without_a_copy(mq: flintmq.Client) -> None:
    shared = b"x" * 100_000
    await mq.publish("t", shared)
    async with mq.reader("t") as one, mq.reader("t") as two:
        for reader in (one, two):
            message = await reader.read()
            assert message is not None
            assert message.value is shared


async def test_1_2_topic_accessor(mq: flintmq.Client) -> None:
    assert mq.publisher("t").topic == "t"


async def test_1_2_a_publish_can_wait_for_capacity(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("t", retention_count=1, overflow="block")
    async with mq.reader("t") as reader:
        await mq.publish("t", b"0")
        publishing = await background.waiting(mq.publish("t", b"1"))
        await reader.read()
        assert (await publishing).offset == 1


# --- 1.3 TopicMessage


async def test_1_3_a_message_has_topic_payload_time_offset_key_and_more(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("t", b"v", key="k", headers={"h": "1"}, priority=2)
    async with mq.reader("t") as reader:
        message = await reader.read()
    assert message is not None
    assert (message.topic, message.value, message.key, message.offset) == ("t", b"v", "k", 0)
    assert (message.headers, message.priority) == ({"h": "1"}, 2)
    assert message.timestamp == clock.now_ms() / 1000  # wall-clock time


async def test_1_3_metadata_has_topic_time_offset_and_payload_size(mq: flintmq.Client) -> None:
    await mq.publish("t", b"12345")
    async with mq.reader("t") as reader:
        (metadata,) = await reader.read_metadata()
    assert (metadata.topic, metadata.offset, metadata.size) == ("t", 0, 5)


async def test_1_3_display_payload_is_repr_and_is_short(mq: flintmq.Client) -> None:
    await mq.publish("t", b"x" * 10_000)
    async with mq.reader("t") as reader:
        message = await reader.read()
    assert len(repr(message)) < 150
    assert "10,000 bytes" in repr(message)


async def test_1_3_is_expired_is_never_true_of_what_is_handed_out(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("t", b"x", ttl=1)
    async with mq.reader("t") as reader:
        await clock.advance(1)
        assert reader.read_nowait() is None


# --- 1.4 TopicOptions


async def test_1_4_max_messages_drops_the_oldest(mq: flintmq.Client) -> None:
    await mq.create_topic("t", retention_count=3)
    await _publish(mq, 5)
    async with mq.reader("t") as reader:
        assert _values(await reader.read_batch()) == [b"2", b"3", b"4"]


async def test_1_4_memory_is_bounded_by_default_and_can_be_unbounded(mq: flintmq.Client) -> None:
    bounded = await mq.create_topic("t")
    assert bounded.options.retention_bytes == 256 * 1024 * 1024
    assert (await mq.create_topic("u", retention_bytes=None)).options.retention_bytes is None


async def test_1_4_message_ttl_is_skipped_on_read_and_removed_on_time(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("t", ttl=5)
    await mq.publish("t", b"x")
    await clock.advance(5.1)
    assert (await mq.topic_stats("t")).message_count == 0


@pytest.mark.parametrize("option", ["lru_enabled", "idle_timeout", "consume_idle_timeout"])
async def test_1_4_options_that_do_nothing_are_refused(mq: flintmq.Client, option: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="unknown topic option"):
        await mq.create_topic("t", **cast(Any, {option: True}))


async def test_1_4_options_are_not_frozen_by_who_came_first(mq: flintmq.Client) -> None:
    await mq.publish("t", b"x")
    assert (await mq.configure_topic("t", retention_count=7)).options.retention_count == 7


# --- 1.5 ConsumptionMode


async def test_1_5_earliest_is_the_first_retained_message_else_0(mq: flintmq.Client) -> None:
    async with mq.reader("t", start="earliest") as reader:
        assert await reader.position() == 0
    await mq.configure_topic("t", retention_count=2)
    await _publish(mq, 5)
    async with mq.reader("t", start="earliest") as reader:
        assert await reader.position() == 3


async def test_1_5_latest_is_behind_the_last(mq: flintmq.Client) -> None:
    async with mq.reader("t", start="latest") as reader:
        assert await reader.position() == 0
    await _publish(mq, 5)
    async with mq.reader("t", start="latest") as reader:
        assert await reader.position() == 5


async def test_1_5_offset_below_the_front_reads_from_the_front_beyond_the_end_waits(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("t", retention_count=2)
    await _publish(mq, 5)
    async with mq.reader("t", start=1) as below, mq.reader("t", start=6) as beyond:
        assert (await below.read_batch(1)).offsets == [3]
        await _publish(mq, 2)
        assert (await beyond.read_batch()).offsets == [6]


async def test_1_5_last_offset_continues_a_known_id(mq: flintmq.Client) -> None:
    await _publish(mq, 5)
    async with mq.reader("t", name="g", start="committed") as reader:
        await reader.read_batch(2)
        await reader.commit()
    async with mq.reader("t", name="g", start="committed") as reader:
        assert await reader.position() == 2


async def test_1_5_the_mode_counts_only_for_a_new_id(mq: flintmq.Client) -> None:
    await _publish(mq, 5)
    async with (
        mq.reader("t", name="g", start=2),
        mq.reader("t", name="g", start="latest") as second,
    ):
        assert await second.position() == 2


# --- 1.6 Subscriber


async def test_1_6_recv_waits_and_advances(mq: flintmq.Client, background: Background) -> None:
    async with mq.reader("t") as reader:
        reading = await background.waiting(reader.read())
        await mq.publish("t", b"x")
        message = await reading
        assert message is not None
        assert message.value == b"x"
        assert await reader.position() == 1


async def test_1_6_try_recv_is_none_when_empty_not_an_error(mq: flintmq.Client) -> None:
    async with mq.reader("t") as reader:
        assert reader.read_nowait() is None


async def test_1_6_recv_timeout_is_none_on_timeout(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    async with mq.reader("t") as reader:
        reading = await background.waiting(reader.read(timeout=1))
        await clock.advance(1)
        assert await reading is None


async def test_1_6_recv_batch_waits_for_the_first_and_never_to_fill(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.reader("t") as reader:
        reading = await background.waiting(reader.read_batch(10))
        await mq.publish("t", b"x")
        assert len(await reading) == 1


async def test_1_6_recv_batch_of_0_is_refused_where_it_would_make_a_loop_spin(
    mq: flintmq.Client,
) -> None:
    async with mq.reader("t") as reader:
        with pytest.raises(flintmq.InvalidRequest):
            await reader.read_batch(0)


async def test_1_6_recv_string_and_recv_bytes(mq: flintmq.Client) -> None:
    await mq.publish("t", "Größe")
    async with mq.reader("t") as reader:
        message = await reader.read()
        assert message is not None
        assert str(message.value, "utf-8") == "Größe"


async def test_1_6_recv_filter_consumes_nothing_for_the_others(mq: flintmq.Client) -> None:
    await _publish(mq, 6)
    async with (
        mq.reader("t", name="even", filter=lambda m: int(m.value) % 2 == 0) as even,
        mq.reader("t", name="all") as everything,
    ):
        assert _values(await even.read_batch()) == [b"0", b"2", b"4"]
        assert len(await everything.read_batch()) == 6


async def test_1_6_recv_metadata_advances_and_touches_no_payload(mq: flintmq.Client) -> None:
    await _publish(mq, 3)
    async with mq.reader("t") as reader:
        assert [metadata.offset for metadata in await reader.read_metadata(2)] == [0, 1]
        assert await reader.position() == 2


async def test_1_6_stream_goes_on_after_an_error(mq: flintmq.Client) -> None:
    await mq.publish_batch("t", [b"0", b"bad", b"2"])
    got = []
    async with mq.reader("t", filter=lambda m: int(m.value) >= 0) as reader:
        for _ in range(2):
            try:
                async for message in reader:
                    got.append(message.value)
                    if message.offset == 2:
                        break
            except flintmq.FilterFailed as error:
                got.append(error.offset)
    assert got == [b"0", 1, b"2"]


async def test_1_6_commit_and_seek_are_two_things_and_commit_does_not_redeliver(
    mq: flintmq.Client,
) -> None:
    await _publish(mq, 10)
    async with mq.reader("t", name="g") as reader:
        message = await reader.read()
        assert message is not None
        await reader.commit(message)
        await reader.seek(5)
        assert await reader.position() == 5
    async with mq.reader("t", name="g") as reader:
        message = await reader.read()
        assert message is not None
        assert message.offset == 1


async def test_1_6_reset_offset_is_seek_0(mq: flintmq.Client) -> None:
    await _publish(mq, 3)
    async with mq.reader("t") as reader:
        await reader.read_batch()
        await reader.seek(0)
        assert await reader.position() == 0


async def test_1_6_current_offset_is_the_next_to_read(mq: flintmq.Client) -> None:
    await _publish(mq, 3)
    async with mq.reader("t") as reader:
        await reader.read()
        assert await reader.position() == 1


async def test_1_6_recv_from_offset_is_seek_and_read(mq: flintmq.Client) -> None:
    await _publish(mq, 3)
    async with mq.reader("t") as reader:
        await reader.seek(2)
        message = await reader.read()
        assert message is not None
        assert message.offset == 2


async def test_1_6_fields(mq: flintmq.Client) -> None:
    async with mq.reader("t", name="g") as reader:
        assert (reader.topic, reader.name) == ("t", "g")


async def test_1_6_a_consumer_behind_retention_is_told(mq: flintmq.Client) -> None:
    await mq.create_topic("t", retention_count=2)
    async with mq.reader("t") as reader:
        await _publish(mq, 5)
        assert (await reader.read_batch()).gap == flintmq.Missed("t", 0, 3, 3)


async def test_1_6_what_was_read_and_not_committed_is_read_again(mq: flintmq.Client) -> None:
    """Where tokio-memq is at most once for good, here the application chooses by committing."""
    await _publish(mq, 2)
    for _ in range(2):
        async with mq.reader("t", name="g") as reader:
            assert len(await reader.read_batch()) == 2


# --- 1.7 eviction, TTL, delete


async def test_1_7_a_batch_larger_than_the_limit_keeps_its_tail_and_counts_the_rest(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("t", retention_count=3)
    await _publish(mq, 10)
    stats = await mq.topic_stats("t")
    assert (stats.message_count, stats.drops) == (3, {"count": 7})


async def test_1_7_drops_are_told_apart_by_reason(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.create_topic("t", retention_count=2)
    await _publish(mq, 3)
    await mq.configure_topic("t", ttl=1)
    await clock.advance(1.1)
    assert (await mq.topic_stats("t")).drops == {"count": 1, "expired": 2}


async def test_1_7_ttl_needs_no_sweep_five_times_a_second(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("t", ttl=3600)
    await mq.publish("t", b"x")
    assert clock.pending() == 1  # one alarm, at the time the message ends
    await clock.advance(3600.1)
    assert clock.pending() == 0


async def test_1_7_delete_ends_readers_and_a_new_topic_is_another(mq: flintmq.Client) -> None:
    await mq.publish("t", b"x")
    before = await mq.topic_info("t")
    async with mq.reader("t") as reader:
        await mq.delete_topic("t")
        await mq.publish("t", b"y")
        with pytest.raises(flintmq.TopicDeleted):
            reader.read_nowait()
    assert (await mq.topic_info("t")).id != before.id


# --- 1.8 stats


async def test_1_8_stats_have_count_subscribers_drops_lags_and_bytes(mq: flintmq.Client) -> None:
    await mq.create_topic("t", retention_count=3)
    await mq.publish_batch("t", [b"12345"] * 4)
    async with mq.reader("t", name="g") as reader:
        await reader.read()
        stats = await mq.topic_stats("t")
    assert (stats.message_count, stats.subscribers, stats.byte_count) == (3, 1, 15)
    assert (stats.drops, stats.lag) == ({"count": 1}, {"g": 2})


async def test_1_8_lag_is_of_what_is_retained_and_of_who_is_still_known(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("t", retention_count=3)
    async with mq.reader("t"), mq.reader("t", name="g"):
        await _publish(mq, 10)
    assert (await mq.topic_stats("t")).lag == {"g": 3}


async def test_1_8_there_are_rates_and_counters_of_publishing_and_delivery(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await _publish(mq, 10)
    async with mq.reader("t") as reader:
        await reader.read_batch(4)
    await clock.advance(2)
    stats = await mq.topic_stats("t")
    assert (stats.published, stats.delivered) == (10, 4)
    assert (stats.rates["published"], stats.rates["delivered"]) == (5.0, 2.0)
    assert stats.rates["published_bytes"] == 5.0


# --- 3.1 tests of theirs that apply now


async def test_3_1_verification_recv_seek_commit(mq: flintmq.Client) -> None:
    """Their deleted verification.rs: recv gives offset 0, seek(5) gives 5, commit(8) gives 8."""
    await _publish(mq, 10)
    async with mq.reader("t", name="g") as reader:
        message = await reader.read()
        assert message is not None
        assert message.offset == 0
        await reader.seek(5)
        assert await reader.position() == 5
        message = await reader.read()
        assert message is not None
        assert message.offset == 5
        assert await reader.commit(8) == 8
    async with mq.reader("t", name="g") as reader:
        message = await reader.read()
        assert message is not None
        assert message.offset == 8


async def test_3_1_verification_cap_5_of_10_reads_from_5(mq: flintmq.Client) -> None:
    await mq.create_topic("t", retention_count=5)
    for n in range(10):
        await mq.publish("t", b"%d" % n)
    async with mq.reader("t", start=0) as reader:
        message = await reader.read()
        assert message is not None
        assert message.offset == 5


async def test_3_1_benchmark_shapes_deliver_everything(mq: flintmq.Client) -> None:
    """Their deleted criterion bench as a test: 4 publishers at once, 4 readers of everything."""

    async def publish(who: int) -> None:
        for n in range(250):
            await mq.publish("t", b"%d:%d" % (who, n))

    async def consume(reader: flintmq.Reader) -> list[bytes]:
        values: list[bytes] = []
        async for message in reader:
            values.append(message.value)
            if len(values) == 1000:
                return values
        return values

    readers = [await mq.reader("t") for _ in range(4)]
    consuming = asyncio.gather(*map(consume, readers))
    await asyncio.gather(*map(publish, range(4)))
    everything = await consuming
    assert all(values == everything[0] for values in everything)
    assert len(set(everything[0])) == 1000


async def test_3_1_doc_tests_basic_stream_batch_timeout_groups(
    mq: flintmq.Client, background: Background
) -> None:
    """Their documentation's own first example waits for ever; ours does not."""
    await mq.publish("demo", "hello")
    async with mq.reader("demo") as reader:
        message = await reader.read()
        assert message is not None
        assert message.value == b"hello"
        assert await reader.read(timeout=0) is None
