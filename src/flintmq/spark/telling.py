"""Errors as Spark tells them.

It prints the whole way that an error came. Ours say what to do; the way to them helps nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from ..errors import FlintError

P = ParamSpec("P")
T = TypeVar("T")


def told_plainly(function: Callable[P, T]) -> Callable[P, T]:
    """Let the errors of a function that Spark calls come without the way they took."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except FlintError as error:
            raise error.with_traceback(None) from None

    return called


def each_told_plainly(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for what is handed out one by one."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*args, **kwargs)
        except FlintError as error:
            raise error.with_traceback(None) from None

    return called
