"""Whether the broker can be reached, and who wants to hear when that changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ..broker_api import BrokerApi, Connected
from ..errors import Disconnected
from ..observe.logs import event

_log = logging.getLogger(__name__)

OnDisconnect = Callable[[Disconnected], Awaitable[object] | object]
"""A function of the cause, or an async one, which becomes a task."""

OnReconnect = Callable[[], Awaitable[object] | object]


class ConnectionState:
    """The state of one client's connection. A broker in the process is never out of reach."""

    def __init__(self, broker: BrokerApi) -> None:
        self._broker = broker if isinstance(broker, Connected) else None
        self._on_disconnect: list[OnDisconnect] = []
        self._on_reconnect: list[OnReconnect] = []
        self._tasks: set[asyncio.Future[Any]] = set()
        if self._broker is not None:
            self._broker.on_connection_changed(self._changed)

    def is_up(self) -> bool:
        return self._broker is None or self._broker.is_connected

    def on_disconnect(self, callback: OnDisconnect) -> None:
        self._on_disconnect.append(callback)

    def on_reconnect(self, callback: OnReconnect) -> None:
        self._on_reconnect.append(callback)

    def _changed(self, lost: Disconnected | None) -> None:
        if lost is None:
            for told_back in self._on_reconnect:
                self._call(told_back)
        else:
            for told_lost in self._on_disconnect:
                self._call(told_lost, lost)

    def _call(self, callback: Callable[..., Any], *arguments: object) -> None:
        """A callback that fails is logged: it must not harm the connection it is told about."""
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
