"""Whether a pipeline makes sense, by itself: no Spark, no broker, no files are looked at. Pure.

What its queries say is looked at by `sql_checking`, its functions by `function_checking`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..define.definition import FilePlace, Pipeline, Sink, Source, Step
from ..define.graph import inputs_of, is_stream, reaches
from ..define.problems import Defect, PipelineInvalid, in_order
from .parts import line_of, place_in, wrong_servers
from .sinks import sink_problems
from .sources import source_problems
from .steps import step_problems

TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FLOW_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


def check(pipeline: Pipeline) -> list[Defect]:
    """Everything that is wrong with it, in the order of the file."""
    looks = _Check(pipeline)
    return in_order(looks.problems()) or in_order(looks.problems_of_the_whole())


def checked(pipeline: Pipeline) -> Pipeline:
    """The pipeline itself, if nothing is wrong with it; else PipelineInvalid."""
    if problems := check(pipeline):
        raise PipelineInvalid(problems)
    return pipeline


class _Check:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def problems(self) -> Iterator[Defect]:
        pipeline = self._pipeline
        if not FLOW_NAME.fullmatch(pipeline.name):
            yield _no_name(place_in(pipeline, "name"), pipeline.name, "pipeline")
        yield from wrong_servers(pipeline)
        for what, there in (("source", pipeline.sources), ("sink", pipeline.sinks)):
            if not there:
                yield Defect(pipeline.place, f"the pipeline has no {what}", f"write [{what}s.NAME]")
        yield from self._names()
        for source in pipeline.sources.values():
            yield from source_problems(source)
        for step in pipeline.steps.values():
            yield from step_problems(pipeline, step)
        for sink in pipeline.sinks.values():
            yield from sink_problems(pipeline, sink)
        yield from self._shared_directories()

    def problems_of_the_whole(self) -> Iterator[Defect]:
        """How things hang together; where one of them is wrong, this would only repeat it."""
        circles = list(self._circles())
        yield from circles
        if not circles:
            yield from self._unused()
            yield from self._nothing_flows()

    def _names(self) -> Iterator[Defect]:
        pipeline = self._pipeline
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

    def _circles(self) -> Iterator[Defect]:
        done: set[str] = set()
        for name in self._pipeline.steps:
            path: list[str] = []

            def walk(name: str, path: list[str] = path) -> list[str] | None:
                if name in path:
                    return [*path[path.index(name) :], name]
                if name in done or name not in self._pipeline.steps:
                    return None
                path.append(name)
                for needed in inputs_of(self._pipeline.steps[name], self._pipeline):
                    if found := walk(needed):
                        return found
                path.pop()
                done.add(name)
                return None

            if circle := walk(name):
                done.update(circle)
                yield Defect(
                    self._pipeline.steps[circle[0]].place,
                    f"the steps depend on each other in a circle: {' -> '.join(circle)}",
                    "let one of them read a source instead",
                )

    def _unused(self) -> Iterator[Defect]:
        used = {sink.takes for sink in self._pipeline.sinks.values()}
        for step in self._pipeline.steps.values():
            used.update(name for name in inputs_of(step, self._pipeline) if name != step.name)
        for kind, things in (("source", self._pipeline.sources), ("step", self._pipeline.steps)):
            for name, thing in things.items():
                if name not in used and self._pipeline.sinks:
                    yield Defect(
                        thing.place,
                        f"the {kind} {name} is not used",
                        f"add a sink with from = {name!r}, or remove the {kind}",
                    )

    def _nothing_flows(self) -> Iterator[Defect]:
        for sink in self._pipeline.sinks.values():
            if not set(self._pipeline.sources) & set(reaches(self._pipeline, sink.takes)):
                why, remedy = "reads no source", "name a source in its query"
            elif not is_stream(self._pipeline, sink.takes):
                why = "reads only static sources"
                remedy = "make one of them a stream: remove static"
            else:
                continue
            yield Defect(
                place_in(sink, "takes"),
                f"the sink {sink.name} takes {sink.takes}, which {why}",
                remedy,
            )

    def _shared_directories(self) -> Iterator[Defect]:
        seen: dict[str, str] = {}
        for sink in self._pipeline.sinks.values():
            for field in ("parquet", "json"):
                directory = getattr(sink, field)
                if directory is None:
                    continue
                if (other := seen.get(directory.rstrip("/"))) is not None:
                    yield Defect(
                        place_in(sink, field),
                        f"the sink {sink.name} writes to the same directory as {other}: "
                        f"{directory}",
                        "use a separate directory for each sink",
                    )
                seen[directory.rstrip("/")] = sink.name


def _no_name(place: FilePlace, name: str, kind: str) -> Defect:
    return Defect(place, f"{name!r} is not a valid {kind} name", "use letters, digits, _ and -")
