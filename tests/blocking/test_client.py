"""The verbs, blocking: they work, wait, time out, raise and close like the async ones."""

from __future__ import annotations

import asyncio
import gc
import threading
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import flintmq
from flintmq.client.blocking import BlockingClient, connect_sync
from flintmq.testing import ManualClock

from .conftest import Worker, advance, run_script, wait_until, wait_until_parked


def test_what_is_published_can_be_read(mq: BlockingClient) -> None:
    receipt = mq.publish("orders", b"one", key="k", headers={"region": "eu"}, priority=3)
    batch = mq.publish_batch("orders", [b"two", b"three"])
    many = mq.publish_many([("orders", b"four"), ("others", b"five")])

    assert (receipt.offset, batch.offset, batch.count) == (0, 1, 2)
    assert [one.offset for one in many] == [3, 0]
    with mq.reader("orders") as reader:
        first = reader.read()
        assert first is not None
        assert (first.value, first.key, first.headers, first.priority) == (
            b"one", "k", {"region": "eu"}, 3,
        )  # fmt: skip
        assert list(reader.read_batch(10).values) == [b"two", b"three", b"four"]
        assert reader.read_batch_nowait() == []
        assert reader.read_nowait() is None


def test_a_generator_of_values_runs_in_the_thread_that_handed_it_in(mq: BlockingClient) -> None:
    threads = set()

    def values() -> list[bytes]:
        threads.add(threading.current_thread())
        return [b"a", b"b"]

    assert mq.publish_batch("orders", (value for value in values())).count == 2
    assert threads == {threading.current_thread()}


def test_topics_are_made_changed_listed_and_removed(mq: BlockingClient) -> None:
    mq.create_topic("orders.eu", retention_count=5)
    mq.configure_topic("orders.eu", retention_count=7)
    mq.publish("orders.eu", b"x")

    assert mq.topics("orders.>") == ["orders.eu"]
    assert mq.topic_info("orders.eu").options.retention_count == 7
    assert mq.topic_stats("orders.eu").message_count == 1
    mq.delete_topic("orders.eu")
    assert mq.topics() == []


def test_a_reader_is_a_plain_iterator_that_ends_when_it_is_closed(mq: BlockingClient) -> None:
    reader = mq.reader("orders").open()
    values: list[bytes] = []

    def read_all() -> None:
        values.extend(message.value for message in reader)

    worker = Worker(read_all)
    mq.publish_batch("orders", [b"a", b"b", b"c"])
    wait_until(lambda: len(values) == 3)
    wait_until_parked(mq)
    reader.close()
    worker.result()

    assert values == [b"a", b"b", b"c"]
    assert list(reader) == []


def test_events_tell_of_what_retention_took(mq: BlockingClient) -> None:
    mq.create_topic("orders", retention_count=2)
    with mq.reader("orders") as reader:
        mq.publish_batch("orders", [b"a", b"b", b"c", b"d"])
        events = reader.events()
        gap = next(events)
        assert isinstance(gap, flintmq.Missed)
        assert gap.count == 2
        assert [next(events), next(events)] == reader_messages(mq, "orders")
        assert reader.missed == 2


def reader_messages(mq: BlockingClient, topic: str) -> list[flintmq.Message]:
    with mq.reader(topic) as reader:
        return list(reader.read_batch(timeout=0))


def test_a_named_reader_commits_and_goes_on_there(mq: BlockingClient) -> None:
    mq.publish_batch("orders", [b"a", b"b", b"c"])
    with mq.reader("orders", name="billing") as reader:
        message = reader.read()
        assert message is not None
        assert reader.commit(message) == 1
        reader.read()
        assert (reader.position(), reader.lag()) == (2, 1)
    with mq.reader("orders", name="billing") as reader:
        assert [row.offset for row in reader.read_metadata()] == [1, 2]
        reader.seek("earliest")
        assert reader.position() == 0


def test_a_live_feed_gets_what_is_published_from_now_on(mq: BlockingClient) -> None:
    mq.publish("orders.eu", b"before")
    with mq.live("orders.>", capacity=2) as feed:
        mq.publish_batch("orders.eu", [b"a", b"b", b"c"])
        assert [next(feed).value, next(feed).value] == [b"b", b"c"]
        assert feed.dropped == 1
        assert feed.read(timeout=0) is None


def test_a_reader_that_was_not_opened_says_how(mq: BlockingClient) -> None:
    with pytest.raises(flintmq.InvalidRequest, match=r"with.*open\(\)"):
        mq.reader("orders").read()


# --- time


def test_a_read_times_out_exactly_on_the_clock_of_the_connection(
    timed_mq: BlockingClient, clock: ManualClock
) -> None:
    with timed_mq.reader("orders") as reader:
        read = Worker(lambda: reader.read(timeout=timedelta(seconds=5)))
        wait_until_parked(timed_mq)
        advance(timed_mq, clock, 4.999)
        assert timed_mq._thread.waiting_calls == 1
        advance(timed_mq, clock, 0.001)
        assert read.result() is None


def test_a_publish_that_has_to_wait_times_out_like_the_async_one(
    timed_mq: BlockingClient, clock: ManualClock
) -> None:
    timed_mq.create_topic("orders", retention_count=1, overflow="block")
    timed_mq.publish("orders", b"a")
    publish = Worker(lambda: timed_mq.publish("orders", b"b", timeout=2))
    wait_until_parked(timed_mq)
    advance(timed_mq, clock, 2)

    with pytest.raises(flintmq.TopicFull, match="waited 2 s"):
        publish.result()


# --- errors


def test_an_error_is_the_async_one_and_shows_both_sides_of_the_call(mq: BlockingClient) -> None:
    with pytest.raises(flintmq.TopicNotFound) as caught:
        mq.topic_info("nothing")

    lines = "".join(traceback.format_tb(caught.value.__traceback__))
    assert "test_client.py" in lines  # who called
    assert "/engine/" in lines.replace("\\", "/")  # who raised


def test_an_error_does_not_keep_its_call_alive(mq: BlockingClient) -> None:
    class Value:
        pass

    value = Value()
    gone = weakref.ref(value)
    with pytest.raises(flintmq.FlintError):
        mq.publish("orders", b"x", headers=value)  # type: ignore[arg-type]
    del value
    gc.collect()
    assert gone() is None


def test_a_filter_that_raises_is_heard_of_by_the_reader(mq: BlockingClient) -> None:
    mq.publish_batch("orders", [b"a", b"b"])
    with mq.reader("orders", filter=lambda message: 1 // (message.offset or 0) == 1) as reader:
        with pytest.raises(flintmq.FilterFailed):
            reader.read()
        message = reader.read()
        assert message is not None
        assert message.value == b"b"


def test_even_an_exit_in_a_filter_goes_to_the_caller_and_not_to_the_thread(
    mq: BlockingClient,
) -> None:
    def leave(message: flintmq.Message) -> bool:
        raise SystemExit(3)

    mq.publish("orders", b"a")
    with mq.reader("orders", filter=leave) as reader, pytest.raises(SystemExit):
        reader.read()
    assert mq.topics() == ["orders"]


def test_a_blocking_call_inside_a_filter_is_refused_instead_of_waiting_for_itself(
    mq: BlockingClient,
) -> None:
    mq.publish("orders", b"a")
    with (
        mq.reader("orders", filter=lambda message: bool(mq.topics())) as reader,
        pytest.raises(flintmq.FilterFailed, match="would deadlock"),
    ):
        reader.read()


def test_an_unknown_url_is_refused_and_leaves_no_thread() -> None:
    with pytest.raises(flintmq.InvalidRequest, match="unknown broker URL"):
        connect_sync("carrier-pigeon://")


# --- threads and loops


def test_a_call_in_a_thread_that_runs_an_event_loop_works_and_blocks() -> None:
    async def main() -> bytes:
        with connect_sync("memory://") as mq:
            mq.publish("orders", b"a")
            with mq.reader("orders") as reader:
                message = reader.read()
                assert message is not None
                return bytes(message.value)

    assert asyncio.run(main()) == b"a"


def test_worker_threads_of_a_running_event_loop_may_use_it(mq: BlockingClient) -> None:
    async def main() -> list[int]:
        receipts = await asyncio.gather(
            *(asyncio.to_thread(mq.publish, "orders", b"x") for _ in range(20))
        )
        return sorted(receipt.offset or 0 for receipt in receipts)

    assert asyncio.run(main()) == list(range(20))


def test_many_threads_may_read_from_one_reader(mq: BlockingClient) -> None:
    mq.publish_batch("orders", [b"%d" % number for number in range(400)])
    with mq.reader("orders") as reader, ThreadPoolExecutor(8) as pool:
        messages = list(pool.map(lambda _: reader.read(timeout=0), range(400)))

    assert sorted(message.offset for message in messages if message) == list(range(400))  # type: ignore[type-var]


def test_calls_go_on_while_others_wait(mq: BlockingClient) -> None:
    with mq.reader("orders") as reader:
        reads = [Worker(reader.read) for _ in range(5)]
        wait_until_parked(mq, 5)
        assert mq.topics() == ["orders"]
        mq.publish_batch("orders", [b"x"] * 5)
        offsets = [message.offset for message in (read.result() for read in reads) if message]

    assert sorted(offsets) == list(range(5))  # type: ignore[type-var]


def test_a_call_that_let_others_run_for_a_turn_goes_on_where_it_was(mq: BlockingClient) -> None:
    offsets = [mq.publish("orders", b"x").offset for _ in range(1000)]

    assert offsets == list(range(1000))


# --- the end


def test_leaving_the_block_closes_and_calls_after_it_raise_closed() -> None:
    with connect_sync("memory://") as mq:
        reader = mq.reader("orders").open()
        publisher = mq.publisher("orders")
    with pytest.raises(flintmq.Closed, match="the connection is closed"):
        mq.publish("orders", b"x")
    with pytest.raises(flintmq.Closed):
        reader.read()
    with pytest.raises(flintmq.Closed):
        publisher.send(b"x")
    with pytest.raises(flintmq.Closed), mq:
        pass
    assert list(reader) == []
    reader.close()
    publisher.close()
    mq.close()


def test_closing_wakes_who_waits() -> None:
    mq = connect_sync("memory://")
    reader, feed = mq.reader("orders").open(), mq.live("orders").open()
    mq.create_topic("full", retention_count=1, overflow="block")
    mq.publish("full", b"x")
    waiting: list[Worker[Any]] = [
        Worker(reader.read),
        Worker(feed.read),
        Worker(lambda: mq.publish("full", b"y", timeout=None)),
    ]
    wait_until_parked(mq, 3)
    mq.close()

    for call in waiting:
        with pytest.raises(flintmq.Closed):
            call.result()


def test_many_threads_may_close_at_once() -> None:
    mq = connect_sync("memory://")
    for closing in [Worker(mq.close) for _ in range(8)]:
        closing.result()


def test_a_thread_that_dies_raises_in_everybody_who_waits_or_comes_later() -> None:
    def die() -> None:
        raise SystemExit("pulled out")

    mq = connect_sync("memory://")
    reader = mq.reader("orders").open()
    read = Worker(reader.read)
    wait_until_parked(mq)
    mq._thread.soon(die)

    with pytest.raises(flintmq.Closed, match=r"ended unexpectedly.*pulled out") as caught:
        read.result()
    assert isinstance(caught.value.__cause__, SystemExit)
    with pytest.raises(flintmq.Closed, match="ended unexpectedly"):
        mq.publish("orders", b"x")
    mq.close()


def test_a_connection_nobody_closed_ends_its_thread_when_it_is_collected() -> None:
    mq = connect_sync("memory://")
    thread = mq._thread
    reader = mq.reader("orders").open()
    del mq
    gc.collect()
    assert thread.ended is None  # the reader still holds it
    assert reader.read(timeout=0) is None
    del reader
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.slow
def test_the_blocking_api_is_loaded_when_it_is_first_asked_for() -> None:
    printed = run_script("""
        import sys, flintmq
        print("flintmq.client.blocking" in sys.modules)
        flintmq.connect_sync().close()
        print("flintmq.client.blocking" in sys.modules)
        print(hasattr(flintmq, "BlockingNonsense"))
    """)

    assert printed.split() == ["False", "True", "False"]
