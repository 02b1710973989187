"""Checks the queries and functions of a pipeline with Spark, before anything runs.

Every source is an empty table with its columns. Spark analyses the queries over them and calls the
functions with them; no job is started. Errors come with the line and column in the pipeline file.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import FlintError, InvalidRequest
from ...spark.failures import error_text, plain
from ...spark.session import checked_pyspark, jvm_of, plan_of, session
from ..define import loading as named
from ..define.definition import FilePlace, Pipeline, Sink, Source, Step, Watermark
from ..define.flows import flows_of
from ..define.graph import inputs_of
from ..define.problems import Defect, PipelineInvalid, in_order, meant
from ..define.schemas import own_columns
from .parts import place_in, place_in_sql
from .sinks import missing_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BACKTICKS = re.compile(r"`((?:[^`]|``)*)`")
LOUD = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j.clientserver")
NO_WATERMARK = "streaming aggregations without watermark"


def check_sql(spark: SparkSession, pipeline: Pipeline) -> list[Defect]:
    """What is wrong with the queries of a pipeline that passes `check`."""
    if not hasattr(spark, "_jsparkSession"):
        raise InvalidRequest("use a session of this process, such as local[1], to check queries")
    with tempfile.TemporaryDirectory(prefix="flintmq-check-") as empty, quiet_spark():
        # In a session of its own, views cannot clash with others.
        return in_order(_SqlCheck(spark.newSession(), pipeline, empty).problems())


def columns_by_table(spark: SparkSession, pipeline: Pipeline) -> dict[str, list[str]]:
    """The columns of every source and step of a flow. Raises PipelineInvalid."""
    with tempfile.TemporaryDirectory(prefix="flintmq-check-") as empty, quiet_spark():
        looks = _SqlCheck(spark.newSession(), pipeline, empty)
        if problems := in_order(looks.problems()):
            raise PipelineInvalid(problems)
        return {name: frame.columns for name, frame in looks.frames.items() if frame is not None}


@contextmanager
def quiet_session(pipeline: Pipeline) -> Iterator[SparkSession]:
    """The active session, or a small one that ends with the block."""
    checked_pyspark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    light = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    spark = session(
        "local[1]", app_name=pipeline.name, config={**light, **pipeline.spark}, log_level="OFF"
    )
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def quiet_spark() -> Iterator[None]:
    """Silence PySpark, which logs every error of a query with a hundred lines of Java before it is
    raised, and Py4J, which logs every error of a function that Java calls."""
    loggers = [logging.getLogger(name) for name in LOUD]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


class _SqlCheck:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, empty: str) -> None:
        self._spark, self._pipeline, self._empty = spark, pipeline, empty
        self.frames: dict[str, DataFrame | None] = {}
        """None is a table with unknown columns: its files are not read."""

    def problems(self) -> Iterator[Defect]:
        for flow in flows_of(self._pipeline):
            for name in flow.tables:
                if name not in self.frames:
                    yield from self._table(name)
            frame = self.frames[flow.sink.takes]
            if flow.dead_letters_of is None and frame is not None:
                yield from self._sink(flow.sink, frame)

    def _table(self, name: str) -> Iterator[Defect]:
        self.frames[name] = None
        try:
            if name in self._pipeline.sources:
                thing: Source | Step = self._pipeline.sources[name]
                frame = self._source(self._pipeline.sources[name])
            else:
                thing = self._pipeline.steps[name]
                frame = self._step(self._pipeline.steps[name])
            if frame is not None and thing.watermark is not None:
                frame = _watermarked(frame, thing, thing.watermark)
            if frame is not None:
                yield from _wrong_expectations(frame, thing)
        except _WrongQuery as wrong:
            yield wrong.problem
            return
        if frame is not None:
            self.frames[name] = frame
            frame.createOrReplaceTempView(f"`{name}`")

    # --- sources

    def _source(self, source: Source) -> DataFrame | None:
        from pyspark.sql import types

        fields: list[Any] = []
        if source.schema is not None:
            try:
                fields = _fields(source.schema)
            except Exception as error:
                raise _WrongQuery(place_in(source, "schema"), f"schema: {_said(error)}") from None
        elif source.files is not None:
            return None
        known = {field.name for field in fields}
        if own := own_columns(source):
            fields += [field for field in _fields(own) if field.name not in known]
        schema = types.StructType(fields)
        if source.is_static:
            return self._spark.read.schema(schema).parquet(self._empty)
        return self._spark.readStream.schema(schema).parquet(self._empty)

    # --- steps

    def _step(self, step: Step) -> DataFrame | None:
        place = place_in(step, "function")
        try:
            function = None if step.function is None else named.load(step.function, place)
            inputs = inputs_of(step, self._pipeline)
            if any(self.frames.get(name, ...) is None for name in inputs):
                return None
            return table_of(self._spark, step, function, self.frames)
        except FlintError as error:
            raise _WrongQuery(place, str(error).removeprefix(f"{place}: ")) from None
        except Exception as error:
            if step.sql is not None:
                raise _WrongQuery(place_of_error(error, step), *_said_of_query(error)) from None
            raise _WrongQuery(place, f"{_name_of(step.function)}: {_said_of_call(error)}") from None

    # --- sinks

    def _sink(self, sink: Sink, frame: DataFrame) -> Iterator[Defect]:
        yield from missing_columns(sink, dict(frame.dtypes))
        if sink.foreach is not None:
            place = place_in(sink, "foreach")
            try:
                named.load(sink.foreach, place)
            except FlintError as error:
                yield Defect(place, str(error).removeprefix(f"{place}: "))
        java = jvm_of(self._spark)
        mode = java.org.apache.spark.sql.streaming.OutputMode
        wanted = {"append": mode.Append, "update": mode.Update, "complete": mode.Complete}
        checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        try:
            checker.checkForStreaming(plan_of(frame), wanted[sink.mode]())
        except Exception as error:
            text, remedy = _said(error), ""
            if NO_WATERMARK in text:
                text = f"mode {sink.mode} needs a watermark to count or sum up rows"
                remedy = (
                    "add one to the source and group by its column, or use mode = 'update' and "
                    "write to a topic"
                )
            yield Defect(place_in(sink, "mode"), f"the sink {sink.name}: {text}", remedy)


def table_of(
    spark: SparkSession,
    step: Step,
    function: named.Function | None,
    frames: Mapping[str, DataFrame | None],
) -> DataFrame:
    """The table of a step. Raises whatever Spark or the function raises."""
    if step.sql is not None:
        # `sql` runs at once what is not a query, such as `drop table`.
        session_in_java: Any = spark._jsparkSession
        session_in_java.sessionState().sqlParser().parseQuery(step.sql)
        return spark.sql(step.sql)
    assert function is not None, "checked before"
    frame = function(*(frames[name] for name in step.inputs), **step.arguments)
    if not hasattr(frame, "createOrReplaceTempView"):
        raise InvalidRequest(
            f"the function of a step must return a DataFrame, not {type(frame).__name__}"
        )
    made: DataFrame = frame
    return made


class _WrongQuery(Exception):
    def __init__(self, place: FilePlace, text: str, remedy: str = "") -> None:
        super().__init__(text)
        self.problem = Defect(place, text, remedy)


def _watermarked(frame: DataFrame, thing: Source | Step, watermark: Watermark) -> DataFrame:
    place = thing.places.get("watermark.column", place_in(thing, "watermark"))
    try:
        return frame.withWatermark(watermark.column, watermark.delay)
    except Exception as error:
        columns = dict(frame.dtypes)
        if watermark.column.lower() in {name.lower() for name in columns}:
            raise _WrongQuery(place, f"watermark: {_said(error)}") from None
        raise _WrongQuery(
            place,
            f"the watermark column {watermark.column!r} does not exist in {thing.name}",
            meant(watermark.column, columns, "it has"),
        ) from None


def _wrong_expectations(frame: DataFrame, thing: Source | Step) -> Iterator[Defect]:
    for rule in thing.expect:
        try:
            frame.where(rule.that)
        except Exception as error:
            text, remedy = _said_of_query(error)
            yield Defect(rule.place, f"the rule {rule.name}: {text}", remedy)


def _said_of_call(error: Exception) -> str:
    text, remedy = _said_of_query(error)
    return f"{text}{'; ' if remedy else ''}{remedy}"


def place_of_error(error: Exception, step: Step) -> FilePlace:
    """The place in the file of an error in a query."""
    for context in _contexts(error):
        return place_in_sql(step, context)
    if found := re.search(r"\(line (\d+), pos (\d+)\)", str(error)):
        lines = (step.sql or "").split("\n")
        before = sum(len(line) + 1 for line in lines[: int(found[1]) - 1])
        return place_in_sql(step, before + int(found[2]))
    return place_in_sql(step, 0)


def _contexts(error: Exception) -> Iterator[int]:
    for context in getattr(error, "getQueryContext", list)():
        try:
            yield int(context.startIndex())
        except Exception:  # the context is a DataFrame, not SQL
            continue


def _fields(schema: str) -> list[Any]:
    from pyspark.sql.types import StructType

    parsed: Any = StructType.fromDDL(schema)
    return list(parsed.fields)


def _name_of(function: object) -> str:
    return function if isinstance(function, str) else getattr(function, "__name__", "a function")


def _said(error: Exception) -> str:
    """The error in one line, without its place."""
    text = re.sub(r" ?\(line \d+, pos \d+\)", "", plain(error_text(error)))
    return text.strip().rstrip(".;") or type(error).__name__


def _said_of_query(error: Exception) -> tuple[str, str]:
    """The most common mistakes in fewer words than Spark's, and the remedy."""
    condition = str(getattr(error, "getCondition", str)() or "")
    facts: dict[str, str] = getattr(error, "getMessageParameters", dict)() or {}
    name = facts.get("objectName", facts.get("routineName", facts.get("relationName", "")))
    name = ".".join(_BACKTICKS.findall(name))
    if condition.startswith("UNRESOLVED_COLUMN") and name:
        proposed = [
            ".".join(_BACKTICKS.findall(one)) for one in facts.get("proposal", "").split(", ")
        ]
        known = list(dict.fromkeys(one.rpartition(".")[2] for one in proposed if one))
        return f"no column {name!r}", meant(name.rpartition(".")[2], known, "there are")
    if condition == "UNRESOLVED_ROUTINE" and name:
        return f"no function {name!r}", ""
    if condition == "TABLE_OR_VIEW_NOT_FOUND" and name:
        return f"no table {name!r}", ""
    return _said(error), ""
