"""How far a flow is behind is what the broker has now, not what it had when a micro-batch began."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.pipeline.define.definition import Pipeline, Sink, Source
from flintmq.pipeline.define.flows import Flow
from flintmq.pipeline.run.standing import Lag
from flintmq.spark.offsets import TopicPosition
from tests.spark.brokers import ThreadedBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadedBroker]:
    broker = ThreadedBroker(tmp_path / "data")
    yield broker
    broker.end()


def lag_of(broker: ThreadedBroker, source: Source) -> Lag:
    sink = Sink(name="out", takes="orders", console=True)
    pipeline = Pipeline(
        name="p", servers=broker.url, sources={"orders": source}, steps={}, sinks={"out": sink}
    )
    flow = Flow(pipeline="p", name="out", sink=sink, tables=("orders",), sources=("orders",))
    return Lag(pipeline, flow, {})


def answered(lag: Lag) -> int | None:
    """On a busy machine the broker may take longer than anybody waits for a figure."""
    return next((behind for _ in range(60) if (behind := lag.behind([])) is not None), None)


def test_it_counts_what_came_meanwhile_and_what_no_position_speaks_of(
    broker: ThreadedBroker,
) -> None:
    broker.publish("orders.eu", *[b"x"] * 10)
    (eu,) = broker.run(broker.broker.extents("orders.eu", None))
    lag = lag_of(broker, Source(name="orders", pattern="orders.>"))
    standing = [{"orders.eu": TopicPosition(eu.id, {0: 4})}]

    assert lag.behind(standing) == 6
    broker.publish("orders.eu", *[b"x"] * 5)
    broker.publish("orders.us", *[b"x"] * 3)
    assert lag.behind(standing) == 11 + 3
    lag.close()


@pytest.mark.slow
def test_of_a_broker_that_is_away_nothing_is_said_until_it_is_back(broker: ThreadedBroker) -> None:
    broker.publish("orders", *[b"x"] * 10)
    lag = lag_of(broker, Source(name="orders", topics=("orders",)))
    assert answered(lag) == 10

    broker.stop()
    assert lag.behind([]) is None
    broker.start()
    assert answered(lag) == 10
    lag.close()


def test_of_files_nobody_knows(broker: ThreadedBroker) -> None:
    assert lag_of(broker, Source(name="orders", files="somewhere")).behind([]) is None
