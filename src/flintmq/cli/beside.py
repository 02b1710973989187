"""Blocking reads outside the event loop, which do not keep a command from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


PATIENCE = 2.0
"""How long an early end waits for pending publishes, to report whether they succeeded."""


async def finish(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait a while for pending publishes to finish, then cancel them. Never raises."""
    if not tasks:
        return
    _, left = await asyncio.wait(tasks, timeout=PATIENCE)
    for task in left:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def beside(read: Callable[..., T], *arguments: Any) -> T:
    """What `read` returns. Not in the loop's own threads: the loop waits for those at the end, and
    a silent pipe would hold up Ctrl-C."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not done.done():
            outcome()

    def work() -> None:
        try:
            outcome = partial(done.set_result, read(*arguments))
        except Exception as caught:
            outcome = partial(done.set_exception, caught)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, outcome)

    Thread(target=work, daemon=True).start()
    return await done


async def next_beside(items: Iterator[T]) -> T | None:
    """The next item; None at the end. A pipe may be slow: meanwhile the loop keeps the connection
    alive."""
    return await beside(lambda: next(items, None))
