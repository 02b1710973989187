"""Files as pipelines: what is read, where it stands, and where parameters come from."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.pipeline.check.checking import check
from flintmq.pipeline.check.parts import place_in, place_in_sql
from flintmq.pipeline.define.definition import NOWHERE, Pipeline, Sink, Source, Step, Watermark
from flintmq.pipeline.define.problems import PipelineInvalid
from flintmq.pipeline.define.reading import read_parameters, read_pipeline

from ..mistakes import TOML, YAML

WHOLE = """
name = "whole"
servers = "flint://a:1"
checkpoint = "state"
[parameters]
least = 5
[sources.one]
topics = ["a", "b"]
servers = "flint://b:1"
start = 2026-11-15T08:00:00Z
schema = "id bigint, at timestamp"
format = "msgpack"
dead_letters = "bad"
watermark = { column = "at", delay = "1 minute" }
max_per_batch = 10
options = { failOnDataLoss = false, minPartitions = 4 }
[sources.two]
files = "dir"
file_format = "csv"
schema = "id bigint"
static = true
[steps.both]
sql = "select one.id from one join two using (id)"
watermark = { column = "at", delay = "2 minutes" }
[steps.made]
function = "package.module:made"
inputs = "both"
arguments = { least = "${least}", list = [1, "${least}"], deep = { a = true } }
[sinks.out]
from = "made"
topic = "out"
servers = "flint://c:1"
key = "id"
format = "msgpack"
rate = "${least}"
mode = "update"
trigger = "5 seconds"
options = { compression = "zstd" }
[sinks.files]
from = "made"
parquet = "files"
partition_by = ["id"]
compact = true
[sinks.shown]
from = "made"
console = true
[sinks.given]
from = "made"
foreach = "own.py:each"
arguments = { a = 1 }
[sinks.paced]
from = "made"
topic = "paced"
pace = "at"
speed = 2
[spark]
"spark.sql.shuffle.partitions" = 4
sql.session.timeZone = "UTC"
"""


def written(directory: Path, text: str, name: str = "x.toml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def without_places(thing: Any) -> Any:
    """Equal to what was written elsewhere."""
    if isinstance(thing, Pipeline):
        return replace(
            thing,
            place=NOWHERE,
            sources={name: without_places(one) for name, one in thing.sources.items()},
            steps={name: without_places(one) for name, one in thing.steps.items()},
            sinks={name: without_places(one) for name, one in thing.sinks.items()},
        )
    if isinstance(thing, Step):
        return replace(thing, place=NOWHERE, sql_place=NOWHERE)
    return replace(thing, place=NOWHERE)


def test_every_key_is_read_into_its_field(tmp_path: Path) -> None:
    read = without_places(read_pipeline(written(tmp_path, WHOLE), {}, {}))

    assert (read.name, read.servers, read.checkpoint) == ("whole", "flint://a:1", "state")
    assert read.sources["one"] == Source(
        name="one", topics=("a", "b"), servers="flint://b:1", start="2026-11-15T08:00:00+00:00",
        schema="id bigint, at timestamp", format="msgpack", dead_letters="bad",
        watermark=Watermark("at", "1 minute"), max_per_batch=10,
        options={"failOnDataLoss": "false", "minPartitions": "4"},
    )  # fmt: skip
    assert read.sources["two"] == Source(
        name="two", files="dir", file_format="csv", schema="id bigint", is_static=True
    )
    assert read.steps["both"] == Step(
        name="both",
        sql="select one.id from one join two using (id)",
        watermark=Watermark("at", "2 minutes"),
    )
    assert read.steps["made"] == Step(
        name="made", function="package.module:made", inputs=("both",),
        arguments={"least": "5", "list": [1, "5"], "deep": {"a": True}},
    )  # fmt: skip
    assert read.sinks["out"] == Sink(
        name="out", takes="made", topic="out", servers="flint://c:1", key="id", format="msgpack",
        rate=5.0, mode="update", trigger="5 seconds", options={"compression": "zstd"},
    )  # fmt: skip
    assert read.sinks["files"] == Sink(
        name="files", takes="made", parquet="files", partition_by=("id",), compact=True
    )
    assert read.sinks["shown"] == Sink(name="shown", takes="made", console=True)
    assert read.sinks["given"] == Sink(
        name="given", takes="made", foreach="own.py:each", arguments={"a": 1}
    )
    assert read.sinks["paced"] == Sink(
        name="paced", takes="made", topic="paced", pace="at", speed=2
    )
    assert read.spark == {"spark.sql.shuffle.partitions": 4, "spark.sql.session.timeZone": "UTC"}
    assert read.parameters == {"least": "5"}


def test_toml_and_yaml_say_the_same(tmp_path: Path) -> None:
    toml = read_pipeline(written(tmp_path, TOML), {}, {})
    yaml = read_pipeline(written(tmp_path, YAML, "x.yaml"), {}, {})

    assert without_places(toml) == without_places(yaml)


def test_what_is_said_by_hand_counts_before_the_environment_and_that_before_the_default(
    tmp_path: Path,
) -> None:
    path = written(
        tmp_path,
        TOML.replace("[parameters]", '[parameters]\nname = { env = "OWN", default = "x" }')
        .replace('"totals"', '"${name}"'),
    )  # fmt: skip

    def values(given: dict[str, str], environ: dict[str, str]) -> Any:
        return read_pipeline(path, given, environ).parameters

    assert values({}, {}) == {"name": "x", "window": "1 minute"}
    environ = {"OWN": "y", "FLINTMQ_PARAM_NAME": "no", "FLINTMQ_PARAM_WINDOW": "2 minutes"}
    assert values({}, environ) == {"name": "y", "window": "2 minutes"}
    assert values({"name": "z"}, environ) == {"name": "z", "window": "2 minutes"}
    assert read_pipeline(path, {"name": "z"}, environ).name == "z"


def test_parameters_are_numbers_and_truths_where_those_are_wanted(tmp_path: Path) -> None:
    text = TOML.replace('topic = "orders"\n', 'topic = "orders"\nmax_per_batch = "${n}"\n').replace(
        "[parameters]", "[parameters]\nn = 7"
    )
    path = written(tmp_path, text)

    assert read_pipeline(path, {}, {}).sources["orders"].max_per_batch == 7
    with pytest.raises(PipelineInvalid) as wrong:
        read_pipeline(path, {"n": "many"}, {})
    assert "max_per_batch must be a whole number above 0 (here 'many'), not '${n}'" in str(
        wrong.value
    )


def test_two_dollars_are_one(tmp_path: Path) -> None:
    path = written(tmp_path, TOML.replace("count(*) as n", "'$${window} $$ $1' as n"))

    sql = read_pipeline(path, {}, {}).steps["sums"].sql
    assert sql is not None
    assert "'${window} $$ $1' as n" in sql


def test_what_a_file_can_be_told_is_known_without_its_values(tmp_path: Path) -> None:
    path = written(tmp_path, TOML.replace('default = "1 minute", ', ""))
    window = read_parameters(path)["window"]

    assert (window.default, window.env, window.about) == (None, "FLINTMQ_PARAM_WINDOW", "how long")


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_a_place_in_a_query_is_found_behind_parameters_and_line_ends(
    tmp_path: Path, quotes: str
) -> None:
    path = written(tmp_path, TOML.replace('"""', quotes))
    step = read_pipeline(path, {"window": "a much longer text"}, {}).steps["sums"]
    assert step.sql is not None

    for words, line, column in [
        ("select", 15, 1), ("count", 15, 16), ("from", 16, 1), ("group by", 16, 13),
        ("much longer", 16, 42), ("')", 16, 51),
    ]:  # fmt: skip
        place = place_in_sql(step, step.sql.index(words))
        assert (place.line, place.column) == (line, column), words


@pytest.mark.parametrize(
    ("name", "written_sql", "found"),
    [
        ("x.toml", 'sql = "select \\"é\\" from orders"', (14, 21)),
        ("x.toml", "sql = 'select 1 from orders'", (14, 17)),
        ("x.toml", 'sql = """select 1 \\\n    from orders"""', (15, 5)),
        ("x.yaml", "sql: select 1 from orders", (16, 19)),
        ("x.yaml", "sql: 'select 1 from orders'", (16, 20)),
        ("x.yaml", "sql: |\n        select 1\n        from orders", (18, 9)),
        ("x.yaml", "sql: >\n        select 1\n        from orders", (16, 10)),
    ],
)
def test_a_place_in_a_query_is_found_however_it_is_quoted(
    tmp_path: Path, name: str, written_sql: str, found: tuple[int, int]
) -> None:
    base = TOML if name == "x.toml" else YAML
    begin = base.index("sql")
    end = base.index("\n[steps.large]" if name == "x.toml" else "\n  large:\n    function")
    path = written(tmp_path, base[:begin] + written_sql + base[end:], name)
    step = read_pipeline(path, {}, {}).steps["sums"]
    assert step.sql is not None

    place = place_in_sql(step, step.sql.index("from"))
    assert (place.line, place.column) == found


def test_every_field_knows_where_it_was_written(tmp_path: Path) -> None:
    source = read_pipeline(written(tmp_path, TOML), {}, {}).sources["orders"]

    assert str(place_in(source, "schema")).endswith("x.toml:9:10")
    assert str(source.places["watermark.delay"]).endswith("x.toml:11:38")
    assert place_in(source, "format") == source.place, "which was not written"


ALL_OF_THEM = [field.name for kind in (Source, Step, Sink) for field in fields(kind)]


@pytest.mark.slow
@pytest.mark.parametrize("base", [TOML, YAML, WHOLE], ids=["toml", "yaml", "whole"])
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_file_is_anything_but_a_pipeline_or_told_to_be_wrong(
    tmp_path: Path, base: str, data: st.DataObject
) -> None:
    """Files that somebody has had a slip in."""
    text = base
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(text)))
        end = min(len(text), begin + data.draw(st.integers(0, 12)))
        put = data.draw(
            st.one_of(
                st.text("{}[]\"'$:=,.#\n 0aé-", max_size=4),
                st.sampled_from(ALL_OF_THEM),
                st.sampled_from(
                    ["null", "true", "${least}", "${", "1e999", "[[sinks]]", "&a", "*a"]
                ),
            )
        )
        text = text[:begin] + put + text[end:]
    path = written(tmp_path, text, "x.yaml" if base == YAML else "x.toml")
    try:
        problems = check(read_pipeline(path, {}, {}))
    except PipelineInvalid as error:
        problems = error.problems
        assert problems
    for problem in problems:
        assert "\n" not in str(problem)
        assert problem.place.line <= text.count("\n") + 1
