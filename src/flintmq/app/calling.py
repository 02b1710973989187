"""Calling a function of the user: async ones in the loop, plain ones in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from contextvars import copy_context
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from ..client.client import Client
from .arguments import Argument, WantedArguments
from .dependencies import AppScope, Depends


class CallContext(NamedTuple):
    """What a running app has for its handlers."""

    mq: Client
    scope: AppScope
    pool: Executor
    injected: Mapping[type, Any] = {}
    """What functions get by the type they name."""


class Call(NamedTuple):
    """What one call has for its arguments."""

    message: Any
    """A message, or the messages of a batch."""
    value: Any = None
    """That of the message; of a task, its arguments by name."""
    injected: Mapping[type, Any] = {}


class Caller:
    """Calls one function with what it wants."""

    def __init__(self, function: Callable[..., Any], wanted: WantedArguments) -> None:
        self.function, self._wanted = function, wanted
        self.is_async = is_async(function)
        self._value = next(iter(wanted.of("value")), None)
        self._is_simple = [one.source for one in wanted.arguments] == ["value"] and not (
            self._value and self._value.by_name
        )

    @property
    def value_type(self) -> Any:
        return None if self._value is None else self._value.type

    @property
    def wants_value(self) -> bool:
        return self._value is not None

    async def call(self, context: CallContext, call: Call) -> Any:
        if self._is_simple:
            return await self.run(context, (call.value,), {})
        async with AsyncExitStack() as until:
            given, named = await filled(self._wanted.arguments, context, call, until)
            return await self.run(context, given, named)

    async def run(
        self, context: CallContext, given: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        if self.is_async:
            return await self.function(*given, **named)
        return await in_thread(context.pool, partial(self.function, *given, **named))


def is_async(function: Any) -> bool:
    return iscoroutinefunction(function) or iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


async def in_thread(pool: Executor, work: Callable[[], Any]) -> Any:
    """Wait for a plain function to its end, even when cancelled: a thread cannot be stopped."""
    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(pool, partial(copy_context().run, work))
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue  # the caller sees that the task is being cancelled
    return future.result()


async def filled(
    arguments: Sequence[Argument], context: CallContext, call: Call, until: AsyncExitStack
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a function, by place and by name."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    skipped = False
    for one in arguments:
        if one.source == "argument" and one.name not in call.value:
            skipped = True
            continue  # the function has a default
        found = await _found(one, context, call, until)
        if one.by_name or named or skipped:
            named[one.name] = found
        else:
            given.append(found)
    return given, named


async def _found(one: Argument, context: CallContext, call: Call, until: AsyncExitStack) -> Any:
    if one.source == "value":
        return call.value
    if one.source == "argument":
        return call.value[one.name]
    if one.source == "message":
        return call.message
    if one.source == "client":
        return context.mq
    if one.source == "injected":
        known = {**context.injected, **call.injected}
        return next(thing for kind, thing in known.items() if issubclass(kind, one.type))
    assert one.depends is not None
    depends: Depends = one.depends
    if depends.scope == "app":
        shared = Call(None, None, call.injected)
        return await context.scope.get(
            depends, lambda stack: _made(depends, context, shared, stack)
        )
    return await _made(depends, context, call, until)


async def _made(depends: Depends, context: CallContext, call: Call, until: AsyncExitStack) -> Any:
    given, named = await filled(depends.wanted or (), context, call, until)
    return await depends.enter(given, named, until)
