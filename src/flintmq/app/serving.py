"""Until when an app runs: SIGTERM, Ctrl-C, or the end of its task."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from .running import RunningApp

SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def until_signalled(run: RunningApp) -> None:
    """Return at the first SIGTERM or Ctrl-C. The second one is left to the system: it ends the
    process at once."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def heard() -> None:
        forget()
        stop.set()

    def forget() -> None:
        for number in SIGNALS:
            with suppress(NotImplementedError, ValueError, RuntimeError):
                loop.remove_signal_handler(number)

    for number in SIGNALS:
        with suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread
            loop.add_signal_handler(number, heard)
    try:
        await stop.wait()
    finally:
        forget()
