"""Functions of the program that are told of something: on the event loop, and never in the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..observe.logs import event

_log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


class Callbacks(Generic[F]):
    """All of them are told. One that is async becomes a task; one that fails is logged."""

    def __init__(self) -> None:
        self._functions: list[F] = []
        self._tasks: set[asyncio.Future[Any]] = set()

    def add(self, function: F) -> None:
        self._functions.append(function)

    def tell(self, *arguments: object) -> None:
        for function in self._functions:
            self._call(function, *arguments)

    def _call(self, callback: Callable[..., Any], *arguments: object) -> None:
        """One that fails must not harm what it is told about."""
        try:
            result = callback(*arguments)
        except Exception as error:
            _failed(callback, error)
            return
        if asyncio.iscoroutine(result):
            task = asyncio.ensure_future(result)
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _failed(task, error)


def _failed(callback: object, error: BaseException) -> None:
    event(
        _log,
        logging.ERROR,
        "callback_failed",
        f"a connection callback raised {type(error).__name__}: {error}",
        exc_info=error,
        callback=repr(callback),
    )
