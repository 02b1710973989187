"""Errors in Spark without their traceback.

Spark prints the traceback of an error of a data source before its text. Our errors say what to do;
the traceback only hides that. A worker ends with its error, so nothing else loses a traceback.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from ..errors import FlintError

P = ParamSpec("P")
T = TypeVar("T")


HIDE = "SPARK_HIDE_TRACEBACK"
"""What PySpark looks for when it writes an error."""


def _hide_traceback() -> None:
    if any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ):  # a worker of Spark
        os.environ[HIDE] = "1"


def without_traceback(function: Callable[P, T]) -> Callable[P, T]:
    """Strip the traceback from our errors of a function that Spark calls."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except FlintError as error:
            _hide_traceback()
            raise error.with_traceback(None) from None

    return called


def each_without_traceback(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for generators."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*args, **kwargs)
        except FlintError as error:
            _hide_traceback()
            raise error.with_traceback(None) from None

    return called
