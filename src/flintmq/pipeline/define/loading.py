"""Loads the functions of a pipeline file: `file.py:name` beside it, or `package.module:name`.

Workers of Spark do not have the files beside the pipeline file. So cloudpickle sends such a module
by value, and the modules beside it that it imports.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from hashlib import blake2s
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import InvalidRequest
from .definition import FilePlace

Function = Callable[..., Any]


def load(reference: str | Function, place: FilePlace) -> Function:
    """The function of a reference. Raises InvalidRequest, with the place of the reference."""
    if callable(reference):
        return reference
    where, colon, name = reference.rpartition(":")
    if not colon or not where or not name.isidentifier():
        raise InvalidRequest(
            f"{place}: a function must be 'file.py:name' or 'package.module:name', "
            f"not {reference!r}"
        )
    if where.endswith(".py"):
        module = _module_of_file(_beside(where, place), place)
    else:
        module = _imported(where, place)
    found = getattr(module, name, None)
    if found is None:
        near = get_close_matches(name, [one for one in vars(module) if not one.startswith("_")], 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidRequest(f"{place}: {where} has no function {name!r}{meant}")
    if not callable(found):
        raise InvalidRequest(f"{place}: {name!r} in {where} is not a function")
    function: Function = found
    return function


def file_of(reference: str, place: FilePlace) -> Path | None:
    """The file of `file.py:name`; None for an installed module."""
    where = reference.rpartition(":")[0]
    return _beside(where, place) if where.endswith(".py") else None


def _beside(file: str, place: FilePlace) -> Path:
    return (Path(place.file).resolve().parent / file).resolve()


def _module_of_file(path: Path, place: FilePlace) -> ModuleType:
    # Two pipelines may have files with the same name, in different directories.
    known_as = f"_flintmq_{path.stem}_{blake2s(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(known_as, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidRequest(f"{place}: the file {path} does not exist")
    module = importlib.util.module_from_spec(spec)
    before = set(sys.modules)
    with _first_on_path(path.parent):
        sys.modules[known_as] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[known_as]
            raise InvalidRequest(f"{place}: {_error_text(error, path)}") from error
    beside = [sys.modules[name] for name in set(sys.modules) - before]
    for one in [module, *(one for one in beside if _lies_in(one, path.parent))]:
        importlib.import_module("pyspark.cloudpickle").register_pickle_by_value(one)
    return module


def _imported(name: str, place: FilePlace) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidRequest(f"{place}: no module {error.name!r}") from error
    except Exception as error:
        raise InvalidRequest(
            f"{place}: importing {name} failed: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _first_on_path(directory: Path) -> Iterator[None]:
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))


def _lies_in(module: ModuleType, directory: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve().is_relative_to(directory)


def _error_text(error: Exception, path: Path) -> str:
    """The error, with its line in the user's file."""
    if isinstance(error, SyntaxError):
        return f"{path.name}:{error.lineno}: {error.msg}"
    line = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{path.name}:{line}: {type(error).__name__}: {error}"
