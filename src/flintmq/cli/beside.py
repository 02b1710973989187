"""Reads that may take for ever, beside the loop, and without keeping a command from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


PATIENCE = 2.0
"""How long an early end waits for what is under way: it is told whether it got there."""


async def finish(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Let publishes under way end by themselves, for a while; then cancel them. Nothing raises."""
    if not tasks:
        return
    _, left = await asyncio.wait(tasks, timeout=PATIENCE)
    for task in left:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def beside(read: Callable[..., T], *arguments: Any) -> T:
    """What `read` returns. Not by the loop's own threads: these would be waited for at the end, and
    a pipe that says nothing would hold up Ctrl-C."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(found: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(found)  # type: ignore[arg-type]

    def work() -> None:
        found, error = None, None
        try:
            found = read(*arguments)
        except Exception as caught:
            error = caught
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, found, error)

    Thread(target=work, daemon=True).start()
    return await done
