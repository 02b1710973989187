"""The blocking publisher: cheap sends from many threads, whole batches to the loop."""

from __future__ import annotations

import threading

import pytest

import flintmq
from flintmq.client.blocking import BlockingClient, connect_sync
from flintmq.client.blocking.publisher import HANDED_OVER_MAX
from flintmq.client.publisher import BATCH_ROWS_MAX
from flintmq.testing import ManualClock

from .conftest import Worker, advance, wait_until, wait_until_parked


def values_of(mq: BlockingClient, topic: str) -> list[bytes]:
    values: list[bytes] = []
    with mq.reader(topic) as reader:
        while rows := reader.read_batch(timeout=0):
            values.extend(rows.values)
    return values


def test_what_is_sent_is_published_in_order_with_its_options(mq: BlockingClient) -> None:
    with mq.publisher("orders") as publisher:
        for number in range(2500):
            publisher.send(b"%d" % number, key=str(number), headers={"n": str(number)})
        publisher.flush()
        assert (publisher.sent, publisher.acknowledged) == (2500, 2500)
        assert publisher.last_receipt is not None
    with mq.reader("orders") as reader:
        rows = reader.read_batch(2500)
        assert rows.keys == [str(number) for number in range(2500)]
        assert rows[2499].headers == {"n": "2499"}


def test_without_linger_a_message_goes_out_by_itself(mq: BlockingClient) -> None:
    publisher = mq.publisher("orders")
    with mq.reader("orders") as reader:
        publisher.send(b"x")
        message = reader.read()
        assert message is not None


def test_linger_counts_on_the_clock_of_the_connection(
    timed_mq: BlockingClient, clock: ManualClock
) -> None:
    publisher = timed_mq.publisher("orders", linger=2)
    publisher.send(b"a")
    advance(timed_mq, clock, 1.9)
    publisher.send(b"b")
    assert timed_mq.topics() == []
    advance(timed_mq, clock, 0.1)
    assert timed_mq.topic_stats("orders").message_count == 2


def test_each_batch_lingers_for_itself(timed_mq: BlockingClient, clock: ManualClock) -> None:
    publisher = timed_mq.publisher("orders", linger=2)
    publisher.send(b"a")
    advance(timed_mq, clock, 1.5)
    for _ in range(BATCH_ROWS_MAX):
        publisher.send(b"b")  # the first batch is full, a second begins
    advance(timed_mq, clock, 1.9)
    assert timed_mq.topic_stats("orders").message_count == BATCH_ROWS_MAX
    advance(timed_mq, clock, 0.1)
    assert timed_mq.topic_stats("orders").message_count == BATCH_ROWS_MAX + 1


def test_a_batch_that_is_open_while_the_loop_catches_up_still_goes_out_in_time(
    timed_mq: BlockingClient, clock: ManualClock
) -> None:
    publisher = timed_mq.publisher("orders", linger=2)
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go_on.wait(60)

    timed_mq._thread.soon(hold)
    held.wait(60)
    batches = HANDED_OVER_MAX + 1

    def send() -> None:
        for _ in range(batches * BATCH_ROWS_MAX + 1):
            publisher.send(b"x")

    sending = Worker(send)
    wait_until(lambda: len(publisher._gathering.full) > HANDED_OVER_MAX)
    assert not sending.is_done()  # it waits for the loop rather than to pile up more
    go_on.set()
    sending.result()
    advance(timed_mq, clock, 2)
    assert timed_mq.topic_stats("orders").message_count == batches * BATCH_ROWS_MAX + 1


def test_the_loop_hears_of_batches_and_not_of_messages(mq: BlockingClient) -> None:
    publisher = mq.publisher("orders", linger=60)
    woken: list[object] = []
    soon = mq._thread.soon

    def count(function: object) -> None:
        woken.append(function)
        soon(function)  # type: ignore[arg-type]

    mq._thread.soon = count  # type: ignore[method-assign]
    for _ in range(3 * BATCH_ROWS_MAX):
        publisher.send(b"x")
    mq._thread.soon = soon  # type: ignore[method-assign]
    publisher.flush()

    assert len(woken) == 6  # each batch begins and ends
    assert publisher.acknowledged == 3 * BATCH_ROWS_MAX


def test_several_threads_may_send_and_each_keeps_its_order(mq: BlockingClient) -> None:
    with mq.publisher("orders") as publisher:

        def send(name: int) -> None:
            for number in range(2000):
                publisher.send(b"%d %d" % (name, number))

        for worker in [Worker(lambda name=name: send(name)) for name in range(4)]:  # type: ignore[misc]
            worker.result()
    values = values_of(mq, "orders")
    assert len(values) == 8000
    for name in range(4):
        ours = [value for value in values if value.startswith(b"%d " % name)]
        assert ours == [b"%d %d" % (name, number) for number in range(2000)]


def test_a_bad_message_is_refused_at_once_and_the_others_go_out(mq: BlockingClient) -> None:
    with mq.publisher("orders") as publisher:
        publisher.send(b"a")
        with pytest.raises(flintmq.InvalidRequest):
            publisher.send(b"b", priority=99)
        publisher.send(b"c")
    assert values_of(mq, "orders") == [b"a", b"c"]


def test_flush_raises_for_what_was_not_published(mq: BlockingClient) -> None:
    mq.create_topic("orders", retention_count=1, overflow="reject")
    publisher = mq.publisher("orders", linger=60)
    publisher.send(b"a")
    publisher.flush()
    publisher.send(b"b")
    with pytest.raises(flintmq.TopicFull) as caught:
        publisher.flush()
    assert "1 messages sent to 'orders' were not published" in caught.value.__notes__


def test_the_error_of_the_block_goes_before_the_error_of_the_flush(mq: BlockingClient) -> None:
    mq.create_topic("orders", retention_count=1, overflow="reject")

    def fail() -> None:
        with mq.publisher("orders", linger=60) as publisher:
            publisher.send(b"a")
            publisher.send(b"b")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_a_closed_publisher_refuses(mq: BlockingClient) -> None:
    with mq.publisher("orders", linger=60) as publisher:
        publisher.send(b"a")
    with pytest.raises(flintmq.Closed):
        publisher.send(b"b")
    assert values_of(mq, "orders") == [b"a"]


def test_closing_the_connection_flushes_its_publishers(clock: ManualClock) -> None:
    mq = connect_sync("memory://", clock=clock)
    mq.create_topic("orders", retention_count=1, overflow="block")
    publisher = mq.publisher("orders", linger=60)
    reader = mq.reader("orders").open()
    publisher.send(b"c")
    publisher.flush()
    publisher.send(b"d")
    close = Worker(mq.close)  # waits: c is still to be read
    wait_until_parked(mq)
    message = reader.read()
    assert message is not None
    assert message.value == b"c"
    close.result()
    assert publisher.acknowledged == 2


def test_a_send_inside_a_value_of_the_same_publisher_is_refused(mq: BlockingClient) -> None:
    publisher = mq.publisher("orders", linger=60)

    class Headers(dict[str, str]):
        def items(self) -> object:  # type: ignore[override]
            publisher.send(b"inner")
            return super().items()

    with pytest.raises(flintmq.InvalidRequest, match="same publisher"):
        publisher.send(b"outer", headers=Headers(a="b"))


class Interrupt(BaseException):
    pass


def test_a_send_that_is_interrupted_half_way_leaves_no_half_row(mq: BlockingClient) -> None:
    publisher = mq.publisher("orders", linger=60)
    publisher.send(b"a", key="first")

    class Trap(str):
        """Raises where the row has been put down in part: the content type comes after the key."""

        def __bool__(self) -> bool:
            raise Interrupt

    with pytest.raises(Interrupt):
        publisher.send(b"b", key="second", content_type=Trap("text/plain"))
    publisher.send(b"c")
    publisher.flush()
    with mq.reader("orders") as reader:
        rows = reader.read_batch()
        assert list(rows.values) == [b"a", b"c"]
        assert rows.keys == ["first", None]
