"""Checks a step, as far as possible without Spark. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..define.definition import Pipeline, Step
from ..define.graph import tables
from ..define.problems import Defect
from ..define.sql_names import first_word, mentions
from .parts import (
    place_in,
    place_in_sql,
    unknown_table,
    wrong_function,
    wrong_rules,
    wrong_watermark,
)

QUERIES = frozenset({"select", "with", "from", "table", "values", "("})
"""The first words of a query."""


def step_problems(pipeline: Pipeline, step: Step) -> Iterator[Defect]:
    if (step.sql is None) == (step.function is None):
        said = "not both" if step.sql is not None else "and has neither"
        yield Defect(step.place, f"the step {step.name} needs one of sql and function, {said}")
        return
    if step.sql is not None:
        yield from _sql(pipeline, step, step.sql)
    else:
        yield from wrong_function(step, "function", step.function)
        if not step.inputs:
            yield Defect(
                step.place,
                f"the step {step.name} has a function but no inputs",
                "add inputs = ['...'] with the sources and steps it reads",
            )
        for number, name in enumerate(step.inputs):
            place = step.places.get(f"inputs.{number}", place_in(step, "inputs"))
            if name not in tables(pipeline):
                yield unknown_table(pipeline, place, name)
    if step.watermark is not None:
        yield from wrong_watermark(step, step.watermark, None)
    yield from wrong_rules(step)


def _sql(pipeline: Pipeline, step: Step, sql: str) -> Iterator[Defect]:
    for field in ("inputs", "arguments"):
        if getattr(step, field):
            yield Defect(
                place_in(step, field),
                f"{field} is only for functions: a query names its tables itself",
                f"remove {field}",
            )
    first = first_word(sql)
    if first is None:
        yield Defect(step.sql_place, f"the step {step.name} has an empty query")
    elif first.text.lower() not in QUERIES:
        yield Defect(
            place_in_sql(step, first.offset),
            f"the step {step.name} is not a query: it starts with {first.text!r}",
            "write select ...; steps cannot create, change or drop tables",
        )
    known = {name.lower() for name in tables(pipeline)}
    for mention in mentions(sql):
        if mention.name.lower() not in known:
            yield unknown_table(pipeline, place_in_sql(step, mention.offset), mention.name)
