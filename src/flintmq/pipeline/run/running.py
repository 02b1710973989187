"""Runs a pipeline: every flow is a streaming query, watched until it ends or is stopped.

Ctrl-C and SIGTERM stop every flow after its current micro-batch, a second Ctrl-C at once. If a flow
fails, the others are stopped after theirs.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...errors import FlintError, InvalidRequest
from ...spark.failures import error_text
from ...spark.session import SparkSetting, as_text, jvm_of, session
from ..check.checking import checked
from ..check.queries import quiet_spark
from ..define.definition import Pipeline
from ..define.flows import Flow, flows_of
from ..lake.storage import is_object_url
from .checkpoints import CheckpointLock, checkpoint_of, directory
from .frames import AccessOptions, Frames, has_scheme, java_session, path_of
from .reaching import reach
from .resuming import facts_of, resume, target_of
from .sinks import Print, Writing
from .standing import Lag, report_positions
from .stopping import BatchGate, Stop, stopped_by_signals
from .watching import COUNTED, FlowOutcome, FlowProgress, Watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_START_LOCK = threading.Lock()
"""Held while the flows of a pipeline start: several pipelines may share a Spark."""

LOOK_SECONDS = 0.1
BEGIN_LOOK_SECONDS = 0.01
SETTINGS: dict[str, SparkSetting] = {
    # Times are the same wherever it runs.
    "spark.sql.session.timeZone": "UTC",
}

Ended = Literal["done", "stopped", "failed"]
"""A run with `once` is done; others end when they are stopped, or when a flow fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run."""

    pipeline: str
    ended: Ended
    seconds: float
    flows: Mapping[str, FlowOutcome]


class PipelineFailed(FlintError):
    """Flows failed; the others were stopped after their batch. `outcome` has all flows."""

    def __init__(self, pipeline: str, errors: dict[str, str], outcome: Outcome) -> None:
        lines = [f"flow {flow!r} of {pipeline!r}: {error}" for flow, error in errors.items()]
        super().__init__("\n".join(lines))
        self.pipeline, self.errors, self.outcome = pipeline, errors, outcome


def settings_of(pipeline: Pipeline) -> dict[str, SparkSetting]:
    """Settings of Spark for the session of a pipeline."""
    return {**SETTINGS, **pipeline.spark}


def checkpoint_root(pipeline: Pipeline) -> str:
    return pipeline.checkpoint or f"pipelines/{pipeline.name}"


@contextmanager
def log_file_of(pipeline: Pipeline) -> Iterator[Path]:
    """The file for the output of Spark and its workers; each run starts it again. If Spark does not
    start and printed nothing, everything made here is removed."""
    root = checkpoint_root(pipeline)
    directory = Path(tempfile.gettempdir() if has_scheme(root) else path_of(root))
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "spark.log"
    file.write_bytes(b"")
    try:
        yield file
    except BaseException:
        with suppress(OSError):
            if not file.stat().st_size:
                file.unlink()
            for path in made:
                path.rmdir()
        raise


def run(
    pipeline: Pipeline,
    *,
    master: str = "local[*]",
    once: bool = False,
    spark: SparkSession | None = None,
    on_progress: Callable[[FlowProgress], None] | None = None,
    seconds: float | None = None,
    from_scratch: bool = False,
    access: AccessOptions | None = None,
    show: Print | None = None,
    tell: Callable[[str], None] | None = None,
    stop: Stop | None = None,
) -> Outcome:
    """Run every flow of a pipeline; `once` reads what exists and ends, else it runs forever.

    In the main thread, Ctrl-C and SIGTERM end it after the running micro-batches, and so do `stop`
    and the end of `seconds`. `from_scratch` deletes the checkpoints; directories that the flows
    wrote are renamed. `access` are credentials, as options of the data source (apiKey, tlsCa ...);
    `show` gets rows of console sinks, `tell` gets messages for the user.

    Raises PipelineFailed if a flow fails, InvalidRequest if none can start, CannotResume if the
    definition changed in a way that a checkpoint does not allow, and KeyboardInterrupt at the
    second Ctrl-C.
    """
    began = time.monotonic()
    stop = stop or Stop()
    tell = tell or _log.info
    reach(checked(pipeline), access or {})
    if spark is None:
        with log_file_of(pipeline) as log_file:
            spark = session(
                master,
                app_name=pipeline.name,
                config=settings_of(pipeline),
                log_file=log_file,
            )
    make_active(spark)
    with ExitStack() as left, stopped_by_signals(stop), quiet_spark():
        starting = _Starting(spark, pipeline, once=once, access=access or {}, show=show or _shown)
        flows = flows_of(pipeline)
        for flow in flows:
            left.callback(CheckpointLock(spark, checkpoint_root(pipeline), flow.name).release)
        if from_scratch:
            _forget(spark, pipeline, flows, tell)
        watched: list[Watched] = []
        left.callback(_stop_all, watched)
        with session_settings(spark, settings_of(pipeline)):
            prepared = [(flow, *starting.prepared(flow)) for flow in flows]
        with _START_LOCK:
            for flow, writer, gate in prepared:
                lag = Lag(pipeline, flow, access or {})
                watched.append(Watched(flow, partial(starting.started, flow, writer), gate, lag))
                _wait_begun(watched[-1], stop)
        tell(f"running: {', '.join(flow.name for flow in flows)}")
        deadline = None if seconds is None else time.monotonic() + seconds
        _watch(watched, stop, deadline, on_progress, tell)
        outcome = Outcome(
            pipeline=pipeline.name,
            ended=_ended(watched, is_done=once and not stop.is_asked()),
            seconds=time.monotonic() - began,
            flows={one.flow.name: one.outcome() for one in watched},
        )
        for one in watched:
            if one.error is None and one.positions:
                _report_positions(pipeline, one, access or {})
    if errors := {one.flow.name: one.error for one in watched if one.error is not None}:
        raise PipelineFailed(pipeline.name, errors, outcome)
    return outcome


def _ended(watched: list[Watched], *, is_done: bool) -> Ended:
    if any(one.error is not None for one in watched):
        return "failed"
    return "done" if is_done else "stopped"


def make_active(spark: SparkSession) -> None:
    """Spark looks for data sources in the session of the current thread, which may not be the one
    that made the session."""
    in_java = java_session(spark)  # first: it says what is wrong with Spark Connect
    jvm_of(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(in_java)


def _wait_begun(one: Watched, stop: Stop) -> None:
    """Start flows one after the other. Each source writes variables for its Python process into one
    map that all sources of a kind share, without a lock: if two write at once, no query of the
    session can run any more ("Illegal size 5 of collection")."""
    while one.is_beginning() and not stop.is_urgent:
        time.sleep(BEGIN_LOOK_SECONDS)


def _watch(
    watched: list[Watched],
    stop: Stop,
    deadline: float | None,
    on_progress: Callable[[FlowProgress], None] | None,
    tell: Callable[[str], None],
) -> None:
    while True:
        for one in watched:
            for progress in one.news():
                if on_progress is not None:
                    on_progress(progress)
        if all(one.has_ended() for one in watched):
            return
        if deadline is not None and time.monotonic() >= deadline:
            stop.ask()
        stop.tell(tell, "after the running micro-batch")
        if stop.is_asked() or any(one.error is not None for one in watched):
            for one in watched:
                one.stop_after_batch()
                one.stop_if_due()
        if stop.is_urgent:
            raise KeyboardInterrupt
        stop.wait(LOOK_SECONDS)


def _stop_all(watched: list[Watched]) -> None:
    for one in watched:
        one.stop_now()


def _report_positions(pipeline: Pipeline, one: Watched, access: AccessOptions) -> None:
    try:
        report_positions(pipeline, one.flow, access, one.positions)
    except FlintError as error:  # nothing depends on it
        _log.warning("could not report the end of flow %r to the broker: %s", one.flow.name, error)


def _shown(flow: str, row: str) -> None:
    print(row, flush=True)


class _Starting:
    """Makes the queries of flows."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        *,
        once: bool,
        access: AccessOptions,
        show: Print,
    ) -> None:
        self._spark, self._pipeline, self._once = spark, pipeline, once
        self._access, self._show = access, show

    def prepared(self, flow: Flow) -> tuple[Any, BatchGate]:
        """The query, ready to start. Nothing runs, and only notes are written."""
        from pyspark.sql import functions

        gate = BatchGate()
        frames = Frames(self._spark, self._pipeline, flow, self._access, stop_file=gate.file)
        frame = frames.built()
        facts = facts_of(self._pipeline, flow, frames.of, frame)
        checkpoint = checkpoint_of(self._spark, checkpoint_root(self._pipeline), flow.name)
        id = resume(checkpoint, facts, flow.sink.place)
        counted = frame.observe(COUNTED, functions.count(functions.lit(1)).alias("rows"))
        writing = Writing(
            self._pipeline,
            flow,
            gate=gate,
            transaction=f"{flow.query}/{id}",
            checkpoint=checkpoint.path,
            access=self._access,
            show=self._show,
        )
        writer = writing.writer(counted).queryName(flow.query)
        writer = writer.option("checkpointLocation", checkpoint.path)
        if self._once:
            writer = writer.trigger(availableNow=True)
        elif flow.sink.trigger is not None:
            writer = writer.trigger(processingTime=flow.sink.trigger)
        return writer, gate

    def started(self, flow: Flow, writer: Any) -> Any:
        """The running query. It uses the settings that the session has now."""
        try:
            with session_settings(self._spark, settings_of(self._pipeline)):
                return writer.start()
        except Exception as error:
            raise InvalidRequest(
                f"{flow.sink.place}: sink {flow.name!r}: {error_text(error)}"
            ) from error


def _forget(
    spark: SparkSession, pipeline: Pipeline, flows: list[Flow], tell: Callable[[str], None]
) -> None:
    """Start over. Results stay: files are renamed, messages stay in their topics."""
    for flow in flows:
        kind, to = target_of(flow.sink)
        if kind == "parquet" and is_object_url(to):
            raise InvalidRequest(
                f"{flow.sink.place}: flow {flow.name!r} cannot start over: its files in object "
                "storage cannot be renamed. Set parquet to another directory, and use another "
                "--checkpoint"
            )
    for flow in flows:
        checkpoint = checkpoint_of(spark, checkpoint_root(pipeline), flow.name)
        had_begun = bool(checkpoint.names("offsets"))
        checkpoint.remove()
        kind, to = target_of(flow.sink)
        if kind in ("parquet", "json"):
            files = directory(spark, to)
            if files.names():
                tell(f"flow {flow.name!r}: its files were moved to {files.set_aside()}")
        elif kind in ("topic", "delta", "iceberg") and had_begun:
            what = "topic" if kind == "topic" else "table"
            tell(f"flow {flow.name!r}: {what} {to!r} keeps its rows, and gets them again")


@contextmanager
def session_settings(spark: SparkSession, wanted: Mapping[str, SparkSetting]) -> Iterator[None]:
    """Set what queries use when they start; the session gets its own settings back."""
    before: dict[str, str | None] = {}
    for name, value in wanted.items():
        if spark.conf.isModifiable(name):
            before[name] = spark.conf.get(name, None)
            spark.conf.set(name, as_text(value))
    try:
        yield
    finally:
        for name, value_before in before.items():
            if value_before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value_before)
