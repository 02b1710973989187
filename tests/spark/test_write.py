"""Batch writes, through Spark."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

import flintmq
from flintmq.client.blocking.client import BlockingClient

from .fixtures import MASTER, BrokerProcess, everything


def save(frame: Any, broker: BrokerProcess, topic: str | None = None, **options: str) -> None:
    writer = frame.write.format("flintmq").mode("append").option("servers", broker.url)
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.options(**options).save()


def messages(mq: BlockingClient, topic: str) -> list[Any]:
    return everything(mq, topic)


@pytest.mark.parametrize("delivery", ["exactly_once", "idempotent", "at_least_once"])
def test_what_is_written_is_there_once(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str, delivery: str
) -> None:
    frame = spark.range(0, 25_000, 1, 3).selectExpr("cast(id as string) as value")

    save(frame, broker, topic, delivery=delivery)

    found = sorted(int(message.value) for message in messages(mq, topic))
    assert found == list(range(25_000))


def test_every_column_of_a_message_arrives(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    when = datetime(2100, 1, 1, tzinfo=UTC)
    frame = spark.createDataFrame(
        [(b"v", b"k", [("h", b"x")], 3, when, 86_400.0, "application/json")],
        "value binary, key binary, headers array<struct<key:string,value:binary>>, priority int,"
        " deliver_at timestamp, ttl double, content_type string",
    )

    save(frame, broker, topic)

    (message,) = messages(mq, topic)
    assert (message.value, message.key, message.headers) == (b"v", b"k", {"h": b"x"})
    assert (message.priority, message.content_type) == (3, "application/json")


def test_text_columns_make_text(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    frame = spark.createDataFrame(
        [("größer", "k", {"h": "x"}), ("", None, None)],
        "value string, key string, headers map<string,string>",
    ).coalesce(1)

    save(frame, broker, topic)

    one, two = messages(mq, topic)
    assert (one.value, one.key, one.headers) == ("größer".encode(), "k", {"h": "x"})
    assert (two.value, two.key, two.headers) == (b"", None, {})


def test_rows_go_to_the_topics_in_their_column(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    frame = spark.range(30).selectExpr(
        "cast(id as string) as value", f"concat('{topic}-', cast(id % 3 as string)) as topic"
    )

    save(frame, broker)

    for number in range(3):
        found = sorted(int(message.value) for message in messages(mq, f"{topic}-{number}"))
        assert found == list(range(number, 30, 3))


def test_a_partitioned_topic_gets_its_rows_where_a_client_would_put_them(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    mq.create_topic(topic, partitions=4)
    mq.create_topic(f"{topic}-client", partitions=4)
    keys: list[str | bytes | None] = [f"key-{number}" for number in range(200)]
    mq.publish_batch(f"{topic}-client", list(range(200)), key=keys)

    save(
        spark.createDataFrame([(key, key) for key in keys], "value string, key string"),
        broker,
        topic,
    )

    ours = {message.key: message.partition for message in messages(mq, topic)}
    theirs = {message.key: message.partition for message in messages(mq, f"{topic}-client")}
    assert len(ours) == 200
    assert ours == theirs


def test_the_order_of_the_rows_of_a_task_is_kept(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    frame = spark.range(0, 30_000, 1, 1).selectExpr("cast(id as string) as value")

    save(frame, broker, topic)

    assert [int(message.value) for message in messages(mq, topic)] == list(range(30_000))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_batches_can_be_compressed(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str, compression: str
) -> None:
    save(
        spark.createDataFrame([("a",), ("b",)], "value string"),
        broker,
        topic,
        compression=compression,
    )

    assert sorted(message.value for message in messages(mq, topic)) == [b"a", b"b"]


def test_a_message_that_is_too_large_is_refused_compressed_or_not(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    mq.create_topic(topic, max_message_bytes=10)
    frame = spark.createDataFrame([("a" * 11,)], "value string")

    for compression in ("none", "zstd"):
        with pytest.raises(Exception, match="max_message_bytes allows 10"):
            save(frame, broker, topic, compression=compression)
    assert mq.topic_stats(topic).message_count == 0


def test_a_job_that_fails_leaves_nothing_behind(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    mq.create_topic(topic)
    frame = spark.range(0, 20_000, 1, 2).selectExpr(
        "if(id = 19999, raise_error('a row went wrong'), cast(id as string)) as value"
    )

    with pytest.raises(Exception, match="a row went wrong"):
        save(frame, broker, topic)

    assert mq.topic_stats(topic).message_count == 0


def test_the_same_transaction_again_is_not_done_again(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    frame = spark.createDataFrame([("a",)], "value string")

    for version in ("1", "1", "2"):
        save(frame, broker, topic, transaction=topic, transactionVersion=version)

    assert mq.topic_stats(topic).message_count == 2


def test_what_is_no_repetition_is_not_passed_over_without_a_word(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    frame = spark.createDataFrame([("a",)], "value string")
    save(frame, broker, topic, transaction=topic, transactionVersion="1")

    with pytest.raises(Exception, match="versions must grow"):
        save(frame, broker, topic, transaction=topic, transactionVersion="0")
    with pytest.raises(Exception, match=r"Use a separate transaction"):
        save(frame, broker, topic + ".other", transaction=topic, transactionVersion="1")

    assert mq.topic_stats(topic).message_count == 1


def test_nothing_is_written_of_no_rows(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    mq.create_topic(topic)

    save(spark.range(0).selectExpr("cast(id as string) as value"), broker, topic)

    assert mq.topic_stats(topic).message_count == 0


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("id", {}, r"column 'id' \(bigint\) is not a column of a message"),
        ("id as value", {}, "column 'value' is bigint"),
        ("'a' as value", {"delivry": "x"}, "unknown option 'delivry'; did you mean delivery"),
        ("'a' as value", {"delivery": "maybe"}, "delivery must be one of exactly_once, idempotent"),
        ("'a' as value", {"compression": "rar"}, "rar"),
        ("'a' as value", {"transaction": "x"}, "set transaction and transactionVersion together"),
        ("'a' as value", {"topic": "a.*"}, r"a\.\*"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_runs(
    spark: Any, broker: BrokerProcess, columns: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        save(spark.range(1).selectExpr(columns), broker, **{"topic": "never", **options})


def test_a_topic_cannot_be_overwritten(spark: Any, broker: BrokerProcess) -> None:
    frame = spark.range(1).selectExpr("'a' as value").write.format("flintmq")
    with pytest.raises(Exception, match="only be appended to a topic: use mode"):
        frame.mode("overwrite").option("servers", broker.url).option("topic", "a").save()


def test_a_broker_that_is_not_there_is_one_clear_sentence(spark: Any) -> None:
    frame = spark.range(1).selectExpr("'a' as value").write.format("flintmq").mode("append")
    with pytest.raises(Exception, match="no connection to flint://") as caught:
        frame.option("servers", "127.0.0.1:1").option("topic", "a").save()

    assert "Disconnected: no connection to flint://127.0.0.1:1: Connection ref" in str(caught.value)
    assert "link.py" not in str(caught.value)


def test_a_topic_is_not_made_where_that_is_not_wanted(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str
) -> None:
    with pytest.raises(Exception, match="does not exist"):
        save(spark.createDataFrame([("a",)], "value string"), broker, topic, autoCreate="false")
    with pytest.raises(flintmq.TopicNotFound):
        mq.topic_stats(topic)


def test_keys_of_the_api_are_not_shown_in_plans(spark: Any, broker: BrokerProcess) -> None:
    frame = (
        spark.read.format("flintmq")
        .option("servers", broker.url)
        .option("apiKey", "hidden-from-everybody")
        .option("subscribe", "nothing")
        .load()
    )

    plan = frame._jdf.queryExecution().toString()

    assert "hidden-from-everybody" not in plan


@pytest.mark.skipif(
    not MASTER.startswith("spark://"), reason="Spark speculates on another host only"
)
@pytest.mark.parametrize("delivery", ["exactly_once", "idempotent"])
def test_a_second_copy_of_a_slow_task_doubles_nothing(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str, delivery: str
) -> None:
    from pyspark import TaskContext
    from pyspark.sql.functions import udf

    def passed(value: Any) -> Any:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and context.attemptNumber() == 0 and value == "999":
            time.sleep(6)
        return f"{value} {context.attemptNumber()}"

    numbers = spark.range(0, 1_000, 1, 2).selectExpr("cast(id as string) as value")

    save(
        numbers.select(udf(passed, "string", useArrow=False)("value").alias("value")),
        broker,
        topic,
        delivery=delivery,
    )

    found = [message.value.split() for message in messages(mq, topic)]
    assert sorted(int(value) for value, _ in found) == list(range(1_000))
    assert {attempt for value, attempt in found if int(value) >= 500} >= {b"1"}
