"""Rows of a test in a file of JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

from .definition import FilePlace, GivenRow
from .problems import Defect


def rows_of_file(path: Path, place: FilePlace) -> tuple[tuple[GivenRow, ...], list[Defect]]:
    """The rows, and what is wrong; `place` is where the file is named."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        return (), [Defect(place, f"cannot read {path}: {getattr(error, 'strerror', error)}")]
    rows: list[GivenRow] = []
    problems: list[Defect] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            problems.append(Defect(FilePlace(str(path), number), f"not JSON: {error}"))
            continue
        rows.append(row if isinstance(row, dict | str) else line)
    return tuple(rows), problems
