"""Flows: the streaming queries of a pipeline.

Each sink is a flow, and so is the topic for rows of a source that do not decode:
`<source>.dead-letters`. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InvalidRequest
from ...patterns import escape_name
from .definition import Pipeline, Sink
from .graph import inputs_of

DEAD_LETTERS = ".dead-letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One query: a sink and everything it depends on."""

    pipeline: str
    name: str
    sink: Sink
    tables: tuple[str, ...]
    """Sources and steps, each after those it depends on."""
    sources: tuple[str, ...]
    """The sources that are read as streams."""
    dead_letters_of: str | None = None
    """The source whose undecodable rows go here."""

    @property
    def query(self) -> str:
        """The name of the query in Spark, and the prefix of its groups in the broker."""
        return escape_name(f"pipeline.{self.pipeline}.{self.name}")

    def group(self, source: str) -> str:
        """The cursor group in the broker for a source of this flow."""
        return self.query if len(self.sources) == 1 else f"{self.query}.{escape_name(source)}"


def flows_of(pipeline: Pipeline) -> list[Flow]:
    """The flows of a pipeline, sinks first. Raises InvalidRequest for unknown names."""
    flows = [_flow(pipeline, sink) for sink in pipeline.sinks.values()]
    read = {name for flow in flows for name in flow.tables}
    for source in pipeline.sources.values():
        if source.dead_letters is not None and source.name in read:
            letters = Sink(
                name=source.name + DEAD_LETTERS,
                takes=source.name,
                topic=source.dead_letters,
                servers=source.servers,
                place=source.place,
            )
            flows.append(_flow(pipeline, letters, source.name))
    return flows


def _flow(pipeline: Pipeline, sink: Sink, dead_letters_of: str | None = None) -> Flow:
    tables = _ordered(pipeline, sink.takes)
    sources = [pipeline.sources[name] for name in tables if name in pipeline.sources]
    return Flow(
        pipeline=pipeline.name,
        name=sink.name,
        sink=sink,
        tables=tables,
        sources=tuple(source.name for source in sources if dead_letters_of or not source.is_static),
        dead_letters_of=dead_letters_of,
    )


def _ordered(pipeline: Pipeline, last: str) -> tuple[str, ...]:
    """A table after everything it depends on."""
    done: list[str] = []
    begun: list[str] = []

    def visit(name: str, asked_by: str) -> None:
        if name in done:
            return
        if name not in pipeline.sources and name not in pipeline.steps:
            raise InvalidRequest(f"{asked_by} takes {name!r}, which is neither a source nor a step")
        if name in begun:
            circle = " -> ".join([*begun[begun.index(name) :], name])
            raise InvalidRequest(f"the steps depend on each other in a circle: {circle}")
        begun.append(name)
        if name in pipeline.steps:
            for one in inputs_of(pipeline.steps[name], pipeline):
                visit(one, f"step {name!r}")
        begun.pop()
        done.append(name)

    visit(last, "a sink")
    return tuple(done)
