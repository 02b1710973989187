"""A full topic: four words for what happens, and never a hang."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import flintmq
from flintmq.model import Overflow
from flintmq.testing import ManualClock
from tests.conftest import Background
from tests.contract.conftest import Connect

REFUSING = ("drop_new", "block", "reject")


async def _values(mq: flintmq.Client) -> list[bytes]:
    async with mq.reader("orders") as reader:
        return list((await reader.read_batch(100_000, timeout=0)).values)


# --- drop_oldest


async def test_drop_oldest_takes_the_oldest_read_or_not(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=2, overflow="drop_oldest")
    async with mq.reader("orders", name="slow") as reader:
        await mq.publish_batch("orders", [b"a", b"b", b"c"])
        assert (await reader.read_batch()).values == [b"b", b"c"]


async def test_what_drop_oldest_took_is_counted(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=2, overflow="drop_oldest")
    async with mq.reader("orders", name="slow"):
        await mq.publish_batch("orders", [b"a", b"b", b"c"])
        stats = await mq.topic_stats("orders")
    assert (stats.drops, stats.missed) == ({"count": 1}, {"slow": 1})


# --- what all but drop_oldest have in common


@pytest.mark.parametrize("overflow", REFUSING)
async def test_what_every_reader_has_passed_makes_room(
    mq: flintmq.Client, overflow: Overflow
) -> None:
    await mq.create_topic("orders", retention_count=3, overflow=overflow)
    async with mq.reader("orders", name="fast") as fast, mq.reader("orders") as slow:
        await mq.publish_batch("orders", [b"0", b"1", b"2"])
        await fast.read_batch(3)
        await slow.read_batch(2)

        receipt = await mq.publish_batch("orders", [b"3", b"4"], timeout=0)
        assert (receipt.offset, receipt.count, receipt.dropped) == (3, 2, 0)
        stats = await mq.topic_stats("orders")
        assert (stats.first_offset, stats.drops) == (2, {"read": 2})
        assert list((await slow.read_batch()).values) == [b"2", b"3", b"4"]
        assert slow.missed == fast.missed == 0


@pytest.mark.parametrize("overflow", REFUSING)
async def test_what_a_name_that_commits_has_not_committed_makes_no_room(
    mq: flintmq.Client, overflow: Overflow
) -> None:
    await mq.create_topic("orders", retention_count=3, overflow=overflow)
    a, b = await mq.reader("orders", name="n"), await mq.reader("orders", name="n")
    await mq.publish_batch("orders", [b"0", b"1", b"2"])
    assert await a.read() is not None
    assert await a.commit() == 1
    assert (await a.read_batch(1)).offsets == [1]
    assert (await b.read_batch(1)).offsets == [2]

    assert (await mq.publish("orders", b"3", timeout=0)).offset == 3  # what is committed goes
    if overflow == "drop_new":
        assert (await mq.publish("orders", b"4")).dropped == 1
    else:
        with pytest.raises(flintmq.TopicFull, match="'n' has read offset 1 and not committed it"):
            await mq.publish("orders", b"4", timeout=0)
    assert await b.commit() == 1
    await a.close()
    assert [(await b.read()).offset, (await b.read()).offset] == [1, 3]
    await b.close()


async def test_a_commit_makes_room_for_who_waits(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="block")
    async with mq.reader("orders", name="n") as reader:
        await mq.publish("orders", b"0")
        await reader.read()
        await reader.commit()
        await mq.publish("orders", b"1")
        await reader.read()
        publishing = await background.waiting(mq.publish("orders", b"2", timeout=1000))
        await reader.commit()
        assert (await publishing).offset == 2


@pytest.mark.parametrize("overflow", REFUSING)
async def test_without_a_reader_nothing_makes_room(mq: flintmq.Client, overflow: Overflow) -> None:
    await mq.create_topic("orders", retention_count=2, overflow=overflow)
    async with mq.reader("orders") as passing:
        await mq.publish_batch("orders", [b"0", b"1"])
        await passing.read_batch()
    if overflow == "drop_new":
        assert (await mq.publish("orders", b"2")).dropped == 1
    else:
        with pytest.raises(flintmq.TopicFull, match="it has no reader"):
            await mq.publish("orders", b"2", timeout=0)
    assert await _values(mq) == [b"0", b"1"]


@pytest.mark.parametrize("overflow", REFUSING)
async def test_a_name_that_is_known_holds_its_messages_while_nobody_has_it_open(
    mq: flintmq.Client, overflow: Overflow
) -> None:
    await mq.create_topic("orders", retention_count=2, overflow=overflow)
    await mq.publish_batch("orders", [b"0", b"1"])
    async with mq.reader("orders", name="away") as away:
        await away.read()
        await away.commit()
    async with mq.reader("orders", start="latest"):
        receipt = await mq.publish("orders", b"2", timeout=0)  # what `away` has committed goes
        assert receipt.offset == 2
        if overflow == "drop_new":
            assert (await mq.publish("orders", b"3")).offset is None
        else:
            with pytest.raises(flintmq.TopicFull, match="'away' still has 2"):
                await mq.publish("orders", b"3", timeout=0)


@pytest.mark.parametrize("overflow", REFUSING)
async def test_bytes_are_a_limit_like_any_other(mq: flintmq.Client, overflow: Overflow) -> None:
    await mq.create_topic("orders", retention_bytes=10, overflow=overflow)
    async with mq.reader("orders") as reader:
        await mq.publish_batch("orders", [b"aaaa", b"bbbb"])
        await reader.read()
        assert (await mq.publish("orders", b"cccccc", timeout=0)).offset == 2
        stats = await mq.topic_stats("orders")
        assert (stats.byte_count, stats.drops) == (10, {"read": 1})


@pytest.mark.parametrize("overflow", REFUSING)
async def test_a_reader_ahead_of_the_end_does_not_move_it(
    mq: flintmq.Client, overflow: Overflow
) -> None:
    await mq.create_topic("orders", retention_count=2, overflow=overflow)
    async with mq.reader("orders", start=100):
        for n in range(5):
            assert (await mq.publish("orders", b"%d" % n, timeout=0)).offset == n
        stats = await mq.topic_stats("orders")
    assert (stats.first_offset, stats.next_offset) in {(3, 5), (4, 5)}
    assert 0 < stats.message_count <= 2


@pytest.mark.parametrize("overflow", REFUSING)
async def test_a_large_batch_for_a_nearly_full_topic_takes_no_long_sums(
    mq: flintmq.Client, overflow: Overflow
) -> None:
    """How many fit is searched for by halves; one by one this would be 10 billion additions."""
    await mq.create_topic("orders", retention_bytes=100_000, overflow=overflow)
    await mq.publish("orders", b"x" * 99_990)
    values = [b"x"] * 99_999
    if overflow == "drop_new":
        receipt = await mq.publish_batch("orders", values)
        assert (receipt.count, receipt.dropped) == (10, 99_989)
    else:
        with pytest.raises(flintmq.TopicFull):
            await mq.publish_batch("orders", values, timeout=0)


# --- drop_new


async def test_drop_new_keeps_what_is_there_and_says_what_it_dropped(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=3, overflow="drop_new")
    assert (await mq.publish_batch("orders", [b"0", b"1"])).dropped == 0

    part = await mq.publish_batch("orders", [b"2", b"3", b"4"], key=["a", "b", "c"])
    assert (part.offset, part.count, part.dropped) == (2, 1, 2)
    none: flintmq.Receipt = await mq.publish("orders", b"5")
    assert (none.offset, none.count, none.dropped) == (None, 0, 1)

    assert await _values(mq) == [b"0", b"1", b"2"]
    assert (await mq.topic_stats("orders")).drops == {"overflow": 3}


async def test_drop_new_by_bytes_keeps_the_head_that_fits(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_bytes=10, overflow="drop_new")
    receipt = await mq.publish_batch("orders", [b"aaaa", b"bbbb", b"cccc", b"d"])
    assert (receipt.count, receipt.dropped) == (2, 2)


async def test_what_drop_new_drops_does_not_reach_live_feeds_either(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="drop_new")
    async with mq.live("orders") as feed:
        await mq.publish_batch("orders", [b"kept", b"dropped"])
        assert list((await feed.read_batch()).values) == [b"kept"]


# --- reject


async def test_reject_refuses_the_whole_publish_at_once(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=3, overflow="reject")
    async with mq.reader("orders", name="slow"):
        await mq.publish_batch("orders", [b"0", b"1"])
        with pytest.raises(flintmq.TopicFull) as caught:
            await mq.publish_batch("orders", [b"2", b"3"])
    assert caught.value.topic == "orders"
    assert caught.value.limit == "retention_count=3"
    assert "'slow' still has 2" in str(caught.value)
    assert await _values(mq) == [b"0", b"1"]
    assert (await mq.topic_stats("orders")).drops == {}


# --- block


async def _full(mq: flintmq.Client, count: int = 1) -> None:
    await mq.create_topic("orders", retention_count=count, overflow="block")
    await mq.publish_batch("orders", [b"%d" % n for n in range(count)])


async def test_block_waits_until_a_reader_has_made_room(
    mq: flintmq.Client, background: Background
) -> None:
    await _full(mq)
    async with mq.reader("orders") as reader:
        publishing = await background.waiting(mq.publish("orders", b"waited"))
        stats = await mq.topic_stats("orders")
        assert (stats.publishers_waiting, stats.waits) == (1, {"topic": 1})
        assert stats.next_offset == 1

        await reader.read()
        assert (await publishing).offset == 1
        assert (await mq.topic_stats("orders")).publishers_waiting == 0


@pytest.mark.parametrize("timeout", [5, 5.0, timedelta(seconds=5)])
async def test_block_gives_up_after_its_timeout_and_has_published_nothing(
    mq: flintmq.Client, clock: ManualClock, background: Background, timeout: float | timedelta
) -> None:
    await _full(mq)
    publishing = await background.waiting(mq.publish("orders", b"late", timeout=timeout))
    await clock.advance(4.99)
    assert not publishing.done()
    await clock.advance(0.01)
    with pytest.raises(flintmq.TopicFull, match="waited 5 s"):
        await publishing
    async with mq.reader("orders") as reader:
        await reader.read()
        await background.settle()
        assert (await reader.read(timeout=0)) is None


async def test_the_connection_says_how_long_a_publish_waits_unless_the_call_does(
    connect: Connect, clock: ManualClock, background: Background
) -> None:
    mq = await connect(timeout=3)
    await _full(mq)
    patient = await background.waiting(mq.publish("orders", b"x", timeout=10))
    usual = await background.waiting(mq.publish("orders", b"x"))
    await clock.advance(3)
    assert usual.done()
    assert not patient.done()
    for task in (usual, patient):
        await clock.advance(7)
        with pytest.raises(flintmq.TopicFull):
            await task


async def test_a_connection_without_timeout_waits_as_long_as_it_takes(
    connect: Connect, clock: ManualClock, background: Background
) -> None:
    mq = await connect(timeout=None)
    await _full(mq)
    publishing = await background.waiting(mq.publish("orders", b"x"))
    await clock.advance(1_000_000)
    assert not publishing.done()
    assert clock.pending() == 0
    async with mq.reader("orders") as reader:
        await reader.read()
        assert (await publishing).offset == 1


async def test_a_timeout_of_zero_does_not_wait(mq: flintmq.Client, background: Background) -> None:
    await _full(mq)
    publishing = background.start(mq.publish("orders", b"x", timeout=0))
    await background.settle()
    with pytest.raises(flintmq.TopicFull):
        await publishing


async def test_blocked_publishers_go_on_in_the_order_they_came(
    mq: flintmq.Client, background: Background
) -> None:
    await _full(mq)
    blocked = [await background.waiting(mq.publish("orders", b"w%d" % n)) for n in range(5)]
    read = []
    async with mq.reader("orders") as reader:
        for _ in range(6):
            message = await reader.read()
            assert message is not None
            read.append(message.value)
            await background.settle()
    assert read == [b"0", b"w0", b"w1", b"w2", b"w3", b"w4"]
    assert [task.result().offset for task in blocked] == [1, 2, 3, 4, 5]


async def test_nobody_overtakes_a_blocked_publisher(
    mq: flintmq.Client, background: Background
) -> None:
    await _full(mq, 3)
    async with mq.reader("orders") as reader:
        large = await background.waiting(mq.publish_batch("orders", [b"a", b"b", b"c"]))
        small = await background.waiting(mq.publish("orders", b"d"))
        await reader.read()
        await background.settle()
        assert not large.done()  # room for one: not for the first in line
        assert not small.done()
        await reader.read_batch(2)
        assert (await large).offset == 3
        await reader.read_batch(3)
        assert (await small).offset == 6


async def test_publishing_at_once_after_room_was_made_does_not_jump_the_line(
    mq: flintmq.Client, background: Background
) -> None:
    await _full(mq)
    async with mq.reader("orders") as reader:
        first = await background.waiting(mq.publish("orders", b"first"))
        assert (await reader.read(timeout=0)) is not None  # wakes `first`, who has not run yet
        second = background.start(mq.publish("orders", b"second"))
        assert (await first).offset == 1
        await reader.read()
        assert (await second).offset == 2


async def test_a_cancelled_blocked_publish_publishes_nothing_and_lets_the_next_go_on(
    mq: flintmq.Client, background: Background
) -> None:
    await _full(mq)
    async with mq.reader("orders") as reader:
        blocked = [await background.waiting(mq.publish("orders", b"w%d" % n)) for n in range(3)]
        blocked[1].cancel()
        await background.settle()
        assert reader.read_nowait() is not None
        blocked[0].cancel()  # woken already, and cancelled before it ran
        assert (await blocked[2]).offset == 1
        message = await reader.read()
        assert message is not None
        assert message.value == b"w2"
    assert (await mq.topic_stats("orders")).publishers_waiting == 0


async def test_one_that_times_out_lets_the_next_in_line_go_on(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await _full(mq, 2)
    async with mq.reader("orders") as reader:
        await reader.read()
        large = await background.waiting(mq.publish_batch("orders", [b"a", b"b"], timeout=5))
        small = await background.waiting(mq.publish("orders", b"c", timeout=50))
        await clock.advance(5)
        with pytest.raises(flintmq.TopicFull):
            await large
        assert (await small).offset == 2


@pytest.mark.parametrize("overflow", ["block", "reject"])
async def test_a_batch_that_can_never_fit_is_refused_at_once(
    mq: flintmq.Client, background: Background, overflow: Overflow
) -> None:
    await mq.create_topic("orders", retention_count=3, retention_bytes=100, overflow=overflow)
    with pytest.raises(flintmq.TopicFull, match=r"retention_count=3.* never fit"):
        await mq.publish_batch("orders", [b"x"] * 4)
    with pytest.raises(flintmq.MessageTooLarge) as caught:
        await mq.publish("orders", b"x" * 101)
    assert caught.value.limit_name == "retention_bytes"
    assert (await mq.topic_stats("orders")).next_offset == 0


async def test_a_batch_that_can_never_fit_does_not_wait_in_line_to_hear_so(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic(
        "orders", retention_count=3, retention_bytes=100, max_message_bytes=50, overflow="block"
    )
    await mq.publish_batch("orders", [b"x"] * 3)
    await background.waiting(mq.publish("orders", b"first in line"))

    with pytest.raises(flintmq.TopicFull, match="never fit"):
        await mq.publish_batch("orders", [b"x"] * 4)
    with pytest.raises(flintmq.TopicFull, match="150 bytes can never fit"):
        await mq.publish_batch("orders", [b"x" * 50] * 3)
    with pytest.raises(flintmq.MessageTooLarge):
        await mq.publish("orders", b"x" * 51)


async def test_everything_that_makes_room_wakes_the_publisher(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="block", retention_age=100)
    await mq.publish("orders", b"0")
    fast = await mq.reader("orders", start="latest")
    slow = await mq.reader("orders")

    closing = await background.waiting(mq.publish("orders", b"1"))
    await slow.close()
    assert (await closing).offset == 1

    seeking = await background.waiting(mq.publish("orders", b"2"))
    await fast.seek("latest")
    assert (await seeking).offset == 2

    filtering = await background.waiting(mq.publish("orders", b"3"))
    async with mq.reader("orders", filter=lambda message: False) as none:
        await fast.seek("latest")
        assert (await none.read(timeout=0)) is None
        assert (await filtering).offset == 3

    configuring = await background.waiting(mq.publish("orders", b"4"))
    await mq.configure_topic("orders", retention_count=2)
    assert (await configuring).offset == 4

    await fast.seek("earliest")
    aging = await background.waiting(mq.publish("orders", b"5", timeout=1000))
    await clock.advance(101)
    assert (await aging).offset == 5


@pytest.mark.slow
async def test_many_blocked_publishers_and_slow_readers_lose_nothing(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", retention_count=4, overflow="block")

    async def publish(who: int) -> None:
        for n in range(50):
            await mq.publish("orders", b"%d:%d" % (who, n), timeout=1000)

    async def read(reader: flintmq.Reader) -> list[bytes]:
        values: list[bytes] = []
        while len(values) < 250:
            values += (await reader.read_batch(3)).values
            await asyncio.sleep(0)
        return values

    async with mq.reader("orders") as one, mq.reader("orders", name="two") as two:
        reading = asyncio.gather(read(one), read(two))
        await asyncio.gather(*map(publish, range(5)))
        first, second = await reading
        assert one.missed == two.missed == 0
    assert first == second
    assert len(set(first)) == 250
    for who in range(5):
        mine = [value for value in first if value.startswith(b"%d:" % who)]
        assert mine == [b"%d:%d" % (who, n) for n in range(50)]
