"""A pipeline as a project of Spark's Declarative Pipelines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from flintmq.cli.root import run
from flintmq.client.blocking.client import BlockingClient
from flintmq.pipeline.define.definition import Pipeline
from flintmq.pipeline.define.problems import PipelineInvalid
from flintmq.pipeline.define.reading import read_pipeline
from flintmq.pipeline.export.exporting import export, project
from tests.spark.fixtures import BrokerProcess

from ..mistakes import FUNCTIONS, TOML


def pipeline(directory: Path, text: str) -> Pipeline:
    path = directory / "totals.toml"
    path.write_text(text)
    (directory / "large.py").write_text(FUNCTIONS)
    return read_pipeline(path, {}, {})


def test_a_project_says_what_it_is_and_how_it_is_run(tmp_path: Path) -> None:
    text = TOML.replace("[parameters]", '[spark]\n"spark.sql.ansi.enabled" = true\n[parameters]')
    text = text.replace("\n\n", '\ncheckpoint = "/state"\n\n', 1)
    files = project(pipeline(tmp_path, text), {"large": ["region", "n"]})

    assert list(files) == ["spark-pipeline.yml", "transformations/totals.py"]
    assert yaml.safe_load(files["spark-pipeline.yml"]) == {
        "name": "totals",
        "storage": "file:///state/exported",
        "libraries": [{"glob": {"include": "transformations/**"}}],
        "configuration": {"spark.sql.ansi.enabled": "true"},
    }
    assert "spark-pipelines run" in files["spark-pipeline.yml"]
    code = files["transformations/totals.py"]
    compile(code, "totals.py", "exec")
    assert "from STREAM(orders) as orders group by region, window(at, '1 minute')" in code
    assert 'F.to_json(F.struct("region", "n"))' in code


REFUSED = [
    ('key = "region"', 'key = "region"\nmode = "update"', "mode update; use append"),
    ('key = "region"', 'key = "region"\nrate = 5', "rate; remove rate"),
    ('topic = "orders.large"\nkey = "region"', 'foreach = "x.py:y"', "foreach; write to"),
    ('topic = "orders.large"\nkey = "region"', 'parquet = "x"\npartition_by = ["n"]',
     "partition_by; remove partition_by"),
    ('inputs = ["sums"]', 'inputs = ["sums"]\nwatermark = { column = "n", delay = "1 second" }',
     "watermarks of steps; add it to a source"),
    ('topic = "orders"\n', 'topic = "orders"\nformat = "msgpack"\n',
     "the format msgpack; use json"),
    ('topic = "orders"\n', 'topic = "orders"\nstart = "latest"\n',
     "start = 'latest' for a source of several flows; use earliest"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), REFUSED, ids=[said for _, _, said in REFUSED])
def test_what_cannot_be_said_there_is_refused_with_its_place(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(PipelineInvalid) as refused:
        export(pipeline(tmp_path, TOML.replace(old, new)), tmp_path / "out")

    [problem] = refused.value.problems
    assert f"Declarative Pipelines do not support {said}" in str(problem)
    assert problem.place.line
    assert not (tmp_path / "out").exists()


def test_a_secret_is_not_written_down(tmp_path: Path) -> None:
    text = TOML.replace("[steps.sums]", 'options = { apiKey = "flint_1_x" }\n[steps.sums]')
    with pytest.raises(PipelineInvalid, match=r"13:13: apiKey is a secret.*FLINTMQ_API_KEY") as no:
        export(pipeline(tmp_path, text), tmp_path / "out")
    assert "flint_1_x" not in str(no.value)


class StandIn(ModuleType):
    """What `pyspark.pipelines` is to a project, over a session of Spark that is no Connect's: views
    are made as they come, flows are kept."""

    def __init__(self) -> None:
        super().__init__("pyspark.pipelines")
        self.sinks: dict[str, tuple[str, dict[str, str]]] = {}
        self.flows: dict[str, Callable[[], Any]] = {}

    def temporary_view(self, function: Callable[[], Any]) -> None:
        function().createOrReplaceTempView(function.__name__)

    def create_sink(self, name: str, format: str, options: dict[str, str]) -> None:
        self.sinks[name] = (format, options)

    def append_flow(self, *, target: str) -> Callable[[Callable[[], Any]], None]:
        def keep(function: Callable[[], Any]) -> None:
            self.flows[target] = function

        return keep


def test_the_exported_project_does_what_the_pipeline_does(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    rows = [{"id": n, "region": "eu" if n % 3 else "us", "at": "2026-11-15T10:00:00Z"}
            for n in range(60)]  # fmt: skip
    late = {"id": 99, "region": "eu", "at": "2026-11-15T12:00:00Z"}
    values = [json.dumps(row).encode() for row in [*rows, late]]
    mq.publish_batch("exported", [*values[:30], b"no JSON", *values[30:]])
    text = TOML.replace('"orders', '"exported').replace("flint://127.0.0.1:7600", broker.url)
    pipeline(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    assert run(["pipeline", "export", "totals.toml", "project"]) == 0
    assert capfd.readouterr().out.split() == [
        "project/spark-pipeline.yml", "project/transformations/totals.py",
        "project/functions/large.py",
    ]  # fmt: skip
    assert run(["pipeline", "export", "totals.toml", "project"]) == 2, "it is there"

    stand_in = StandIn()
    own = spark.newSession()
    monkeypatch.setitem(sys.modules, "pyspark.pipelines", stand_in)
    monkeypatch.setattr("pyspark.pipelines", stand_in, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "project/transformations/totals.py"
    exec(
        compile(file.read_text(), str(file), "exec"),
        {"spark": own, "__file__": str(file), "__name__": "totals"},
    )
    sys.modules.pop("large", None)
    for name, (format, options) in stand_in.sinks.items():
        query = (
            stand_in.flows[name]().writeStream.format(format).options(**options)
            .option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    with mq.reader("exported.large", start="earliest") as reader:
        large = [json.loads(bytes(value)) for value in reader.read_batch(100, timeout=60).values]
    assert sorted((row["region"], row["n"]) for row in large) == [("eu", 40), ("us", 20)]
    with mq.reader("exported.bad", start="earliest") as reader:
        [bad] = reader.read_batch(100, timeout=60)
    assert bytes(bad.value) == b"no JSON"
    assert bad.headers["flintmq-source"] == b"exported/0/30"
