"""The run of builds as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .aims import Found, slower, verdicts

BEGIN = "<!-- figures: written by scripts/bench-builds; do not edit -->"


def render(
    found: Found,
    titles: Mapping[str, str],
    columns: Sequence[str],
    builds: Sequence[str],
    errors: Mapping[tuple[str, str], str],
    notes: Sequence[str],
) -> str:
    parts = [_rows(found, titles, columns), _aims(found, [one for one in builds if one != "old"])]
    if "old" in builds:
        parts.append(_slower(found, titles, [one for one in builds if one != "old"]))
    if errors:
        lines = [f"- {titles[row]}, {column}: {why}" for (row, column), why in errors.items()]
        parts.append("Without a figure:\n\n" + "\n".join(lines))
    parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts)


def _rows(found: Found, titles: Mapping[str, str], columns: Sequence[str]) -> str:
    """Messages per second, or microseconds where a row is a latency; then the server's time."""
    rows = [["", *columns]]
    for row, title in titles.items():
        cells = [_cell(found, row, column) for column in columns]
        rows.append([title, *cells])
    return table(rows)


def _cell(found: Found, row: str, column: str) -> str:
    latency, server = found.figure(row, column, "p50"), found.server(row, column)
    figure = found.figure(row, column, "msgs/s") if latency is None else latency
    if figure is None:
        return "-"
    shown = f"{figure:,.0f}" if latency is None else f"{figure:,.0f} µs"
    return f"{shown}; {server:.1f}" if server is not None else shown


def _aims(found: Found, builds: list[str]) -> str:
    rows = [["aim", "build", "wanted", "found", ""]]
    for aim, build, figure, is_met in verdicts(found, builds):
        wanted = f"{'at most' if aim.at_most else 'at least'} {aim.bound:,g}"
        rows.append([aim.title, build, wanted, f"{figure:,.4g}", "" if is_met else "**missed**"])
    return table(rows)


def _slower(found: Found, titles: Mapping[str, str], builds: list[str]) -> str:
    lines = [
        f"- {titles[row]}: {build} {after:.1f} µs, old {before:.1f} µs"
        for build in builds
        for row, before, after in slower(found, list(titles), "old", build)
    ]
    if not lines:
        return "No row needs more of the server's processor than before (within a tenth)."
    return "Where the server needs over a tenth more processor time than before:\n\n" + "\n".join(
        lines
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in body)])
