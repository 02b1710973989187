"""Lines of those who wait for one thing by its name: whoever comes later stands behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class InTurn:
    """A line is there while somebody stands in it. `name in lines` says whether to join."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait for those before, then be alone."""
        lock, standing = self._lines.setdefault(name, (asyncio.Lock(), []))
        standing.append(None)
        try:
            async with lock:  # locks are handed on in the order of those who wait
                yield
        finally:
            standing.pop()
            if not standing:
                del self._lines[name]
