"""Runs the tests of a pipeline: every flow that a test expects something of, over given rows.

A micro-batch is a run of its own with `availableNow`, over the same checkpoint: so state and
watermarks go on from one to the next. The clock of the queries is the test's: `current_timestamp()`
is the time at which the rows arrived.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import FlintError, InvalidRequest
from ...spark.failures import error_text, query_error
from ...spark.session import SparkSetting, jvm_of
from ..check.cases import batches_of
from ..check.queries import quiet_spark
from ..define.definition import Case, CaseBatch, Pipeline
from ..define.flows import Flow, flows_of
from ..run.frames import Frames, java_session
from ..run.running import make_active, session_settings, settings_of
from ..run.sinks import is_raw, messages_of
from .comparing import Difference, differences
from .feeding import GivenFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_SECONDS = 120
SETTINGS: dict[str, SparkSetting] = {
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",  # headers may have a name twice
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a sink was expected to write by a micro-batch."""

    sink: str
    batch: int
    """From 1 on."""
    expected: int
    differences: list[Difference]


@dataclass(slots=True, kw_only=True)
class CaseResult:
    """How a test went."""

    case: Case
    seconds: float = 0.0
    comparisons: list[Comparison] = field(default_factory=list)
    error: str = ""
    """Why it could not be finished."""

    @property
    def has_passed(self) -> bool:
        return not self.error and not any(one.differences for one in self.comparisons)


def tried(spark: SparkSession, cases: Iterable[tuple[Pipeline, Case]]) -> Iterator[CaseResult]:
    """Run tests, each with the pipeline that its parameters make."""
    make_active(spark)
    for pipeline, case in cases:
        began = time.monotonic()
        with (
            tempfile.TemporaryDirectory(prefix="flintmq-test-") as root,
            session_settings(spark, {**settings_of(pipeline), **SETTINGS}),
            quiet_spark(),
        ):
            result = _Trial(spark, pipeline, case, Path(root)).result()
        result.seconds = time.monotonic() - began
        yield result


class _Trial:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, case: Case, root: Path) -> None:
        self._spark, self._pipeline, self._case, self._root = spark, pipeline, case, root

    def result(self) -> CaseResult:
        result = CaseResult(case=self._case)
        wanted = {name for part in batches_of(self._case) for name in part.expected}
        try:
            for flow in flows_of(self._pipeline):
                if flow.name in wanted:
                    result.comparisons += self._flow(flow)
                elif self._case.error:
                    list(self._flow(flow))  # what it writes before the error is not asked for
        except _QueryFailed as failed:
            if self._case.error is None or self._case.error not in str(failed):
                result.error = str(failed)
            return result
        except FlintError as error:
            result.error = str(error)
            return result
        if self._case.error is not None:
            result.error = f"no flow ended with an error that has {self._case.error!r} in it"
        return result

    def _flow(self, flow: Flow) -> Iterator[Comparison]:
        given = GivenFiles(self._spark, self._root / "given" / flow.name)
        parts = batches_of(self._case)
        now = datetime.fromisoformat(self._case.time)
        for name in flow.tables:  # a table is there from the beginning
            source = self._pipeline.sources.get(name)
            if source is not None and source.is_static:
                for part in parts:
                    given.put(source, tuple(part.given.get(name, ())), now)
        query = _Query(self._spark, self._pipeline, flow, given, self._root)
        seen = 0
        for number, part in enumerate(parts, start=1):
            now += duration(part.after)
            for name in flow.sources:
                source = self._pipeline.sources[name]
                if not source.is_static:
                    given.put(source, tuple(part.given.get(name, ())), now)
            rows = query.run(now)
            is_last = number == len(parts)
            if flow.name in part.expected or (is_last and len(rows) > seen):
                written = rows if flow.sink.mode == "complete" else rows[seen:]
                yield self._compared(flow, number, part, written, query.columns)
                seen = len(rows)

    def _compared(
        self,
        flow: Flow,
        number: int,
        part: CaseBatch,
        written: list[dict[str, Any]],
        columns: list[str],
    ) -> Comparison:
        expected = part.expected.get(flow.name, ())
        rows: list[Mapping[str, Any]] = []
        for row in expected:
            if isinstance(row, str):
                raise InvalidRequest(
                    f"an expected row of {flow.name!r} is the text {row!r}: write its columns, as "
                    "{ id = 1 }"
                )
            if unknown := [name for name in row if name not in columns]:
                raise InvalidRequest(
                    f"an expected row of {flow.name!r} has the column {unknown[0]!r}, which it "
                    f"does not write; it writes {', '.join(columns)}"
                )
            rows.append(row)
        return Comparison(
            sink=flow.name,
            batch=number,
            expected=len(rows),
            differences=differences(rows, written),
        )


class _QueryFailed(FlintError):
    """A flow ended with an error."""


class _Query:
    """The query of a flow, run once for every micro-batch."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, flow: Flow, given: GivenFiles, root: Path
    ) -> None:
        self._spark, self._flow = spark, flow
        frames = Frames(spark, pipeline, flow, given=given.frame)
        frame = frames.built()
        if flow.sink.topic is not None:
            messages_of(frame, flow.sink)  # fails where a run would
        frame = readable(frame)
        self.columns: list[str] = frame.columns
        self._rows = _as_json(frame)
        classes = jvm_of(spark)
        self._sink = classes.org.apache.spark.sql.execution.streaming.sources.MemorySink()
        self._checkpoint = str(root / "checkpoints" / flow.name)

    def run(self, now: datetime) -> list[dict[str, Any]]:
        """Process what has arrived; returns all rows that were written until now."""
        from pyspark.sql.streaming.query import StreamingQuery

        query = StreamingQuery(self._start(now))
        try:
            has_ended = query.awaitTermination(WAIT_SECONDS)
        except Exception as error:
            raise _QueryFailed(query_error(query) or error_text(error)) from None
        finally:
            query.stop()
        if not has_ended:
            raise InvalidRequest(f"sink {self._flow.name!r} was not done in {WAIT_SECONDS} s")
        lines = str(self._sink.allData().mkString("\n"))
        return [json.loads(line[1:-1]) for line in lines.split("\n") if line]

    def _start(self, now: datetime) -> Any:
        """Not by a DataStreamWriter: that has no clock to be set."""
        classes = jvm_of(self._spark)
        spark = classes.org.apache.spark
        some, none = classes.scala.Option.apply, classes.scala.Option.empty
        mode = spark.sql.streaming.OutputMode
        modes = {"append": mode.Append, "update": mode.Update, "complete": mode.Complete}
        manager = java_session(self._spark).sessionState().streamingQueryManager()
        try:
            return manager.startQuery(
                some(self._flow.query),
                none(),
                some(self._checkpoint),
                self._rows._jdf,
                spark.api.python.PythonUtils.toScalaMap({}),
                self._sink,
                modes[self._flow.sink.mode](),
                False,  # useTempCheckpointLocation
                True,  # recoverFromCheckpointLocation
                spark.sql.streaming.Trigger.AvailableNow(),
                spark.util.ManualClock(int(now.timestamp() * 1000)),
                none(),
                none(),
            )
        except Exception as error:
            place = self._flow.sink.place
            raise InvalidRequest(
                f"{place}: sink {self._flow.name!r}: {error_text(error)}"
            ) from error


def readable(frame: DataFrame) -> DataFrame:
    """Messages with key, value and headers as text."""
    from pyspark.sql import functions

    if not is_raw(frame):
        return frame
    for name in ("key", "value"):
        if name in frame.columns:
            frame = frame.withColumn(name, functions.col(name).cast("string"))
    if "headers" in frame.columns and frame.schema["headers"].dataType.typeName() == "array":
        pairs = functions.transform(
            "headers",
            lambda one: functions.struct(one["key"], one["value"].cast("string").alias("value")),
        )
        frame = frame.withColumn("headers", functions.map_from_entries(pairs))
    return frame


def _as_json(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    whole = functions.struct(
        *(functions.col(f"`{name.replace('`', '``')}`") for name in frame.columns)
    )
    return frame.select(functions.to_json(whole, {"ignoreNullFields": "false"}).alias("row"))


UNITS = {
    "microsecond": 1e-6, "millisecond": 1e-3, "second": 1, "minute": 60, "hour": 3600, "day": 86400,
    "week": 604800,
}  # fmt: skip


def duration(text: str | None) -> timedelta:
    """A time such as `1 hour 30 minutes`, as the checks allow it."""
    found = re.findall(r"(\d+)\s+([a-z]+?)s?\b", (text or "").lower())
    return timedelta(seconds=sum(int(number) * UNITS[unit] for number, unit in found))
