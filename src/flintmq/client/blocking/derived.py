"""Blocking verbs made from the async ones: the parameters, their types and the text are theirs.

    publish = blocking(Client.publish)                blocks until it is done
    reader = opening(Client.reader, BlockingReader)   returns the blocking twin of what it makes

Type checkers and `help()` see every parameter of the async verb.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import update_wrapper
from inspect import cleandoc, signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, get_type_hints

from .loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")
Inner = TypeVar("Inner")
Inner_co = TypeVar("Inner_co", covariant=True)
Ours = TypeVar("Ours")
Twin = TypeVar("Twin")
F = TypeVar("F", bound=Callable[..., Any])

_WORDS = (
    ("async with", "with"),
    ("async for", "for"),
    ("await ", ""),
    ("Cancelled or timed out", "Timed out"),
    ("is cancelled", "is interrupted (Ctrl-C)"),
)
"""What the texts of async verbs say, and what it is in those of blocking ones."""


class Facade(Protocol[Inner_co]):
    """A blocking object: it stands before an async one, which belongs to the loop's thread."""

    @property
    def _thread(self) -> LoopThread: ...
    @property
    def _inner(self) -> Inner_co: ...


def blocking(
    verb: Callable[Concatenate[Inner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Facade[Inner], P], T]:
    """The verb, which blocks the calling thread until the loop has done it."""
    name = verb.__name__

    def call(facade: Facade[Inner], /, *arguments: P.args, **named: P.kwargs) -> T:
        result: T = facade._thread.wait_for(getattr(facade._inner, name), *arguments, **named)
        return result

    return _documented(call, verb)


def blocking_over_lists(
    verb: Callable[Concatenate[Inner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Facade[Inner], P], T]:
    """The same for a verb that takes iterables."""
    name = verb.__name__

    def call(facade: Facade[Inner], /, *arguments: P.args, **named: P.kwargs) -> T:
        here = {word: made_here(value) for word, value in named.items()}
        method = getattr(facade._inner, name)
        result: T = facade._thread.wait_for(method, *map(made_here, arguments), **here)
        return result

    return _documented(call, verb)


def made_here(argument: Any) -> Any:
    """A generator runs in the thread of who wrote it, not in the connection's."""
    return list(argument) if isinstance(argument, Iterator) else argument


def in_loop(verb: Callable[Concatenate[Inner, P], T]) -> Callable[Concatenate[Facade[Inner], P], T]:
    """A verb that is no coroutine, and has to run in the loop's thread all the same."""
    return opening(verb, lambda facade, thread, result: result)


def opening(
    verb: Callable[Concatenate[Inner, P], T],
    twin: Callable[[Any, LoopThread, T], Twin],
    note: str = "",
) -> Callable[Concatenate[Facade[Inner], P], Twin]:
    """A verb that has the loop make something; `twin` is the blocking class before it."""
    name = verb.__name__

    def call(facade: Facade[Inner], /, *arguments: P.args, **named: P.kwargs) -> Twin:
        made = facade._thread.run(getattr(facade._inner, name), *arguments, **named)
        return twin(facade, facade._thread, made)

    return _documented(call, verb, twin if isinstance(twin, type) else None, note)


def like(
    verb: Callable[Concatenate[Any, P], Any], note: str = ""
) -> Callable[[Callable[Concatenate[Ours, ...], T]], Callable[Concatenate[Ours, P], T]]:
    """Decorates a verb that is written out: it takes what the async one takes, and has its text."""

    def documented(function: Callable[..., T]) -> Callable[Concatenate[Ours, P], T]:
        return _documented(function, verb, get_type_hints(function)["return"], note)

    return documented


def taking(function: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Decorates a function with a text of its own: it takes what another takes."""

    def signed(ours: Callable[..., T]) -> Callable[P, T]:
        return _signed(ours, function, get_type_hints(ours)["return"])

    return signed


def _documented(function: F, verb: Callable[..., Any], returns: Any = None, note: str = "") -> F:
    update_wrapper(function, verb, ("__name__", "__annotations__"))
    function.__qualname__ = f"Blocking{verb.__qualname__}"
    text = cleandoc(verb.__doc__ or "")
    for theirs, ours in _WORDS:
        text = text.replace(theirs, ours)
    function.__doc__ = f"{text}\n\n{note}" if note else text
    return function if returns is None else _signed(function, verb, returns)


def _signed(function: F, verb: Callable[..., Any], returns: Any) -> F:
    shown: Any = function
    shown.__wrapped__ = verb  # whose module has the names in the annotations
    shown.__annotations__ = {**verb.__annotations__, "return": returns}
    shown.__signature__ = signature(verb).replace(return_annotation=returns)
    return function
