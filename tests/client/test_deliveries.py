"""Deliveries: settling one by one, many at once, and by how a block ends."""

from __future__ import annotations

import asyncio
import logging
import sys
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

import flintmq
from flintmq.broker_api import Grant, MemberApi
from flintmq.client.grips import Grip
from flintmq.client.retrying import Retrying
from flintmq.errors import InvalidRequest, LeaseLost, StorageFailed
from flintmq.rows import Rows
from flintmq.testing import ManualClock, settle

from ..conftest import Background
from .fake_queue import FakeBroker


async def polled(mq: flintmq.Client, count: int, lease: float = 30) -> flintmq.Deliveries:
    await mq.publish_batch("jobs", [b"%d" % number for number in range(count)])
    return await mq.poll("jobs", "workers", lease=lease)


async def first(mq: flintmq.Client) -> flintmq.Delivery:
    return (await polled(mq, 1))[0]


# --- one by one


async def test_a_delivery_says_what_it_is(mq: flintmq.Client) -> None:
    message = await first(mq)

    assert (message.topic, message.offset, message.value) == ("jobs", 0, b"0")
    assert (message.group, message.delivery_count, message.token) == ("workers", 1, 1)
    assert repr(message) == ("Delivery(topic='jobs', offset=0, value=b'0', delivery_count=1)")


async def test_a_delivery_equals_the_message_a_reader_gets(mq: flintmq.Client) -> None:
    message = await first(mq)
    async with mq.reader("jobs") as reader:
        assert message == await reader.read()


async def test_a_second_ack_does_nothing(mq: flintmq.Client, broker: FakeBroker) -> None:
    message = await first(mq)
    await message.ack()
    await message.ack()

    assert broker.asked("ack") == [[(0, 1)]]


async def test_another_object_of_the_same_delivery_knows_that_it_is_settled(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    batch = await polled(mq, 2)
    await batch[0].ack()
    await batch[0].ack()
    await next(iter(batch)).ack()

    assert broker.asked("ack") == [[(0, 1)]]


async def test_settling_in_another_way_says_what_happened_before(mq: flintmq.Client) -> None:
    batch = await polled(mq, 3)
    await batch[0].ack()
    await batch[1].nack(delay=5)
    await batch[2].reject("broken")

    with pytest.raises(InvalidRequest, match="offset 0 of 'jobs' was acked: it cannot be nacked"):
        await batch[0].nack()
    with pytest.raises(InvalidRequest, match="offset 1 of 'jobs' was nacked: it cannot be acked"):
        await batch[1].ack()
    with pytest.raises(InvalidRequest, match="was rejected: it has no lease to extend"):
        await batch[2].extend(5)


async def test_nack_brings_it_back_after_the_delay_with_a_higher_token(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    message = await first(mq)
    await message.nack(delay=5)
    await clock.advance(4.9)
    assert await mq.poll("jobs", "workers") == []
    await clock.advance(0.1)
    (again,) = await mq.poll("jobs", "workers")

    assert again.delivery_count == 2
    assert again.token > message.token


async def test_extend_moves_the_end_of_the_lease(mq: flintmq.Client, clock: ManualClock) -> None:
    (message,) = await polled(mq, 1, lease=10)
    await clock.advance(9)
    await message.extend(10)
    await clock.advance(9)
    assert await mq.poll("jobs", "workers") == []
    await clock.advance(1)
    assert len(await mq.poll("jobs", "workers")) == 1


async def test_polled_leases_are_not_renewed(mq: flintmq.Client, clock: ManualClock) -> None:
    (message,) = await polled(mq, 1, lease=10)
    await clock.advance(10)
    (again,) = await mq.poll("jobs", "workers")

    with pytest.raises(LeaseLost):
        await message.ack()
    with pytest.raises(LeaseLost):  # and it stays lost
        await message.ack()
    await again.ack()


async def test_an_ack_that_failed_can_be_made_again(mq: flintmq.Client, broker: FakeBroker) -> None:
    message = await first(mq)
    broker.members[0].failure = StorageFailed("write", "journal", "broken")
    with pytest.raises(StorageFailed):
        await message.ack()

    await message.ack()
    assert broker.leased("jobs", "workers") == []


async def test_an_ack_that_was_cancelled_counts_as_made(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    message = await first(mq)
    gate = broker.members[0].gate = asyncio.Event()
    acking = await background.waiting(message.ack())
    acking.cancel()
    gate.set()
    await settle()

    await message.ack()
    with pytest.raises(InvalidRequest, match="was acked"):
        await message.nack()


@pytest.mark.parametrize("seconds", [0, -1, 50_000, "soon"])
async def test_wrong_extensions_are_refused(mq: flintmq.Client, seconds: float) -> None:
    message = await first(mq)
    with pytest.raises(InvalidRequest, match="seconds must be"):
        await message.extend(seconds)


async def test_wrong_delays_and_reasons_are_refused(mq: flintmq.Client) -> None:
    message = await first(mq)
    with pytest.raises(InvalidRequest, match="delay must be 0 or more"):
        await message.nack(-1)
    with pytest.raises(InvalidRequest, match="a reason must be a str"):
        await message.reject(None)  # type: ignore[arg-type]
    await message.ack()


# --- many at once


async def test_what_a_poll_returns_is_acked_as_one_range(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    batch = await polled(mq, 50)
    await batch.ack()

    assert broker.asked("ack") == [[(0, 50)]]
    await batch.ack()
    assert len(broker.asked("ack")) == 1


async def test_what_was_settled_one_by_one_is_left_out(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    batch = await polled(mq, 5)
    await batch[1].nack()
    await batch[3].ack()
    await batch.ack()

    assert broker.asked("ack")[-1] == [(0, 1), (2, 3), (4, 5)]


async def test_nack_of_many_takes_a_delay(mq: flintmq.Client, broker: FakeBroker) -> None:
    batch = await polled(mq, 3)
    await batch.nack(delay=7)

    assert broker.asked("nack") == [([(0, 3)], 7.0)]


async def test_a_poll_is_a_sequence_with_values(mq: flintmq.Client) -> None:
    batch = await polled(mq, 3)

    assert batch.values == [b"0", b"1", b"2"]
    assert [message.value for message in batch[1:]] == [b"1", b"2"]
    assert batch[-1].offset == 2
    assert batch == list(batch)
    assert await mq.poll("jobs", "workers") == []


async def test_ack_takes_messages_of_many_topics_partitions_and_groups(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    await mq.create_topic("parts", partitions=2)
    await mq.publish_batch("parts", [b"a"] * 4, partition=[0, 1, 0, 1])
    await mq.publish_batch("jobs", [b"b"] * 3)
    everything = [
        *await mq.poll("parts", "one"),
        *await mq.poll("jobs", "one"),
        *await mq.poll("jobs", "two"),
    ]
    await mq.ack(everything)

    assert len(everything) == 10
    assert sorted(broker.asked("ack")) == [[(0, 2)], [(0, 2)], [(0, 3)], [(0, 3)]]


async def test_lost_leases_are_told_at_the_end_after_the_rest_was_done(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock
) -> None:
    await mq.publish_batch("other", [b"x"] * 2)
    others = await mq.poll("other", "workers", lease=100)
    old = await polled(mq, 3, lease=10)
    await clock.advance(10)
    await mq.poll("jobs", "workers", max=2)

    with pytest.raises(LeaseLost) as lost:
        await mq.ack([*old, *others])

    assert (lost.value.topic, lost.value.offsets) == ("jobs", [0, 1])
    assert broker.leased("other", "workers") == []
    with pytest.raises(LeaseLost):
        await mq.nack([old[0]])


async def test_a_list_with_a_message_that_was_nacked_is_refused_as_a_whole(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    batch = await polled(mq, 3)
    await batch[1].nack()

    with pytest.raises(InvalidRequest, match="offset 1"):
        await mq.ack(list(batch))
    assert broker.asked("ack") == []


async def test_only_messages_of_queues_can_be_acked(mq: flintmq.Client) -> None:
    await mq.publish("jobs", b"x")
    async with mq.reader("jobs") as reader:
        message = await reader.read()
    with pytest.raises(InvalidRequest, match="not a message of a queue group"):
        await mq.ack([message])  # type: ignore[list-item]
    with pytest.raises(InvalidRequest, match="ack takes messages of a queue"):
        await mq.ack(7)  # type: ignore[arg-type]
    await mq.ack([])


async def test_one_message_can_be_acked_by_the_connection(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    message = await first(mq)
    await mq.ack(message)
    await message.ack()

    assert broker.asked("ack") == [[(0, 1)]]


# --- by how a block ends


async def test_a_block_that_ends_well_acks(mq: flintmq.Client, broker: FakeBroker) -> None:
    async with (await first(mq)).process() as message:
        assert message.value == b"0"

    assert broker.asked("ack") == [[(0, 1)]]


async def test_a_block_that_raises_nacks_with_a_longer_delay_each_time(
    mq: flintmq.Client,
    broker: FakeBroker,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await mq.publish("jobs", b"0")
    for _ in range(4):
        (message,) = await mq.poll("jobs", "workers")
        async with message.process(backoff=1, backoff_max=3, jitter=0):
            raise RuntimeError("not today")
        await clock.advance(3)

    assert [delay for _, delay in broker.asked("nack")] == [1.0, 2.0, 3.0, 3.0]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 4
    assert caplog.records[0].exc_info is not None
    assert "jobs offset 0 failed in group 'workers' (delivery 1)" in caplog.records[0].message


async def test_jitter_stays_within_its_part() -> None:
    retrying = Retrying.checked("process", {"backoff": 10})
    delays = [retrying.delay(1) for _ in range(200)]

    assert all(8 <= delay <= 12 for delay in delays)
    assert len(set(delays)) > 100
    assert retrying.delay(10_000) <= 72


async def test_after_its_retries_a_message_is_rejected_with_the_exceptions_text(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock
) -> None:
    await mq.publish("jobs", b"0")
    for _ in range(3):
        (message,) = await mq.poll("jobs", "workers")
        async with message.process(retries=2, backoff=0):
            raise KeyError("id")

    assert broker.queue("jobs", "workers").rejected == {0: "KeyError: 'id'"}


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt])
async def test_a_block_that_is_stopped_gives_the_message_back_uncounted(
    mq: flintmq.Client, error: type[BaseException]
) -> None:
    message = await first(mq)
    with pytest.raises(error):
        async with message.process():
            raise error

    (again,) = await mq.poll("jobs", "workers")
    assert again.delivery_count == 1


async def test_a_block_that_exits_the_program_counts_as_a_delivery(mq: flintmq.Client) -> None:
    message = await first(mq)
    with pytest.raises(SystemExit):
        async with message.process():
            raise SystemExit(1)
    await settle()

    (again,) = await mq.poll("jobs", "workers", wait=1)
    assert again.delivery_count == 2


async def test_a_block_that_settles_by_itself_has_the_last_word(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    batch = await polled(mq, 2)
    async with batch[0].process() as message:
        await message.nack(delay=9)
    async with batch[1].process() as message:
        await message.ack()
        raise RuntimeError("too late")

    assert broker.asked("nack") == [([(0, 1)], 9.0)]
    assert broker.asked("ack") == [[(1, 2)]]


async def test_a_lease_lost_at_the_end_of_a_block_is_logged(
    mq: flintmq.Client, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    (message,) = await polled(mq, 1, lease=10)
    async with message.process():
        await clock.advance(10)
        await mq.poll("jobs", "workers")

    assert "was not settled: the lease of group 'workers'" in caplog.text


async def test_wrong_ways_to_retry_are_refused(mq: flintmq.Client) -> None:
    message = await first(mq)
    with pytest.raises(InvalidRequest, match="retries must be a whole number"):
        message.process(retries=1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="jitter must be a fraction from 0 to 1"):
        message.process(jitter=2)
    with pytest.raises(InvalidRequest, match="backoff must be 0 or more seconds"):
        message.process(backoff=-1)


# --- what it costs


def test_finding_a_fate_does_not_go_through_all_that_were_settled() -> None:
    member = cast(MemberApi, SimpleNamespace(info=SimpleNamespace(topic="jobs")))
    grip = Grip(member, "workers", Grant(1, Rows(), {}))
    grip.note([(offset, offset + 1) for offset in range(0, 20_000, 2)], "ack")
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        fates = grip.fate(19_998), grip.fate(19_999)
    finally:
        sys.settrace(before)
    assert fates == ("ack", None)
    assert steps < 100
