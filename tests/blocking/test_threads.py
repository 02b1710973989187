"""Eight threads publish and eight read: nothing is lost, nothing hangs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from benchmarks.blocking_threads import Outcome, run_messages, run_seconds
from flintmq.client.blocking import BlockingClient, connect_sync
from flintmq.engine import broker

from .conftest import Worker


def check(outcome: Outcome) -> None:
    assert outcome.faults == []
    # The four that share a name split the messages; each of the other four gets them all.
    assert outcome.delivered == 5 * sum(outcome.published)


@pytest.mark.slow
def test_eight_publish_and_eight_read_and_nothing_is_lost() -> None:
    check(run_messages(1000))


@pytest.mark.slow
def test_eight_publish_and_eight_read_for_longer() -> None:
    check(run_seconds(4))


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingClient]:
    """A connection whose broker keeps little of what it has decoded."""
    monkeypatch.setattr(broker, "DECODE_CACHE_BYTES", 300_000)
    with connect_sync("memory://") as client:
        yield client


@pytest.mark.slow
def test_rows_may_be_looked_at_in_several_threads_at_once(
    forgetful: BlockingClient, request: pytest.FixtureRequest
) -> None:
    """The loop goes on, and other readers decode the same batches, while a thread looks at rows."""
    mq = forgetful
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    request.addfinalizer(lambda: sys.setswitchinterval(interval))
    payload = b"x" * 200
    for number in range(40):
        values = [b"%d %d " % (number, row) + payload for row in range(500)]
        mq.publish_batch("orders", values, batch_compression="lz4" if number % 2 else "none")

    def look() -> int:
        seen = 0
        with mq.reader("orders") as reader:
            for _ in range(3):
                reader.seek("earliest")
                while rows := reader.read_batch(300, timeout=0):
                    for message in rows:
                        assert message.value.endswith(payload)
                        seen += 1
        return seen

    workers = [Worker(look) for _ in range(4)]
    assert [worker.result() for worker in workers] == [3 * 40 * 500] * 4


def test_connections_come_and_go_without_leaving_threads() -> None:
    before = threading.active_count()
    for _ in range(30):
        with connect_sync("memory://") as mq:
            mq.publish("orders", b"x")
    assert threading.active_count() <= before
