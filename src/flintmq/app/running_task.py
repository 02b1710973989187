"""A task at work, as its function sees it: `task: flintmq.RunningTask`."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from threading import Lock, get_ident
from typing import Any

from ..errors import InvalidRequest
from ..rows import Message
from .results import moment
from .task_model import SCHEDULED

Tell = Callable[[float, str], None]

CURRENT: ContextVar[RunningTask | None] = ContextVar("flintmq_task", default=None)


class TaskStopped(BaseException):
    """Raised inside a plain function whose task is cancelled or out of time."""


class RunningTask:
    """The task that a function works on; it is passed where an argument is annotated so."""

    def __init__(
        self, id: str, name: str, message: Message, attempt: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.id, self.name, self.message, self.attempt = id, name, message, attempt
        self.is_cancelled = False
        """Whether somebody has cancelled it: a plain function may look, and return early."""
        self.progress, self.note = 0.0, ""
        self._loop = loop
        self._tell: Callable[[], None] = lambda: None
        self._lock = Lock()
        self._thread: int | None = None
        self._is_stopped = False

    def report(self, progress: float, note: str = "") -> None:
        """Report progress from 0 to 1; `handle.state()` shows it. It does not wait. Call it from
        async or plain functions, as often as you like: the latest counts.
        """
        if isinstance(progress, bool) or not isinstance(progress, int | float):
            raise InvalidRequest(f"progress must be a number from 0 to 1, not {progress!r}")
        if not 0 <= progress <= 1:
            raise InvalidRequest(f"progress must be from 0 to 1, not {progress!r}")
        self.progress, self.note = float(progress), str(note)
        self._loop.call_soon_threadsafe(self._tell)

    @property
    def scheduled_at(self) -> datetime | None:
        """The scheduled time; None for a task that was sent."""
        due = self.message.headers.get(SCHEDULED)
        return None if due is None else moment(int(due))

    def __repr__(self) -> str:
        return f"RunningTask({self.name!r}, {self.id!r}, attempt={self.attempt})"

    # --- stopping a plain function

    def stop_thread(self) -> None:
        """Raise TaskStopped in the function's thread, at its next step in Python."""
        with self._lock:
            if self._thread is not None and not self._is_stopped:
                self._is_stopped = True
                # None in its place would take it back, and leave CPython looking for it for ever:
                # slower from then on, and under a debugger without an end.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(TaskStopped)
                )

    def _begin_thread(self) -> None:
        with self._lock:
            self._thread = get_ident()

    def _end_thread(self) -> None:
        with self._lock:
            self._thread = None
            if self._is_stopped:
                with suppress(TaskStopped):  # what was not raised yet is not to hit others
                    for _ in range(2):
                        """Python raises it where a loop begins again."""


def stoppable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function whose thread is known while it runs as a task."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        running = CURRENT.get()
        if running is None:
            return function(*args, **kwargs)
        running._begin_thread()
        try:
            return function(*args, **kwargs)
        finally:
            running._end_thread()

    return call


def current_task() -> RunningTask | None:
    """Return the task that is running here; None outside of a task."""
    return CURRENT.get()
