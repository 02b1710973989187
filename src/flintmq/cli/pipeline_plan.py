"""`flintmq pipeline plan`: draw a pipeline."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from ..pipeline.define.problems import PipelineInvalid
from .pipeline_shared import file_argument, read, refuse, set_option
from .shared import output_option, print_json


@click.command("plan")
@file_argument
@set_option
@click.option(
    "--svg",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the drawing as SVG to FILE.",
)
@output_option
def command(file: Path, settings: tuple[str, ...], svg: Path | None, output: str) -> int:
    """Draw the pipeline in FILE: sources, queries and sinks. Spark is not started.

    \b
    Examples:
      flintmq pipeline plan orders.toml
      flintmq pipeline plan orders.toml --svg orders.svg
      flintmq pipeline plan orders.toml --output json
    """
    from ..pipeline.draw.picture import picture_of
    from ..pipeline.draw.svg import draw_svg
    from ..pipeline.draw.text import draw

    try:
        pipeline = read(file, settings)
    except PipelineInvalid as error:
        return refuse(error, file, output)
    if svg is not None:
        try:
            svg.write_text(draw_svg(pipeline), encoding="utf-8")
        except OSError as error:
            raise click.UsageError(f"cannot write {svg}: {error.strerror}") from None
    if output == "json":
        picture = picture_of(pipeline)
        print_json(
            {
                "name": pipeline.name,
                "nodes": [
                    {"name": box.name, "kind": box.kind, "about": box.about, "column": box.column}
                    for box in picture.boxes()
                ],
                "links": [
                    {
                        "from": one.name,
                        "from_kind": one.kind,
                        "to": other.name,
                        "to_kind": other.kind,
                    }
                    for one, other in picture.links()
                ],
                "svg": None if svg is None else str(svg),
            }
        )
    elif svg is not None:
        click.echo(f"Wrote {svg}.")
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 160
        click.echo(draw(pipeline, width=width, plain=not _has_signs()))
    return 0


def _has_signs() -> bool:
    """Whether the output's encoding supports box-drawing characters."""
    try:
        "┌▶…".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
