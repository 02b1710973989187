"""`flintmq pipeline check`: find all errors in a pipeline before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import MissingExtra, SparkUnavailable
from ..pipeline.define.problems import Defect, PipelineInvalid
from .look import said, say
from .pipeline_shared import as_json, file_argument, read, set_option, tell
from .shared import output_option, print_json

if TYPE_CHECKING:
    from ..pipeline.define.definition import Pipeline


@click.command("check")
@file_argument
@set_option
@click.option("--quick", is_flag=True, help="Do not start Spark, and do not analyse queries.")
@output_option
def command(file: Path, settings: tuple[str, ...], quick: bool, output: str) -> int:
    """Check the pipeline in FILE, and list all errors with line, column and remedy.

    Spark analyses the queries on empty tables with the declared schemas, and functions are
    called with such tables. No job is started and no broker is contacted. Queries are only
    analysed if there are no other errors. Exits with 0 if there are no errors, else 1.

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
        click.echo(f"{file}: no errors{note and f' ({note})'}")
    return 1 if problems else 0


def _more_problems(pipeline: Pipeline, quick: bool) -> tuple[list[Defect], str]:
    """Problems that the functions' files and Spark report; and why Spark was not used."""
    from ..pipeline.check.functions import check_functions
    from ..pipeline.check.queries import check_sql, quiet_session

    if problems := check_functions(pipeline):
        return problems, ""
    if quick:
        return [], "queries were not analysed because of --quick"
    try:
        say("starting Spark to analyse the queries ...")
        with quiet_session(pipeline) as spark:
            return check_sql(spark, pipeline), ""
    except (MissingExtra, SparkUnavailable) as error:
        return [], f"queries were not analysed: {error}"
    finally:
        said()
