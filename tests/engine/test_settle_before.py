"""A position of a queue that is committed: everything before it is done, whoever holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

import flintmq
from flintmq.broker_api import Joining, Paced, SettlesBefore
from flintmq.engine.broker import Broker
from flintmq.engine.host import durable_broker
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.testing import ManualClock


async def published(mq: flintmq.Client, count: int) -> None:
    for number in range(count):
        await mq.publish("orders", b"%d" % number, priority=number % 3)


async def taken(mq: flintmq.Client, count: int = 100) -> list[bytes]:
    return sorted((await mq.poll("orders", "g", max=count, wait=0, lease=60)).values)


def settling(mq: flintmq.Client) -> SettlesBefore:
    broker = mq._broker
    assert isinstance(broker, SettlesBefore)
    return broker


async def test_what_is_leased_delayed_or_waiting_before_it_is_done(clock: ManualClock) -> None:
    async with flintmq.connect("memory://", clock=clock) as mq:
        await published(mq, 10)
        leased = await mq.poll("orders", "g", max=3, wait=0, lease=60)
        assert [message.offset for message in leased] == [2, 5, 8]
        await mq.nack(leased[:1], delay=5)
        await settling(mq).settle_before("orders", "g", 8)
        stats = await mq.group_stats("orders", "g")
        assert (stats.position, stats.lag, stats.in_flight, stats.delayed) == (8, 2, 1, 0)
        assert await taken(mq) == [b"9"]
        await mq.ack(leased[1:])  # what is done is done
        await clock.advance(10)

        assert await taken(mq) == []


async def test_it_never_goes_back_and_never_beyond_the_end(clock: ManualClock) -> None:
    async with flintmq.connect("memory://", clock=clock) as mq:
        await published(mq, 4)
        (last,) = [m for m in await mq.poll("orders", "g", max=9, wait=0) if m.offset == 3]
        await mq.ack([last])
        for offset in (2, 1, 0):
            await settling(mq).settle_before("orders", "g", offset)
        stats = await mq.group_stats("orders", "g")
        assert (stats.position, stats.lag) == (2, 1)
        await settling(mq).settle_before("orders", "g", 10**12)
        assert (await mq.group_stats("orders", "g")).position == 4
        await mq.publish("orders", b"next")

        assert await taken(mq) == [b"next"]


async def test_who_waits_is_not_handed_what_is_done(clock: ManualClock) -> None:
    async with flintmq.connect("memory://", clock=clock) as mq:
        await published(mq, 3)
        await taken(mq)
        await settling(mq).settle_before("orders", "g", 2)
        await clock.advance(61)

        assert await taken(mq) == [b"2"]


async def test_it_lasts(tmp_path: Path) -> None:
    for number in range(2):
        broker = durable_broker(LocalFileSystem(tmp_path), decoder=Codec())
        await broker.open()
        member = await broker.join_group(
            Joining(
                "orders", "g", order=None, filter=None, start=None, holder="a", auto_create=True
            )
        )
        if not number:
            for value in range(6):
                receipt = broker.publish_value_nowait("orders", b"%d" % value)
                assert receipt is not None
            await receipt  # type: ignore[misc]
            await member.take(4, 60, 0)
            await broker.settle_before("orders", "g", 3)
        else:
            grant = await member.take(9, 60, 0)
            assert grant is not None
            assert grant.rows.values == [b"3", b"4", b"5"]
        await member.close()
        await broker.close()


async def test_a_member_says_when_the_rate_lets_one_more_go(clock: ManualClock) -> None:
    broker = Broker(clock, Codec())
    await broker.create_topic("orders", {"rate_limit": 0.5, "rate_burst": 1})
    member = await broker.join_group(
        Joining("orders", "g", order=None, filter=None, start=None, holder="a", auto_create=False)
    )
    assert isinstance(member, Paced)
    assert member.seconds_until_token() == 0
    broker.publish_value_nowait("orders", b"x")
    await member.take(1, 60, 0)
    await clock.advance(0.5)

    assert member.seconds_until_token() == pytest.approx(1.5)
    await member.close()
    await broker.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
