"""Flows: what runs of a pipeline, one streaming query for each.

A sink is a flow. So is the topic for rows of a source that do not decode: `<source>.dead-letters`.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InvalidRequest
from ...patterns import escape_name
from .definition import Pipeline, Sink, Source
from .graph import inputs_of

DEAD_LETTERS = ".dead-letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One query: a sink and everything it is made of."""

    pipeline: str
    name: str
    sink: Sink
    tables: tuple[str, ...]
    """Sources and steps, each after those it is made of."""
    sources: tuple[str, ...]
    """Those of them that are read as streams."""
    dead_letters_of: str | None = None
    """The source whose rows that do not decode go here."""

    @property
    def query(self) -> str:
        """The name of the query in Spark, and the beginning of its groups' in the broker."""
        return escape_name(f"pipeline.{self.pipeline}.{self.name}")

    def group(self, source: str) -> str:
        """The cursor group that stands for a source of this flow in the broker."""
        return self.query if len(self.sources) == 1 else f"{self.query}.{escape_name(source)}"


def flows_of(pipeline: Pipeline) -> list[Flow]:
    """The flows of a pipeline, sinks first. Raises InvalidRequest for names that nobody has."""
    flows = []
    for sink in pipeline.sinks.values():
        tables = _ordered(pipeline, sink.takes)
        flows.append(
            Flow(
                pipeline=pipeline.name,
                name=sink.name,
                sink=sink,
                tables=tables,
                sources=tuple(
                    name
                    for name in tables
                    if name in pipeline.sources and not pipeline.sources[name].is_static
                ),
            )
        )
    read = {name for flow in flows for name in flow.tables}
    flows += [
        _dead_letters(pipeline, source)
        for source in pipeline.sources.values()
        if source.dead_letters is not None and source.name in read
    ]
    return flows


def _dead_letters(pipeline: Pipeline, source: Source) -> Flow:
    name = source.name + DEAD_LETTERS
    return Flow(
        pipeline=pipeline.name,
        name=name,
        sink=Sink(
            name=name,
            takes=source.name,
            topic=source.dead_letters,
            servers=source.servers,
            place=source.place,
        ),
        tables=(source.name,),
        sources=(source.name,),
        dead_letters_of=source.name,
    )


def _ordered(pipeline: Pipeline, last: str) -> tuple[str, ...]:
    """A table and all it is made of, those first."""
    done: list[str] = []
    begun: list[str] = []

    def visit(name: str, asked_by: str) -> None:
        if name in done:
            return
        if name not in pipeline.sources and name not in pipeline.steps:
            raise InvalidRequest(f"{asked_by} takes {name!r}, which is no source and no step")
        if name in begun:
            circle = " -> ".join([*begun[begun.index(name) :], name])
            raise InvalidRequest(f"steps are made of each other in a circle: {circle}")
        begun.append(name)
        if name in pipeline.steps:
            for one in inputs_of(pipeline.steps[name], pipeline):
                visit(one, f"step {name!r}")
        begun.pop()
        done.append(name)

    visit(last, "a sink")
    return tuple(done)
