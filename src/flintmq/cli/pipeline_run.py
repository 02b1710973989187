"""`flintmq pipeline run`: run a pipeline until it is done or stopped."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..pipeline.define.problems import PipelineInvalid
from .connecting import Target, server_options
from .durations import Duration
from .exit_codes import INTERRUPTED
from .pipeline_shared import file_argument, read, refuse, set_option, target_for
from .shared import output_option

if TYPE_CHECKING:
    from ..pipeline.define.definition import Pipeline

ACCESS = {
    "api_key": "apiKey",
    "tls_ca": "tlsCa",
    "tls_cert": "tlsCert",
    "tls_key": "tlsKey",
}
"""Options as the command names them, and as the data source does."""


@click.command("run")
@file_argument
@set_option
@click.option("--once", is_flag=True, help="Process the messages that are there, then exit.")
@click.option(
    "--for", "seconds", type=Duration(), metavar="DURATION", help="Stop after this time: 30s, 5m."
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Spark master: local[2], spark://host:7077 ...",
)
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Checkpoint directory of the flows; overrides the file.",
)
@click.option(
    "--from-scratch",
    is_flag=True,
    help="Delete the checkpoints and read everything again. Files written before are set aside.",
)
@output_option
@server_options
def command(
    target: Target,
    file: Path,
    settings: tuple[str, ...],
    once: bool,
    seconds: float | None,
    master: str,
    checkpoint: str | None,
    from_scratch: bool,
    output: str,
) -> int:
    """Run the pipeline in FILE. Each sink is a flow that continues where it stopped.

    Ctrl-C and SIGTERM stop it after the running micro-batch, a second Ctrl-C at once. Either
    way, no message is lost or duplicated. A checkpoint that does not match the file any more is
    rejected. --output json prints one line per micro-batch. Spark's own log is spark.log in the
    checkpoint directory.

    The broker is taken from --server or --context, else from the file, else the default.

    \b
    Examples:
      flintmq pipeline run orders.toml --once
      flintmq pipeline run orders.toml --for 10m --set batch=40 --output json
    """
    from ..spark.java import find_java
    from ..spark.session import checked_pyspark

    checked_pyspark()
    find_java()
    from ..pipeline.run.reaching import reach
    from ..pipeline.run.reporting import reporter
    from ..pipeline.run.running import PipelineFailed, log_file_of, run, settings_of
    from ..pipeline.run.stopping import Stop, session_unless_stopped, stopped_by_signals

    try:
        pipeline = read(file, settings)
    except PipelineInvalid as error:
        return refuse(error, file, output)
    pipeline, access = _reached(pipeline)
    if checkpoint is not None:
        pipeline = replace(pipeline, checkpoint=checkpoint)
    reach(pipeline, access)
    reports = reporter(output, sys.stdout, sys.stderr)
    stop = Stop()
    with stopped_by_signals(stop):
        ready = reports.starting(master)
        try:
            with log_file_of(pipeline) as log_file:
                spark = session_unless_stopped(
                    stop,
                    reports.note,
                    master=master,
                    app_name=pipeline.name,
                    config=settings_of(pipeline),
                    log_file=log_file,
                )
        finally:
            ready()
        try:
            outcome = run(
                pipeline,
                spark=spark,
                once=once,
                seconds=seconds,
                from_scratch=from_scratch,
                access=access,
                on_progress=reports.progress,
                show=reports.row,
                tell=reports.note,
                stop=stop,
            )
        except PipelineFailed as failed:
            reports.done(failed.outcome)
            raise
    reports.done(outcome)
    return INTERRUPTED if once and outcome.ended == "stopped" else 0


def _reached(pipeline: Pipeline) -> tuple[Pipeline, Mapping[str, str]]:
    """The pipeline with its broker and credentials."""
    target = target_for(pipeline)
    access = {ACCESS[name]: str(value) for name, value in target.keywords.items()}
    if "apiKey" not in access and (key := os.environ.get("FLINTMQ_API_KEY")):
        access["apiKey"] = key  # workers on other machines have another environment
    return replace(pipeline, servers=target.url), access
