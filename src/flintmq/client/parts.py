"""Verbs of a client that one of its parts carries out: parameters, types and text are the part's.

poll = of_part("_queues", QueueVerbs.poll)      client.poll(...) is client._queues.poll(...)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class PartVerb:
    """Of the class, the function itself; of a client, the method of its part."""

    def __init__(self, part: str, verb: Callable[..., Any]) -> None:
        self._part, self._verb = part, verb

    def __set_name__(self, client: type, name: str) -> None:
        self._verb.__qualname__ = f"{client.__qualname__}.{name}"  # by which users know it

    def __get__(self, client: object | None, kind: object = None) -> Any:
        if client is None:
            return self._verb
        name = self._verb.__name__
        method = getattr(getattr(client, self._part), name)
        vars(client)[name] = method  # the next call finds it without coming here
        return method


def of_part(part: str, verb: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    shown: Any = PartVerb(part, verb)
    return shown  # type: ignore[no-any-return]
