"""Calling back several that wait for one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def call_each(callbacks: Iterable[Callable[[], object]]) -> None:
    """Call all of them, even if one raises. Then raise the first error."""
    failure: Exception | None = None
    for callback in callbacks:
        try:
            callback()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
