"""The results of `flintmq bench` as a chart: bars in a terminal, or a picture."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from xml.sax.saxutils import escape

import click

from ..amounts import precise
from ..errors import InvalidRequest
from .latencies import Latencies
from .look import console

BAR = 40


def print_bars(times: Latencies) -> None:
    """A histogram: a bar for each step of time."""
    rows = times.histogram()
    most = max((count for _, count in rows), default=1)
    width = max((len(precise(bound / 1e6)) for bound, _ in rows), default=0)
    if not sys.stdout.isatty():
        for bound, count in rows:
            signs = "#" * max(round(count / most * BAR), count > 0)
            click.echo(f"  to {precise(bound / 1e6).rjust(width)}  {signs:{BAR}}  {count:,}")
        return
    from rich.bar import Bar
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(width=BAR)
    grid.add_column(justify="right", no_wrap=True)
    for bound, count in rows:
        bar = Bar(most, 0, max(count, most / BAR / 8), width=BAR, color="cyan")
        grid.add_row(f"  to {precise(bound / 1e6).rjust(width)}", bar, f"{count:,}")
    console().print(grid)


class Sheet:
    """A picture that grows downwards, line by line: texts and bars."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._parts: list[str] = []
        self._y = 0

    def line(self, height: int) -> None:
        """Go down to the next line."""
        self._y += height

    def text(
        self, x: int, content: str, *, size: int = 13, end: bool = False, bold: bool = False
    ) -> None:
        more = (' text-anchor="end"' if end else "") + (' font-weight="bold"' if bold else "")
        place = f'x="{x}" y="{self._y}" font-size="{size}"'
        self._parts.append(f"<text {place}{more}>{escape(content)}</text>")

    def bar(self, x: int, length: float, colour: str) -> None:
        self._parts.append(
            f'<rect x="{x}" y="{self._y - 11}" width="{round(length, 1)}" height="13" '
            f'fill="{colour}"/>'
        )

    def render(self) -> str:
        width, height = self._width, self._y + 24
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" fill="#1f2937">\n'
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )


def svg(title: str, lines: list[str], times: dict[str, Latencies]) -> str:
    """A histogram for each kind of latency, with its percentiles, below what was measured."""
    sheet = Sheet(680)
    sheet.line(28)
    sheet.text(20, title, size=16, bold=True)
    for line in lines:
        sheet.line(20)
        sheet.text(20, line)
    for name, found in times.items():
        rows = found.histogram()
        if not rows:
            continue
        sheet.line(34)
        figures = ", ".join(f"{at} {precise(value / 1e6)}" for at, value in found.figures().items())
        sheet.text(20, f"{name}: {figures}", bold=True)
        sheet.line(8)
        most = max(count for _, count in rows)
        for bound, count in rows:
            sheet.line(18)
            sheet.text(110, f"to {precise(bound / 1e6)}", size=12, end=True)
            length = round(count / most * 420, 1)
            sheet.bar(120, length, "#c2410c")
            sheet.text(round(126 + length), f"{count:,}", size=12)
    return sheet.render()


def check_chart(path: Path) -> None:
    """Raises before anything is measured if this kind of chart cannot be written here."""
    if path.suffix == ".png":
        try:
            import_module("cairosvg")
        except (ImportError, OSError):
            raise InvalidRequest(
                "writing a PNG needs cairosvg: pip install cairosvg; or use .svg"
            ) from None


def write_chart(path: Path, picture: str) -> None:
    if path.suffix == ".png":
        import_module("cairosvg").svg2png(bytestring=picture.encode(), write_to=str(path))
    else:
        path.write_text(picture)
