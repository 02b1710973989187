"""Freeing the memory of many messages, in as many turns of the event loop as it takes.

To free a message takes Python a fraction of a microsecond, and a topic may have millions of them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from .pace import pace

FEW = 4
"""Chunks that are freed between two looks at the time."""


def let_go(chunks: list[Any]) -> None:
    """Empty a list that nobody else has, whose items nobody else needs."""
    if len(chunks) <= FEW:
        chunks.clear()
        return
    allowance = pace().begin()
    while chunks:
        del chunks[-FEW:]
        if chunks and allowance.is_over():
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                continue  # nobody waits
            loop.call_soon(let_go, chunks)
            return
