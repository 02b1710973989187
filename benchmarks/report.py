"""From figures to one table and one JSON line."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any

from .runs import Line, Spread
from .scenario import Column, Scenario, Settings, Unit

WIDTH = 100


def machine() -> dict[str, Any]:
    """What a figure depends on, without saying whose machine it is."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = [round(figure, 2) for figure in os.getloadavg()] if hasattr(os, "getloadavg") else []
    return {
        "cores": cores,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "load_average_at_start": load,
    }


def machine_line(facts: dict[str, Any]) -> str:
    load = ", ".join(f"{figure:.2f}" for figure in facts["load_average_at_start"])
    return (
        f"{facts['cores']} cores, {facts['system']}, {facts['python']}, "
        f"load average at start {load or 'unknown'}"
    )


def shown(figure: float, unit: Unit) -> str:
    match unit:
        case "rate":
            if figure >= 999_500:
                return f"{figure / 1e6:.2f} M"
            return f"{figure / 1e3:.0f} k" if figure >= 9_999.5 else f"{figure:,.0f}"
        case "times":
            return f"{figure:.2f}" if figure < 99.5 else f"{figure:,.0f}"
        case "microseconds" | "MiB":
            return f"{figure:.1f}"
        case "seconds":
            return f"{figure:.3f}"
        case "bytes":
            return f"{figure:.0f}"
        case "count":
            return f"{figure:,.0f}"


def table(name: str, scenario: Scenario, lines: Sequence[Line], runs: int) -> str:
    columns = scenario.columns
    if runs == 1:
        columns = tuple(replace(column, with_range=False) for column in columns)
    headings = ["case", "loop"] if scenario.every_loop else ["case"]
    labels = len(headings)
    for column in columns:
        headings.append(column.heading)
        if column.with_range:
            headings.append("min-max")
    cells = [[line.case, line.loop][:labels] + _cells(columns, line) for line in lines]
    widths = [
        max(len(row[at]) for row in [headings, *cells] if at < len(row))
        for at in range(len(headings))
    ]
    text = [f"{name}: {scenario.title}", f"median of {runs} {'run' if runs == 1 else 'runs'}", ""]
    text.append(_aligned(headings, widths, labels))
    text.append(_aligned(["-" * width for width in widths], widths, labels))
    for line, row in zip(lines, cells, strict=True):
        text.append(_aligned(row, widths, labels))
        if line.error is not None:
            text.extend(wrap(f"error: {line.error}", WIDTH, initial_indent="    "))
    if scenario.notes:
        text.append("")
    for note in scenario.notes:
        text.extend(wrap(note, WIDTH))
    return "\n".join(text)


def _cells(columns: Sequence[Column], line: Line) -> list[str]:
    cells: list[str] = []
    if line.error is not None:
        return cells
    spreads = line.spreads()
    for column in columns:
        spread = spreads.get(column.name)
        cells.append("-" if spread is None else shown(spread.median, column.unit))
        if column.with_range:
            cells.append("-" if spread is None else _range(spread, column.unit))
    return cells


def _range(spread: Spread, unit: Unit) -> str:
    low, high = shown(spread.min, unit), shown(spread.max, unit)
    if low[-2:] == high[-2:] and low[-2:] in (" k", " M"):
        low = low[:-2]  # one unit for both
    return f"{low}-{high}".replace(" ", "")


def _aligned(cells: Sequence[str], widths: Sequence[int], labels: int) -> str:
    texts = [
        cell.ljust(width) if at < labels else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=False))
    ]
    return "  ".join(texts).rstrip()


def json_line(
    name: str,
    scenario: Scenario,
    lines: Sequence[Line],
    *,
    runs: int,
    settings: Settings,
    facts: dict[str, Any],
) -> str:
    units = {column.name: column.unit for column in scenario.columns}
    rows = [
        {
            "case": line.case,
            "loop": line.loop,
            "figures": {
                figure: {
                    "median": spread.median,
                    "min": spread.min,
                    "max": spread.max,
                    "unit": units.get(figure),
                }
                for figure, spread in line.spreads().items()
            },
            "error": line.error,
        }
        for line in lines
    ]
    whole = {
        "scenario": name,
        "title": scenario.title,
        "runs": runs,
        "quick": settings.quick,
        "machine": facts,
        "rows": rows,
    }
    return json.dumps(whole)
