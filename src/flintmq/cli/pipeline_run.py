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
from .pipeline_shared import read, refuse, set_option, target_for
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
@click.argument("file", type=click.Path(path_type=Path), required=False)
@set_option
@click.option(
    "--all",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Run all pipelines of a directory side by side in one Spark, instead of FILE.",
)
@click.option("--once", is_flag=True, help="Process the messages that are there, then exit.")
@click.option(
    "--for", "seconds", type=Duration(), metavar="DURATION", help="Stop after this time: 30s, 5m."
)
@click.option(
    "--restart",
    default="never",
    show_default=True,
    metavar="POLICY",
    help="After a failure: never, on-failure, or on-failure:TIMES in a row.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve metrics for Prometheus at http://HOST:PORT/metrics.",
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
    help="Checkpoint directory of the flows; overrides the file. Not with --all.",
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
    file: Path | None,
    settings: tuple[str, ...],
    directory: Path | None,
    once: bool,
    seconds: float | None,
    restart: str,
    metrics: str | None,
    master: str,
    checkpoint: str | None,
    from_scratch: bool,
    output: str,
) -> int:
    """Run the pipeline in FILE. Each sink is a flow that continues where it stopped.

    Ctrl-C and SIGTERM stop it after the running micro-batch, a second Ctrl-C at once. Either
    way, no message is lost or duplicated. A checkpoint that does not match the file any more is
    rejected. --output json prints one line per micro-batch. Spark's own log is spark.log in the
    checkpoint directory. With --all, a pipeline that fails does not end the others.

    The broker is taken from --server or --context, else from the file, else the default.

    \b
    Examples:
      flintmq pipeline run orders.toml --once
      flintmq pipeline run orders.toml --for 10m --set batch=40 --output json
      flintmq pipeline run orders.toml --restart on-failure:5 --metrics 127.0.0.1:7690
      flintmq pipeline run --all /etc/flintmq/pipelines
    """
    if (file is None) == (directory is None):
        raise click.UsageError("give a pipeline file, or --all DIR")
    if directory is not None and checkpoint is not None:
        raise click.UsageError("--checkpoint is for one pipeline, not for --all")
    from ..spark.java import find_java
    from ..spark.session import checked_pyspark

    checked_pyspark()
    find_java()
    from ..pipeline.run.reporting import reporter
    from ..pipeline.run.restarting import restart_policy
    from .pipeline_running import Running, read_all

    policy = restart_policy(restart)
    try:
        if directory is None:
            assert file is not None
            pipelines = [read(file, settings)]
        else:
            pipelines = read_all(directory, settings)
    except PipelineInvalid as error:
        return refuse(error, file or directory or Path(), output)
    reached = [_reached(pipeline) for pipeline in pipelines]
    if checkpoint is not None:
        reached = [
            (replace(pipeline, checkpoint=checkpoint), access) for pipeline, access in reached
        ]
    running = Running(
        reached,
        reporter(output, sys.stdout, sys.stderr),
        policy=policy,
        once=once,
        seconds=seconds,
        from_scratch=from_scratch,
    )
    ended = running.run(master, metrics)
    return INTERRUPTED if once and "stopped" in ended else 0


def _reached(pipeline: Pipeline) -> tuple[Pipeline, Mapping[str, str]]:
    """The pipeline with its broker and credentials."""
    target = target_for(pipeline)
    access = {ACCESS[name]: str(value) for name, value in target.keywords.items()}
    if "apiKey" not in access and (key := os.environ.get("FLINTMQ_API_KEY")):
        access["apiKey"] = key  # workers on other machines have another environment
    return replace(pipeline, servers=target.url), access
