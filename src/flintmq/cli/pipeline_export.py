"""`flintmq pipeline export`: export a pipeline to Spark Declarative Pipelines."""

from __future__ import annotations

from pathlib import Path

import click

from ..pipeline.define.problems import PipelineInvalid
from .look import said, say
from .pipeline_shared import file_argument, read, refuse, set_option
from .shared import output_option, show


@click.command("export")
@file_argument
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@set_option
@output_option
def command(file: Path, directory: Path, settings: tuple[str, ...], output: str) -> int:
    """Export the pipeline in FILE to DIRECTORY, as a project for `spark-pipelines run`.

    Features that Spark's own pipelines lack (foreach, modes other than append, rates) are
    rejected, with their line. Parameters are replaced by their current values. DIRECTORY must
    be new or empty.

    \b
    Examples:
      flintmq pipeline export orders.toml ~/orders-project
    """
    from ..pipeline.export.exporting import export

    try:
        pipeline = read(file, settings)
        if directory.exists() and any(directory.iterdir()):
            raise click.UsageError(f"{directory} is not empty; choose a new directory")
        say("starting Spark to get the columns of the queries ...")
        try:
            written = export(pipeline, directory)
        finally:
            said()
    except PipelineInvalid as error:
        return refuse(error, file, output)
    except OSError as error:
        raise click.UsageError(f"cannot write {directory}: {error.strerror}") from None
    files = [str(path) for path in written]
    return show(output, {"name": pipeline.name, "files": files}, "\n".join(files))
