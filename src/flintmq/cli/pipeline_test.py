"""`flintmq pipeline test`: run the tests in a pipeline file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..pipeline.define.problems import PipelineInvalid, meant
from .look import said, say
from .pipeline_shared import file_argument, given, read, refuse, set_option
from .shared import output_option, print_json

if TYPE_CHECKING:
    from ..pipeline.define.definition import Case, Pipeline
    from ..pipeline.trial.trying import CaseResult


@click.command("test")
@file_argument
@set_option
@click.option("--only", multiple=True, metavar="TEST", help="Run only the test of this name.")
@output_option
def command(file: Path, settings: tuple[str, ...], only: tuple[str, ...], output: str) -> int:
    """Run the tests in FILE: given rows go in, and the rows that come out are compared.

    A test is a table [tests.NAME] of the file. Everything runs on a small Spark in this process:
    no broker is contacted, no topic, file or checkpoint of the pipeline is touched, and foreach
    functions are not called. Exits with 0 if all tests passed, else 1.

    \b
    Examples:
      flintmq pipeline test orders.toml
      flintmq pipeline test orders.toml --only late --output json
    """
    try:
        cases = _cases(file, settings, only)
    except PipelineInvalid as error:
        return refuse(error, file, output)
    from ..pipeline.check.queries import quiet_session
    from ..pipeline.trial.trying import tried

    results: list[CaseResult] = []
    say("starting Spark to run the tests ...")
    try:
        with quiet_session(cases[0][0]) as spark:
            for result in tried(spark, cases):
                said()
                results.append(result)
                if output == "text":
                    _tell(result)
    finally:
        said()
    failed = sum(not result.has_passed for result in results)
    if output == "json":
        print_json(
            {
                "file": str(file),
                "passed": len(results) - failed,
                "failed": failed,
                "tests": [_as_json(result) for result in results],
            }
        )
    else:
        click.echo(f"{file}: {len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _cases(file: Path, settings: Sequence[str], only: Sequence[str]) -> list[tuple[Pipeline, Case]]:
    """The tests to run, each with the pipeline that its parameters make."""
    from ..config.documents import FileUnreadable
    from ..pipeline.define.reading import read_cases

    try:
        declared = read_cases(file)
    except FileUnreadable:
        read(file, settings)  # refuses it
        raise
    if unknown := [name for name in only if name not in declared]:
        raise click.UsageError(
            f"{file} has no test {unknown[0]!r}; {meant(unknown[0], declared, 'there are')}"
        )
    if not declared:
        read(file, settings)  # what is wrong with it goes first
        raise click.UsageError(
            f"{file} has no tests; add [tests.NAME] with given.SOURCE = [...] and "
            "expected.SINK = [...]"
        )
    cases = []
    for name, case in declared.items():
        if only and name not in only:
            continue
        # What is set for this run wins.
        own = [f"{key}={value}" for key, value in case.set.items() if key not in given(settings)]
        pipeline = read(file, [*own, *settings])
        cases.append((pipeline, pipeline.tests[name]))
    return cases


def _tell(result: CaseResult) -> None:
    took = f"{result.seconds:.1f} s"
    if result.has_passed:
        click.echo(f"ok      {result.case.name} ({took})")
        return
    click.echo(f"FAILED  {result.case.name} ({took}), at {result.case.place}")
    if result.error:
        click.echo(f"  {result.error}")
    for one in result.comparisons:
        if not one.differences:
            continue
        expected = f"{one.expected} row{'' if one.expected == 1 else 's'}"
        click.echo(f"  sink {one.sink}, micro-batch {one.batch}, {expected} expected:")
        for difference in one.differences:
            if difference.expected is not None:
                click.echo(f"  - {_line(difference.expected)}")
            if difference.found is not None:
                click.echo(f"  + {_line(difference.found)}")


def _line(row: object) -> str:
    return json.dumps(row, default=str, ensure_ascii=False)


def _as_json(result: CaseResult) -> dict[str, Any]:
    comparisons = [asdict(one) for one in result.comparisons]
    return {
        "name": result.case.name,
        "file": result.case.place.file,
        "line": result.case.place.line or None,
        "passed": result.has_passed,
        "seconds": round(result.seconds, 3),
        "error": result.error or None,
        "comparisons": json.loads(_line(comparisons)),
    }
