"""A pipeline in Python: `flintmq.spark.pipeline("totals").source(...).sql(...).to_topic(...)`.

It makes the same definition as a file, with the same checks; errors have the line of the call. A
builder does not change: every call returns a new one, so you can continue twice from the same one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ..errors import InvalidRequest
from ..spark.decoding import From, To
from ..spark.session import SparkSetting
from .define.definition import (
    BatchFunction,
    FileFormat,
    FilePlace,
    OutputMode,
    Pipeline,
    Sink,
    Source,
    Step,
    StepFunction,
    Watermark,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .define.problems import Defect
    from .run.running import Outcome

Late = Watermark | tuple[str, str] | None
"""A timestamp column and how late a row may arrive: `("at", "10 seconds")`."""


class Reading(TypedDict, total=False):
    """Keywords of a source. They are the keys of files: docs/pipelines.md explains them."""

    topic: str | None
    topics: Sequence[str]
    pattern: str | None
    files: str | None
    servers: str | None
    start: str
    schema: str | None
    format: From
    file_format: FileFormat
    dead_letters: str | None
    watermark: Late
    static: bool
    max_per_batch: int | None
    options: Mapping[str, str] | None


class SinkKeywords(TypedDict, total=False):
    """Keywords of every sink."""

    takes: str | None
    """The source or step to write; by default the one that was added last."""
    name: str | None
    """The name of the flow; by default that of `takes`."""
    trigger: str | None


class IntoTopic(SinkKeywords, total=False):
    servers: str | None
    key: str | None
    format: To
    rate: float | None
    pace: str | None
    speed: float
    mode: OutputMode
    options: Mapping[str, str] | None


class IntoFiles(SinkKeywords, total=False):
    partition_by: Sequence[str]
    options: Mapping[str, str] | None


class IntoParquet(IntoFiles, total=False):
    compact: bool


class IntoTable(IntoParquet, total=False):
    keep_versions: str | None


class OntoConsole(SinkKeywords, total=False):
    mode: OutputMode


class ToFunction(OntoConsole, total=False):
    arguments: Mapping[str, Any] | None


def pipeline(
    name: str,
    *,
    servers: str | None = None,
    checkpoint: str | None = None,
    spark: Mapping[str, SparkSetting] | None = None,
) -> PipelineBuilder:
    """Start a pipeline.

    `servers` is the default broker, `checkpoint` the directory for checkpoints, each flow with its
    own in it; `spark` are settings of Spark.
    """
    return PipelineBuilder(
        Pipeline(
            name=name,
            servers=servers,
            checkpoint=checkpoint,
            sources={},
            steps={},
            sinks={},
            spark=dict(spark or {}),
            place=_caller(),
        )
    )


@dataclass(frozen=True, slots=True)
class PipelineBuilder:
    """A pipeline so far; `definition()` returns it."""

    so_far: Pipeline
    last: str | None = None
    """The table that was added last: the default input of steps and sinks."""

    # --- sources

    def source(self, name: str, **how: Unpack[Reading]) -> PipelineBuilder:
        """Add a table of topics or files, by its name in queries."""
        fields = _given(how)
        if "topic" in fields:
            fields["topics"] = (fields.pop("topic"), *fields.get("topics", ()))
        fields["is_static"] = fields.pop("static", False)
        fields["watermark"] = _watermark(how.get("watermark"))
        added = Source(name=name, place=_caller(), **fields)
        self._check_new(name, self.so_far.sources, "source")
        sources = {**self.so_far.sources, name: added}
        return PipelineBuilder(replace(self.so_far, sources=sources), name)

    # --- steps

    def sql(self, name: str, query: str, *, watermark: Late = None) -> PipelineBuilder:
        """Add a table by SQL over the names of sources and steps."""
        place = _caller()
        return self._with_step(
            Step(
                name=name,
                sql=query,
                sql_place=place,
                watermark=_watermark(watermark),
                place=place,
            )
        )

    def step(
        self,
        function: StepFunction | str,
        *inputs: str,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        watermark: Late = None,
    ) -> PipelineBuilder:
        """Add a table by a function that takes the frames of `inputs` and returns one.

        The default input is the table that was added last, the default name that of the function.
        """
        return self._with_step(
            Step(
                name=name or _name_of(function),
                function=function,
                inputs=inputs or (self._taken(None),),
                arguments=dict(arguments or {}),
                watermark=_watermark(watermark),
                place=_caller(),
            )
        )

    # --- sinks

    def to_topic(self, topic: str, **how: Unpack[IntoTopic]) -> PipelineBuilder:
        """Write rows to a topic, each exactly once: of `takes`, or of what was added last."""
        return self._with_sink(how, topic=topic)

    def to_parquet(self, directory: str, **how: Unpack[IntoParquet]) -> PipelineBuilder:
        """Write rows to Parquet files; `compact` merges small ones of a partition."""
        return self._with_sink(how, parquet=directory)

    def to_json(self, directory: str, **how: Unpack[IntoFiles]) -> PipelineBuilder:
        """Write rows to files of JSON lines."""
        return self._with_sink(how, json=directory)

    def to_delta(self, table: str, **how: Unpack[IntoTable]) -> PipelineBuilder:
        """Append rows to a Delta table, each exactly once: a directory or URL (`s3://...`)."""
        return self._with_sink(how, delta=table)

    def to_iceberg(self, table: str, **how: Unpack[IntoTable]) -> PipelineBuilder:
        """Append rows to an Iceberg table, `namespace.table`, each exactly once; `options` are the
        properties of its catalog."""
        return self._with_sink(how, iceberg=table)

    def to_console(self, **how: Unpack[OntoConsole]) -> PipelineBuilder:
        """Print rows to the terminal."""
        return self._with_sink(how, console=True)

    def foreach(self, function: BatchFunction | str, **how: Unpack[ToFunction]) -> PipelineBuilder:
        """Call a function with each micro-batch and its number."""
        return self._with_sink(how, foreach=function)

    # --- results

    def definition(self) -> Pipeline:
        """The pipeline, checked. Raises PipelineInvalid, which lists every fault."""
        from .check.checking import checked

        return checked(self.so_far)

    def check(self, spark: SparkSession | None = None) -> list[Defect]:
        """What is wrong with it; with a session, its queries are checked, too. Nothing runs."""
        from .check.checking import check

        problems = check(self.so_far)
        if not problems and spark is not None:
            from .check.queries import check_sql

            problems = check_sql(spark, self.so_far)
        return problems

    def draw(self) -> str:
        """The pipeline drawn as text."""
        from .draw.text import draw

        return draw(self.definition())

    def svg(self) -> str:
        """The pipeline drawn as SVG."""
        from .draw.svg import draw_svg

        return draw_svg(self.definition())

    def export(self, directory: str | Path) -> list[Path]:
        """Write it as a project of Spark's Declarative Pipelines; returns its files."""
        from .export.exporting import export

        return export(self.definition(), Path(directory))

    def run(
        self,
        *,
        master: str = "local[*]",
        once: bool = False,
        seconds: float | None = None,
        from_scratch: bool = False,
        spark: SparkSession | None = None,
        api_key: str | None = None,
    ) -> Outcome:
        """Run it: `once` reads what exists and ends, else it runs until Ctrl-C."""
        from .run.running import run

        return run(
            self.definition(),
            master=master,
            once=once,
            seconds=seconds,
            from_scratch=from_scratch,
            spark=spark,
            access={} if api_key is None else {"apiKey": api_key},
        )

    # --- parts

    def _with_step(self, added: Step) -> PipelineBuilder:
        self._check_new(added.name, self.so_far.steps, "step")
        steps = {**self.so_far.steps, added.name: added}
        return PipelineBuilder(replace(self.so_far, steps=steps), added.name)

    def _with_sink(self, how: Mapping[str, Any], **where: Any) -> PipelineBuilder:
        fields = {**where, **_given(how)}
        fields["takes"] = self._taken(fields.get("takes"))
        fields.setdefault("name", fields["takes"])
        added = Sink(**fields, place=_caller())
        self._check_new(added.name, self.so_far.sinks, "sink", " with name=...")
        sinks = {**self.so_far.sinks, added.name: added}
        return PipelineBuilder(replace(self.so_far, sinks=sinks), self.last)

    def _taken(self, takes: str | None) -> str:
        if takes is not None:
            return takes
        if self.last is None:
            raise InvalidRequest(f"{_caller()}: there is no source yet; start with .source(...)")
        return self.last

    def _check_new(self, name: str, known: Mapping[str, Any], kind: str, how: str = "") -> None:
        if name in known:
            raise InvalidRequest(
                f"{_caller()}: there is already a {kind} {name!r}, at {known[name].place}; use "
                f"another name{how}"
            )


def _given(how: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that are not None; what the caller could change is copied."""
    kept = {name: value for name, value in how.items() if value is not None}
    for name, value in kept.items():
        if isinstance(value, Mapping):
            kept[name] = dict(value)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            kept[name] = tuple(value)
    return kept


def _watermark(late: Late) -> Watermark | None:
    return Watermark(*late) if isinstance(late, tuple) else late


def _name_of(function: StepFunction | str) -> str:
    if isinstance(function, str):
        return function.rpartition(":")[2]
    return getattr(function, "__name__", "step")


def _caller() -> FilePlace:
    """The line that calls the builder."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return FilePlace(frame.f_code.co_filename, frame.f_lineno)
