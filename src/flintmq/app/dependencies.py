"""What a handler needs beside its message: made for a call, or once for a running app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Literal, get_args

from ..errors import InvalidRequest

Scope = Literal["call", "app"]


class Depends:
    """An argument that is made by a function: `db: Annotated[Db, flintmq.Depends(get_db)]`.

    The factory is plain, async, or a generator that yields once: what follows the yield runs when
    the call has ended. With `scope="app"` it is called once, when it is first needed, and ends with
    the app. It may want the message, the connection (`flintmq.Client`) and other dependencies.
    """

    def __init__(self, factory: Callable[..., Any], *, scope: Scope = "call") -> None:
        if not callable(factory):
            raise InvalidRequest(f"Depends takes a function that makes the value, not {factory!r}")
        if scope not in get_args(Scope):
            raise InvalidRequest(f"scope must be 'call' or 'app', not {scope!r}")
        self.factory, self.scope = factory, scope
        self.wanted: tuple[Any, ...] | None = None
        """The arguments of the factory, once it was looked at."""

    async def enter(
        self, arguments: list[Any], named: dict[str, Any], until: AsyncExitStack
    ) -> Any:
        """Call the factory; what it opens is closed with `until`."""
        factory = self.factory
        if isasyncgenfunction(factory):
            opened: Any = asynccontextmanager(factory)(*arguments, **named)
            return await until.enter_async_context(opened)
        if isgeneratorfunction(factory):
            return until.enter_context(contextmanager(factory)(*arguments, **named))
        made = factory(*arguments, **named)
        return await made if iscoroutinefunction(factory) else made


class AppScope:
    """What is made once, and lasts as long as the app runs."""

    def __init__(self) -> None:
        self.until = AsyncExitStack()
        self._made: dict[Callable[..., Any], asyncio.Future[Any]] = {}

    async def get(self, depends: Depends, make: Callable[[AsyncExitStack], Any]) -> Any:
        """The value of a dependency; whoever asks while it is being made waits."""
        known = self._made.get(depends.factory)
        if known is None:
            known = asyncio.ensure_future(make(self.until))
            self._made[depends.factory] = known
            known.add_done_callback(lambda done: self._forget_failure(depends, done))
        return await asyncio.shield(known)

    def _forget_failure(self, depends: Depends, done: asyncio.Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._made.pop(depends.factory, None)
