"""Each bug of the tokio-memq reference, section 4, and that we do not have it.

15 and 16 are in test_tokio_memq_values.py, 17 in test_tokio_memq_partitions.py.
"""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from typing import Any, cast

import pytest

import flintmq
from flintmq.batch import BatchBuilder, RecordBatch
from flintmq.testing import ManualClock
from tests.conftest import Background


async def _callbacks_run(turns: int) -> int:
    """How many callbacks the loop is given in some turns, beside the one a turn of this task."""
    loop = asyncio.get_running_loop()
    run = 0
    real = loop.call_soon

    def counting(*args: object, **keywords: object) -> asyncio.Handle:
        nonlocal run
        run += 1
        return real(*args, **keywords)  # type: ignore[arg-type]

    loop.call_soon = counting  # type: ignore[method-assign]
    try:
        for _ in range(turns):
            await asyncio.sleep(0)
    finally:
        loop.call_soon = real  # type: ignore[method-assign]
    return run - turns


async def test_bug_01_idle_readers_cause_no_wake_ups(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    readers = [await mq.reader("t") for _ in range(3)] + [await mq.reader("t", name="g")]
    await mq.publish("t", b"x")  # theirs spin from the first publish on
    for reader in readers:
        await reader.read()
    feed = await mq.live("t")
    for reader in readers:
        await background.waiting(reader.read())
    await background.waiting(readers[0].read_batch(10))
    await background.waiting(feed.read())

    assert await _callbacks_run(100) == 0
    assert clock.pending() == 0


async def test_bug_02_a_reader_of_a_deleted_topic_always_ends(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.reader("t") as reader:
        await mq.publish("t", b"x")
        await reader.read()
        reading = await background.waiting(reader.read())
        await mq.delete_topic("t")
        with pytest.raises(flintmq.TopicDeleted):
            await reading


async def test_bug_03_a_woken_reader_runs_in_the_very_next_turn(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    async with mq.reader("t") as reader, mq.reader("t", name="g") as named:
        reading = [await background.waiting(each.read()) for each in (reader, named)]
        await mq.publish("t", b"x")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert all(task.done() for task in reading)
        assert clock.pending() == 0  # no delay was set


async def test_bug_04_concurrent_publishers_keep_order_and_offsets(mq: flintmq.Client) -> None:
    chance = random.Random(4)

    async def publish(who: int) -> None:
        for n in range(100):
            receipt = await mq.publish("t", b"%d:%d" % (who, n))
            assert receipt.offset is not None
            if chance.random() < 0.3:
                await asyncio.sleep(0)

    async with mq.reader("t") as reader:
        await asyncio.gather(*map(publish, range(8)))
        rows = await reader.read_batch(10_000)
        assert rows.offsets == list(range(800))
        for who in range(8):
            mine = [value for value in rows.values if value.startswith(b"%d:" % who)]
            assert mine == [b"%d:%d" % (who, n) for n in range(100)]
        assert await reader.position() == 800


async def test_bug_05_members_of_a_name_get_no_duplicates_in_any_way_of_reading(
    mq: flintmq.Client,
) -> None:
    await mq.publish_batch("t", [b"%d" % n for n in range(500)])
    got: list[int | None] = []

    async def consume(reader: flintmq.Reader, way: int) -> None:
        while len(got) < 500:
            if way == 0:
                message = reader.read_nowait()
                got.extend([] if message is None else [message.offset])
            elif way == 1:
                got.extend((await reader.read_batch(7, timeout=0)).offsets)
            elif way == 2:
                found = await reader.read_metadata(5, timeout=0)
                got.extend(metadata.offset for metadata in found)
            else:
                message = await reader.read(timeout=0)
                got.extend([] if message is None else [message.offset])
            await asyncio.sleep(0)

    readers = [await mq.reader("t", name="g") for _ in range(4)]
    await asyncio.gather(*(consume(reader, way) for way, reader in enumerate(readers)))
    assert got == list(range(500))


async def test_bug_06_stats_under_load_do_not_freeze_anything(mq: flintmq.Client) -> None:
    await mq.create_topic("t", retention_count=20, ttl=60)
    reader = await mq.reader("t", name="g")
    done = False

    async def publish() -> None:
        nonlocal done
        for n in range(300):
            await mq.publish("t", b"%d" % n)
            await asyncio.sleep(0)
        done = True

    async def read() -> int:
        count = 0
        while not done:
            count += len(await reader.read_batch(3, timeout=0))
            await asyncio.sleep(0)
        return count

    async def watch() -> int:
        looks = 0
        while not done:
            await mq.topic_stats("t")
            await mq.create_topic(f"other{looks % 5}")
            looks += 1
            await asyncio.sleep(0)
        return looks

    _, _, looks = await asyncio.gather(publish(), read(), watch())
    assert looks >= 100
    assert (await mq.topic_stats("t")).next_offset == 300


@pytest.mark.parametrize(
    "payload",
    [b"\xff" * 300, b"\x1f\x8b\x08\x00" * 100, "消息队列".encode() * 100, b"a" * 255 + b"\xff" * 9],
)
async def test_bug_07_binary_and_multibyte_payloads_are_published_and_shown(
    mq: flintmq.Client, payload: bytes
) -> None:
    await mq.publish("t", payload)
    await mq.publish("t", b"x", key=payload, headers={"h": payload})
    async with mq.reader("t") as reader:
        rows = await reader.read_batch()
        assert rows[0].value == payload
        assert rows[1].key == payload
        for message in rows:
            assert message.topic in repr(message)
        assert "2" in repr(rows)


async def test_bug_08_independent_readers_share_what_is_decoded_and_no_lock(
    mq: flintmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten readers of one batch decode it once at most, and a read that waits blocks nobody."""
    decoded = 0
    real = RecordBatch.values

    def counting(self: RecordBatch, *args: int) -> tuple[bytes, ...]:
        nonlocal decoded
        decoded += self._decoded is None
        return real(self, *args)

    monkeypatch.setattr(RecordBatch, "values", counting)
    await mq.publish_batch("t", [b"%d" % n for n in range(1000)])
    readers = [await mq.reader("t") for _ in range(10)]
    for reader in readers:
        assert len((await reader.read_batch()).values) == 1000
    assert decoded <= 1


@pytest.mark.parametrize("option", ["retention_count", "retention_bytes", "max_message_bytes"])
async def test_bug_09_a_limit_of_0_is_refused_and_hangs_nothing(
    mq: flintmq.Client, option: str
) -> None:
    with pytest.raises(flintmq.InvalidRequest, match=option):
        await mq.create_topic("t", **cast(Any, {option: 0}))
    await mq.create_topic("u", **cast(Any, {option: 1}))
    await mq.publish("u", b"x")


async def test_bug_10_readers_and_feeds_that_closed_leave_nothing_behind(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    left: list[weakref.ref[object]] = []
    await mq.publish("t", b"x")
    for _ in range(50):
        async with mq.reader("t") as reader, mq.live("t") as feed:
            await reader.read()
            left += [weakref.ref(reader), weakref.ref(feed)]
    del reader, feed
    gc.collect()
    assert [ref for ref in left if ref() is not None] == []
    stats = await mq.topic_stats("t")
    assert (stats.lag, stats.missed, stats.subscribers) == ({}, {}, 0)
    assert clock.pending() == 0


async def test_bug_10_a_closed_broker_is_collected_with_its_topics(clock: ManualClock) -> None:
    mq = flintmq.connect("memory://", clock=clock)
    await mq.create_topic("t", retention_age=3600, ttl=3600)
    await mq.publish("t", b"x" * 1000, delay=3600)
    reader = await mq.reader("t", name="g")
    broker, client = weakref.ref(mq._broker), weakref.ref(mq)
    await mq.close()
    del mq, reader
    gc.collect()
    assert broker() is None
    assert client() is None
    assert clock.pending() == 0


async def test_bug_11_a_cancelled_read_loses_no_message(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.reader("t", name="g") as reader:
        for n in range(20):
            reading = await background.waiting(reader.read(timeout=1))
            await mq.publish("t", b"%d" % n)
            for _ in range(n % 4):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            message = reader.read_nowait() if reading.cancelled() else reading.result()
            assert message is not None
            assert message.offset == n


async def test_bug_12_two_that_join_a_new_name_at_once_start_it_once(mq: flintmq.Client) -> None:
    await mq.publish_batch("t", [b"%d" % n for n in range(10)])

    async def join(start: int) -> flintmq.Reader:
        return await mq.reader("t", name="g", start=start)

    readers = await asyncio.gather(join(3), join(7), join(0))
    assert [await reader.position() for reader in readers] == [3, 3, 3]
    assert len(await readers[1].read_batch()) == 7


async def test_bug_13_lag_counts_what_can_be_delivered_and_missed_counts_the_rest(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("t", retention_count=4)
    async with mq.reader("t", name="g") as reader:
        await mq.publish_batch("t", [b"x"] * 10)
        stats = await mq.topic_stats("t")
        assert (stats.lag, stats.missed) == ({"g": 4}, {"g": 6})
        await reader.read_batch()
        await mq.publish_batch("t", [b"x"] * 2)  # drops two that everybody has read
        stats = await mq.topic_stats("t")
        assert (stats.lag, stats.missed) == ({"g": 2}, {"g": 6})
        assert stats.drops == {"count": 8}


async def test_bug_13_latest_on_a_topic_whose_messages_expired_is_its_end(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish_batch("t", [b"x"] * 10, ttl=1)
    await clock.advance(2)
    async with mq.reader("t", start="latest") as reader:
        assert await reader.position() == 10
        assert await reader.lag() == 0


async def test_bug_14_what_was_taken_and_not_acknowledged_comes_again_and_then_is_a_dead_letter(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", max_deliveries=2)
    await mq.publish("orders", b"a")
    for _ in range(2):  # each time its consumer ends without a word
        (message,) = await mq.poll("orders", "billing", lease=30)
        assert message.value == b"a"
        await clock.advance(31)
    assert await mq.poll("orders", "billing") == []
    (dead,) = await mq.dead_letters("orders", "billing")
    assert dead.message.value == b"a"

    await mq.publish("orders", b"b")
    (message,) = await mq.poll("orders", "billing")
    await mq.nack([message], delay=5)
    await clock.advance(6)
    (message,) = await mq.poll("orders", "billing")
    await mq.ack([message])
    await clock.advance(60)
    assert await mq.poll("orders", "billing") == []


async def test_bug_18_stats_do_no_more_work_for_a_longer_backlog(
    mq: flintmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched = 0
    for rows in (BatchBuilder, RecordBatch):
        for name in ("size", "value", "values", "time", "expiry"):
            real = getattr(rows, name)

            def counting(self: object, *args: int, real: object = real) -> object:
                nonlocal touched
                touched += 1
                return real(self, *args)  # type: ignore[operator]

            monkeypatch.setattr(rows, name, counting)

    work = []
    async with mq.reader("t", name="g"):
        for count in (10, 10_000):
            await mq.publish_batch("t", [b"x"] * count)
            touched = 0
            await mq.topic_stats("t")
            work.append(touched)
    assert work == [0, 0]


async def test_bug_18_a_batch_is_not_copied_message_by_message(mq: flintmq.Client) -> None:
    value = b"x" * 100
    await mq.publish_batch("t", [value] * 100)
    async with mq.reader("t") as reader:
        assert all(read is value for read in (await reader.read_batch()).values)


async def test_bug_19_a_topic_that_comes_back_is_told_apart_by_who_knew_the_old_one(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("t", retention_count=5)
    async with mq.reader("t") as reader, mq.live("t") as feed:
        await mq.delete_topic("t")
        with pytest.raises(flintmq.TopicNotFound):
            await mq.publish("t", b"x", auto_create=False)
        await mq.publish("t", b"x")
        for stream in (reader, feed):
            with pytest.raises(flintmq.TopicDeleted):
                stream.read_nowait()
    with pytest.raises(flintmq.TopicExists):
        await mq.create_topic("t", retention_count=5)  # it came back with other options: it says so
