"""Pipelines in Python: the same definition as a file's, the same checks, another place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flintmq.spark
from flintmq.errors import InvalidRequest
from flintmq.pipeline.builder import PipelineBuilder
from flintmq.pipeline.define.problems import PipelineInvalid
from flintmq.pipeline.define.reading import read_pipeline
from flintmq.pipeline.run import running

from .define.test_reading import WHOLE, without_places, written


def begun() -> PipelineBuilder:
    return flintmq.spark.pipeline("totals", servers="flint://a:1").source(
        "orders", topic="orders", schema="id bigint, at timestamp", watermark=("at", "1 minute")
    )


def test_what_is_built_is_what_a_file_says(tmp_path: Path) -> None:
    built = (
        flintmq.spark.pipeline(
            "whole",
            servers="flint://a:1",
            checkpoint="state",
            spark={"spark.sql.shuffle.partitions": 4, "spark.sql.session.timeZone": "UTC"},
        )
        .source(
            "one",
            topics=["a", "b"],
            servers="flint://b:1",
            start="2026-11-15T08:00:00+00:00",
            schema="id bigint, at timestamp",
            format="msgpack",
            dead_letters="bad",
            watermark=("at", "1 minute"),
            max_per_batch=10,
            options={"failOnDataLoss": "false", "minPartitions": "4"},
        )
        .source("two", files="dir", file_format="csv", schema="id bigint", static=True)
        .sql(
            "both",
            "select one.id from one join two using (id)",
            watermark=("at", "2 minutes"),
        )
        .step(
            "package.module:made",
            arguments={"least": "5", "list": [1, "5"], "deep": {"a": True}},
        )
        .to_topic(
            "out",
            name="out",
            servers="flint://c:1",
            key="id",
            format="msgpack",
            rate=5.0,
            mode="update",
            trigger="5 seconds",
            options={"compression": "zstd"},
        )
        .to_parquet("files", name="files", partition_by=["id"], compact=True)
        .to_console(name="shown")
        .foreach("own.py:each", name="given", arguments={"a": 1})
        .to_topic("paced", name="paced", pace="at", speed=2)
    )
    file = without_places(read_pipeline(written(tmp_path, WHOLE), {}, {}))
    made = without_places(built.so_far)

    assert (made.sources, made.steps, made.sinks) == (file.sources, file.steps, file.sinks)
    assert (made.name, made.servers, made.checkpoint, made.spark) == (
        file.name, file.servers, file.checkpoint, file.spark,
    )  # fmt: skip


def test_steps_and_sinks_take_what_was_added_last_if_nothing_is_said() -> None:
    def large(orders: Any) -> Any:
        return orders

    made = begun().step(large).to_topic("large").to_json("dir", takes="orders").definition()

    assert made.steps["large"].inputs == ("orders",)
    assert made.steps["large"].function is large
    assert {name: sink.takes for name, sink in made.sinks.items()} == {
        "large": "large",
        "orders": "orders",
    }


def test_what_is_wrong_is_told_with_the_line_of_the_call() -> None:
    wrong = begun().sql("sums", "select * from ordrs").to_topic("out")
    [problem] = wrong.check()

    assert problem.place.file == __file__
    source = Path(__file__).read_text().splitlines()[problem.place.line - 1]
    assert "ordrs" in source
    assert problem.text == "unknown source or step 'ordrs'"
    with pytest.raises(PipelineInvalid, match="did you mean orders"):
        wrong.definition()


def test_a_builder_does_not_change_so_two_can_go_on_from_one() -> None:
    base = begun()
    one, two = base.to_topic("one"), base.to_topic("two")

    assert base.so_far.sinks == {}
    assert one.definition().sinks["orders"].topic == "one"
    assert two.definition().sinks["orders"].topic == "two"


def test_a_name_twice_and_a_sink_of_nothing_are_told_at_once() -> None:
    with pytest.raises(
        InvalidRequest, match=r"test_builder.py:\d+: there is already a sink 'orders'"
    ):
        begun().to_topic("a").to_topic("b")
    with pytest.raises(InvalidRequest, match=r"there is already a source 'orders', at .*\.py:\d+"):
        begun().source("orders", topic="x")
    with pytest.raises(InvalidRequest, match="there is no source yet"):
        flintmq.spark.pipeline("x").to_console()


def test_it_can_be_drawn() -> None:
    made = begun().to_topic("out")

    assert "topic out" in made.draw()
    assert made.svg().startswith("<svg")


@pytest.mark.slow
@pytest.mark.parametrize("first", ["spark", "spark.pipeline.tables", "pipeline.define.problems"])
def test_names_that_users_know_stand_for_ours_whatever_is_imported_first(first: str) -> None:
    code = (
        f"import flintmq.{first}, sys, flintmq.spark, flintmq.pipeline.builder\n"
        "from flintmq.spark.pipeline.reading import read_pipeline\n"
        "from flintmq.spark.pipeline.running import run\n"
        "from flintmq.spark.pipeline.tables import keep_current\n"
        "assert flintmq.spark.pipeline is flintmq.pipeline.builder.pipeline\n"
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_spark_that_a_run_starts_prints_beside_the_checkpoint_and_not_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def session(master: str, **wanted: Any) -> None:
        asked.update(wanted)
        raise RuntimeError("enough")

    monkeypatch.setattr(running, "session", session)
    monkeypatch.setattr(running, "reach", lambda pipeline, access: None)
    made = flintmq.spark.pipeline("p", servers="flint://a:1", checkpoint=str(tmp_path / "state"))
    with pytest.raises(RuntimeError, match="enough"):
        made.source("orders", topic="orders").to_topic("out").run(once=True)

    assert asked["log_file"] == tmp_path / "state" / "spark.log"
