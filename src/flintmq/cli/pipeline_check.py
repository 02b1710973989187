"""`flintmq pipeline check`: everything that is wrong with a pipeline, before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import MissingExtra, SparkUnavailable
from ..spark.pipeline.problems import PipelineInvalid, Problem
from .look import said, say
from .pipeline_shared import as_json, file_argument, read, set_option, tell
from .shared import output_option, print_json

if TYPE_CHECKING:
    from ..spark.pipeline.definition import Pipeline


@click.command("check")
@file_argument
@set_option
@click.option("--quick", is_flag=True, help="Do not start Spark: queries are not analysed.")
@output_option
def command(file: Path, settings: tuple[str, ...], quick: bool, output: str) -> int:
    """Say what is wrong with the pipeline in FILE: line, column, and what would be right.

    Queries are analysed by Spark over empty tables of the declared schemas, and functions are
    called with such tables; no job is started and no broker is asked. Where anything else is wrong,
    that is told first. Exit code 0 if all is well, else 1.

    \b
    Examples:
      flintmq pipeline check orders.toml --quick
      flintmq pipeline check orders.toml --set window='5 minutes' --quick --output json
    """
    pipeline, note = None, ""
    try:
        pipeline = read(file, settings)
        problems, note = _more_problems(pipeline, quick)
    except PipelineInvalid as error:
        problems = error.problems
    if output == "json":
        print_json(
            {
                "file": str(file),
                "name": None if pipeline is None else pipeline.name,
                "queries_analysed": not problems and not note,
                "problems": [as_json(problem) for problem in problems],
            }
        )
        return 1 if problems else 0
    tell(problems)
    if not problems:
        click.echo(f"{file}: nothing is wrong with it{note and f' ({note})'}")
    return 1 if problems else 0


def _more_problems(pipeline: Pipeline, quick: bool) -> tuple[list[Problem], str]:
    """What the functions' files and Spark say; and why Spark was not asked."""
    from ..spark.pipeline.function_checking import check_functions
    from ..spark.pipeline.sql_checking import check_sql, quiet_session

    if problems := check_functions(pipeline):
        return problems, ""
    if quick:
        return [], "its queries were not looked at: --quick"
    try:
        say("starting Spark, to look at the queries ...")
        with quiet_session(pipeline) as spark:
            return check_sql(spark, pipeline), ""
    except (MissingExtra, SparkUnavailable) as error:
        return [], f"its queries were not looked at: {error}"
    finally:
        said()
