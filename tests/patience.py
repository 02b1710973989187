"""How tests wait for what must happen, and find a port that stays theirs.

The bound only ends a hang: a busy machine may take its time.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable

import pytest

PATIENCE_SECONDS = 60.0
PORTS_OF_OURS = range(20_000, 32_000)
"""Below what the kernel hands out for port 0 and to outgoing connections."""


async def until(
    is_true: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until something is so; `what` says what is wrong if it never is."""
    give_up = time.monotonic() + seconds
    while True:
        found = is_true()
        if found if isinstance(found, bool) else await found:
            return
        assert time.monotonic() < give_up, what
        await asyncio.sleep(0.005)


def free_port() -> int:
    """A port nobody listens on, and which nobody gets by asking for any: a test may leave it and
    come back to it."""
    dice = random.Random(os.urandom(8))
    while True:
        port = dice.choice(PORTS_OF_OURS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def jump(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have so many seconds pass for the running loop: what is due by then is due now."""
    loop = asyncio.get_running_loop()
    time_before = loop.time
    monkeypatch.setattr(loop, "time", lambda: time_before() + seconds)
