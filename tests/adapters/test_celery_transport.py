"""The transport, as kombu uses it for Celery."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import TimeoutError as CeleryTimeout
from kombu import Connection, Consumer, Exchange, Producer, Queue

import flintmq
import flintmq.adapters.celery
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    with Connection(url) as connection:
        yield connection


@pytest.fixture
def mq(url: str) -> Iterator[flintmq.BlockingClient]:
    with flintmq.connect_sync(url) as mq:
        yield mq


TASKS = Queue("tasks", Exchange("tasks", type="direct"), routing_key="tasks")


def publish(connection: Any, body: Any, **said: Any) -> None:
    Producer(connection).publish(
        body, exchange=TASKS.exchange, routing_key="tasks", declare=[TASKS], **said
    )


def consumed(connection: Any, count: int, queue: Any = TASKS, **settings: Any) -> list[Any]:
    """So many messages, unacknowledged; and what comes later by `drain_events`."""
    got: list[Any] = []
    channel = connection.channel()
    consumer = Consumer(channel, [queue], on_message=got.append, **settings)
    consumer.consume()
    while len(got) < count:
        connection.drain_events(timeout=PATIENCE_SECONDS)
    return got


def nothing_comes(connection: Any) -> bool:
    with pytest.raises(socket.timeout):
        connection.drain_events(timeout=0.05)
    return True


def test_a_message_is_consumed_and_acknowledged(connection: Any, mq: Any) -> None:
    publish(connection, {"id": 1})

    (message,) = consumed(connection, 1)
    assert message.payload == {"id": 1}
    assert not message.delivery_info["redelivered"]
    assert mq.group_stats("tasks", "celery").in_flight == 1
    message.ack()
    connection.close()
    assert mq.group_stats("tasks", "celery").lag == 0


def test_a_higher_priority_comes_first_and_more_than_seven_is_seven(connection: Any) -> None:
    for number, priority in enumerate([0, 3, 9, 6]):
        publish(connection, number, priority=priority)

    assert [one.payload for one in consumed(connection, 4)] == [2, 3, 1, 0]


def test_what_has_an_eta_waits_in_the_broker(connection: Any, mq: Any) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    publish(connection, "later", headers={"eta": later.isoformat()})
    publish(connection, "now", headers={"eta": datetime.now(UTC).isoformat()})

    (message,) = consumed(connection, 1)
    assert message.payload == "now"
    assert nothing_comes(connection)
    assert mq.group_stats("tasks", "celery").delayed == 1


def test_what_is_rejected_is_a_dead_letter_and_what_is_requeued_comes_again(
    connection: Any, mq: Any
) -> None:
    publish(connection, "x")
    got = consumed(connection, 1)
    got[0].requeue()
    connection.drain_events(timeout=PATIENCE_SECONDS)
    again = got[1]
    assert again.delivery_info["redelivered"]
    again.reject()

    (letter,) = mq.dead_letters("tasks", "celery")
    assert letter.reason == "rejected by its consumer"


def test_what_a_consumer_leaves_goes_to_the_next_and_is_not_counted(url: str, mq: Any) -> None:
    with Connection(url) as first:
        publish(first, "x")
        consumed(first, 1)
    with Connection(url) as second:
        (message,) = consumed(second, 1)
        assert not message.delivery_info["redelivered"]


def test_no_more_is_taken_than_the_consumer_wants(connection: Any, mq: Any) -> None:
    for number in range(5):
        publish(connection, number)

    first, _ = consumed(connection, 2, prefetch_count=2)
    assert nothing_comes(connection)
    assert mq.group_stats("tasks", "celery").in_flight == 2
    first.ack()
    connection.drain_events(timeout=PATIENCE_SECONDS)


def test_nothing_that_is_not_done_is_dropped_for_room(connection: Any, mq: Any) -> None:
    publish(connection, "x")

    assert mq.topic_info("tasks").options.keep_until_settled
    assert [one.name for one in mq.groups("tasks")] == ["celery"]


def test_a_topic_that_was_made_otherwise_is_used_as_it_is(connection: Any, mq: Any) -> None:
    mq.create_topic("tasks", max_deliveries=1, partitions=2)
    publish(connection, "x")

    (message,) = consumed(connection, 1)
    message.ack()


def test_a_fanout_exchange_reaches_everybody_who_is_there(url: str) -> None:
    everybody = Exchange("news", type="fanout")
    with Connection(url) as one, Connection(url) as two, Connection(url) as sender:
        got: list[Any] = []
        for connection, name in ((one, "a"), (two, "b")):
            queue = Queue(name, everybody, auto_delete=True)
            Consumer(connection, [queue], no_ack=True, on_message=got.append).consume()
        Producer(sender).publish("hello", exchange=everybody, declare=[everybody])
        one.drain_events(timeout=PATIENCE_SECONDS)
        two.drain_events(timeout=PATIENCE_SECONDS)

    assert [message.payload for message in got] == ["hello", "hello"]


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_what_one_process_has_bound_another_one_finds(url: str, kind: str) -> None:
    exchange = Exchange("replies", type=kind)
    with Connection(url) as asker, Connection(url) as answerer:
        got: list[Any] = []
        queue = Queue("answers", exchange, routing_key="to.me", auto_delete=True)
        Consumer(asker, [queue], no_ack=True, on_message=got.append).consume()
        producer = Producer(answerer)
        producer.publish("yes", exchange=exchange, routing_key="to.me", declare=[exchange])
        producer.publish("no", exchange=exchange, routing_key="to.you", declare=[exchange])
        asker.drain_events(timeout=PATIENCE_SECONDS)
        assert nothing_comes(asker)

    assert [message.payload for message in got] == ["yes"]


def test_queues_can_be_counted_purged_and_deleted(connection: Any, mq: Any) -> None:
    for number in range(3):
        publish(connection, number)
    queue = TASKS(connection)

    assert queue.queue_declare(passive=True).message_count == 3
    assert queue.purge() == 3
    assert queue.queue_declare(passive=True).message_count == 0
    queue.delete()
    assert "tasks" not in mq.topics()


def test_a_broker_that_is_not_there_is_an_error_that_kombu_knows() -> None:
    connection = Connection("flint://127.0.0.1:1", transport_options={"timeout": 0.05})
    with pytest.raises(connection.connection_errors):
        connection.connect()


# --- results


@pytest.fixture
def apps(url: str) -> Iterator[list[Any]]:
    apps = [Celery(name, broker=url, backend=url, set_as_current=False) for name in "ab"]
    yield apps
    for app in apps:
        app.backend._shared.leave()


def test_a_result_is_found_by_every_process_and_forgotten_on_request(apps: list[Any]) -> None:
    one, other = apps
    one.backend.store_result("t1", {"total": 7}, "SUCCESS")

    result = other.AsyncResult("t1")
    assert result.get(timeout=PATIENCE_SECONDS) == {"total": 7}
    assert other.AsyncResult("t2").state == "PENDING"
    with pytest.raises(CeleryTimeout):
        other.AsyncResult("t2").get(timeout=0.01)
    result.forget()
    one.backend.store_result("t2", ValueError("no"), "FAILURE")
    with pytest.raises(ValueError, match="no"):
        other.AsyncResult("t2").get(timeout=PATIENCE_SECONDS)
    assert other.AsyncResult("t1").state == "PENDING"
