"""Runs a pipeline: every flow a streaming query, watched until it ends or is told to.

Ctrl-C and SIGTERM stop every flow after the micro-batch it is in, a second one at once. A flow
that dies takes the others along, after theirs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import InvalidRequest
from ..session import session
from .definition import Pipeline
from .failures import PipelineFailed, told_of_query, told_of_step
from .flows import Flow, flows_of
from .frames import Access, Frames, path_of, tables_in
from .sinks import Writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.1
COUNTED = "flintmq_rows"


@dataclass(slots=True)
class FlowOutcome:
    name: str
    rows_in: int = 0
    rows_out: int = 0
    batches: int = 0
    seconds: float = 0.0
    error: str | None = None


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    pipeline: str
    flows: dict[str, FlowOutcome] = field(default_factory=dict)
    seconds: float = 0.0


def run(
    pipeline: Pipeline,
    *,
    master: str = "local[*]",
    once: bool = False,
    spark: SparkSession | None = None,
    on_progress: Callable[[Any], None] | None = None,
    access: Access | None = None,
) -> Outcome:
    began = time.monotonic()
    if spark is None:
        spark = session(master, app_name=pipeline.name, config=pipeline.spark)
    flows = flows_of(pipeline, tables_in(spark))
    running = []
    try:
        for flow in flows:
            running.append(_Running(flow, _started(spark, pipeline, flow, once, access or {})))
        while any(one.is_active() for one in running):
            time.sleep(LOOK_SECONDS)
            for one in running:
                one.look()
    finally:
        for one in running:
            one.query.stop()
    for one in running:
        one.look()
    outcome = Outcome(pipeline.name, {one.flow.name: one.outcome for one in running})
    outcome.seconds = time.monotonic() - began
    errors = {one.flow.name: why for one in running if (why := told_of_query(one.query))}
    if errors:
        raise PipelineFailed(pipeline.name, errors)
    return outcome


def _started(
    spark: SparkSession, pipeline: Pipeline, flow: Flow, once: bool, access: Access
) -> Any:
    from pyspark.sql import functions

    frame = Frames(spark, pipeline, flow, access).built()
    frame = frame.observe(COUNTED, functions.count(functions.lit(1)).alias("rows"))
    checkpoint = f"{path_of(pipeline.checkpoint or 'pipelines/' + pipeline.name)}/{flow.name}"
    writing = Writing(
        pipeline,
        flow,
        transaction=flow.query,
        checkpoint=checkpoint,
        access=access,
        show=lambda flow, row: print(row),
    )
    try:
        writer = writing.writer(frame).queryName(flow.query)
        writer = writer.option("checkpointLocation", checkpoint)
        if once:
            writer = writer.trigger(availableNow=True)
        elif flow.sink.trigger is not None:
            writer = writer.trigger(processingTime=flow.sink.trigger)
        return writer.start()
    except InvalidRequest:
        raise
    except Exception as error:
        raise InvalidRequest(
            f"{flow.sink.place}: sink {flow.name!r}: {told_of_step(error)}"
        ) from error


class _Running:
    def __init__(self, flow: Flow, query: Any) -> None:
        self.flow, self.query = flow, query
        self.outcome = FlowOutcome(flow.name)
        self._seen: set[str] = set()

    def is_active(self) -> bool:
        return bool(self.query.isActive)

    def look(self) -> None:
        for one in self.query._jsq.recentProgress():
            said: Mapping[str, Any] = json.loads(one.json())
            if said["timestamp"] in self._seen:
                continue
            self._seen.add(said["timestamp"])
            if "addBatch" not in said["durationMs"]:
                continue
            self.outcome.batches += 1
            self.outcome.rows_in += said["numInputRows"]
            self.outcome.rows_out += said.get("observedMetrics", {}).get(COUNTED, {}).get("rows", 0)
