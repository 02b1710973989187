"""Queues stay pure: no clock, no task, no file, no chance."""

from __future__ import annotations

import ast
from pathlib import Path

import flintmq.groups

PACKAGE = Path(flintmq.groups.__file__).parent
STANDARD = {
    "__future__", "array", "bisect", "collections.abc", "heapq", "itertools", "math", "re",
    "typing", "weakref",
}  # fmt: skip
THIRD_PARTY = {"msgspec"}


def test_groups_import_the_vocabulary_themselves_and_nothing_that_waits() -> None:
    for path in sorted(PACKAGE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), path.name
            if isinstance(node, ast.Import):
                modules = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                is_ours = node.level == 1 or (node.module or "").startswith("flintmq.groups")
                is_vocabulary = node.level == 2 and node.module in ("group_model", "rows")
                modules = set() if is_ours or is_vocabulary else {node.module or ""}
            else:
                continue
            assert modules <= STANDARD | THIRD_PARTY, f"{path.name} imports {modules}"


def test_everything_offered_is_there_and_named_once() -> None:
    names = flintmq.groups.__all__

    assert len(names) == len(set(names))
    assert all(hasattr(flintmq.groups, name) for name in names)
