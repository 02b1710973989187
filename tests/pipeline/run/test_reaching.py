"""Brokers are asked before Spark starts: what is in the way is told at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.errors import Disconnected, InvalidRequest, TopicNotFound
from flintmq.pipeline.define.definition import FilePlace, Pipeline, Source
from flintmq.pipeline.run.reaching import reach
from tests.spark.brokers import ThreadedBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadedBroker]:
    broker = ThreadedBroker(tmp_path)
    broker.create("orders", partitions=2)
    yield broker
    broker.end()


def reading(servers: str | None, **source: Any) -> Pipeline:
    made = Source(name="s", place=FilePlace("p.toml", 7, 1), **source)
    return Pipeline(name="p", servers=servers, sources={"s": made}, steps={}, sinks={})


def test_topics_that_are_there_are_fine_and_so_are_patterns_that_match_nothing_yet(
    broker: ThreadedBroker,
) -> None:
    reach(reading(broker.url, topics=("orders",), start="latest"), {})
    reach(reading(broker.url, pattern="invoices.>"), {})
    reach(reading(None, files="anywhere"), {})


def test_a_topic_that_is_not_there_is_told_with_who_reads_it(broker: ThreadedBroker) -> None:
    with pytest.raises(TopicNotFound) as missing:
        reach(reading(broker.url, topics=("orders", "invoices")), {})

    assert str(missing.value) == (
        "topic 'invoices' does not exist; source 's' (p.toml:7:1) reads it. Publish to it first, "
        "or create it with `flintmq topic add invoices`"
    )


def test_a_broker_that_is_not_there_or_not_named_is_told() -> None:
    with pytest.raises(Disconnected):
        reach(reading("flint://127.0.0.1:1", topics=("orders",)), {})
    with pytest.raises(InvalidRequest, match="source 's' has no broker: set servers = "):
        reach(reading(None, topics=("orders",)), {})
