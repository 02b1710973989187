"""Whether the broker can be reached, and who wants to hear when that changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..broker_api import BrokerApi, Connected
from ..errors import Disconnected
from .callbacks import Callbacks

OnDisconnect = Callable[[Disconnected], Awaitable[object] | object]
"""A function of the cause, or an async one, which becomes a task."""

OnReconnect = Callable[[], Awaitable[object] | object]


class ConnectionState:
    """The state of one client's connection. A broker in the process is never out of reach."""

    def __init__(self, broker: BrokerApi) -> None:
        self._broker = broker if isinstance(broker, Connected) else None
        self._on_disconnect: Callbacks[OnDisconnect] = Callbacks()
        self._on_reconnect: Callbacks[OnReconnect] = Callbacks()
        if self._broker is not None:
            self._broker.on_connection_changed(self._changed)

    def is_up(self) -> bool:
        return self._broker is None or self._broker.is_connected

    def on_disconnect(self, callback: OnDisconnect) -> OnDisconnect:
        """Call a function, with the cause as a `Disconnected`, when the connection is lost.

        It runs on the event loop; an async function becomes a task. Calls are not affected: they
        wait for the connection to come back, within their timeout. Works as a decorator.
        """
        self._on_disconnect.add(callback)
        return callback

    def on_reconnect(self, callback: OnReconnect) -> OnReconnect:
        """Call a function, without arguments, when a lost connection is back."""
        self._on_reconnect.add(callback)
        return callback

    def _changed(self, lost: Disconnected | None) -> None:
        if lost is None:
            self._on_reconnect.tell()
        else:
            self._on_disconnect.tell(lost)
