"""Reading through Spark itself: what only Spark can show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from flintmq.blocking.client import BlockingClient
from tests.spark.conftest import BrokerProcess

pytestmark = pytest.mark.spark


def read(spark: Any, broker: BrokerProcess, topic: str, **options: str) -> Any:
    reader = spark.read.format("flintmq").option("servers", broker.url)
    return reader.options(subscribe=topic, **options)


def stream(spark: Any, broker: BrokerProcess, topic: str, **options: str) -> Any:
    reader = spark.readStream.format("flintmq").option("servers", broker.url)
    return reader.options(**{"subscribe": topic, "startingOffsets": "earliest", **options})


def test_a_topic_is_a_table(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    mq.publish_batch(topic, [b"%d" % n for n in range(100)], key="k", headers={"h": "v"})

    table = read(spark, broker, topic, includeHeaders="true").load()
    rows = table.orderBy("offset").collect()

    assert [bytes(row.value) for row in rows] == [b"%d" % n for n in range(100)]
    assert rows[3].headers[0].key == "h"
    assert (rows[3].topic, rows[3].partition, rows[3].offset) == (topic, 0, 3)
    assert table.selectExpr("sum(cast(cast(value as string) as int))").first()[0] == 4950


def test_an_empty_topic_is_an_empty_table(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    mq.create_topic(topic)

    assert read(spark, broker, topic).load().count() == 0


def test_a_schema_of_ones_own_prunes_columns(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    mq.publish_batch(topic, [b"1", b"2"])

    table = read(spark, broker, topic).schema("offset bigint, value string").load()

    assert [tuple(row) for row in table.orderBy("offset").collect()] == [(0, "1"), (1, "2")]


def test_a_view_of_a_topic_answers_sql(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    mq.publish_batch(topic, [b"1", b"2", b"3"])

    spark.sql(
        "create or replace temporary view orders using flintmq "
        f"options (servers '{broker.url}', subscribe '{topic}')"
    )

    assert spark.sql("select count(*) from orders where offset > 0").first()[0] == 2


def test_filters_are_pushed_down_where_that_is_switched_on(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    mq.publish_batch(topic, [b"%d" % n for n in range(50)])
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    try:
        table = read(spark, broker, topic).load().where("offset >= 10 and offset < 13")
        assert sorted(row.offset for row in table.collect()) == [10, 11, 12]
    finally:
        spark.conf.set(name, "false")


def test_an_error_says_what_is_wrong(spark: Any, broker: BrokerProcess, topic: str) -> None:
    with pytest.raises(Exception, match="unknown option 'startingoffset'; startingOffsets is near"):
        read(spark, broker, topic, startingOffset="earliest").load().count()
    with pytest.raises(Exception, match="Disconnected"):
        spark.read.format("flintmq").options(servers="127.0.0.1:1", subscribe="t").load().count()
    with pytest.raises(Exception, match="needs the option group"):
        _run_once(stream(spark, broker, topic, startingOffsets="latest").load(), "/nowhere")


def _run_once(table: Any, checkpoint: str, sink: str = "noop") -> Any:
    query = (
        table.writeStream.format(sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    return query


def test_a_stream_goes_on_where_its_checkpoint_says(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str, tmp_path: Path
) -> None:
    seen: list[int] = []

    def run() -> list[int]:
        """One run over what is there; how many rows its batches had."""
        sizes = []

        def each(table: Any, number: int) -> None:
            offsets = [row.offset for row in table.select("offset").collect()]
            sizes.append(len(offsets))
            seen.extend(offsets)

        query = (
            stream(spark, broker, topic, maxOffsetsPerTrigger="40", group=f"{topic}-q")
            .load()
            .writeStream.foreachBatch(each)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        return sizes

    mq.publish_batch(topic, [b"x"] * 100)
    assert run() == [40, 40, 20]
    mq.publish_batch(topic, [b"x"] * 10)
    assert run() == [10]
    assert run() == []

    assert sorted(seen) == list(range(110))
    assert mq.group_stats(topic, f"{topic}-q").position >= 80
