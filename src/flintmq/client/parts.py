"""Verbs of a client that one of its parts carries out: parameters, types and text are the part's.

poll = of_part("_queues", QueueVerbs.poll)      client.poll(...) is client._queues.poll(...)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class PartVerb:
    """Of a client, the method of its part; of the class, a function that finds it."""

    def __init__(self, part: str, verb: Callable[..., Any]) -> None:
        self._part, self._verb = part, verb
        self._of_class = _of_class(part, verb)

    def __set_name__(self, client: type, name: str) -> None:
        for shown in (self._verb, self._of_class):
            shown.__qualname__ = f"{client.__qualname__}.{name}"  # by which users know it

    def __get__(self, client: object | None, kind: object = None) -> Any:
        if client is None:
            return self._of_class
        name = self._verb.__name__
        method = getattr(getattr(client, self._part), name)
        vars(client)[name] = method  # the next call finds it without coming here
        return method


def _of_class(part: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    """`Client.poll(client, ...)` is `client.poll(...)`."""
    name = verb.__name__
    if iscoroutinefunction(verb):

        @wraps(verb)
        async def waited(client: object, *given: Any, **named: Any) -> Any:
            return await getattr(getattr(client, part), name)(*given, **named)

        return waited

    @wraps(verb)
    def called(client: object, *given: Any, **named: Any) -> Any:
        return getattr(getattr(client, part), name)(*given, **named)

    return called


def of_part(part: str, verb: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    shown: Any = PartVerb(part, verb)
    return shown  # type: ignore[no-any-return]
