"""Checks the tests of a pipeline, as far as possible without Spark. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..define.definition import Case, CaseBatch, Pipeline, Source
from ..define.durations import DURATION
from ..define.flows import flows_of
from ..define.problems import Defect, meant
from ..define.schemas import columns_of_source, has
from .parts import is_time, no_duration


def case_problems(pipeline: Pipeline, case: Case) -> Iterator[Defect]:
    what = f"the test {case.name}"
    if not is_time(case.time):
        yield Defect(
            case.places.get("time", case.place),
            f"time must be a time with its zone, not {case.time!r}",
            "write for example 2026-01-01T00:00:00+00:00",
        )
    if case.batches and (case.given or case.expected):
        yield Defect(
            case.place,
            f"{what} has batches beside given or expected rows",
            "move the rows into the first batch",
        )
    parts = batches_of(case)
    if not case.error and not any(part.expected for part in parts):
        yield Defect(case.place, f"{what} expects nothing", "add expected.SINK = [...], or error")
    for part in parts:
        if part.after is not None and not DURATION.fullmatch(part.after.strip()):
            yield no_duration(part.places.get("after", part.place), "after", part.after)
        yield from _names(part, "given", part.given, pipeline.sources, "source")
        yield from _names(part, "expected", part.expected, _flows(pipeline), "sink")
        for name in part.given.keys() & pipeline.sources.keys():
            yield from _columns(part, pipeline.sources[name])


def batches_of(case: Case) -> tuple[CaseBatch, ...]:
    """The micro-batches of a test."""
    if case.batches:
        return case.batches
    return (
        CaseBatch(given=case.given, expected=case.expected, place=case.place, places=case.places),
    )


def _flows(pipeline: Pipeline) -> dict[str, object]:
    return {flow.name: flow for flow in flows_of(pipeline)}


def _names(
    part: CaseBatch, key: str, rows: Mapping[str, object], known: Mapping[str, object], kind: str
) -> Iterator[Defect]:
    for name in rows:
        if name not in known:
            place = part.places.get(f"{key}.{name}", part.place)
            yield Defect(place, f"unknown {kind} {name!r}", meant(name, known, "there are"))


def _columns(part: CaseBatch, source: Source) -> Iterator[Defect]:
    columns = columns_of_source(source)
    if columns is None:
        return
    columns = {**columns, "headers" if source.schema is None else "_headers": "map"}
    for row in part.given[source.name]:
        for name in row if isinstance(row, Mapping) else ():
            if not has(columns, name):
                yield Defect(
                    part.places.get(f"given.{source.name}", part.place),
                    f"a row of {source.name} has the column {name!r}, which the source has not",
                    meant(name, columns, "it has"),
                )
