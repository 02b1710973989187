"""`flintmq pipeline new`: write a sample pipeline."""

from __future__ import annotations

from pathlib import Path

import click

from ..pipeline.check.checking import FLOW_NAME
from ..pipeline.define.samples import sample
from .shared import output_option, show, write_new


@click.command("new")
@click.argument("name")
@click.option("--yaml", "is_yaml", is_flag=True, help="Write YAML instead of TOML.")
@output_option
def command(name: str, is_yaml: bool, output: str) -> int:
    """Write NAME.toml: a sample pipeline, with comments, that counts orders by region.

    It runs as it is, and has a test. An existing file is not overwritten.

    \b
    Examples:
      flintmq pipeline new totals
      flintmq pipeline new totals --yaml
    """
    suffix = ".yaml" if is_yaml else ".toml"
    path = Path(name.removesuffix(suffix) + suffix)
    if not FLOW_NAME.fullmatch(path.stem):
        raise click.UsageError(
            f"{path.stem!r} is not a valid pipeline name; use letters, digits, _ and -"
        )
    write_new(path, sample(path.stem, str(path), yaml=is_yaml))
    return show(
        output,
        {"file": str(path), "name": path.stem},
        f"Wrote {path}. Test it: `flintmq pipeline test {path}`. Run it: `flintmq pipeline run "
        f"{path} --once`",
    )
