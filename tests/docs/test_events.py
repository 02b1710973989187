"""Every event that is logged is in the table of docs/logging.md, and the other way round."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import flintmq

SOURCE = Path(flintmq.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "logging.md"
ROW = re.compile(r"^\| `(\w+)` \| ([a-z, ]+) \|", re.MULTILINE)

NAMELESS = re.compile(
    r"\b(_?log|logger|logging)\.(debug|info|warning|error|exception|critical)\(.*"
)


def logged() -> dict[str, set[str]]:
    """The events by name, with their levels: of every call of `event`, `limited` and `_record`."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if "event(" not in text and "limited(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("event", "limited", "_record")
                and len(node.args) >= 3
                and isinstance(node.args[1], ast.Attribute)
                and isinstance(node.args[2], ast.Constant)
            ):
                found.setdefault(str(node.args[2].value), set()).add(node.args[1].attr.lower())
    return found


def test_the_table_has_every_event_with_its_level() -> None:
    told = {name: set(levels.split(", ")) for name, levels in ROW.findall(PAGE.read_text())}

    assert told == logged()


def test_nobody_logs_without_a_name_for_the_event() -> None:
    nameless = [
        f"{path.relative_to(SOURCE)}: {found.group()}"
        for path in SOURCE.rglob("*.py")
        if path.name != "logs.py"
        # Those log where Spark runs.
        and path.relative_to(SOURCE).parts[0] not in ("spark", "pipeline")
        for found in NAMELESS.finditer(path.read_text())
    ]

    assert nameless == []
