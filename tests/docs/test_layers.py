"""Imports point downward only, and never in a circle. The layers are those of ARCHITECTURE.md.

Every import counts: those inside functions, and those for type checkers only.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import flintmq

SOURCE = Path(flintmq.__file__).parent

LAYERS = [
    {
        "errors", "installing", "compiled", "sources_only", "amounts", "clock", "patterns", "model",
        "group_model", "cluster_model", "cluster_advice", "webhook_model", "schedule_model", "cron",
        "schema_model", "batch",
        "rows", "arrow", "access", "fsync_policy", "broker_api", "config", "observe", "loop",
        "net.tls",
    },
    {"groups", "raft", "serde"},
    {"net.wire"},
    {"storage", "client", "net.remote"},
    {"engine"},
    {"net.server", "spark"},
    {"frontends", "pipeline", "cluster", "webhooks", "schedules"},
    {"api", "client.blocking", "daemon", "testing", "app"},
    {"adapters"},
    {"cli"},
]  # fmt: skip
ROOMS_OF_PIPELINES = ["define", "check", "draw", "lake", "run", "trial", "export", "builder"]
FORWARDS = "spark.pipeline"
"""Names that users know stand there for what lies higher up; nothing else does."""
LAYER_OF = {part: layer for layer, parts in enumerate(LAYERS) for part in parts}


def part_of(module: str) -> str:
    """The part a module belongs to: `net.wire` of `net.wire.frames`."""
    names = module.split(".")
    inner = ".".join(names[:2])
    return inner if inner in LAYER_OF else names[0]


def layer_of(module: str) -> int:
    return LAYER_OF.get(part_of(module), 0)


@cache
def modules() -> dict[str, Path]:
    return dict(_modules())


def _modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if not name.startswith(FORWARDS):
            yield name, path


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.fixture(scope="module", autouse=True)
def _without_garbage_collection() -> Iterator[None]:
    """Walking through half a million nodes again and again takes longer than all tests here."""
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


@cache
def imports_of(module: str, path: Path) -> list[str]:
    """The modules of this package that a module imports, wherever in the file."""
    return list(_imports_of(module, path))


def _imports_of(module: str, path: Path) -> Iterator[str]:
    known = modules()
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "flintmq":
                    yield alias.name.removeprefix("flintmq").lstrip(".")
        elif isinstance(node, ast.ImportFrom):
            names = (node.module or "").split(".")
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *names]).strip(".")
            elif names[0] == "flintmq":
                base = ".".join(names[1:])
            else:
                continue
            for alias in node.names:  # `from ..net import server` imports net.server
                inner = f"{base}.{alias.name}".strip(".")
                yield inner if inner in known else base


def test_an_import_is_seen_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "import flintmq.errors\n"
        "from ..net import server\n"
        "if TYPE_CHECKING:\n"
        "    from .client import Client\n"
        "def later():\n"
        "    from flintmq.engine.broker import Broker\n"
    )

    assert imports_of("client.example", path) == [
        "errors",
        "net.server",
        "client.client",
        "engine.broker",
    ]


def test_every_part_has_a_layer() -> None:
    parts = {part_of(module) for module in modules() if module} - {"net"}

    assert parts <= set(LAYER_OF), f"add to LAYERS: {parts - set(LAYER_OF)}"


def test_imports_point_downward_only() -> None:
    upward = [
        f"{module} imports {imported}"
        for module, path in modules().items()
        if module
        for imported in imports_of(module, path)
        if imported and layer_of(imported) > layer_of(module)
    ]

    assert upward == []


def test_rooms_of_pipelines_import_those_before_them_only() -> None:
    upward = []
    for module, path in modules().items():
        package, _, room = module.partition(".")
        if package == "pipeline" and room:
            above = ROOMS_OF_PIPELINES[ROOMS_OF_PIPELINES.index(room.split(".")[0]) + 1 :]
            upward += [
                f"{module} imports {imported}"
                for imported in imports_of(module, path)
                if imported.startswith(tuple(f"pipeline.{one}" for one in above))
            ]

    assert upward == []


def test_parts_of_one_layer_do_not_import_each_other_in_a_circle() -> None:
    edges: dict[str, set[str]] = {}
    for module, path in modules().items():
        if module:
            part = part_of(module)
            targets = {part_of(imported) for imported in imports_of(module, path) if imported}
            edges.setdefault(part, set()).update(targets - {part})

    def reachable(part: str, seen: set[str]) -> set[str]:
        for target in edges.get(part, set()) - seen:
            seen.add(target)
            reachable(target, seen)
        return seen

    assert [part for part in edges if part in reachable(part, set())] == []


NOT_IN_STATE = {"asyncio", "threading", "time", "clock", "storage", "leading", "proposer", "shard"}
"""What is applied knows no clock, no event loop, no disk, and nobody who waits."""


def test_what_is_applied_knows_no_clock_no_loop_no_disk_and_nobody_who_waits() -> None:
    wrong = []
    for path in sorted((SOURCE / "engine" / "state").glob("*.py")):
        for node in runtime_nodes(tree_of(path)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            wrong += [
                f"{path.name} imports {name}"
                for name in names
                if set(name.split(".")) & NOT_IN_STATE
            ]

    assert wrong == []


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker looks at."""
    for node in ast.iter_child_nodes(tree):
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not is_for_types:
            yield node
            yield from runtime_nodes(node)


def classes_of(path: Path) -> list[ast.ClassDef]:
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)]


def test_parts_of_the_engine_are_put_together_and_not_derived_from_each_other() -> None:
    classes = [one for path in (SOURCE / "engine").rglob("*.py") for one in classes_of(path)]
    plain = {one.name for one in classes if not one.bases}

    derived = [f"{one.name}({ast.unparse(base)})" for one in classes for base in one.bases]
    assert [one for one in derived if one.partition("(")[2].rstrip(")") in plain] == []


CLASS_LINES_MAX = 400
FILE_LINES_MAX = 600


def test_no_class_and_no_file_is_too_long_to_read() -> None:
    large = set()
    for path in modules().values():
        if len(path.read_text().splitlines()) > FILE_LINES_MAX:
            large.add(path.relative_to(SOURCE).as_posix())
        large |= {
            one.name
            for one in classes_of(path)
            if (one.end_lineno or 0) - one.lineno >= CLASS_LINES_MAX
        }

    assert not large, f"divide them by duty: {large}"


def test_parts_above_the_vocabulary_do_not_import_their_neighbours() -> None:
    sideways = [
        f"{module} imports {imported}"
        for module, path in modules().items()
        if module and layer_of(module) in (1, 3, 5)
        for imported in imports_of(module, path)
        if imported
        and layer_of(imported) == layer_of(module)
        and part_of(imported) != part_of(module)
    ]

    assert sideways == []
