"""Errors in Spark without their traceback.

Spark prints the traceback of an error of a data source. Our errors say what to do; the traceback
only hides that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from ..errors import FlintError

P = ParamSpec("P")
T = TypeVar("T")


def without_traceback(function: Callable[P, T]) -> Callable[P, T]:
    """Strip the traceback from our errors of a function that Spark calls."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except FlintError as error:
            raise error.with_traceback(None) from None

    return called


def each_without_traceback(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for generators."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*args, **kwargs)
        except FlintError as error:
            raise error.with_traceback(None) from None

    return called
