"""Streams into topics: each micro-batch is there once, whatever is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.client.blocking.client import BlockingClient

from .fixtures import BrokerProcess, everything


def lay_down(directory: Path, files: int, rows: int) -> None:
    """A stream that can be read again: files of numbers, one for each micro-batch."""
    directory.mkdir(exist_ok=True)
    for number in range(files):
        lines = "".join(f"{row}\n" for row in range(number * rows, (number + 1) * rows))
        (directory / f"{number:04}.txt").write_text(lines)


def numbers(spark: Any, directory: Path) -> Any:
    stream = spark.readStream.format("text").option("maxFilesPerTrigger", 1)
    return stream.load(str(directory))


def run(frame: Any, broker: BrokerProcess, topic: str, checkpoint: Path, **options: str) -> Any:
    query = (
        frame.writeStream.format("flintmq")
        .option("servers", broker.url)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def found(mq: BlockingClient, topic: str) -> list[int]:
    return sorted(int(message.value) for message in everything(mq, topic))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.mark.parametrize("delivery", ["exactly_once", "idempotent", "at_least_once"])
def test_every_row_of_every_micro_batch_is_there_once(
    spark: Any,
    broker: BrokerProcess,
    mq: BlockingClient,
    topic: str,
    tmp_path: Path,
    checkpoint: Path,
    delivery: str,
) -> None:
    lay_down(tmp_path / "in", files=3, rows=2_000)

    run(numbers(spark, tmp_path / "in"), broker, topic, checkpoint, delivery=delivery)

    assert found(mq, topic) == list(range(6_000))


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had been killed between the sink's commit and its own note of it."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("delivery", "times"), [("exactly_once", 1), ("idempotent", 1), ("at_least_once", 2)]
)
def test_a_micro_batch_that_is_written_again_is_not_doubled_where_that_is_promised(
    spark: Any,
    broker: BrokerProcess,
    mq: BlockingClient,
    topic: str,
    tmp_path: Path,
    checkpoint: Path,
    delivery: str,
    times: int,
) -> None:
    lay_down(tmp_path / "in", files=2, rows=500)
    frame = numbers(spark, tmp_path / "in")
    run(frame, broker, topic, checkpoint, delivery=delivery)

    forget_last_commit(checkpoint)
    run(frame, broker, topic, checkpoint, delivery=delivery)

    there = found(mq, topic)
    assert sorted(set(there)) == list(range(1000))
    assert len(there) == 500 + 500 * times


def test_exactly_once_holds_where_rows_come_in_another_order_and_other_tasks(
    spark: Any,
    broker: BrokerProcess,
    mq: BlockingClient,
    topic: str,
    tmp_path: Path,
    checkpoint: Path,
) -> None:
    lay_down(tmp_path / "in", files=2, rows=500)
    frame = numbers(spark, tmp_path / "in")
    run(frame.repartition(2), broker, topic, checkpoint)

    forget_last_commit(checkpoint)
    run(frame.repartition(5), broker, topic, checkpoint)

    assert found(mq, topic) == list(range(1000))


@pytest.fixture
def failing_once(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """A function of a row that ends the first attempt of every task at its last row."""
    from pyspark import TaskContext
    from pyspark.sql.functions import udf

    def passed(value: str) -> str:
        if int(value) % 500 == 499 and TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the first attempt goes wrong")
        return value

    small = {"spark.sql.execution.arrow.maxRecordsPerBatch": "50"}
    before = {name: spark.conf.get(name) for name in small}
    for name, value in small.items():
        spark.conf.set(name, value)
    yield udf(passed, "string", useArrow=False)
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.parametrize(
    ("delivery", "most"), [("exactly_once", 1), ("idempotent", 1), ("at_least_once", 2)]
)
def test_a_task_that_fails_after_it_wrote_a_part_is_made_good(
    spark: Any,
    broker: BrokerProcess,
    mq: BlockingClient,
    topic: str,
    tmp_path: Path,
    checkpoint: Path,
    failing_once: Any,
    delivery: str,
    most: int,
) -> None:
    lay_down(tmp_path / "in", files=2, rows=500)
    frame = numbers(spark, tmp_path / "in")

    run(
        frame.select(failing_once("value").alias("value")),
        broker,
        topic,
        checkpoint,
        delivery=delivery,
    )

    there = found(mq, topic)
    assert sorted(set(there)) == list(range(1000))
    assert max(there.count(row) for row in set(there)) <= most


def test_a_micro_batch_without_rows_writes_nothing(
    spark: Any,
    broker: BrokerProcess,
    mq: BlockingClient,
    topic: str,
    tmp_path: Path,
    checkpoint: Path,
) -> None:
    mq.create_topic(topic)
    lay_down(tmp_path / "in", files=1, rows=5)

    run(numbers(spark, tmp_path / "in").where("value > 100"), broker, topic, checkpoint)

    assert found(mq, topic) == []


def test_a_complete_result_cannot_be_written_to_a_topic(
    spark: Any, broker: BrokerProcess, tmp_path: Path, checkpoint: Path
) -> None:
    lay_down(tmp_path / "in", files=1, rows=5)
    frame = numbers(spark, tmp_path / "in").groupBy("value").count().select("value")
    writer = frame.writeStream.format("flintmq").outputMode("complete").option("topic", "a")
    with pytest.raises(Exception, match="only be appended to a topic"):
        writer.option("servers", broker.url).option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()


def test_a_column_that_cannot_be_written_ends_the_query_by_name(
    spark: Any, broker: BrokerProcess, tmp_path: Path, checkpoint: Path
) -> None:
    lay_down(tmp_path / "in", files=1, rows=5)
    frame = numbers(spark, tmp_path / "in").selectExpr("value", "1 as amount")
    with pytest.raises(Exception, match="column 'amount'"):
        run(frame, broker, "never", checkpoint)


def test_every_batch_of_a_foreach_batch_can_be_a_transaction(
    spark: Any,
    broker: BrokerProcess,
    mq: BlockingClient,
    topic: str,
    tmp_path: Path,
    checkpoint: Path,
) -> None:
    lay_down(tmp_path / "in", files=2, rows=100)

    def write(frame: Any, number: int) -> None:
        writer = frame.write.format("flintmq").mode("append").option("servers", broker.url)
        for _ in range(2):
            writer.option("topic", topic).option("transaction", topic).option(
                "transactionVersion", number
            ).save()

    query = (
        numbers(spark, tmp_path / "in")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert found(mq, topic) == list(range(200))
