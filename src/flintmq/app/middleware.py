"""What runs around every handler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..client.delivery import Delivery


class Invocation:
    """One call of a handler, as middleware sees it. `state` is for what middleware remembers."""

    __slots__ = ("handler", "kind", "messages", "state", "task_id")

    def __init__(
        self,
        handler: str,
        kind: str,
        messages: Sequence[Delivery],
        task_id: str | None = None,
    ) -> None:
        self.handler, self.kind = handler, kind
        """The name of the function; 'consumer' or 'task'."""
        self.messages = messages
        self.task_id = task_id
        self.state: dict[str, Any] = {}

    @property
    def message(self) -> Delivery:
        """The message, or the first of a batch."""
        return self.messages[0]

    @property
    def attempt(self) -> int:
        """How often this message was delivered, including this time."""
        return self.message.delivery_count

    def __repr__(self) -> str:
        return f"Invocation({self.handler!r}, {self.message!r})"


class Middleware:
    """Runs around every consumer and task of an app: override what you need, then
    `app.add_middleware(...)`.

    `before` runs in the order in which they were added, `after` and `error` the other way round.
    What `before` or `after` raises counts as an error of the handler.
    """

    async def before(self, call: Invocation) -> None:
        """Before the handler is called."""

    async def after(self, call: Invocation, result: Any) -> None:
        """The handler has returned. Its message is acknowledged after this."""

    async def error(self, call: Invocation, error: Exception) -> None:
        """The handler has raised. The message is retried or becomes a dead letter after this."""


class Around:
    """The middleware of an app, as handlers call it."""

    def __init__(self) -> None:
        self.all: list[Middleware] = []

    async def before(self, call: Invocation) -> None:
        for one in self.all:
            await one.before(call)

    async def after(self, call: Invocation, result: Any) -> None:
        for one in reversed(self.all):
            await one.after(call, result)

    async def error(self, call: Invocation, error: Exception) -> None:
        for one in reversed(self.all):
            await one.error(call, error)
