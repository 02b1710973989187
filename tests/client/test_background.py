"""Settling in the background: how many calls it makes of it, how much may wait, what fails."""

from __future__ import annotations

import asyncio

import pytest

import flintmq
from flintmq.client import background as module
from flintmq.testing import settle

from ..conftest import Background
from .fake_queue import FakeBroker, FakeMember


@pytest.fixture(autouse=True)
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeMember, "is_instant", False)


async def polled(mq: flintmq.Client, count: int) -> flintmq.Deliveries:
    await mq.publish_batch("jobs", [b"%d" % number for number in range(count)])
    return await mq.poll("jobs", "workers", count)


async def test_acks_of_one_turn_are_one_call(mq: flintmq.Client, broker: FakeBroker) -> None:
    for message in reversed(await polled(mq, 5)):
        message.ack_nowait()
    assert broker.asked("ack") == []
    await settle()
    assert broker.asked("ack") == [[(0, 5)]]


async def test_while_a_call_is_under_way_more_gathers_behind_it(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    found = await polled(mq, 5)
    gate = broker.members[0].gate = asyncio.Event()
    for message in found:
        message.ack_nowait()
        await settle()
    assert broker.asked("ack") == [[(0, 1)]]
    gate.set()
    await settle()
    assert broker.asked("ack") == [[(0, 1)], [(1, 5)]]


async def test_the_order_of_acks_and_nacks_is_kept(mq: flintmq.Client, broker: FakeBroker) -> None:
    found = await polled(mq, 5)
    for number, message in enumerate(found):
        message.nack_nowait(3) if number == 2 else message.ack_nowait()
    await settle()
    settled = [call for call in broker.calls if call[0] in ("ack", "nack")]
    assert settled == [("ack", [(0, 2)]), ("nack", ([(2, 3)], 3.0)), ("ack", [(3, 5)])]


async def test_who_waits_for_an_ack_under_way_is_told_when_it_is_done(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    (message,) = await polled(mq, 1)
    gate = broker.members[0].gate = asyncio.Event()
    message.ack_nowait()
    waiting = await background.waiting(message.ack())
    assert not waiting.done()
    gate.set()
    await waiting
    assert broker.asked("ack") == [[(0, 1)]]


async def test_what_the_broker_did_not_answer_can_be_acked_again(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    told: list[flintmq.NotSettled] = []
    mq.on_not_settled(told.append)
    found = await polled(mq, 4)
    broker.members[0].failure = flintmq.OutcomeUnknown("no answer")
    found.split(2)[0].ack_nowait()
    found[3].ack_nowait()
    await settle()
    assert (mq.not_settled, [one.offsets for one in told]) == (3, [[0, 1, 3]])
    await found.ack()
    assert broker.asked("ack") == [[(0, 2), (3, 4)], [(0, 4)]]


async def test_nothing_is_taken_while_too_much_is_under_way(
    mq: flintmq.Client,
    broker: FakeBroker,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PENDING_MAX", 8)
    await mq.publish_batch("jobs", [b""] * 100)
    seen = 0

    async def work() -> None:
        nonlocal seen
        async for message in subscription:
            message.ack_nowait()
            seen += 1

    async with mq.subscribe("jobs", "workers", prefetch=4) as subscription:
        gate = broker.members[0].gate = asyncio.Event()
        await background.waiting(work())
        assert 8 <= seen <= 12
        polling = await background.waiting(mq.poll("jobs", "workers"))
        assert not polling.done()
        gate.set()
        await settle()
        assert seen > 12 or polling.done()


async def test_a_block_waits_while_too_much_is_under_way(
    mq: flintmq.Client,
    broker: FakeBroker,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PENDING_MAX", 3)
    found = await polled(mq, 5)
    gate = broker.members[0].gate = asyncio.Event()
    done = 0

    async def work() -> None:
        nonlocal done
        for message in found:
            async with message.process():
                pass
            done += 1

    working = await background.waiting(work())
    assert done == 2
    gate.set()
    await working
    assert done == 5


async def test_closing_does_not_wait_for_ever(
    mq: flintmq.Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.client.polling.FLUSH_SECONDS", 0.01)
    (message,) = await polled(mq, 1)
    broker.members[0].gate = asyncio.Event()
    message.ack_nowait()
    await mq.close()
    assert broker.members[0].is_closed


async def test_a_callback_that_fails_harms_nobody(
    mq: flintmq.Client, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    @mq.on_not_settled
    def wrong(lost: flintmq.NotSettled) -> None:
        raise RuntimeError("of the program")

    (message,) = await polled(mq, 1)
    broker.members[0].failure = flintmq.OutcomeUnknown("no answer")
    message.ack_nowait()
    await settle()
    assert "of the program" in caplog.text
    await message.ack()
