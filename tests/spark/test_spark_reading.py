"""Reading through Spark itself: what only Spark can show."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import flintmq
import flintmq.spark
from flintmq.client.blocking.client import BlockingClient
from tests.spark.fixtures import BrokerProcess

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


def test_topics_are_read_and_written_by_sql(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    mq.publish_batch(topic, [b"1", b"2"])
    to = f"servers '{broker.url}', topic '{topic}.out'"
    view = "CREATE OR REPLACE TEMPORARY VIEW"
    spark.sql(f"{view} sql_in USING flintmq OPTIONS (servers '{broker.url}', subscribe '{topic}')")
    spark.sql(f"{view} sql_out (value string) USING flintmq OPTIONS ({to})")
    spark.sql("DROP TABLE IF EXISTS sql_table")
    spark.sql("CREATE TABLE sql_table (value binary) USING flintmq")
    try:
        spark.sql("INSERT INTO sql_out SELECT cast(value as string) FROM sql_in")
        spark.sql(f"INSERT INTO sql_table WITH ({to}) VALUES (X'33')")
        found = spark.sql(
            f"SELECT * FROM sql_table WITH (servers '{broker.url}', subscribe '{topic}.out')"
        )
        assert sorted(bytes(row.value) for row in found.collect()) == [b"1", b"2", b"3"]
    finally:
        spark.sql("DROP TABLE sql_table")
        for name in ("sql_in", "sql_out"):
            spark.catalog.dropTempView(name)


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


def test_an_error_says_what_is_wrong(
    spark: Any, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(
        Exception, match="unknown option 'startingoffset'; did you mean startingOffsets"
    ):
        read(spark, broker, topic, startingOffset="earliest").load().count()
    with pytest.raises(Exception, match="Disconnected"):
        spark.read.format("flintmq").options(servers="127.0.0.1:1", subscribe="t").load().count()
    with pytest.raises(Exception, match="needs the option group"):
        _run_once(stream(spark, broker, topic, startingOffsets="latest").load(), str(tmp_path))


def test_an_error_is_a_few_lines_and_shows_nothing_of_our_insides(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str, tmp_path: Path
) -> None:
    mq.publish(topic, b"\xff")

    def query() -> None:
        table = stream(spark, broker, topic, startingOffset="earliest").load()
        _run_once(table, str(tmp_path / "checkpoint"))

    for fails in (
        lambda: read(spark, broker, topic, startingOffset="earliest").load().count(),
        lambda: read(spark, broker, topic + "x").load().count(),
        lambda: read(spark, broker, topic).schema("value string").load().collect(),
        query,
    ):
        with pytest.raises(Exception) as caught:
            fails()
        text = str(caught.value)
        assert "flintmq.errors" in text
        assert "/options.py" not in text
        assert "/planning.py" not in text
        assert "/columns.py" not in text
        assert "UnboundLocalError" not in text


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


class Boom(Exception):
    pass


def test_a_first_batch_that_fails_is_run_again_over_the_same_messages(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str, tmp_path: Path
) -> None:
    """Batch 0 is in Spark's log and never done: Spark asks anew where a stream of 'latest' starts,
    and a start that had moved would lose what lies between, without an error."""
    seen: list[list[int]] = []

    def run(each: Callable[[Any, int], None]) -> Any:
        return (
            stream(spark, broker, topic, startingOffsets="latest", group=f"{topic}-q")
            .load()
            .writeStream.foreachBatch(each)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )

    def fails(table: Any, number: int) -> None:
        if table.count():
            raise Boom

    def works(table: Any, number: int) -> None:
        seen.append(sorted(row.offset for row in table.select("offset").collect()))

    mq.publish_batch(topic, [b"old"] * 10)
    query = run(fails)
    _until(lambda: f"{topic}-q.pinned-start" in {group.name for group in mq.groups(topic)})
    mq.publish_batch(topic, [b"new"] * 5)
    with pytest.raises(Exception, match="Boom"):
        query.awaitTermination(60)
    mq.publish_batch(topic, [b"newer"] * 7)

    query = run(works)
    _until(lambda: sum(map(len, seen)) >= 12)
    query.stop()

    assert [offset for batch in seen for offset in batch] == list(range(10, 22))


def _until(is_so: Callable[[], bool]) -> None:
    done = threading.Event()
    for _ in range(1200):
        if is_so():
            return
        done.wait(0.05)
    raise AssertionError("it did not happen within a minute")


def test_an_idle_stream_makes_no_batches(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str, tmp_path: Path
) -> None:
    mq.create_topic(topic, partitions=12)
    for number in (11, 2):
        mq.publish(topic, b"x", partition=number)
    query = (
        stream(spark, broker, topic, group=f"{topic}-q")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    first = query.lastProgress

    for _ in range(3):  # each of them looks at least once more for something new
        query.processAllAvailable()
    mq.publish(topic, b"y", partition=2)
    query.processAllAvailable()

    progress = [one for one in query.recentProgress if one["numInputRows"]]
    query.stop()
    assert first["batchId"] == 0
    assert [(one["batchId"], one["numInputRows"]) for one in progress] == [(0, 2), (1, 1)]


def test_a_broker_that_is_killed_under_a_stream_is_waited_for(spark: Any, tmp_path: Path) -> None:
    seen: list[int] = []
    killed = BrokerProcess(tmp_path / "data").start()
    try:
        with flintmq.connect_sync(killed.url) as mq:
            mq.publish_batch("orders", [b"x"] * 100)
        query = (
            stream(spark, killed, "orders", maxOffsetsPerTrigger="30", group="q")
            .load()
            .writeStream.foreachBatch(
                lambda table, _: seen.extend(row.offset for row in table.collect())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        _until(lambda: len(seen) >= 30)
        killed.kill()
        killed.start()
        with flintmq.connect_sync(killed.url) as mq:
            mq.publish_batch("orders", [b"y"] * 50)
        query.processAllAvailable()
        query.stop()
    finally:
        killed.stop()

    assert sorted(seen) == list(range(150))


def test_a_new_topic_of_a_pattern_is_picked_up_while_the_query_runs(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str, tmp_path: Path
) -> None:
    seen: list[tuple[str, int]] = []
    mq.publish(f"{topic}.a", b"1")
    query = (
        spark.readStream.format("flintmq")
        .options(servers=broker.url, subscribePattern=f"{topic}.*", startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(
            lambda table, _: seen.extend((row.topic, row.offset) for row in table.collect())
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.processAllAvailable()

    mq.publish(f"{topic}.b", b"2")
    _until(lambda: len(seen) == 2)
    query.stop()

    assert sorted(seen) == [(f"{topic}.a", 0), (f"{topic}.b", 0)]


def test_segments_are_read_without_the_broker(spark: Any, tmp_path: Path) -> None:
    stopped = BrokerProcess(tmp_path / "data").start()
    with flintmq.connect_sync(stopped.url) as mq:
        mq.publish_batch("orders", [b"%d" % n for n in range(5000)])
    stopped.stop()  # a clean end writes what is in the journal into segments

    table = (
        spark.read.format("flintmq").options(path=str(tmp_path / "data"), subscribe="orders").load()
    )

    assert table.count() == 5000
    assert flintmq.spark.direct_bounds(str(tmp_path / "data")) == {"orders": {0: (0, 5000)}}
