"""Lines of those who wait for one thing by its name: whoever comes later stands behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class InTurn:
    """A line is there while somebody stands in it. `name in in_turn.lines` says whether to join."""

    def __init__(self) -> None:
        self.lines: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait for those before, then be alone."""
        lock, standing = self.lines.setdefault(name, (asyncio.Lock(), []))
        standing.append(None)
        try:
            async with lock:  # locks are handed on in the order of those who wait
                yield
        finally:
            standing.pop()
            if not standing:
                del self.lines[name]
