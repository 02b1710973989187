"""What `pipeline new` writes runs as it is, what is built in Python runs too, and Spark has nothing
to say against the ready-made ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flintmq.spark
from flintmq.client.blocking.client import BlockingClient
from flintmq.pipeline.check.checking import check
from flintmq.pipeline.check.functions import check_functions
from flintmq.pipeline.check.queries import check_sql
from flintmq.pipeline.define.reading import read_pipeline
from flintmq.pipeline.define.samples import sample
from flintmq.pipeline.run.running import run
from tests.spark.fixtures import BrokerProcess

EXAMPLES = sorted((Path(__file__).parents[3] / "examples/pipelines").glob("*.toml"))


def published(mq: BlockingClient, topic: str) -> None:
    """Thirty orders of one minute, one that is no order, and one an hour later."""
    rows = [{"id": n, "region": "eu" if n % 3 else "us", "amount": 1.5,
             "at": "2026-11-15T10:00:30Z"} for n in range(30)]  # fmt: skip
    late = {"id": 99, "region": "eu", "amount": 1.0, "at": "2026-11-15T11:00:00Z"}
    values = [json.dumps(row).encode() for row in [*rows, late]]
    mq.publish_batch(topic, [*values, b"no order"])


def values_of(mq: BlockingClient, topic: str) -> list[bytes]:
    with mq.reader(topic, start="earliest") as reader:
        return [bytes(value) for value in reader.read_batch(100, timeout=60).values]


@pytest.mark.parametrize("is_yaml", [False, True], ids=["toml", "yaml"])
def test_the_pipeline_to_begin_with_runs_as_it_is(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, tmp_path: Path, is_yaml: bool
) -> None:
    topic = f"begun-{is_yaml}"
    published(mq, topic)
    file = tmp_path / f"sums.{'yaml' if is_yaml else 'toml'}"
    file.write_text(sample("sums", file.name, yaml=is_yaml))
    given = {
        "servers": broker.url,
        "state": str(tmp_path),
        "input": topic,
        "output": f"{topic}.out",
    }
    pipeline = read_pipeline(file, given, {})

    assert check(pipeline) == []
    assert check_sql(spark, pipeline) == []
    run(pipeline, spark=spark, once=True)
    rows = [json.loads(value) for value in values_of(mq, f"{topic}.out")]
    assert sorted((row["region"], row["orders"], row["amount"]) for row in rows) == [
        ("eu", 20, 30.0), ("us", 10, 15.0),
    ]  # fmt: skip
    assert values_of(mq, f"{topic}.bad") == [b"no order"]


def test_a_pipeline_of_python_runs_with_a_function_of_the_program(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, tmp_path: Path
) -> None:
    published(mq, "built")

    def of_region(orders: Any, region: str) -> Any:
        return orders.where(orders.region == region).select("id", "region")

    built = (
        flintmq.spark.pipeline("built", servers=broker.url, checkpoint=str(tmp_path / "state"))
        .source(
            "orders", topic="built", schema="id bigint, region string", dead_letters="built.bad"
        )
        .step(of_region, arguments={"region": "us"})
        .to_topic("built.us", key="id")
    )
    assert built.check(spark) == []
    built.run(spark=spark, once=True)

    found = sorted(json.loads(value)["id"] for value in values_of(mq, "built.us"))
    assert found == list(range(0, 30, 3))


def test_spark_has_nothing_to_say_against_the_ready_made_ones_and_starts_no_job_for_it(
    spark: Any,
) -> None:
    assert len(EXAMPLES) >= 10
    tracker = spark.sparkContext.statusTracker()
    views = {table.name for table in spark.catalog.listTables()}
    before = set(tracker.getJobIdsForGroup(None))  # listing tables is a job
    for path in EXAMPLES:
        pipeline = read_pipeline(path, {}, {})
        assert [*check(pipeline), *check_functions(pipeline)] == [], path.name
        assert check_sql(spark, pipeline) == [], path.name

    assert set(tracker.getJobIdsForGroup(None)) == before
    assert {table.name for table in spark.catalog.listTables()} == views
