"""Which event loop a program of ours runs on."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable


def loop_factory() -> Callable[[], AbstractEventLoop] | None:
    """uvloop's where it is there; None is asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], AbstractEventLoop] = uvloop.new_event_loop
    return factory
