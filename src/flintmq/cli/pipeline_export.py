"""`flintmq pipeline export`: a pipeline as a project of Spark's Declarative Pipelines."""

from __future__ import annotations

from pathlib import Path

import click

from ..spark.pipeline.problems import PipelineInvalid
from .look import said, say
from .pipeline_shared import file_argument, read, refuse, set_option
from .shared import output_option, print_json


@click.command("export")
@file_argument
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@set_option
@output_option
def command(file: Path, directory: Path, settings: tuple[str, ...], output: str) -> int:
    """Write the pipeline in FILE as a project that `spark-pipelines run` takes, into DIRECTORY.

    What Spark's own pipelines cannot do (foreach, other modes than append, rates) is refused, with
    its line. Parameters are put in as they are now. A directory that holds something is left alone.

    \b
    Examples:
      flintmq pipeline export orders.toml ~/orders-project
    """
    from ..spark.pipeline.exporting import export

    try:
        pipeline = read(file, settings)
        if directory.exists() and any(directory.iterdir()):
            raise click.UsageError(f"{directory} is not empty; name a new one")
        say("starting Spark, which knows the columns of queries ...")
        try:
            written = export(pipeline, directory)
        finally:
            said()
    except PipelineInvalid as error:
        return refuse(error, file, output)
    except OSError as error:
        raise click.UsageError(f"{directory} cannot be written: {error.strerror}") from None
    if output == "json":
        print_json({"name": pipeline.name, "files": [str(path) for path in written]})
    else:
        for path in written:
            click.echo(path)
    return 0
