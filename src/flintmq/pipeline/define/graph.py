"""The dependencies between the tables of a pipeline. Pure."""

from __future__ import annotations

from .definition import Pipeline, Source, Step
from .sql_names import mentions


def inputs_of(step: Step, pipeline: Pipeline) -> tuple[str, ...]:
    """The sources and steps that a step reads."""
    if step.sql is None:
        return tuple(name for name in step.inputs if name in tables(pipeline))
    by_lower = {name.lower(): name for name in tables(pipeline)}
    found = (by_lower.get(mention.name.lower()) for mention in mentions(step.sql))
    return tuple(dict.fromkeys(name for name in found if name is not None))


def tables(pipeline: Pipeline) -> dict[str, Source | Step]:
    return {**pipeline.sources, **pipeline.steps}


def reaches(pipeline: Pipeline, start: str) -> list[str]:
    """A source or step, and everything it depends on."""
    found, waiting = [], [start]
    while waiting:
        name = waiting.pop()
        if name in found or name not in tables(pipeline):
            continue
        found.append(name)
        if name in pipeline.steps:
            waiting += inputs_of(pipeline.steps[name], pipeline)
    return found


def is_stream(pipeline: Pipeline, name: str) -> bool:
    """Whether it reads a stream."""
    sources = (pipeline.sources.get(one) for one in reaches(pipeline, name))
    return any(one is not None and not one.is_static for one in sources)
