"""Waiting until something was consumed: neither too early nor for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest

import flintmq
from flintmq.client.blocking import BlockingClient, connect_sync
from flintmq.testing import ManualClock, advance_sync, settle, wait_consumed, wait_consumed_sync
from tests.conftest import Background


async def _consume(mq: flintmq.Client, got: list[bytes], name: str | None = "n") -> None:
    async with mq.reader("orders", name=name) as reader:
        async for message in reader:
            got.append(message.value)


async def test_it_returns_when_everything_was_handed_out(
    flint: flintmq.Client, background: Background
) -> None:
    got: list[bytes] = []
    await flint.publish_batch("orders", [b"%d" % n for n in range(500)])
    background.start(_consume(flint, got))
    await wait_consumed(flint, "orders", name="n")
    assert len(got) == 500


async def test_what_a_consumer_does_with_the_last_message_is_done_too(
    flint: flintmq.Client, background: Background
) -> None:
    done: list[bytes] = []

    async def consume() -> None:
        async with flint.reader("orders", name="n") as reader:
            async for message in reader:
                await flint.publish("results", message.value)
                await asyncio.sleep(0)
                done.append(message.value)

    background.start(consume())
    await flint.publish("orders", b"x")
    await wait_consumed(flint, "orders", name="n")
    assert done == [b"x"]


@pytest.mark.parametrize("partitions", [None, 4])
async def test_it_waits_while_somebody_of_the_name_has_something_left(
    flint: flintmq.Client, background: Background, partitions: int | None
) -> None:
    await flint.create_topic("orders", partitions=partitions)
    async with flint.reader("orders", name="n") as reader:
        for n in range(3):
            await flint.publish("orders", b"%d" % n)
        waiting = await background.waiting(wait_consumed(flint, "orders", name="n"))
        await reader.read_batch(2)
        await settle()
        assert not waiting.done()
        await reader.read()
        await waiting


async def test_a_name_that_is_not_there_yet_and_a_missing_topic_are_waited_for(
    flint: flintmq.Client, background: Background
) -> None:
    waiting = await background.waiting(wait_consumed(flint, "orders", name="n"))
    await flint.publish("orders", b"x")
    await settle()
    assert not waiting.done()
    async with flint.reader("orders", name="n") as reader:
        await reader.read()
        await waiting


async def test_other_names_do_not_matter(flint: flintmq.Client) -> None:
    await flint.publish("orders", b"x")
    async with flint.reader("orders", name="slow"), flint.reader("orders", name="n") as reader:
        await reader.read()
        await wait_consumed(flint, "orders", name="n", timeout=0)


async def test_without_a_name_everybody_is_waited_for(
    flint: flintmq.Client, background: Background
) -> None:
    await flint.publish("orders", b"x")
    async with flint.reader("orders") as one, flint.reader("orders", name="n") as other:
        await one.read()
        waiting = await background.waiting(wait_consumed(flint, "orders"))
        await other.read()
        await waiting


async def test_consumers_that_need_real_time_are_waited_for(
    flint: flintmq.Client, background: Background
) -> None:
    await flint.publish("orders", b"x")
    beside = threading.Event()

    async def consume() -> None:
        async with flint.reader("orders", name="n") as reader:
            await asyncio.to_thread(beside.wait, 10)
            await reader.read()
            await reader.commit()

    background.start(consume())
    waiting = await background.waiting(wait_consumed(flint, "orders", name="n"))
    beside.set()
    await waiting


async def test_a_name_that_closes_without_a_commit_has_it_all_to_read_again(
    flint: flintmq.Client,
) -> None:
    await flint.publish("orders", b"x")
    async with flint.reader("orders", name="n") as reader:
        await reader.read()
        await wait_consumed(flint, "orders", name="n", timeout=0)
    with pytest.raises(TimeoutError, match="'n' has 1 still to read"):
        await wait_consumed(flint, "orders", name="n", timeout=0)


async def test_when_the_time_is_up_the_error_says_who_has_how_much_left(
    flint: flintmq.Client,
) -> None:
    with pytest.raises(TimeoutError, match="topic 'orders' does not exist"):
        await wait_consumed(flint, "orders", timeout=0)
    await flint.publish_batch("orders", [b"x"] * 3)
    with pytest.raises(TimeoutError, match="nobody reads 'orders'"):
        await wait_consumed(flint, "orders", timeout=0)
    async with flint.reader("orders", name="slow"):
        with pytest.raises(TimeoutError, match="of 'orders' 'slow' has 3 still to read"):
            await wait_consumed(flint, "orders", name="slow", timeout=0)
        with pytest.raises(TimeoutError, match=r"as 'fast'; readers are \['slow'\]"):
            await wait_consumed(flint, "orders", name="fast", timeout=0)


async def test_an_error_of_the_connection_is_not_waited_out(flint: flintmq.Client) -> None:
    await flint.close()
    with pytest.raises(flintmq.Closed):
        await wait_consumed(flint, "orders")


# --- blocking


def test_blocking_tests_wait_and_move_time_in_the_connections_thread(
    flint_sync: BlockingClient,
) -> None:
    got: list[bytes] = []

    def consume() -> None:
        with flint_sync.reader("orders", name="n") as reader:
            message = reader.read(timeout=60)
            assert message is not None
            got.append(message.value)
            assert reader.read(timeout=60) is None

    worker = threading.Thread(target=consume)
    worker.start()
    flint_sync.publish("orders", b"x")
    wait_consumed_sync(flint_sync, "orders", name="n")
    while worker.is_alive():
        advance_sync(flint_sync, 60)
    assert got == [b"x"]


def test_a_blocking_wait_ends_in_time_too(flint_sync: BlockingClient) -> None:
    with pytest.raises(TimeoutError, match="does not exist"):
        wait_consumed_sync(flint_sync, "orders", timeout=0)


def test_real_time_cannot_be_moved() -> None:
    with connect_sync("memory://") as mq, pytest.raises(flintmq.InvalidRequest, match="real"):
        advance_sync(mq, 1)


# --- the clock


async def test_the_clock_stands_still_and_is_moved_exactly() -> None:
    clock = ManualClock(start_ms=5000)
    assert (clock.now_ms(), clock.monotonic()) == (5000, 0.0)
    await clock.advance(1.25)
    assert (clock.now_ms(), clock.monotonic()) == (6250, 1.25)


async def test_what_falls_due_on_the_way_happens_in_order_and_at_its_own_time() -> None:
    clock = ManualClock(start_ms=0)
    seen: list[tuple[str, int]] = []
    clock.call_later(3, lambda: seen.append(("c", clock.now_ms())))
    clock.call_later(1, lambda: seen.append(("a", clock.now_ms())))
    clock.call_later(1, lambda: seen.append(("b", clock.now_ms())))
    clock.call_later(2, lambda: clock.call_later(0.5, lambda: seen.append(("x", clock.now_ms()))))
    clock.call_later(9, lambda: seen.append(("late", clock.now_ms())))
    clock.call_later(1, lambda: seen.append(("never", clock.now_ms()))).cancel()
    await clock.advance(3)
    assert seen == [("a", 1000), ("b", 1000), ("x", 2500), ("c", 3000)]
    assert clock.pending() == 1


async def test_a_group_has_consumed_what_it_has_settled(flint: flintmq.Client) -> None:
    await flint.publish_batch("jobs", [b"1", b"2"])
    first, second = await flint.poll("jobs", "workers")
    await first.ack()
    with pytest.raises(TimeoutError, match="'workers' has 1 still to read"):
        await wait_consumed(flint, "jobs", name="workers", timeout=0.01)

    await second.reject("no")
    await wait_consumed(flint, "jobs", name="workers", timeout=0.01)
