"""Reading from a broker that asks who one is, and over TLS; and that no secret is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from flintmq.access import TopicGrant
from flintmq.errors import FlintError, NotAuthenticated, PermissionDenied
from flintmq.net.server.gate import ApiKeyGate
from flintmq.net.server.key_ring import KeyRing
from flintmq.net.server.slowing import Slowing
from flintmq.net.server.tls import ServerTls
from flintmq.spark.connecting import close_lines
from flintmq.storage.key_file import KeyFile, make_key
from flintmq.testing import ManualClock
from tests.spark.brokers import ThreadedBroker
from tests.spark.readers import batch_reader, column, read_all, stream_reader
from tests.tls.throw_away import Authority

pytestmark = pytest.mark.spark


class Keyed(ThreadedBroker):
    def __init__(self, directory: Path) -> None:
        self._keys = KeyFile(directory / "keys.json")
        gate = ApiKeyGate(
            KeyRing(self._keys, clock=ManualClock()), slowing=Slowing(first_seconds=0.0)
        )
        self.gate = gate
        super().__init__(directory / "data", gate=gate)

    def key(self, name: str, **grants: str) -> str:
        """`key("billing", consume="orders.>")`."""
        entry, key = make_key(
            name,
            [TopicGrant.of(pattern, [permission]) for permission, pattern in grants.items()],
            now_ms=0,
            expires_at_ms=None,
        )
        self._keys.add(entry)
        self.run(self._reload())
        return key

    async def _reload(self) -> None:
        self.gate.refresh(at_once=True)


def secret_of(key: str) -> str:
    """What stands behind `fmq_<id>_`, and may itself hold a `_`."""
    return key.split("_", 2)[2]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Keyed]:
    broker = Keyed(tmp_path)
    yield broker
    close_lines()
    broker.end()


def test_a_key_that_may_consume_is_enough_to_read(broker: Keyed, tmp_path: Path) -> None:
    broker.publish("orders", b"1")
    key = broker.key("reader", consume="orders")
    file = tmp_path / "key"
    file.write_text(key + "\n")

    for said in ({"apiKey": key}, {"apiKeyFile": str(file)}):
        rows = read_all(batch_reader(broker.url, "value", subscribe="orders", **said))
        assert column(rows, "value") == [b"1"]


def test_a_wrong_key_and_one_that_may_not_are_told_apart_and_not_repeated(broker: Keyed) -> None:
    broker.publish("orders", b"1")
    key = broker.key("other", consume="invoices")
    wrong = key[:-4] + "oops"

    with pytest.raises(NotAuthenticated) as unknown:
        batch_reader(broker.url, subscribe="orders", apiKey=wrong).partitions()
    with pytest.raises(PermissionDenied) as denied:
        batch_reader(broker.url, subscribe="orders", apiKey=key).partitions()

    for caught in (unknown, denied):
        assert secret_of(key) not in str(caught.value)
        assert secret_of(wrong) not in str(caught.value)


def test_of_a_pattern_those_are_read_that_one_may(broker: Keyed) -> None:
    for topic in ("orders.eu", "orders.us"):
        broker.publish(topic, topic.encode())
    key = broker.key("reader", consume="orders.eu", publish="orders.us")

    rows = read_all(batch_reader(broker.url, "value", subscribePattern="orders.*", apiKey=key))

    assert column(rows, "value") == [b"orders.eu"]


def test_a_stream_with_a_key_that_may_not_delete_groups_still_pins_its_start(
    broker: Keyed,
) -> None:
    key = broker.key("reader", consume="orders")
    said = {"subscribe": "orders", "startingOffsets": "latest", "group": "q", "apiKey": key}
    broker.publish("orders", b"old")
    reader = stream_reader(broker.url, "value", **said)
    start = json.loads(json.dumps(reader.initialOffset()))
    broker.publish("orders", b"1", b"2")
    close_lines()
    assert stream_reader(broker.url, "value", **said).initialOffset() == start

    reader = stream_reader(broker.url, "value", **said)
    reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.commit(end)
    close_lines()

    # What it could not delete goes along, so nothing is held back and nothing skipped.
    assert stream_reader(broker.url, "value", **said).initialOffset() == end


def test_a_topic_is_read_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair()
    broker = ThreadedBroker(tmp_path / "data", tls=ServerTls(pair.cert, pair.key))
    try:
        broker.publish("orders", *[b"x" * 100] * 5000)

        rows = read_all(
            batch_reader(broker.url, "value", subscribe="orders", tlsCa=str(authority.file))
        )
        assert len(rows) == 5000
        with pytest.raises(FlintError, match="certificate"):
            batch_reader(broker.url, subscribe="orders").partitions()
    finally:
        close_lines()
        broker.end()


# --- what Spark shows


def plans(table: Any, capsys: pytest.CaptureFixture[str]) -> str:
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        table.explain(mode=mode)
    return capsys.readouterr().out


def shown_by_the_pages(spark: Any) -> str:
    """What the SQL page and the event log have of every query so far."""
    store = spark._jsparkSession.sharedState().statusStore()
    found = store.executionsList()
    texts = []
    for number in range(found.size()):
        execution = found.apply(number)
        texts += [execution.physicalPlanDescription(), execution.description()]
        texts.append(str(execution.modifiedConfigs()))
    return "\n".join(texts)


def test_no_key_is_in_plans_pages_events_checkpoints_and_errors(
    spark: Any,
    broker: Keyed,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    event_log: Path,
) -> None:
    broker.publish("orders", b"1")
    key = broker.key("reader", consume="orders", publish="copies")
    secret = secret_of(key)
    said = {"servers": broker.url, "subscribe": "orders", "apiKey": key}
    table = spark.read.format("flintmq").options(**said).load()
    stream = spark.readStream.format("flintmq").options(**said, startingOffsets="earliest").load()

    broker.create("copies")
    assert table.count() == 1
    writing = {"servers": broker.url, "topic": "copies", "apiKey": key, "autoCreate": "false"}
    table.select("value").write.format("flintmq").mode("append").options(**writing).save()
    query = (
        stream.select("value")
        .writeStream.format("flintmq")
        .options(**writing)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    query.explain(True)
    progress = str([dict(one) for one in query.recentProgress])
    wrong = spark.read.format("flintmq").options(**{**said, "apiKey": key + "x"}).load()
    with pytest.raises(Exception, match="NotAuthenticated") as caught:
        wrong.count()
    checkpoint = "\n".join(
        path.read_text(errors="replace")
        for path in (tmp_path / "checkpoint").rglob("*")
        if path.is_file()
    )

    pages = shown_by_the_pages(spark)
    assert "flintmq" in pages, "these are the pages that would show it"
    events = "\n".join(path.read_text() for path in event_log.iterdir())
    assert "PhysicalPlan" in events or "physicalPlanDescription" in events
    assert str(query.runId) in events, "it has what happened just now"
    for text in (
        plans(table, capsys),
        plans(stream, capsys),
        pages,
        events,
        progress,
        checkpoint,
        str(caught.value),
    ):
        assert secret not in text
