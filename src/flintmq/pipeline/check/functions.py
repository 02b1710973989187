"""Checks that the functions of a pipeline exist, without running their files.

Of `file.py:name` only the text is read. Functions of installed modules are not checked: an import
may do anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ..define.definition import FilePlace, Pipeline
from ..define.problems import Defect, in_order, meant
from .parts import place_in


def check_functions(pipeline: Pipeline) -> list[Defect]:
    return in_order(_problems(pipeline))


def _problems(pipeline: Pipeline) -> Iterator[Defect]:
    named = [(step.function, place_in(step, "function")) for step in pipeline.steps.values()]
    named += [(sink.foreach, place_in(sink, "foreach")) for sink in pipeline.sinks.values()]
    for reference, place in named:
        if isinstance(reference, str):
            file, _, name = reference.rpartition(":")
            if file.endswith(".py"):
                yield from _of_file(Path(place.file).parent / file, name, place)


def _of_file(path: Path, name: str, place: FilePlace) -> Iterator[Defect]:
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        yield Defect(
            place,
            f"cannot read {path}: {error.strerror}",
            "put the file in the directory of the pipeline file",
        )
        return
    except SyntaxError as error:
        yield Defect(FilePlace(str(path), error.lineno or 0, error.offset or 0), error.msg)
        return
    except ValueError as error:
        yield Defect(FilePlace(str(path)), f"is not valid Python: {error}")
        return
    names = list(_names(tree.body))
    if name not in names and "*" not in names:
        yield Defect(
            place,
            f"{path.name} has no function {name!r}",
            meant(name, [one for one in names if not one.startswith("_")], "it has"),
        )


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """The names that a file defines, as far as its text tells."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((one.asname or one.name).partition(".")[0] for one in node.names)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "handlers", "finalbody"):
                for inner in getattr(node, part, []):
                    is_handler = isinstance(inner, ast.ExceptHandler)
                    yield from _names(inner.body if is_handler else [inner])
