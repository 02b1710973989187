"""Readers: a position in a topic, and every way to move it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background


async def _ten(mq: flintmq.Client) -> None:
    await mq.publish_batch("orders", [b"%d" % n for n in range(10)])


# --- where a reader starts


@pytest.mark.parametrize(
    ("start", "first"),
    [(None, 0), ("earliest", 0), ("latest", 10), (0, 0), (4, 4), (10, 10)],
)
async def test_a_reader_starts_where_it_is_told(mq: flintmq.Client, start: Any, first: int) -> None:
    await _ten(mq)
    async with mq.reader("orders", start=start) as reader:
        assert await reader.position() == first
        assert await reader.lag() == 10 - first
        await mq.publish("orders", b"10")
        message = await reader.read()
        assert message is not None
        assert message.offset == first


async def test_earliest_is_the_first_that_is_retained(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=3)
    await _ten(mq)
    async with mq.reader("orders", start="earliest") as reader:
        rows = await reader.read_batch()
        assert rows.offsets == [7, 8, 9]
        assert rows.gap is None


async def test_an_offset_that_is_gone_starts_at_the_first_one_left_and_says_so(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", retention_count=3)
    await _ten(mq)
    async with mq.reader("orders", start=2) as reader:
        rows = await reader.read_batch(1)
        assert rows.offsets == [7]
        assert rows.gap == flintmq.Missed("orders", 2, 7, 5)


async def test_an_offset_to_come_is_waited_for(mq: flintmq.Client, background: Background) -> None:
    async with mq.reader("orders", start=12) as reader:
        reading = await background.waiting(reader.read())
        await _ten(mq)
        await background.settle()
        assert not reading.done()
        assert await reader.lag() == 0
        await _ten(mq)
        message = await reading
        assert message is not None
        assert (message.offset, message.value) == (12, b"2")


@pytest.mark.parametrize("batch", [1, 100])
async def test_a_time_starts_at_the_first_message_from_then_on(
    mq: flintmq.Client, clock: ManualClock, batch: int
) -> None:
    times = []
    for n in range(5):
        times.append(datetime.fromtimestamp(clock.now_ms() / 1000, UTC))
        await mq.publish_batch("orders", [b"%d" % n] * batch)
        await clock.advance(10)

    for at, first in [
        (times[0] - timedelta(days=1), 0),
        (times[0], 0),
        (times[1], 1),
        (times[1] + timedelta(milliseconds=1), 2),
        (times[3] - timedelta(microseconds=1), 3),
        (times[4] + timedelta(seconds=1), 5),
    ]:
        async with mq.reader("orders", start=at) as reader:
            assert await reader.position() == first * batch


async def test_a_time_with_another_offset_from_utc_is_the_same_time(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    from datetime import timezone

    await mq.publish("orders", b"0")
    await clock.advance(10)
    at = datetime.fromtimestamp(clock.now_ms() / 1000, timezone(timedelta(hours=-7)))
    await mq.publish("orders", b"1")
    async with mq.reader("orders", start=at) as reader:
        assert await reader.position() == 1


async def test_the_time_of_a_message_finds_that_message(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    for n in range(50):
        await mq.publish("orders", b"%d" % n)
        await clock.advance(0.013)
    async with mq.reader("orders") as reader, mq.reader("orders") as seeker:
        async for message in reader:
            await seeker.seek(message.time)
            assert await seeker.position() == message.offset
            if message.offset == 49:
                break


@pytest.mark.parametrize("start", ["newest", -1, 1.5, True, b"x", timedelta(1), "", object()])
async def test_a_start_that_means_nothing_is_refused(mq: flintmq.Client, start: Any) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="earliest"):
        await mq.reader("orders", start=start)
    async with mq.reader("orders") as reader:
        with pytest.raises(flintmq.InvalidRequest):
            await reader.seek(start)


async def test_a_reader_without_a_name_has_committed_nothing_to_start_from(
    mq: flintmq.Client,
) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="name"):
        await mq.reader("orders", start="committed")


# --- reading


async def test_each_unnamed_reader_gets_everything(mq: flintmq.Client) -> None:
    await _ten(mq)
    readers = [await mq.reader("orders") for _ in range(3)]
    for reader in readers:
        assert list((await reader.read_batch()).values) == [b"%d" % n for n in range(10)]


async def test_read_hands_out_one_by_one_in_order(mq: flintmq.Client) -> None:
    await _ten(mq)
    async with mq.reader("orders") as reader:
        for n in range(10):
            message = await reader.read()
            assert message is not None
            assert (message.offset, message.value) == (n, b"%d" % n)
            assert await reader.position() == n + 1
            assert await reader.lag() == 9 - n


async def test_read_waits_for_a_message(mq: flintmq.Client, background: Background) -> None:
    async with mq.reader("orders") as reader:
        reading = await background.waiting(reader.read())
        await mq.publish("orders", b"here")
        message = await reading
        assert message is not None
        assert message.value == b"here"


@pytest.mark.parametrize("timeout", [5, 5.0, timedelta(seconds=5)])
async def test_a_read_returns_nothing_once_its_time_is_up(
    mq: flintmq.Client, clock: ManualClock, background: Background, timeout: Any
) -> None:
    async with mq.reader("orders") as reader:
        one = await background.waiting(reader.read(timeout))
        many = await background.waiting(reader.read_batch(10, timeout))
        facts = await background.waiting(reader.read_metadata(10, timeout))
        await clock.advance(4.99)
        assert not one.done()
        await clock.advance(0.01)
        assert await one is None
        assert await many == []
        assert await facts == []
        assert clock.pending() == 0


async def test_a_timeout_of_zero_looks_and_does_not_wait(mq: flintmq.Client) -> None:
    async with mq.reader("orders") as reader:
        assert await reader.read(timeout=0) is None
        assert await reader.read_batch(timeout=0) == []
        await mq.publish("orders", b"x")
        assert await reader.read(timeout=0) is not None


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan")])
async def test_a_timeout_that_is_no_time_is_refused(mq: flintmq.Client, timeout: Any) -> None:
    async with mq.reader("orders") as reader:
        with pytest.raises(flintmq.InvalidRequest, match="timeout"):
            await reader.read(timeout)


async def test_read_batch_takes_what_is_there_and_never_waits_to_fill(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.reader("orders") as reader:
        reading = await background.waiting(reader.read_batch(10))
        await mq.publish_batch("orders", [b"a", b"b"])
        assert list((await reading).values) == [b"a", b"b"]


async def test_read_batch_returns_at_most_max_over_any_batches(mq: flintmq.Client) -> None:
    published: list[bytes] = []
    for size in (1, 100, 3, 1, 2000, 64, 63):
        values = [b"%d:%d" % (size, n) for n in range(size)]
        published += values
        await mq.publish_batch("orders", values)
    for step in (1, 7, 64, 999, 5000):
        async with mq.reader("orders") as reader:
            read: list[bytes] = []
            while rows := (await reader.read_batch(step, timeout=0)):
                assert len(rows) == min(step, len(published) - len(read))
                read += rows.values
            assert read == published


@pytest.mark.parametrize("maximum", [0, -1, 1.5, "10", None])
async def test_a_max_that_is_no_count_is_refused_and_nothing_is_read(
    mq: flintmq.Client, maximum: Any
) -> None:
    await _ten(mq)
    async with mq.reader("orders") as reader, mq.live("orders") as feed:
        for consumer in (reader, feed):
            with pytest.raises(flintmq.InvalidRequest, match="max"):
                await consumer.read_batch(maximum)
            with pytest.raises(flintmq.InvalidRequest, match="max"):
                (await consumer.read_batch(maximum, timeout=0))
        assert await reader.position() == 0


async def test_read_nowait_returns_none_when_there_is_nothing(mq: flintmq.Client) -> None:
    async with mq.reader("orders") as reader:
        assert reader.read_nowait() is None
        assert reader.read_batch_nowait() == []
        await mq.publish("orders", b"x")
        message = reader.read_nowait()
        assert message is not None
        assert message.value == b"x"
        assert reader.read_nowait() is None


async def test_a_reader_is_an_iterator(mq: flintmq.Client) -> None:
    await _ten(mq)
    values = []
    async with mq.reader("orders", start=5) as reader:
        async for message in reader:
            values.append(message.value)
            if message.offset == 9:
                break
    assert values == [b"5", b"6", b"7", b"8", b"9"]


async def test_rows_are_the_list_of_their_messages(mq: flintmq.Client) -> None:
    await mq.publish_batch("orders", [b"a", b"b"], key="k")
    await mq.publish("orders", b"c", headers={"h": "1"})
    async with mq.reader("orders") as reader, mq.reader("orders") as other:
        rows, again = await reader.read_batch(), await other.read_batch()

    messages = list(rows)
    assert rows == messages
    assert messages == rows
    assert rows == again
    assert rows != messages[:2]
    assert rows != []
    assert rows[0] == messages[0]
    assert rows[-1].value == b"c"
    assert rows[1:] == messages[1:]
    assert len(rows) == 3
    assert list(reversed(rows)) == messages[::-1]
    assert messages[1] in rows
    with pytest.raises(IndexError):
        rows[3]
    with pytest.raises(IndexError):
        rows[-4]
    assert list(rows.values) == [b"a", b"b", b"c"]
    assert rows.keys == ["k", "k", None]
    assert rows.headers == [{}, {}, {"h": "1"}]
    assert rows.offsets == [0, 1, 2]
    assert rows.missed == 0
    assert len({*messages, *again}) == 3
    assert repr(messages[0]) == "Message(topic='orders', offset=0, value=b'a', key='k')"


async def test_no_rows_equal_the_empty_list(mq: flintmq.Client) -> None:
    async with mq.reader("orders") as reader:
        rows = await reader.read_batch(timeout=0)
    assert rows == []
    assert not rows
    assert list(rows.values) == []
    assert rows.metadata == []


async def test_metadata_tells_everything_but_the_payload(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    now = clock.now_ms() / 1000
    await mq.publish("orders", b"12345", key="k", priority=3, ttl=60, delay=5)
    await mq.publish_batch("orders", [b"x"] * 100)
    async with mq.reader("orders") as reader:
        first, second = await reader.read_metadata(2)
        assert await reader.position() == 2
        assert len(await reader.read_metadata()) == 99
    assert first == flintmq.Metadata("orders", 0, 0, now, 3, 6, now + 60, now + 5)
    assert second == flintmq.Metadata("orders", 0, 1, now, 0, 1, None, None)


# --- moving


async def test_seek_goes_anywhere(mq: flintmq.Client, clock: ManualClock) -> None:
    await _ten(mq)
    await clock.advance(60)
    later = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    await _ten(mq)
    async with mq.reader("orders") as reader:
        for to, position in [
            (7, 7), ("latest", 20), ("earliest", 0), (later, 10), (3, 3), (50, 50),
        ]:  # fmt: skip
            await reader.seek(to)  # type: ignore[arg-type]
            assert await reader.position() == position
        await reader.seek(19)
        message = await reader.read()
        assert message is not None
        assert message.offset == 19
        assert await reader.read(timeout=0) is None


async def test_seeking_back_reads_again(mq: flintmq.Client) -> None:
    await _ten(mq)
    async with mq.reader("orders") as reader:
        first = await reader.read_batch()
        await reader.seek("earliest")
        assert await reader.read_batch() == first


async def test_seeking_back_wakes_a_read_that_waits(
    mq: flintmq.Client, background: Background
) -> None:
    await _ten(mq)
    async with mq.reader("orders", start="latest") as reader:
        reading = await background.waiting(reader.read())
        await reader.seek(9)
        message = await reading
        assert message is not None
        assert message.offset == 9


async def test_an_unnamed_reader_has_nothing_to_commit_to(mq: flintmq.Client) -> None:
    async with mq.reader("orders") as reader:
        with pytest.raises(flintmq.InvalidRequest, match="name"):
            await reader.commit()


async def test_lag_counts_only_what_is_retained(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=3)
    async with mq.reader("orders") as reader:
        await _ten(mq)
        assert await reader.lag() == 3
        assert (await mq.topic_stats("orders")).lag == {"*1": 3}


# --- falling behind


async def test_events_tell_of_what_was_missed_in_its_place(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=3)
    seen: list[object] = []
    async with mq.reader("orders") as reader:
        await mq.publish_batch("orders", [b"0", b"1"])
        async for event in reader.events():
            seen.append(event.value if isinstance(event, flintmq.Message) else event)
            if seen == [b"0"]:
                await mq.publish_batch("orders", [b"%d" % n for n in range(2, 9)])
            if seen[-1] == b"8":
                break
        assert reader.missed == 5
    assert seen == [b"0", flintmq.Missed("orders", 1, 6, 5), b"6", b"7", b"8"]


async def test_reading_one_by_one_counts_what_was_missed(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=1)
    async with mq.reader("orders") as reader:
        for n in range(4):
            await mq.publish_batch("orders", [b"%d" % n] * 3)
            message = await reader.read()
            assert message is not None
            assert message.offset == 3 * n + 2
            assert reader.missed == 2 * (n + 1)


async def test_what_retention_took_is_told_also_when_nothing_is_left(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_age=10)
    async with mq.reader("orders") as reader:
        await mq.publish_batch("orders", [b"a", b"b"])
        await clock.advance(11)
        rows = await reader.read_batch(timeout=0)
        assert rows == []
        assert rows.gap == flintmq.Missed("orders", 0, 2, 2)
        assert reader.missed == 2


# --- opening


async def test_a_reader_is_opened_with_async_with_or_await(mq: flintmq.Client) -> None:
    await _ten(mq)
    reader = mq.reader("orders")
    with pytest.raises(flintmq.InvalidRequest, match="not open"):
        (await reader.read(timeout=0))
    assert await reader is reader
    assert (await reader.read(timeout=0)) is not None
    await reader.close()


READS: list[Callable[[flintmq.Reader], Awaitable[object]]] = [
    lambda reader: reader.read(),
    lambda reader: reader.read_batch(),
    lambda reader: reader.read_metadata(),
    lambda reader: anext(reader),
    lambda reader: reader.seek(0),
    lambda reader: reader.position(),
    lambda reader: reader.lag(),
    lambda reader: reader.commit(),
]


@pytest.mark.parametrize("call", READS)
async def test_a_reader_that_was_not_opened_says_so(
    mq: flintmq.Client, call: Callable[[flintmq.Reader], Awaitable[object]]
) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="async with"):
        await call(mq.reader("orders"))


async def test_a_busy_reader_lets_others_run(mq: flintmq.Client) -> None:
    await mq.publish_batch("orders", [b"x"] * 2000)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    async with mq.reader("orders") as reader:
        for _ in range(2000):
            await reader.read()
    counting.cancel()
    assert turns > 5
