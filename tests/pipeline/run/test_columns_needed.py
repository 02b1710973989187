"""Which columns of messages are fetched: those that somebody could ask for."""

from __future__ import annotations

import pytest

from flintmq.pipeline.define.definition import Pipeline, Sink, Source, Step, Watermark
from flintmq.pipeline.define.flows import flows_of
from flintmq.pipeline.run.frames import columns_needed

ALL = ["key", "value", "topic", "partition", "offset", "timestamp", "priority", "content_type"]
FEW = ["value", "topic", "partition", "offset"]


def needed(step: Step | None, **source: object) -> list[str]:
    facts: dict[str, object] = {"name": "t", "topics": ("t",), "schema": "a int"}
    made = Source(**(facts | source))  # type: ignore[arg-type]
    pipeline = Pipeline(
        name="p",
        sources={"t": made},
        steps={} if step is None else {step.name: step},
        sinks={"out": Sink(name="out", takes="t" if step is None else "s", topic="out")},
    )
    (flow,) = flows_of(pipeline)
    return [column.split()[0] for column in columns_needed(pipeline, flow, made)]


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("select a, count(*) as n, COUNT( * ) from t group by a", FEW),
        ("select a, _KEY from t", ["key", *FEW]),
        ("select * from t", ALL),
        ("select 2 * a from t", ALL),
        ("FROM t |> where a > 1", ALL),
        ("select a from t natural join t", ALL),
        ("select a, `_content_type` from t", [*FEW, "content_type"]),
    ],
)
def test_a_column_that_no_query_names_is_not_fetched(sql: str, columns: list[str]) -> None:
    assert needed(Step(name="s", sql=sql)) == columns


def test_all_are_where_nobody_knows_who_looks_at_them() -> None:
    assert needed(None) == ALL
    assert needed(Step(name="s", function="f.py:f", inputs=("t",))) == ALL
    assert needed(None, options={"includeHeaders": "true"}) == [*ALL, "headers"]


def test_what_decoding_and_watermarks_need_is_fetched() -> None:
    step = Step(name="s", sql="select a from t")
    late = Watermark("_timestamp", "1 second")

    assert needed(step, format="auto", watermark=late) == [*FEW, "timestamp", "content_type"]
