"""Shared by the pipeline commands: the file, its parameters, its problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..config.documents import TOML, YAML, read_document
from ..pipeline.define.problems import Defect, PipelineInvalid
from .connecting import WHERE, Target, target_of
from .shared import print_json

if TYPE_CHECKING:
    from ..pipeline.define.definition import Pipeline

file_argument = click.argument("file", type=click.Path(path_type=Path))
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter of the file. Overrides the environment and the default.",
)


def given(settings: Sequence[str]) -> dict[str, str]:
    """The parameters given by `--set`."""
    values = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--set takes NAME=VALUE, not {setting!r}")
        values[name] = value
    return values


def read(file: Path, settings: Sequence[str]) -> Pipeline:
    """The pipeline in a file. Raises PipelineInvalid if its syntax or meaning is wrong."""
    from ..pipeline.check.checking import checked
    from ..pipeline.define.reading import read_pipeline

    return checked(read_pipeline(file, given(settings)))


def pipeline_files(directory: Path) -> Iterator[Path]:
    """The files of a directory that may have pipelines in them."""
    yield from sorted(path for path in directory.iterdir() if path.suffix.lower() in TOML + YAML)


def is_pipeline(path: Path) -> bool:
    """Whether a file has a pipeline in it. Raises FileUnreadable."""
    return bool({"sources", "sinks"} & set(read_document(path).entries))


def tell(problems: Sequence[Defect]) -> None:
    """One line per problem."""
    for problem in problems:
        click.echo(f"flintmq: {problem}", err=True)


def refuse(error: PipelineInvalid, file: Path, output: str) -> int:
    """Print what is wrong; returns the exit code."""
    if output == "json":
        print_json({"file": str(file), "problems": [as_json(one) for one in error.problems]})
    else:
        tell(error.problems)
    return 1


def as_json(problem: Defect) -> dict[str, Any]:
    return {
        "file": problem.place.file,
        "line": problem.place.line or None,
        "column": problem.place.column or None,
        "text": problem.text,
        "remedy": problem.remedy or None,
    }


def target_for(pipeline: Pipeline) -> Target:
    """The broker of a pipeline: from --server or --context, else from its file, else the default.

    For a command with `server_options`.
    """
    context = click.get_current_context()
    said: dict[str, Any] = {name: context.params[name] for name in WHERE}
    is_named = context.params["context"] is not None or (
        context.get_parameter_source("server") is ParameterSource.COMMANDLINE
    )
    if not is_named and pipeline.servers is not None:
        # Without the context: a key that is for its broker is for no other.
        said |= {"server": pipeline.servers, "context": None}
    return target_of(**said)
