"""`flintmq pipeline new`: a pipeline to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from ..spark.pipeline.checking import FLOW_NAME
from ..spark.pipeline.samples import sample
from .shared import output_option, print_json


@click.command("new")
@click.argument("name")
@click.option("--yaml", "is_yaml", is_flag=True, help="YAML, not TOML.")
@output_option
def command(name: str, is_yaml: bool, output: str) -> int:
    """Write NAME.toml: a pipeline that counts orders by region, with everything explained in it.

    It can be run as it is. A file that is there is not overwritten.

    \b
    Examples:
      flintmq pipeline new totals
      flintmq pipeline new totals --yaml
    """
    suffix = ".yaml" if is_yaml else ".toml"
    path = Path(name.removesuffix(suffix) + suffix)
    if not FLOW_NAME.fullmatch(path.stem):
        raise click.UsageError(
            f"{path.stem!r} is no name of a pipeline; use letters, digits, _ and -"
        )
    try:
        with path.open("x") as file:
            file.write(sample(path.stem, str(path), yaml=is_yaml))
    except FileExistsError:
        raise click.UsageError(f"{path} is there already; it is not overwritten") from None
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from None
    if output == "json":
        print_json({"file": str(path), "name": path.stem})
    else:
        click.echo(f"{path} is written; `flintmq pipeline run {path} --once` runs it")
    return 0
