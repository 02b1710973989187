"""The core stays pure: what it may import, and that it says what it offers."""

from __future__ import annotations

import ast
from pathlib import Path

import flintmq.raft

PACKAGE = Path(flintmq.raft.__file__).parent
STANDARD = {"__future__", "collections", "collections.abc", "dataclasses", "enum", "random",
            "struct", "typing"}  # fmt: skip
THIRD_PARTY = {"msgspec"}


def imports(path: Path) -> set[tuple[str, str]]:
    """Module and name of everything a file imports."""
    found: set[tuple[str, str]] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
    return found


def test_the_core_imports_errors_itself_and_nothing_that_waits_or_draws_lots() -> None:
    for path in sorted(PACKAGE.glob("*.py")):
        for module, name in imports(path):
            is_ours = module == "flintmq.errors" or module.startswith("flintmq.raft")
            assert is_ours or module in STANDARD | THIRD_PARTY, f"{path.name} imports {module}"
            assert module != "random" or name == "Random", f"{path.name} uses random.{name}"


def test_the_core_has_no_coroutines_and_opens_nothing() -> None:
    for path in sorted(PACKAGE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), path.name
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"open", "print", "input"}, path.name


def test_everything_offered_is_there_and_named_once() -> None:
    names = flintmq.raft.__all__

    assert len(names) == len(set(names))
    assert all(hasattr(flintmq.raft, name) for name in names)
