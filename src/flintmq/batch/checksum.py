"""CRC32C of any buffer, without a copy.

The library behind it takes 20 ms to import, for which a program that only passes messages around
in memory has no use: it is loaded when the first checksum is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_native: Callable[[Any, int], int] | None = None


def crc32c(data: bytes | memoryview, seed: int = 0) -> int:
    """The CRC32C of `data`, going on from `seed`, the CRC32C of what came before it."""
    global _native
    if _native is None:
        from crc32c import crc32c as native

        _native = native
    return _native(data, seed)
