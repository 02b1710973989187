"""Runs pipelines for `flintmq pipeline run`: one, or many in one Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..pipeline.define.definition import Pipeline
from ..pipeline.define.problems import PipelineInvalid
from ..pipeline.define.reading import read_parameters
from ..pipeline.run import reaching, running, stopping
from ..pipeline.run.metrics import PipelineMetrics, served
from ..pipeline.run.reporting import Reporter
from ..pipeline.run.restarting import RestartPolicy, with_restarts
from ..pipeline.run.running import Outcome, PipelineFailed, log_file_of, settings_of
from ..pipeline.run.stopping import Stop
from ..pipeline.run.together import run_together
from ..pipeline.run.watching import FlowProgress
from .pipeline_shared import given, is_pipeline, pipeline_files, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Reached = tuple[Pipeline, Mapping[str, str]]
"""A pipeline and its credentials."""


def read_all(directory: Path, settings: Sequence[str]) -> list[Pipeline]:
    """The pipelines of a directory. Raises PipelineInvalid with what is wrong with any of them."""
    values = given(settings)
    found: dict[str, Pipeline] = {}
    problems = []
    for path in pipeline_files(directory):
        if not is_pipeline(path):
            continue
        known = read_parameters(path)
        try:
            pipeline = read(path, [f"{k}={v}" for k, v in values.items() if k in known])
        except PipelineInvalid as error:
            problems += error.problems
            continue
        if pipeline.name in found:
            raise click.UsageError(
                f"{found[pipeline.name].place.file} and {path} have the same name, "
                f"{pipeline.name!r}"
            )
        found[pipeline.name] = pipeline
    if problems:
        raise PipelineInvalid(problems)
    if not found:
        raise click.UsageError(f"no pipelines in {directory}")
    return list(found.values())


class Running:
    """A run of one pipeline or of many."""

    def __init__(
        self,
        reached: Sequence[Reached],
        reports: Reporter,
        *,
        policy: RestartPolicy,
        once: bool,
        seconds: float | None,
        from_scratch: bool,
    ) -> None:
        self._reached, self._reports, self._policy = reached, reports, policy
        self._once, self._from_scratch = once, from_scratch
        self._seconds = seconds
        self._is_many = len(reached) > 1
        self._stop = Stop()
        self._metrics = PipelineMetrics()

    def run(self, master: str, metrics: str | None) -> list[str]:
        """Run them to their ends; returns how each ended. Raises the error of one that failed."""
        for pipeline, access in self._reached:
            reaching.reach(pipeline, access)
        reports = self._reports
        with ExitStack() as left, stopping.stopped_by_signals(self._stop):
            if metrics is not None:
                place = left.enter_context(served(self._metrics, metrics))
                reports.note(f"metrics: http://{place}/metrics")
            spark = self._session(master)
            began = time.monotonic()
            if not self._is_many:
                return [self._one(spark, began, *self._reached[0]).ended]
            works = {
                pipeline.name: partial(self._one, spark.newSession(), began, pipeline, access)
                for pipeline, access in self._reached
            }
            outcomes, errors = run_together(works, self._stop, reports.note)
            for error in errors.values():
                raise error
            return [outcome.ended for outcome in outcomes]

    def _session(self, master: str) -> SparkSession:
        """One for all: what is set for the start of Java is that of the first pipeline."""
        ready = self._reports.starting(master)
        first = self._reached[0][0]
        try:
            with log_file_of(first) as log_file:
                return stopping.session_unless_stopped(
                    self._stop,
                    self._reports.note,
                    master=master,
                    app_name="flintmq" if self._is_many else first.name,
                    config=settings_of(first),
                    log_file=log_file,
                )
        finally:
            ready()

    def _one(
        self, spark: SparkSession, began: float, pipeline: Pipeline, access: Mapping[str, str]
    ) -> Outcome:
        name, metrics = pipeline.name, self._metrics

        def attempt(number: int) -> Outcome:
            if number:
                metrics.restarted(name)
            metrics.began(name)
            try:
                return running.run(
                    pipeline,
                    spark=spark,
                    once=self._once,
                    seconds=self._left(began) if number else self._seconds,
                    from_scratch=self._from_scratch and not number,
                    access=access,
                    on_progress=partial(self._progress, name),
                    show=self._reports.row,
                    tell=partial(self._tell, name),
                    stop=self._stop,
                )
            finally:
                metrics.ended(name)

        try:
            outcome = with_restarts(attempt, self._policy, self._stop, partial(self._tell, name))
        except PipelineFailed as failed:
            self._reports.done(failed.outcome)
            raise
        self._reports.done(outcome)
        return outcome

    def _left(self, began: float) -> float | None:
        if self._seconds is None:
            return None
        return max(0.0, self._seconds - (time.monotonic() - began))

    def _progress(self, name: str, progress: FlowProgress) -> None:
        self._metrics.progress(name, progress)
        if self._is_many:
            progress = replace(progress, flow=f"{name}/{progress.flow}")
        self._reports.progress(progress)

    def _tell(self, name: str, text: Any) -> None:
        self._reports.note(f"{name}: {text}" if self._is_many else text)
