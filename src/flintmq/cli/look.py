"""Output for people: tables, facts, progress. Drawn by rich on a terminal, plain in a pipe.

rich is imported only when something is drawn, so scripts and pipes do not wait for it. NO_COLOR is
respected. Nothing is truncated: text that is too wide continues on the next line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

HEADING, NAME, FAINT = "bold", "cyan", "dim"
"""The available styles: headings, the subject of a row, less important text."""

_NUMBER = re.compile(r"[-+]?[\d,.]+[kMG]?( ?([KMGT]?i?B|%|us|ms|s|min|h|d))?|-|none|")


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else PIPE_COLUMNS
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


PIPE_COLUMNS = 100_000
"""In a pipe no line is folded: scripts read them one by one."""


def new_table(headings: Sequence[str], rows: Sequence[Sequence[str]], **options: Any) -> Table:
    """Numbers are right-aligned; the first column is the subject of a row."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=HEADING, **options)
    for index, heading in enumerate(headings):
        cells = [row[index] for row in rows]
        is_number = any(cells) and all(map(_NUMBER.fullmatch, cells))
        table.add_column(
            Text(heading),
            justify="right" if is_number and index else "left",
            style=NAME if index == 0 else None,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    texts = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        console().print(new_table(headings, texts))
        return
    lines = [list(headings), *texts]
    widths = [max(len(row[column]) for row in lines) for column in range(len(headings))]
    for row in lines:
        cells = zip(row, widths, strict=True)
        click.echo("  ".join(cell.ljust(width) for cell, width in cells).rstrip())


def print_facts(facts: Mapping[str, object], indent: str = "") -> None:
    """Names and values, a line each."""
    width = max((len(name) for name in facts), default=0)
    if not sys.stdout.isatty():
        for name, value in facts.items():
            click.echo(f"{indent}{name.ljust(width)}  {value}")
        return
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=NAME, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        grid.add_row(Text(name), Text(str(value)))
    console().print(Padding(grid, (0, 0, 0, len(indent))))


# --- long work, on stderr and only where somebody looks


class Doing:
    """A status line that is erased when the work is done."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def show(self, drawn: Any) -> None:
        if not sys.stderr.isatty():
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                console=console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                auto_refresh=False,
            )
            self._live.start()
        self._live.update(drawn, refresh=True)

    def clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


doing = Doing()
"""There is only one terminal."""


def say(text: str) -> None:
    if sys.stderr.isatty():
        from rich.text import Text

        doing.show(Text(text, style=FAINT, overflow="ellipsis", no_wrap=True))


def said() -> None:
    doing.clear()


EVERY_SECONDS = 0.1
BAR_COLUMNS = 24


class ProgressBar:
    """Progress of long work, drawn a few times a second."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self.what, self.total = what, total
        self._began = monotonic()
        self._drawn = 0.0

    def show(self, done: int) -> None:
        now = monotonic()
        if sys.stderr.isatty() and now - self._drawn >= EVERY_SECONDS:
            self._drawn = now
            doing.show(progress(self.what, done, self.total, now - self._began))

    def clear(self) -> None:
        said()


def progress(what: str, done: int, total: int | None, seconds: float) -> Table:
    """The amount done, a bar if the total is known, the rate, and the time left."""
    from rich.progress_bar import ProgressBar as Bar
    from rich.table import Table

    rate = done / seconds if seconds > 0 else 0.0
    speed = f"{rate:,.0f}/s" if seconds >= 0.5 else ""
    parts: list[Any] = [what]
    if total:
        share = min(1.0, done / total)
        parts += [
            Bar(total, done, BAR_COLUMNS, style=FAINT, complete_style=NAME),
            f"{int(share * 100):3}%",
        ]
        parts.append(f"{done:,} of {total:,}")
        left = f"{left_text((total - done) / rate)} left" if rate and speed and share < 1 else ""
        parts += [speed, left]
    else:
        parts += [f"{done:,}", speed]
    line = Table.grid(padding=(0, 2, 0, 0))
    for _ in parts:
        line.add_column(no_wrap=True)
    line.add_row(*parts)
    return line


def left_text(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
