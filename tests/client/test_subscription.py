"""Subscriptions: taking ahead, handing out, renewing, giving back."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

import flintmq
from flintmq.errors import (
    Disconnected,
    InvalidRequest,
    LeaseLost,
    OutcomeUnknown,
    StorageFailed,
    TopicDeleted,
)
from flintmq.testing import ManualClock, settle

from ..conftest import Background
from .fake_queue import FakeBroker


async def publish(mq: flintmq.Client, count: int, topic: str = "jobs") -> None:
    await mq.publish_batch(topic, [b"%d" % number for number in range(count)])


# --- taking ahead


async def test_messages_are_iterated_over_and_acked(mq: flintmq.Client, broker: FakeBroker) -> None:
    await publish(mq, 3)
    seen = []
    async with mq.subscribe("jobs", group="workers") as deliveries:
        async for message in deliveries:
            seen.append((message.value, message.delivery_count, message.group))
            await message.ack()
            if len(seen) == 3:
                break

    assert seen == [(b"0", 1, "workers"), (b"1", 1, "workers"), (b"2", 1, "workers")]
    assert broker.leased("jobs", "workers") == []
    assert broker.queue("jobs", "workers").ready == set()


async def test_no_more_than_prefetch_are_unsettled(mq: flintmq.Client, broker: FakeBroker) -> None:
    await publish(mq, 100)
    async with mq.subscribe("jobs", "workers", prefetch=10) as deliveries:
        batch = await deliveries.read_batch(1000)
        assert len(batch) == 10
        assert await deliveries.read_batch(timeout=0) == []

        await batch[0].ack()
        assert (await deliveries.read_batch(timeout=0)).values == []
        await settle()
        assert broker.leased("jobs", "workers") == [(1, 10)]


async def test_who_waits_gets_what_there_is_room_for_before_half_is_empty(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    await publish(mq, 100)
    async with mq.subscribe("jobs", "workers", prefetch=10) as deliveries:
        batch = await deliveries.read_batch(1000)
        waiting = await background.waiting(deliveries.read())

        await batch[3].ack()
        message = await waiting

        assert message is not None
        assert message.offset == 10
        assert broker.asked("take")[-1] == 1


async def test_taken_ahead_is_refilled_by_batches_when_half_is_settled(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    await publish(mq, 40)
    async with mq.subscribe("jobs", "workers", prefetch=16) as deliveries:
        for _ in range(24):
            message = await deliveries.read()
            assert message is not None
            await message.ack()
            await settle()

    assert broker.asked("take") == [16, 8, 8, 8]


async def test_by_default_sixteen_are_taken_ahead(mq: flintmq.Client, broker: FakeBroker) -> None:
    await publish(mq, 40)
    async with mq.subscribe("jobs", "workers"):
        await settle()
        assert broker.leased("jobs", "workers") == [(0, 16)]


async def test_two_members_split_a_group(mq: flintmq.Client) -> None:
    await publish(mq, 8)
    async with (
        mq.subscribe("jobs", "workers", prefetch=4) as one,
        mq.subscribe("jobs", "workers", prefetch=4) as other,
    ):
        first, second = await one.read_batch(8), await other.read_batch(8)

    assert first.values == [b"0", b"1", b"2", b"3"]
    assert second.values == [b"4", b"5", b"6", b"7"]


async def test_holders_have_different_readable_labels(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    async with mq.subscribe("jobs", "workers"), mq.subscribe("jobs", "workers"):
        one, other = (member.holder for member in broker.members)

    assert one != other
    assert one.count(":") >= 2


# --- closing and cancelling


async def test_closing_gives_back_what_nobody_saw_without_counting_it(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    await publish(mq, 5)
    async with mq.subscribe("jobs", "workers", prefetch=5) as deliveries:
        await deliveries.read()
        await deliveries.read()

    assert broker.asked("release") == [[(2, 5)]]
    again = await mq.poll("jobs", "workers")
    assert [(m.offset, m.delivery_count) for m in again] == [(0, 2), (1, 2), (2, 1), (3, 1), (4, 1)]


async def test_closing_ends_those_who_wait(mq: flintmq.Client, background: Background) -> None:
    deliveries = await mq.subscribe("jobs", "workers")
    seen: list[Any] = []

    async def consume() -> None:
        async for message in deliveries:
            seen.append(message)

    consumer = await background.waiting(consume())
    reader = await background.waiting(deliveries.read())
    await deliveries.close()
    await consumer

    with pytest.raises(flintmq.Closed):
        await reader
    assert seen == []


async def test_closing_the_connection_closes_subscriptions(
    clock: ManualClock, mq: flintmq.Client, broker: FakeBroker
) -> None:
    await publish(mq, 3)
    deliveries = await mq.subscribe("jobs", "workers")
    await deliveries.read()
    await mq.poll("jobs", "others")

    await mq.close()

    assert broker.leased("jobs", "workers") == []
    assert broker.leased("jobs", "others") == []
    assert clock.pending() == 2  # the fake's own, one for each grant


async def test_a_cancelled_read_has_taken_nothing_at_whatever_turn(mq: flintmq.Client) -> None:
    async with mq.subscribe("jobs", "workers", prefetch=4) as deliveries:
        for turns in range(12):
            reading = asyncio.ensure_future(deliveries.read())
            await settle()
            await mq.publish("jobs", b"%d" % turns)
            for _ in range(turns):
                await asyncio.sleep(0)
            reading.cancel()
            message: flintmq.Delivery | None
            try:
                message = await reading
            except asyncio.CancelledError:
                message = await deliveries.read(timeout=0)
                if message is None:
                    await settle()
                    message = await deliveries.read(timeout=0)
            assert message is not None
            assert message.value == b"%d" % turns
            assert message.delivery_count == 1
            await message.ack()


async def test_close_that_is_cancelled_goes_on_to_its_end(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    await publish(mq, 3)
    deliveries = await mq.subscribe("jobs", "workers")
    await settle()
    (member,) = broker.members
    member.gate = asyncio.Event()
    closing = asyncio.ensure_future(deliveries.close())
    await settle()
    closing.cancel()
    await settle()
    assert broker.asked("close") == []

    member.gate.set()
    await settle()

    assert broker.asked("close") == ["jobs"]
    assert broker.leased("jobs", "workers") == []


def test_a_loop_that_ends_with_a_subscription_open_ends_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def forget_to_close() -> None:
        mq = await flintmq.connect("memory://")
        await mq.create_topic("jobs", partitions=2)
        await mq.publish("jobs", b"1", partition=0)
        deliveries = await mq.subscribe("jobs", "workers")
        await deliveries.read()

    asyncio.run(forget_to_close())  # a warning would be an error here
    assert caplog.text == ""


# --- dying


async def test_a_deleted_topic_raises_into_the_iterator_and_into_every_read_after(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    async with mq.subscribe("jobs", "workers") as deliveries:
        waiting = await background.waiting(deliveries.read())
        broker.kill("jobs", "workers")

        with pytest.raises(TopicDeleted):
            await waiting
        with pytest.raises(TopicDeleted):
            await deliveries.read()
        with pytest.raises(TopicDeleted):
            async for _ in deliveries:
                pass


async def test_a_renewal_that_fails_ends_the_subscription(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock
) -> None:
    await publish(mq, 1)
    async with mq.subscribe("jobs", "workers", lease=10) as deliveries:
        await deliveries.read()
        broker.members[0].failure = StorageFailed("write", "journal", "broken")
        await clock.advance(6)

        with pytest.raises(StorageFailed):
            await deliveries.read()


@pytest.mark.parametrize(
    "failure",
    [Disconnected("flint://far:7600", "it is away"), OutcomeUnknown("it did not answer in time")],
    ids=["out of reach", "silent"],
)
async def test_a_renewal_that_does_not_reach_the_broker_is_tried_again(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock, failure: flintmq.FlintError
) -> None:
    await publish(mq, 2)
    async with mq.subscribe("jobs", "workers", lease=10) as deliveries:
        first = await deliveries.read()
        broker.members[0].failure = failure
        await clock.advance(5)
        assert broker.asked("extend") == [([(0, 2)], 10.0)]

        await clock.advance(4)
        assert broker.asked("extend")[1:] == [([(0, 2)], 10.0)], "before the lease has ended"
        await first.ack()
        assert (await deliveries.read()).offset == 1


# --- renewing


async def test_leases_are_renewed_at_half_time_while_messages_are_unsettled(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock
) -> None:
    await publish(mq, 3)
    async with mq.subscribe("jobs", "workers", lease=10) as deliveries:
        messages = await deliveries.read_batch()
        await clock.advance(5)
        assert broker.asked("extend") == [([(0, 3)], 10.0)]

        await messages[1].ack()
        await clock.advance(5)
        assert broker.asked("extend")[1:] == [([(0, 1), (2, 3)], 10.0)]

        await clock.advance(100)
        await messages.ack()
        assert broker.leased("jobs", "workers") == []


async def test_what_is_taken_ahead_is_renewed_too(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock
) -> None:
    await publish(mq, 3)
    async with mq.subscribe("jobs", "workers", lease=10) as deliveries:
        await clock.advance(50)
        batch = await deliveries.read_batch()

    assert [message.delivery_count for message in batch] == [1, 1, 1]


async def test_grants_that_fall_due_together_are_renewed_in_one_call(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock
) -> None:
    async with mq.subscribe("jobs", "workers", lease=10) as deliveries:
        for number in range(3):
            await mq.publish("jobs", b"%d" % number)
            await deliveries.read()
            await clock.advance(0.1)
        await clock.advance(5)

    assert broker.asked("extend") == [([(0, 1), (1, 2), (2, 3)], 10.0)]


async def test_with_nothing_unsettled_there_is_no_timer(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock
) -> None:
    async with mq.subscribe("jobs", "workers", lease=10) as deliveries:
        await settle()
        assert clock.pending() == 0
        await mq.publish("jobs", b"1")
        message = await deliveries.read()
        assert message is not None
        assert clock.pending() == 2  # the renewal, and the fake's own
        await message.ack()
        assert clock.pending() == 1
        await clock.advance(100)
        assert broker.asked("extend") == []


async def test_after_lease_max_a_lease_runs_out_and_another_gets_the_message(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await publish(mq, 1)
    async with mq.subscribe("jobs", "workers", lease=10, lease_max=25, prefetch=1) as deliveries:
        message = await deliveries.read()
        assert message is not None
        await clock.advance(24.9)
        assert await mq.poll("jobs", "workers") == []

        await clock.advance(0.2)
        again = await deliveries.read(timeout=0)  # there is room again, and nobody else wants it
        await settle()
        again = again or await deliveries.read(timeout=0)

        assert again is not None
        assert (again.delivery_count, again.token > message.token) == (2, True)
        with pytest.raises(LeaseLost):
            await message.ack()
        await again.ack()
    assert [seconds for _, seconds in broker.asked("extend")] == [10.0, 10.0, 10.0]
    assert [record.message for record in caplog.records if "lease_max=25" in record.message] != []


async def test_what_was_taken_ahead_for_lease_max_is_given_back_unseen(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock
) -> None:
    await publish(mq, 2)
    async with mq.subscribe("jobs", "workers", lease=10, lease_max=15, prefetch=2) as deliveries:
        await clock.advance(15)
        assert broker.asked("release") == [[(0, 2)]]
        assert [message.delivery_count for message in await deliveries.read_batch()] == [1, 1]


async def test_a_longer_lease_that_was_asked_for_is_not_cut_short_by_renewal(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock
) -> None:
    await publish(mq, 2)
    async with mq.subscribe("jobs", "workers", lease=10) as deliveries:
        first, _ = await deliveries.read_batch()
        await first.extend(600)
        await clock.advance(5)

    assert broker.asked("extend") == [([(0, 1)], 600.0), ([(1, 2)], 10.0)]


async def test_a_message_whose_lease_was_lost_is_not_handed_out(
    mq: flintmq.Client, broker: FakeBroker, clock: ManualClock
) -> None:
    await publish(mq, 2)
    async with mq.subscribe("jobs", "workers", lease=10, prefetch=2) as deliveries:
        first = await deliveries.read()
        assert first is not None
        for offset in (0, 1):  # as if others had got both
            broker.queue("jobs", "workers").leases[offset] = (99, broker.members[0], 1e9)
        await clock.advance(5)

        assert await deliveries.read(timeout=0) is None
        with pytest.raises(LeaseLost) as lost:
            await first.ack()
    assert lost.value.offsets == [0]


# --- settled before they are handed out


async def test_with_auto_ack_messages_are_settled_when_they_are_handed_out_and_not_before(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    await publish(mq, 5)
    async with mq.subscribe("jobs", "workers", ack="auto") as deliveries:
        message = await deliveries.read()
        assert message is not None
        assert broker.asked("ack") == [[(0, 1)]]
        await message.ack()  # it is
        with pytest.raises(InvalidRequest, match="acked before delivery"):
            await message.nack()
        assert (await deliveries.read_batch(2)).values == [b"1", b"2"]

    left = await mq.poll("jobs", "workers")
    assert [(message.value, message.delivery_count) for message in left] == [(b"3", 1), (b"4", 1)]


async def test_a_read_cancelled_while_its_message_is_settled_leaves_it_to_the_next(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    await publish(mq, 2)
    async with mq.subscribe("jobs", "workers", ack="auto") as deliveries:
        await settle()
        gate = broker.members[0].gate = asyncio.Event()
        reading = await background.waiting(deliveries.read())
        reading.cancel()
        await settle()
        gate.set()
        await settle()

        values = [(await deliveries.read(timeout=0)) for _ in range(2)]
        assert [message.value for message in values if message] == [b"0", b"1"]


async def test_auto_ack_does_not_hand_out_without_waiting(mq: flintmq.Client) -> None:
    async with mq.subscribe("jobs", "workers", ack="auto") as deliveries:
        with pytest.raises(InvalidRequest, match="use read"):
            deliveries.read_nowait()


# --- handlers


async def test_handlers_run_side_by_side_up_to_the_limit(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    await publish(mq, 10)
    running: list[bytes] = []
    gate = asyncio.Event()

    async def handle(message: flintmq.Delivery) -> None:
        running.append(message.value)
        await gate.wait()

    subscription = mq.subscribe("jobs", "workers")
    run = await background.waiting(subscription.run(handle, concurrency=3))
    assert running == [b"0", b"1", b"2"]

    gate.set()
    await settle()
    assert len(running) == 10
    assert broker.leased("jobs", "workers") == []
    await subscription.close()
    await run


async def test_handlers_that_need_not_wait_do_not_wake_one_another(
    mq: flintmq.Client, background: Background
) -> None:
    """A few do it all: with a task woken for each message, workers took twice as long."""
    at_work = set()

    async def handle(message: flintmq.Delivery) -> None:
        at_work.add(asyncio.current_task())

    subscription = mq.subscribe("jobs", "workers")
    run = await background.waiting(subscription.run(handle, concurrency=64))
    await publish(mq, 64)
    await settle()

    assert 1 <= len(at_work) <= 3
    await subscription.close()
    await run


@pytest.mark.parametrize("turns", range(8))
async def test_a_reader_that_is_cancelled_leaves_what_it_was_woken_for_to_another(
    mq: flintmq.Client, broker: FakeBroker, turns: int
) -> None:
    async with mq.subscribe("jobs", "workers") as deliveries:
        first, second = (asyncio.ensure_future(deliveries.read()) for _ in range(2))
        await settle()
        await publish(mq, 1)
        for _ in range(turns):
            await asyncio.sleep(0)
        first.cancel()
        await settle()

        done = second if first.cancelled() else first
        assert done.done()
        await done.result().ack()
        second.cancel()


async def test_a_handler_that_raises_does_not_end_the_run(
    mq: flintmq.Client, broker: FakeBroker, background: Background, clock: ManualClock
) -> None:
    await publish(mq, 3)
    seen: list[tuple[bytes, int]] = []

    async def handle(message: flintmq.Delivery) -> None:
        seen.append((message.value, message.delivery_count))
        if message.value == b"1":
            raise RuntimeError("no")

    subscription = mq.subscribe("jobs", "workers")
    run = await background.waiting(
        subscription.run(handle, concurrency=1, retries=2, backoff=10, jitter=0)
    )
    assert seen == [(b"0", 1), (b"1", 1), (b"2", 1)]
    await clock.advance(10)
    assert seen[3:] == [(b"1", 2)]
    await clock.advance(20)
    assert seen[4:] == [(b"1", 3)]
    assert broker.queue("jobs", "workers").rejected == {1: "RuntimeError: no"}
    run.cancel()


async def test_cancelling_a_run_cancels_its_handlers_and_gives_messages_back(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    await publish(mq, 3)
    cancelled: list[bytes] = []

    async def handle(message: flintmq.Delivery) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(message.value)
            raise

    run = await background.waiting(mq.subscribe("jobs", "workers").run(handle, concurrency=2))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert sorted(cancelled) == [b"0", b"1"]
    again = await mq.poll("jobs", "workers")
    assert [message.delivery_count for message in again] == [1, 1, 1]


async def test_closing_ends_a_run(mq: flintmq.Client, background: Background) -> None:
    async with mq.subscribe("jobs", "workers") as deliveries:

        async def handle(message: flintmq.Delivery) -> None:
            await deliveries.close()

        run = await background.waiting(deliveries.run(handle))
        await mq.publish("jobs", b"the last")
        await run


async def test_a_plain_handler_runs_in_a_thread_and_is_waited_for(
    mq: flintmq.Client, broker: FakeBroker
) -> None:
    await publish(mq, 1)
    begun, go_on = threading.Event(), threading.Event()

    def handle(message: flintmq.Delivery) -> None:
        begun.set()
        assert go_on.wait(60)

    run = asyncio.ensure_future(mq.subscribe("jobs", "workers").run(handle))
    await asyncio.to_thread(begun.wait, 30)
    run.cancel()
    await settle()
    assert not run.done()
    assert broker.leased("jobs", "workers") == [(0, 1)]

    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert broker.asked("ack") == [[(0, 1)]]


async def test_a_dead_subscription_raises_out_of_run(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    async def handle(message: flintmq.Delivery) -> None: ...

    run = await background.waiting(mq.subscribe("jobs", "workers").run(handle))
    broker.kill("jobs", "workers")

    with pytest.raises(TopicDeleted):
        await run


async def test_run_takes_ahead_for_all_its_handlers(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    await publish(mq, 100)
    gate = asyncio.Event()

    async def handle(message: flintmq.Delivery) -> None:
        await gate.wait()

    await background.waiting(mq.subscribe("jobs", "workers").run(handle, concurrency=40))

    assert broker.leased("jobs", "workers") == [(0, 80)]


# --- partitions


async def test_a_subscription_takes_from_all_partitions_in_turn(mq: flintmq.Client) -> None:
    await mq.create_topic("jobs", partitions=3)
    for partition in range(3):
        await mq.publish_batch("jobs", [b"%d" % partition] * 20, partition=partition)
    async with mq.subscribe("jobs", "workers", prefetch=6) as deliveries:
        seen = []
        for _ in range(30):
            message = await deliveries.read()
            assert message is not None
            seen.append(message.partition)
            await message.ack()

    assert all(5 <= seen.count(partition) <= 15 for partition in range(3)), "".join(map(str, seen))


async def test_with_a_prefetch_of_one_every_partition_is_heard(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    await mq.create_topic("jobs", partitions=4)
    async with mq.subscribe("jobs", "workers", prefetch=1) as deliveries:
        for partition in (2, 0, 3, 1):
            waiting = await background.waiting(deliveries.read())
            await mq.publish("jobs", b"x", partition=partition)
            message = await waiting
            assert message is not None
            assert message.partition == partition
            await message.ack()


async def test_over_partitions_no_more_than_prefetch_are_held(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    await mq.create_topic("jobs", partitions=4)
    async with mq.subscribe("jobs", "workers", prefetch=2) as deliveries:
        await settle()
        for partition in range(4):
            mq._broker.publish_nowait(  # all in one turn
                f"jobs/{partition}", _one_row(), qos=1, auto_create=False
            )
        await settle()
        held = sum(len(broker.queue(f"jobs/{n}", "workers").leases) for n in range(4))
        assert held == 2
        seen = []
        while message := await deliveries.read(timeout=0):
            seen.append((message.partition, message.delivery_count))
            await message.ack()
            await settle()

    assert sorted(seen) == [(0, 1), (1, 1), (2, 1), (3, 1)]


def _one_row() -> flintmq.BatchBuilder:
    rows = flintmq.BatchBuilder()
    rows.append(b"x")
    return rows


async def test_partitions_that_are_added_are_joined(mq: flintmq.Client, broker: FakeBroker) -> None:
    await mq.create_topic("jobs", partitions=1)
    async with mq.subscribe("jobs", "workers", start="latest") as deliveries:
        await mq.configure_topic("jobs", partitions=2)
        await mq.publish("jobs", b"new", partition=1)
        await mq.publish("jobs", b"old", partition=0)
        seen = []
        for _ in range(2):
            message = await deliveries.read(timeout=0)
            await settle()
            message = message or await deliveries.read(timeout=0)
            assert message is not None
            seen.append(message.value)
            await message.ack()

        assert sorted(seen) == [b"new", b"old"]
    async with mq.subscribe("jobs", "workers", start="latest"):
        pass  # the same words still fit, although partition 1 began at its start


async def test_acks_go_to_the_right_partition(mq: flintmq.Client, broker: FakeBroker) -> None:
    await mq.create_topic("jobs", partitions=2)
    for partition in range(2):
        await mq.publish_batch("jobs", [b"a", b"b"], partition=partition)
    async with mq.subscribe("jobs", "workers") as deliveries:
        await settle()
        batch = await deliveries.read_batch()
        await mq.ack([message for message in batch if message.offset == 1])

        assert broker.leased("jobs/0", "workers") == [(0, 1)]
        assert broker.leased("jobs/1", "workers") == [(0, 1)]


# --- what is refused


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lease": 0}, "lease must be more than 0 seconds"),
        ({"lease": 50_000}, "lease must be at most 43,200 seconds"),
        ({"lease_max": -1}, "lease_max must be 0 or more seconds"),
        ({"prefetch": 0}, "prefetch must be a whole number from 1"),
        ({"ack": "maybe"}, "ack must be 'manual' or 'auto', not 'maybe'"),
        ({"order": "size"}, "order must be one of priority, key, log, not 'size'"),
        ({"filter": 7}, "filter must be an expression"),
        ({"group": "a/b"}, "group name 'a/b'"),
    ],
)
async def test_wrong_options_are_refused_with_what_is_allowed(
    mq: flintmq.Client, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidRequest, match=text):
        mq.subscribe("jobs", **{"group": "workers", **options})


async def test_an_offset_to_start_at_is_refused_over_partitions(mq: flintmq.Client) -> None:
    await mq.create_topic("jobs", partitions=2)

    with pytest.raises(InvalidRequest, match="each partition has its own offsets"):
        await mq.subscribe("jobs", "workers", start=7)


async def test_wrong_handlers_are_refused(mq: flintmq.Client) -> None:
    subscription = mq.subscribe("jobs", "workers")
    with pytest.raises(InvalidRequest, match="a handler must be a function"):
        await subscription.run("work")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="concurrency must be a whole number"):
        await subscription.run(print, concurrency=0)
    with pytest.raises(InvalidRequest, match="retries must be a whole number"):
        await subscription.run(print, retries=-1)


async def test_a_subscription_that_was_not_opened_says_so(mq: flintmq.Client) -> None:
    with pytest.raises(InvalidRequest, match="use `async with`, or `await` it first"):
        await mq.subscribe("jobs", "workers").read()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "flintmq")


# --- leases in doubt


async def test_nothing_is_handed_out_while_it_is_not_known_whose_it_is(
    mq: flintmq.Client, broker: FakeBroker, background: Background
) -> None:
    await publish(mq, 4)
    async with mq.subscribe("jobs", "workers", prefetch=4) as deliveries:
        first = await deliveries.read()
        (member,) = broker.members
        watcher = member.watcher
        watcher.in_doubt(member)
        assert deliveries.read_batch_nowait() == []
        reading = background.start(deliveries.read_batch())
        await settle()
        assert not reading.done()
        watcher.sure(member, [0, 2])

        assert (await reading).values == [b"1", b"3"]
        assert first is not None
        with pytest.raises(LeaseLost):
            await first.ack()
