"""Checks a pipeline by itself, without Spark, broker or files. Pure.

`queries` checks its queries, `functions` its functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..define.definition import FilePlace, Pipeline, Sink, Source, Step
from ..define.graph import inputs_of, is_stream, reaches
from ..define.problems import Defect, PipelineInvalid, in_order
from .cases import case_problems
from .parts import line_of, place_in, wrong_servers
from .sinks import sink_problems
from .sources import source_problems
from .steps import step_problems

TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FLOW_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


def check(pipeline: Pipeline) -> list[Defect]:
    """Everything that is wrong with it, in the order of the file."""
    return in_order(_problems(pipeline)) or in_order(_problems_of_the_whole(pipeline))


def checked(pipeline: Pipeline) -> Pipeline:
    """The pipeline itself, if nothing is wrong with it. Raises PipelineInvalid."""
    if problems := check(pipeline):
        raise PipelineInvalid(problems)
    return pipeline


def _problems(pipeline: Pipeline) -> Iterator[Defect]:
    if not FLOW_NAME.fullmatch(pipeline.name):
        yield _no_name(place_in(pipeline, "name"), pipeline.name, "pipeline")
    yield from wrong_servers(pipeline)
    for what, there in (("source", pipeline.sources), ("sink", pipeline.sinks)):
        if not there:
            yield Defect(pipeline.place, f"the pipeline has no {what}", f"write [{what}s.NAME]")
    yield from _names(pipeline)
    for source in pipeline.sources.values():
        yield from source_problems(source)
    for step in pipeline.steps.values():
        yield from step_problems(pipeline, step)
    for sink in pipeline.sinks.values():
        yield from sink_problems(pipeline, sink)
    yield from _shared_directories(pipeline)


def _problems_of_the_whole(pipeline: Pipeline) -> Iterator[Defect]:
    """Faults of the whole. If a part is wrong, they would only repeat that."""
    circles = list(_circles(pipeline))
    yield from circles
    if not circles:
        yield from _unused(pipeline)
        yield from _nothing_flows(pipeline)
        for case in pipeline.tests.values():
            yield from case_problems(pipeline, case)


def _names(pipeline: Pipeline) -> Iterator[Defect]:
    known: dict[str, Source | Step] = {}
    for kind, things in (("source", pipeline.sources), ("step", pipeline.steps)):
        for thing in things.values():
            if not TABLE_NAME.fullmatch(thing.name):
                yield Defect(
                    thing.place,
                    f"{thing.name!r} is not a valid name of a {kind}: queries could "
                    "not refer to it",
                    "use letters, digits and _",
                )
            if (other := known.get(thing.name.lower())) is not None:
                yield Defect(
                    thing.place,
                    f"the {kind} {thing.name} has the same name as another table, at "
                    f"{line_of(other.place)}",
                    "rename one of them",
                )
            known[thing.name.lower()] = thing
    seen: dict[str, Sink] = {}
    for sink in pipeline.sinks.values():
        if not FLOW_NAME.fullmatch(sink.name):
            yield _no_name(sink.place, sink.name, "sink")
        if (before := seen.get(sink.name.lower())) is not None:
            yield Defect(
                sink.place,
                f"the names of the sinks {sink.name} and {before.name} differ only in case",
                "rename one of them, because their checkpoints could be the same directory",
            )
        seen[sink.name.lower()] = sink


def _circles(pipeline: Pipeline) -> Iterator[Defect]:
    done: set[str] = set()
    for name in pipeline.steps:
        path: list[str] = []

        def walk(name: str, path: list[str] = path) -> list[str] | None:
            if name in path:
                return [*path[path.index(name) :], name]
            if name in done or name not in pipeline.steps:
                return None
            path.append(name)
            for needed in inputs_of(pipeline.steps[name], pipeline):
                if found := walk(needed):
                    return found
            path.pop()
            done.add(name)
            return None

        if circle := walk(name):
            done.update(circle)
            yield Defect(
                pipeline.steps[circle[0]].place,
                f"the steps depend on each other in a circle: {' -> '.join(circle)}",
                "let one of them read a source instead",
            )


def _unused(pipeline: Pipeline) -> Iterator[Defect]:
    used = {sink.takes for sink in pipeline.sinks.values()}
    for step in pipeline.steps.values():
        used.update(name for name in inputs_of(step, pipeline) if name != step.name)
    for kind, things in (("source", pipeline.sources), ("step", pipeline.steps)):
        for name, thing in things.items():
            if name not in used and pipeline.sinks:
                yield Defect(
                    thing.place,
                    f"the {kind} {name} is not used",
                    f"add a sink with from = {name!r}, or remove the {kind}",
                )


def _nothing_flows(pipeline: Pipeline) -> Iterator[Defect]:
    for sink in pipeline.sinks.values():
        if not set(pipeline.sources) & set(reaches(pipeline, sink.takes)):
            why, remedy = "reads no source", "name a source in its query"
        elif not is_stream(pipeline, sink.takes):
            why = "reads only static sources"
            remedy = "make one of them a stream: remove static"
        else:
            continue
        yield Defect(
            place_in(sink, "takes"),
            f"the sink {sink.name} takes {sink.takes}, which {why}",
            remedy,
        )


def _shared_directories(pipeline: Pipeline) -> Iterator[Defect]:
    seen: dict[str, str] = {}
    for sink in pipeline.sinks.values():
        for field in ("parquet", "json", "delta"):
            directory = getattr(sink, field)
            if directory is None:
                continue
            if (other := seen.get(directory.rstrip("/"))) is not None:
                yield Defect(
                    place_in(sink, field),
                    f"the sink {sink.name} writes to the same directory as {other}: {directory}",
                    "use a separate directory for each sink",
                )
            seen[directory.rstrip("/")] = sink.name


def _no_name(place: FilePlace, name: str, kind: str) -> Defect:
    return Defect(place, f"{name!r} is not a valid {kind} name", "use letters, digits, _ and -")
