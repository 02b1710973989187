"""`flintmq config init`: a configuration file to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from ..config_docs import sample
from .shared import output_option, print_json


@click.command("init")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--format",
    type=click.Choice(["toml", "yaml"]),
    help="TOML or YAML; by the extension of FILE, else TOML.",
)
@output_option
def command(file: Path | None, format: str | None, output: str) -> int:
    """Write FILE (flintmq.toml) with every setting, explained, at its default and commented out.

    A file that is there is not overwritten.

    \b
    Examples:
      flintmq config init /etc/flintmq.toml
      flintmq config init --format yaml
    """
    if file is None:
        file = Path(f"flintmq.{format or 'toml'}")
    by_name = "yaml" if file.suffix.lower() in (".yaml", ".yml") else "toml"
    if file.suffix.lower() not in (".toml", ".yaml", ".yml") or format not in (None, by_name):
        wanted = f".{format}" if format else ".toml or .yaml"
        raise click.UsageError(
            f"a file that `serve --config` reads so ends in {wanted}, not {file}"
        )
    try:
        with file.open("x") as made:
            made.write(sample(by_name))
    except FileExistsError:
        raise click.UsageError(f"{file} is there already; it is not overwritten") from None
    except OSError as error:
        raise click.UsageError(f"{file} cannot be written: {error.strerror}") from None
    if output == "json":
        print_json({"file": str(file), "format": by_name})
    else:
        click.echo(f"{file} is written; `flintmq serve --config {file}` takes it")
    return 0
