"""`flintmq config init`: write a sample configuration file."""

from __future__ import annotations

from pathlib import Path

import click

from ..config.docs import sample
from .shared import output_option, print_json


@click.command("init")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--format",
    type=click.Choice(["toml", "yaml"]),
    help="TOML or YAML; default: by the extension of FILE, else TOML.",
)
@output_option
def command(file: Path | None, format: str | None, output: str) -> int:
    """Write a sample configuration to FILE (default: flintmq.toml).

    It lists every setting with its description and default, commented out. An existing file is
    not overwritten.

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
            f"a file in this format must end in {wanted} for `serve --config`, not {file}"
        )
    try:
        with file.open("x") as made:
            made.write(sample(by_name))
    except FileExistsError:
        raise click.UsageError(
            f"{file} already exists and is not overwritten; choose another name"
        ) from None
    except OSError as error:
        raise click.UsageError(f"cannot write {file}: {error.strerror}") from None
    if output == "json":
        print_json({"file": str(file), "format": by_name})
    else:
        click.echo(f"Wrote {file}. Start a broker with it: `flintmq serve --config {file}`")
    return 0
