"""Flows of a pipeline, and the names they have in the broker."""

from __future__ import annotations

import pytest

from flintmq.errors import InvalidRequest
from flintmq.patterns import check_name
from flintmq.pipeline.define.definition import Pipeline, Sink, Source, Step
from flintmq.pipeline.define.flows import flows_of


def pipeline(*sinks: Sink, **steps: str) -> Pipeline:
    return Pipeline(
        name="p",
        sources={
            "orders": Source(
                name="orders", topics=("orders",), schema="id bigint", dead_letters="bad"
            ),
            "payments": Source(name="payments", topics=("payments",)),
            "people": Source(name="people", topics=("people",), is_static=True),
        },
        steps={name: Step(name=name, sql=sql) for name, sql in steps.items()},
        sinks={sink.name: sink for sink in sinks},
    )


def test_a_flow_has_its_tables_in_the_order_they_are_made_in() -> None:
    made = pipeline(
        Sink(name="out", takes="joined", topic="out"),
        joined="select * from named join payments using (id)",
        named="select * from ORDERS join people using (id)",
    )

    flow, dead = flows_of(made)

    assert flow.tables == ("orders", "people", "named", "payments", "joined")
    assert flow.sources == ("orders", "payments")
    assert (dead.name, dead.sink.topic, dead.tables) == ("orders.dead-letters", "bad", ("orders",))


def test_groups_are_named_by_pipeline_and_flow_and_by_source_where_there_are_several() -> None:
    made = pipeline(
        Sink(name="one", takes="orders", topic="out"),
        Sink(name="two", takes="both", topic="out2"),
        both="select id from orders union all select 1 from payments",
    )

    one, two, dead = flows_of(made)

    assert one.group("orders") == "pipeline.p.one"
    assert two.group("orders") == "pipeline.p.two.orders"
    assert two.group("payments") == "pipeline.p.two.payments"
    assert dead.group("orders") == "pipeline.p.orders.dead-letters"
    for flow in (one, two, dead):
        for source in flow.sources:
            check_name(flow.group(source), "group")


def test_a_source_that_nobody_reads_has_no_flow_of_dead_letters() -> None:
    made = pipeline(Sink(name="out", takes="payments", topic="out"))

    assert [flow.name for flow in flows_of(made)] == ["out"]


def test_circles_and_unknown_names_are_refused() -> None:
    circle = pipeline(
        Sink(name="out", takes="a", topic="out"), a="select * from b", b="select * from a"
    )
    with pytest.raises(InvalidRequest, match="in a circle: a -> b -> a"):
        flows_of(circle)
    with pytest.raises(InvalidRequest, match="a sink takes 'nobody'"):
        flows_of(pipeline(Sink(name="out", takes="nobody", topic="out")))
