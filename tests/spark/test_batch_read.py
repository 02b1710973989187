"""A batch read against a real broker: what Spark would be handed, without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from flintmq.errors import (
    Disconnected,
    InvalidRequest,
    MessagesLost,
    TopicNotFound,
    TopicReplaced,
)
from flintmq.spark.connecting import close_lines
from tests.spark.brokers import ThreadedBroker
from tests.spark.readers import batch_reader, column, read_all, schema

pytestmark = pytest.mark.spark


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadedBroker]:
    broker = ThreadedBroker(tmp_path / "data")
    yield broker
    close_lines()
    broker.end()


def test_every_column_of_a_message_is_read(broker: ThreadedBroker) -> None:
    before = datetime.now(UTC)
    broker.publish(
        "orders",
        b"one",
        b"two",
        key=["a", None],
        headers=[{"region": "eu", "raw": b"\xff"}, None],
        priority=[7, 0],
        content_type=["text/plain", None],
    )

    rows = read_all(batch_reader(broker.url, subscribe="orders", includeHeaders="true"))

    assert column(rows, "key") == [b"a", None]
    assert column(rows, "value") == [b"one", b"two"]
    assert column(rows, "topic") == ["orders", "orders"]
    assert column(rows, "partition") == [0, 0]
    assert column(rows, "offset") == [0, 1]
    assert column(rows, "priority") == [7, 0]
    assert column(rows, "content_type") == ["text/plain", None]
    assert column(rows, "headers") == [
        [{"key": "region", "value": b"eu"}, {"key": "raw", "value": b"\xff"}],
        [],
    ]
    assert all(abs((row["timestamp"] - before).total_seconds()) < 30 for row in rows)


def test_arrow_batches_have_exactly_the_schema_that_spark_demands(broker: ThreadedBroker) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    broker.publish("orders", b"one", key="a", headers={"h": "v"}, content_type="text/plain")
    broker.publish("orders", b"two")
    reader = batch_reader(broker.url, subscribe="orders", includeHeaders="true")

    batches = [batch for part in reader.partitions() for batch in reader.read(part)]

    assert [batch.schema for batch in batches] == [to_arrow_schema(schema(), timezone="UTC")]
    assert [batch.num_rows for batch in batches] == [2]


def test_a_schema_of_ones_own_brings_those_columns_alone(broker: ThreadedBroker) -> None:
    broker.publish("orders", b"one", b"two")

    rows = read_all(batch_reader(broker.url, "offset", "value", subscribe="orders"))

    assert rows == [{"offset": 0, "value": b"one"}, {"offset": 1, "value": b"two"}]


def test_a_column_that_is_not_there_and_a_type_that_does_not_fit_are_named(
    broker: ThreadedBroker,
) -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType

    from flintmq.spark.source import FlintDataSource

    source = FlintDataSource({"servers": broker.url, "subscribe": "orders"})

    with pytest.raises(InvalidRequest, match="no column 'amount'"):
        source.reader(StructType([StructField("amount", IntegerType())]))
    with pytest.raises(InvalidRequest, match="'offset' has the type bigint"):
        source.reader(StructType([StructField("offset", IntegerType())]))


def test_a_value_may_be_asked_for_as_text(broker: ThreadedBroker) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    from flintmq.spark.source import FlintDataSource

    broker.publish("orders", "grün".encode())
    broker.publish("bytes", b"\xff")
    text = StructType([StructField("value", StringType())])

    def read(topic: str) -> list[dict[str, Any]]:
        return read_all(FlintDataSource({"servers": broker.url, "subscribe": topic}).reader(text))

    assert read("orders") == [{"value": "grün"}]
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        read("bytes")


def test_small_batches_are_joined_and_large_topics_split(broker: ThreadedBroker) -> None:
    for first in range(0, 25_000, 500):
        broker.publish("orders", *[b"%d" % number for number in range(first, first + 500)])
    reader = batch_reader(broker.url, "offset", "value", subscribe="orders", minPartitions="2")

    parts = reader.partitions()
    sizes = [[batch.num_rows for batch in reader.read(part)] for part in parts]
    rows = read_all(reader)

    assert [sum(of_task) for of_task in sizes] == [12_500, 12_500]
    assert all(size >= 10_000 for of_task in sizes for size in of_task[:-1])
    assert column(rows, "offset") == list(range(25_000))
    assert column(rows, "value") == [b"%d" % number for number in range(25_000)]


def test_large_messages_are_handed_over_before_they_fill_the_memory(broker: ThreadedBroker) -> None:
    large = bytes(2 * 1024 * 1024)
    for _ in range(3):
        broker.publish("orders", *[large] * 6)
    reader = batch_reader(broker.url, "offset", "value", subscribe="orders")

    (part,) = reader.partitions()
    batches = list(reader.read(part))

    assert len(batches) >= 2
    assert [row for batch in batches for row in batch.column("offset").to_pylist()] == [*range(18)]
    assert all(len(value) == len(large) for value in batches[0].column("value").to_pylist())


def test_a_message_that_is_larger_than_a_reply_comes_through(broker: ThreadedBroker) -> None:
    sizes = [1, 9 * 1024 * 1024, 2]
    broker.create("orders", max_message_bytes=16 * 1024 * 1024)
    for size in sizes:
        broker.publish("orders", bytes(size))

    rows = read_all(batch_reader(broker.url, "value", subscribe="orders"))

    assert [len(value) for value in column(rows, "value")] == sizes


def test_small_topics_share_a_task(broker: ThreadedBroker) -> None:
    for number in range(20):
        broker.publish(f"orders.{number}", b"one")

    reader = batch_reader(broker.url, "topic", subscribePattern="orders.*")

    assert len(reader.partitions()) == 1
    assert sorted(column(read_all(reader), "topic")) == sorted(f"orders.{n}" for n in range(20))


def test_partitions_of_a_topic_are_one_table(broker: ThreadedBroker) -> None:
    broker.create("orders", partitions=3)
    for number in range(3):
        broker.publish("orders", b"a", b"b", partition=number)

    rows = read_all(batch_reader(broker.url, "topic", "partition", "offset", subscribe="orders"))

    assert sorted((row["topic"], row["partition"], row["offset"]) for row in rows) == [
        ("orders", partition, offset) for partition in range(3) for offset in range(2)
    ]


def test_offsets_are_said_by_topic_and_partition(broker: ThreadedBroker) -> None:
    broker.publish("orders", *[b"x"] * 10)

    def offsets(start: str, end: str) -> list[int]:
        reader = batch_reader(
            broker.url, "offset", subscribe="orders", startingOffsets=start, endingOffsets=end
        )
        return column(read_all(reader), "offset")

    assert offsets('{"orders": {"0": 3}}', '{"orders": {"0": 6}}') == [3, 4, 5]
    assert offsets('{"orders": {"0": -2}}', '{"orders": {"0": -1}}') == list(range(10))
    assert offsets("earliest", "latest") == list(range(10))
    with pytest.raises(InvalidRequest, match="partition 0 of 'orders' is missing"):
        offsets('{"orders": {}}', "latest")
    with pytest.raises(InvalidRequest, match="beyond its end"):
        offsets('{"orders": {"0": 11}}', "latest")


def test_times_say_where_to_begin_and_end(broker: ThreadedBroker) -> None:
    broker.publish("orders", b"early")
    first = read_all(batch_reader(broker.url, subscribe="orders"))[0]["timestamp"]
    millisecond = first.timestamp() * 1000
    while datetime.now(UTC).timestamp() * 1000 < millisecond + 2:
        pass
    broker.publish("orders", b"late")
    border = str(round(millisecond) + 1)

    def values(**options: str) -> list[bytes]:
        return column(
            read_all(batch_reader(broker.url, "value", subscribe="orders", **options)), "value"
        )

    assert values(startingTimestamp=border) == [b"late"]
    assert values(endingTimestamp=border) == [b"early"]


def test_a_filter_is_evaluated_in_the_broker(broker: ThreadedBroker) -> None:
    broker.publish(
        "orders",
        *[{"amount": number} for number in range(1000)],
        priority=[number % 8 for number in range(1000)],
    )

    def offsets(filter: str) -> list[int]:
        reader = batch_reader(broker.url, "offset", subscribe="orders", filter=filter)
        return column(read_all(reader), "offset")

    assert offsets("priority == 5") == list(range(5, 1000, 8))
    assert offsets("value.amount >= 998 or value.amount == 3") == [3, 998, 999]
    assert offsets("value.amount < 0") == []


def test_a_filter_that_hardly_ever_passes_is_looked_through_to_the_end(
    broker: ThreadedBroker,
) -> None:
    for _ in range(50):
        broker.publish("orders", *[b"x"] * 1000)
    broker.publish("orders", b"found", priority=7)

    reader = batch_reader(broker.url, "offset", subscribe="orders", filter="priority == 7")

    assert column(read_all(reader), "offset") == [50_000]


def test_compressed_batches_are_read(broker: ThreadedBroker) -> None:
    values = [b"%d" % number * 50 for number in range(2000)]
    broker.publish("orders", *values, batch_compression="zstd", key="k")

    rows = read_all(batch_reader(broker.url, "key", "value", subscribe="orders"))

    assert column(rows, "value") == values
    assert set(column(rows, "key")) == {b"k"}


def test_expired_messages_are_left_out_unless_asked_for(broker: ThreadedBroker) -> None:
    broker.publish("orders", b"gone", b"stays", b"also", ttl=[0.001, None, 3600])
    while read_all(batch_reader(broker.url, "value", subscribe="orders"))[0]["value"] == b"gone":
        pass

    left = read_all(batch_reader(broker.url, "value", "offset", subscribe="orders"))

    assert column(left, "value") == [b"stays", b"also"]
    assert column(left, "offset") == [1, 2]


def test_expired_messages_that_are_still_there_can_be_asked_for(broker: ThreadedBroker) -> None:
    # The first one lives, so what expires behind it is not dropped from the log.
    broker.publish("orders", b"stays", b"gone", ttl=[3600, 0.001])
    while len(read_all(batch_reader(broker.url, "value", subscribe="orders"))) == 2:
        pass

    reader = batch_reader(broker.url, "value", subscribe="orders", includeExpired="true")

    assert column(read_all(reader), "value") == [b"stays", b"gone"]


def test_a_read_is_what_was_there_when_it_was_planned(broker: ThreadedBroker) -> None:
    broker.publish("orders", b"before")
    reader = batch_reader(broker.url, "value", subscribe="orders")
    parts = reader.partitions()

    broker.publish("orders", b"after")

    assert column(read_all(reader, parts), "value") == [b"before"]
    assert column(read_all(reader, parts), "value") == [b"before"]


def test_the_latest_view_is_the_last_value_of_every_key(broker: ThreadedBroker) -> None:
    broker.create("prices", compact="key", partitions=2)
    keys = [f"k{n % 10}" for n in range(100)]
    broker.publish("prices", *[b"%d" % n for n in range(100)], key=keys)
    broker.publish("prices", b"", key="k3")
    reader = batch_reader(broker.url, subscribe="prices", view="latest")

    rows = read_all(reader)

    assert {row["key"]: row["value"] for row in rows} == {
        b"k%d" % n: b"%d" % (90 + n) for n in range(10) if n != 3
    }
    assert len(rows) == 9
    assert {row["topic"] for row in rows} == {"prices"}
    some = batch_reader(
        broker.url, "value", subscribe="prices", view="latest", filter='key == "k4"'
    )
    assert column(read_all(some), "value") == [b"94"]
    plain = batch_reader(broker.url, subscribe="plain", view="latest")
    broker.publish("plain", b"x")
    with pytest.raises(InvalidRequest, match="compact='key'"):
        read_all(plain)


def test_an_empty_topic_has_no_rows(broker: ThreadedBroker) -> None:
    broker.create("orders")

    assert read_all(batch_reader(broker.url, subscribe="orders")) == []


def test_messages_that_retention_took_are_an_error_unless_they_may_be_lost(
    broker: ThreadedBroker,
) -> None:
    broker.publish("orders", *[b"x"] * 10)
    reader = batch_reader(broker.url, "offset", subscribe="orders")
    lenient = batch_reader(broker.url, "offset", subscribe="orders", failOnDataLoss="false")
    parts, lenient_parts = reader.partitions(), lenient.partitions()
    broker.run(broker.client.configure_topic("orders", retention_count=4))
    broker.publish("orders", b"y")

    with pytest.raises(MessagesLost, match="7 messages of topic 'orders' from offset 0"):
        read_all(reader, parts)
    assert column(read_all(lenient, lenient_parts), "offset") == [7, 8, 9]


def test_a_topic_made_anew_between_planning_and_reading_is_an_error(
    broker: ThreadedBroker,
) -> None:
    broker.publish("orders", b"old")
    reader = batch_reader(broker.url, "value", subscribe="orders")
    parts = reader.partitions()
    broker.run(broker.client.delete_topic("orders"))
    broker.publish("orders", b"new")

    with pytest.raises(TopicReplaced, match="deleted and created again"):
        read_all(reader, parts)


def test_a_missing_topic_is_an_error_and_a_pattern_without_topics_is_not(
    broker: ThreadedBroker,
) -> None:
    with pytest.raises(TopicNotFound):
        batch_reader(broker.url, subscribe="nowhere").partitions()

    assert read_all(batch_reader(broker.url, subscribePattern="nowhere.>")) == []


def test_nobody_at_that_address_is_one_sentence(broker: ThreadedBroker) -> None:
    with pytest.raises(Disconnected, match=r"127\.0\.0\.1:1\b"):
        batch_reader("flint://127.0.0.1:1", subscribe="orders").partitions()


def test_a_broker_that_restarts_in_the_middle_of_a_read_is_waited_for(
    broker: ThreadedBroker,
) -> None:
    for first in range(0, 40_000, 1000):
        broker.publish("orders", *[b"%d" % n for n in range(first, first + 1000)])
    reader = batch_reader(broker.url, "offset", subscribe="orders", minPartitions="1")
    seen = []

    for part in reader.partitions():
        for number, batch in enumerate(reader.read(part)):
            seen += batch["offset"].to_pylist()
            if number == 0:
                broker.stop()
                broker.start()

    assert seen == list(range(40_000))


def test_reading_leaves_no_trace(broker: ThreadedBroker) -> None:
    """A bounded topic lets go of what all readers have passed: a fetch is none."""
    broker.create("orders", retention_count=10, overflow="reject")
    broker.publish("orders", *[b"x"] * 10)

    assert len(read_all(batch_reader(broker.url, subscribe="orders"))) == 10

    with pytest.raises(Exception, match="full"):
        broker.publish("orders", b"one more")
    assert broker.run(broker.client.groups("orders")) == []
    assert broker.run(broker.client.topic_stats("orders")).lag == {}


def test_filters_that_spark_pushes_narrow_what_is_fetched(
    broker: ThreadedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThanOrEqual

    for topic in ("a", "b", "c"):
        broker.publish(topic, *[b"x"] * 10)
    monkeypatch.setattr("sys.argv", ["-", "pyspark.sql.worker.data_source_pushdown_filters"])
    reader = batch_reader(broker.url, "topic", "offset", subscribePattern="*")
    filters = [
        In(("topic",), ["a", "c"]),
        EqualTo(("partition",), 0),
        GreaterThan(("offset",), 3),
        LessThanOrEqual(("offset",), 5),
    ]

    assert list(reader.pushFilters(filters)) == filters  # Spark applies them as well
    assert sorted((row["topic"], row["offset"]) for row in read_all(reader)) == [
        ("a", 4), ("a", 5), ("c", 4), ("c", 5),
    ]  # fmt: skip


def test_a_reader_takes_no_filters_where_spark_would_refuse_it(broker: ThreadedBroker) -> None:
    from pyspark.sql.datasource import DataSourceReader

    reader = batch_reader(broker.url, subscribe="orders")

    assert type(reader).pushFilters is DataSourceReader.pushFilters


def test_a_forked_process_has_a_line_of_its_own(broker: ThreadedBroker) -> None:
    broker.publish("orders", b"one")
    reader = batch_reader(broker.url, "value", subscribe="orders")
    parts = reader.partitions()

    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(send, read_all(reader, parts)[0]["value"])
        finally:
            os._exit(0)
    os.close(send)
    told = os.read(receive, 100)
    os.close(receive)
    os.waitpid(child, 0)

    assert told == b"one"
