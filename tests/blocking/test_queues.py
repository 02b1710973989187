"""Queues without an event loop: handlers in threads, and messages that any thread may settle."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import flintmq
from flintmq.client.blocking import BlockingClient, BlockingDelivery
from flintmq.errors import InvalidRequest, TopicDeleted
from flintmq.testing import ManualClock

from .conftest import Worker, advance, posix, run_script, wait_until


def publish(mq: BlockingClient, count: int) -> None:
    mq.publish_batch("jobs", [b"%d" % number for number in range(count)])


def test_a_handler_runs_in_a_bounded_number_of_threads(mq: BlockingClient) -> None:
    publish(mq, 12)
    running: set[str] = set()
    gate = threading.Event()

    def handle(message: BlockingDelivery) -> None:
        running.add(threading.current_thread().name)
        assert gate.wait(60)

    subscription = mq.subscribe("jobs", "workers")
    run = Worker(lambda: subscription.run(handle, concurrency=3))
    wait_until(lambda: len(running) == 3)
    assert mq.group_stats("jobs", "workers").settled == 0
    gate.set()
    wait_until(lambda: mq.group_stats("jobs", "workers").settled == 12)

    subscription.close()
    run.result()
    assert len(running) == 3


def test_a_handler_may_settle_the_message_itself_and_use_the_connection(
    mq: BlockingClient,
) -> None:
    publish(mq, 2)

    def handle(message: BlockingDelivery) -> None:
        mq.publish("done", message.value)
        message.ack() if message.offset else message.reject("the first")

    subscription = mq.subscribe("jobs", "workers").open()
    run = Worker(lambda: subscription.run(handle))
    wait_until(lambda: mq.group_stats("jobs", "workers").lag == 0)
    subscription.close()
    run.result()

    assert [letter.reason for letter in mq.dead_letters("jobs", "workers")] == ["the first"]
    assert mq.topic_stats("done").message_count == 2


def test_a_handler_that_raises_does_not_end_the_run(
    timed_mq: BlockingClient, clock: ManualClock
) -> None:
    publish(timed_mq, 1)
    seen: list[int] = []

    def handle(message: BlockingDelivery) -> None:
        seen.append(message.delivery_count)
        raise RuntimeError("no")

    subscription = timed_mq.subscribe("jobs", "workers").open()
    run = Worker(lambda: subscription.run(handle, retries=1, backoff=10, jitter=0))
    wait_until(lambda: timed_mq.group_stats("jobs", "workers").delayed == 1)
    advance(timed_mq, clock, 10.1)
    wait_until(lambda: timed_mq.group_stats("jobs", "workers").dead_letters == 1)
    subscription.close()
    run.result()

    assert seen == [1, 2]


def test_what_a_handler_finishes_while_its_subscription_closes_is_acked(
    mq: BlockingClient,
) -> None:
    publish(mq, 1)
    begun, gate = threading.Event(), threading.Event()

    def handle(message: BlockingDelivery) -> None:
        begun.set()
        assert gate.wait(60)

    subscription = mq.subscribe("jobs", "workers").open()
    run = Worker(lambda: subscription.run(handle))
    assert begun.wait(60)
    closing = Worker(subscription.close)
    wait_until(lambda: subscription._inner._closed)
    assert mq.poll("jobs", "workers") == []
    gate.set()
    closing.result()
    run.result()

    assert mq.group_stats("jobs", "workers").lag == 0


def test_a_handler_may_close_its_subscription(mq: BlockingClient) -> None:
    publish(mq, 3)
    subscription = mq.subscribe("jobs", "workers").open()
    run = Worker(lambda: subscription.run(lambda message: subscription.close(), concurrency=1))
    run.result()

    assert mq.group_stats("jobs", "workers").members == 0


def test_a_dead_subscription_raises_out_of_run(mq: BlockingClient) -> None:
    with mq.subscribe("jobs", "workers") as subscription:
        run = Worker(lambda: subscription.run(lambda message: None))
        mq.delete_topic("jobs")
        with pytest.raises(TopicDeleted):
            run.result()


def test_async_handlers_are_refused(mq: BlockingClient) -> None:
    async def handle(message: Any) -> None: ...

    with pytest.raises(InvalidRequest, match="a handler must be a plain function"):
        mq.subscribe("jobs", "workers").run(handle)


def test_threads_that_share_a_subscription_split_its_messages(mq: BlockingClient) -> None:
    publish(mq, 200)
    subscription = mq.subscribe("jobs", "workers").open()

    def consume() -> list[bytes]:
        mine = []
        for message in subscription:
            with message.process():
                mine.append(message.value)
        return mine

    workers = [Worker(consume) for _ in range(4)]
    wait_until(lambda: mq.group_stats("jobs", "workers").lag == 0)
    subscription.close()
    together = sorted(int(value) for worker in workers for value in worker.result())

    assert together == list(range(200))


def test_many_threads_poll_a_group(mq: BlockingClient) -> None:
    publish(mq, 500)

    def consume() -> list[bytes]:
        mine: list[bytes] = []
        while batch := mq.poll("jobs", "workers", max=7):
            mine += batch.values
            batch.ack()
        return mine

    workers = [Worker(consume) for _ in range(4)]
    together = sorted(int(value) for worker in workers for value in worker.result())

    assert together == list(range(500))
    assert mq.group_stats("jobs", "workers").lag == 0


def test_a_process_block_swallows_an_exception_and_passes_an_interrupt(
    mq: BlockingClient,
) -> None:
    publish(mq, 2)
    first, second = mq.poll("jobs", "workers")
    with first.process(backoff=60):
        raise RuntimeError("no")
    with pytest.raises(KeyboardInterrupt), second.process():
        raise KeyboardInterrupt

    (again,) = mq.poll("jobs", "workers")
    assert (again.offset, again.delivery_count) == (1, 1)


def test_what_a_poll_returns_looks_the_same(mq: BlockingClient) -> None:
    publish(mq, 2)
    batch = mq.poll("jobs", "workers")

    assert isinstance(batch, flintmq.BlockingDeliveries)
    assert repr(batch) == "BlockingDeliveries(2 messages)"
    assert batch == list(batch)
    mq.ack(iter(batch))
    assert mq.group_stats("jobs", "workers").lag == 0


@pytest.mark.slow
@posix
@pytest.mark.parametrize("ack", ["manual", "auto"])
@pytest.mark.parametrize("take", ["deliveries.read_batch(5)", "poll()"])
def test_no_message_is_lost_however_interrupts_and_messages_meet(take: str, ack: str) -> None:
    printed = run_script(f"""
        import os, random, signal, threading, time
        import flintmq

        COUNT, ACK = 2000, {ack!r}
        running = True

        with flintmq.connect_sync() as mq:
            deliveries = mq.subscribe("orders", "push", prefetch=8, ack=ACK).open()
            poll = lambda: mq.poll("orders", "pull", max=5, wait=1, ack=ACK)

            def publish():
                for number in range(COUNT):
                    mq.publish("orders", str(number))

            def interrupt():
                while running:
                    time.sleep(random.random() / 500)
                    os.kill(os.getpid(), signal.SIGINT)

            # Interrupts count only while messages are taken: in between, nothing is to be hit.
            def on_signal(number, frame):
                if taking:
                    raise KeyboardInterrupt

            taking = False
            signal.signal(signal.SIGINT, on_signal)
            threads = [threading.Thread(target=publish), threading.Thread(target=interrupt)]
            for thread in threads:
                thread.start()
            got, interrupted = [], 0

            def take():
                global taking
                taking = True
                batch = {take}
                taking = False
                return batch

            while len(got) < COUNT:
                try:
                    batch = take()
                except KeyboardInterrupt:
                    taking = False
                    interrupted += 1
                else:
                    got += map(int, batch.values)
                    assert all(message.delivery_count == 1 for message in batch)
                    batch.ack()
            running = False
            for thread in threads:
                thread.join()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            print(sorted(got) == list(range(COUNT)), interrupted > 0)
    """)

    assert printed == "True True\n"


def test_closing_waits_for_no_thread_that_only_has_the_number_of_one_that_read(
    mq: BlockingClient,
) -> None:
    publish(mq, 1)
    subscription = mq.subscribe("jobs", "workers", grace=3_600).open()
    reader = threading.Thread(target=subscription.read)
    reader.start()
    reader.join()
    gate = threading.Event()
    others = [threading.Thread(target=gate.wait, args=[60]) for _ in range(8)]
    try:
        for other in others:
            other.start()
        assert reader.ident in {other.ident for other in others}, "numbers are used again"
        Worker(subscription.close).result()  # no time passes here
    finally:
        gate.set()

    assert len(mq.poll("jobs", "workers")) == 1
