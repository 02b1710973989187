"""Filters: what they reject is passed over, for this reader alone."""

from __future__ import annotations

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background


def _even(message: flintmq.Message) -> bool:
    return int(message.value) % 2 == 0


async def _numbers(mq: flintmq.Client, count: int = 10) -> None:
    await mq.publish_batch("orders", [b"%d" % n for n in range(count)])


async def test_a_filtered_reader_gets_what_passes(mq: flintmq.Client) -> None:
    await _numbers(mq)
    async with mq.reader("orders", filter=_even) as reader:
        assert list((await reader.read_batch()).values) == [b"0", b"2", b"4", b"6", b"8"]
        assert await reader.position() == 10
        assert (await reader.read(timeout=0)) is None


async def test_a_filter_sees_everything_of_a_message(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"a", key="k", headers={"region": "eu"}, priority=5)
    await mq.publish("orders", b"b", headers={"region": "us"})

    def wanted(message: flintmq.Message) -> bool:
        return (
            message.headers["region"] == "eu"
            and message.priority >= 5
            and message.key == "k"
            and message.topic == "orders"
            and message.offset == 0
        )

    async with mq.reader("orders", filter=wanted) as reader:
        assert list((await reader.read_batch()).values) == [b"a"]


async def test_what_a_filter_rejects_is_there_for_other_readers(mq: flintmq.Client) -> None:
    await _numbers(mq)
    async with mq.reader("orders", filter=_even, name="even") as even, mq.reader("orders") as all_:
        await even.read_batch()
        assert len(await all_.read_batch()) == 10


@pytest.mark.parametrize("step", [1, 2, 3, 100])
async def test_a_limit_counts_what_passes_and_loses_nothing_between_calls(
    mq: flintmq.Client, step: int
) -> None:
    for n in range(0, 300, 3):
        await mq.publish_batch("orders", [b"%d" % i for i in range(n, n + 3)])
    async with mq.reader("orders", filter=_even) as reader:
        read: list[bytes] = []
        while rows := (await reader.read_batch(step, timeout=0)):
            assert len(rows) <= step
            read += rows.values
    assert read == [b"%d" % n for n in range(0, 300, 2)]


async def test_a_filtered_read_waits_for_what_passes(
    mq: flintmq.Client, clock: ManualClock, background: Background
) -> None:
    async with mq.reader("orders", filter=lambda message: message.value == b"yes") as reader:
        reading = await background.waiting(reader.read(timeout=10))
        for _ in range(5):
            await mq.publish("orders", b"no")
            await clock.advance(1)
        assert not reading.done()
        await mq.publish("orders", b"yes")
        message = await reading
        assert message is not None
        assert message.offset == 5
        reading = await background.waiting(reader.read(timeout=10))
        for _ in range(10):
            await mq.publish("orders", b"no")
            await clock.advance(1)
        assert await reading is None


async def test_a_rare_match_is_found_behind_any_number_of_others(mq: flintmq.Client) -> None:
    await _numbers(mq, 20_000)
    async with mq.reader("orders", filter=lambda message: message.value == b"19999") as reader:
        message = await reader.read(timeout=60)
        assert message is not None
        assert message.offset == 19_999


async def test_a_filter_that_raises_is_heard_of_and_the_reader_goes_on_behind(
    mq: flintmq.Client,
) -> None:
    await mq.publish_batch("orders", [b"1", b"2", b"bad", b"4"])
    async with mq.reader("orders", filter=_even) as reader:
        assert list((await reader.read_batch()).values) == [b"2"]
        with pytest.raises(flintmq.FilterFailed) as caught:
            await reader.read_batch()
        assert (caught.value.topic, caught.value.offset) == ("orders", 2)
        assert isinstance(caught.value.__cause__, ValueError)
        assert list((await reader.read_batch()).values) == [b"4"]


async def test_expired_messages_are_not_shown_to_a_filter(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    shown: list[bytes] = []

    def look(message: flintmq.Message) -> bool:
        shown.append(message.value)
        return True

    await mq.publish_batch("orders", [b"a", b"b", b"c"], ttl=[None, 5, None])
    await clock.advance(6)
    async with mq.reader("orders", filter=look) as reader:
        assert list((await reader.read_batch()).values) == [b"a", b"c"]
    assert shown == [b"a", b"c"]


async def test_the_filter_belongs_to_the_name(mq: flintmq.Client) -> None:
    await _numbers(mq)
    async with (
        mq.reader("orders", name="n", filter=_even) as a,
        mq.reader("orders", name="n") as b,
        mq.reader("orders", name="n", filter=_even) as c,
    ):
        got = [list((await reader.read_batch(2)).values) for reader in (a, b, c)]
        assert got == [[b"0", b"2"], [b"4", b"6"], [b"8"]]
        with pytest.raises(flintmq.InvalidRequest, match="filter"):
            await mq.reader("orders", name="n", filter=lambda message: True)
    async with mq.reader("orders", name="n", filter=lambda message: True) as reader:
        assert len(await reader.read_batch()) == 10


async def test_a_filtered_reader_is_told_of_gaps(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=4)
    async with mq.reader("orders", filter=_even) as reader:
        await _numbers(mq)
        rows = await reader.read_batch()
        assert list(rows.values) == [b"6", b"8"]
        assert rows.missed == 6


@pytest.mark.parametrize("text", ["size % 2 == 0", "size - 1 > 0", "4 // size < 4"])
async def test_a_filter_reckons_with_the_size_for_readers_feeds_and_groups(
    mq: flintmq.Client, text: str
) -> None:
    await mq.create_topic("orders")
    async with mq.live("orders", filter=text) as feed:
        await mq.publish_batch("orders", [b"a", b"bb"])
        assert list((await feed.read_batch()).values) == [b"bb"]
    async with mq.reader("orders", filter=text) as reader:
        assert list((await reader.read_batch()).values) == [b"bb"]
    assert [delivery.value for delivery in await mq.poll("orders", "g", filter=text)] == [b"bb"]
