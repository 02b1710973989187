"""Messages in object storage: tasks read them there, and the broker is asked for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from flintmq.broker_api import Fetch
from flintmq.errors import ObjectStorageFailed
from flintmq.spark import far_reads
from flintmq.spark.source import FlintDataSource
from tests.spark.brokers import ThreadedBroker
from tests.spark.readers import column, read_all, schema

pytestmark = pytest.mark.spark


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadedBroker]:
    broker = ThreadedBroker(tmp_path / "data")
    yield broker
    broker.end()


def tier(broker: ThreadedBroker) -> None:
    kept = broker.broker.host.kept[0]
    for _ in range(2):
        broker.checkpoint()
        broker.run(kept.tiering.settled())


def filled(broker: ThreadedBroker, tmp_path: Path, **options: Any) -> list[bytes]:
    """2,000 messages in objects, 500 in a segment or the journal."""
    url = f"file://{tmp_path}/far"
    broker.create("orders", tier=url, local_retention_bytes=1, **options)
    values = [b"%d" % number for number in range(2500)]
    for start in range(0, 2000, 500):
        broker.publish("orders", *values[start : start + 500])
        tier(broker)
    assert list((tmp_path / "data" / "segments").iterdir()) == []
    broker.publish("orders", *values[2000:])
    return values


def reader(broker: ThreadedBroker, *columns: str, **options: str) -> Any:
    given = {"servers": broker.url, "subscribe": "orders", **options}
    return FlintDataSource(given).reader(schema(*columns))


def asked_of(broker: ThreadedBroker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets from which the broker is asked for messages."""
    asked: list[int] = []
    fetch = broker.broker.fetch

    async def noted(wanted: Fetch) -> Any:
        asked.append(wanted.offset)
        return await fetch(wanted)

    monkeypatch.setattr(broker.broker, "fetch", noted)
    return asked


def test_tasks_read_objects_and_ask_the_broker_for_the_rest(
    broker: ThreadedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = filled(broker, tmp_path)
    asked = asked_of(broker, monkeypatch)

    rows = read_all(reader(broker, "value", "offset", minPartitions="3"))

    assert column(rows, "value") == values
    assert column(rows, "offset") == list(range(2500))
    assert asked
    assert min(asked) >= 2000


def test_a_task_that_cannot_read_objects_asks_the_broker(
    broker: ThreadedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = filled(broker, tmp_path)
    asked = asked_of(broker, monkeypatch)

    class NoCredentials:
        def open(self, name: str) -> Any:
            raise ObjectStorageFailed("read", name, "Access Denied")

    monkeypatch.setattr(far_reads, "ObjectStores", NoCredentials)
    rows = read_all(reader(broker, "value"))

    assert column(rows, "value") == values
    assert min(asked) == 0


def test_what_retention_has_dropped_is_left_out_as_by_the_broker(
    broker: ThreadedBroker, tmp_path: Path
) -> None:
    filled(broker, tmp_path)
    broker.run(broker.client.purge_topic("orders", before=600))

    rows = read_all(reader(broker, "offset"))

    assert column(rows, "offset") == list(range(600, 2500))


def test_a_read_without_the_broker_reads_both_places(
    broker: ThreadedBroker, tmp_path: Path
) -> None:
    values = filled(broker, tmp_path)
    broker.stop()

    found = FlintDataSource({"path": str(broker.directory), "subscribe": "orders"})
    rows = read_all(found.reader(schema("value")))

    assert column(rows, "value") == values
