"""CRC32C of any buffer.

By fastcrc: the crc32c package is LGPL, and google-crc32c takes no memoryview, so it would cost a
copy. Measured beside crc32c: 140 ns for 182 at 48 bytes, 5.3 us for 3.8 at 64 KiB. It is loaded
with the first checksum: a program that only passes messages around in memory needs none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_native: Callable[[Any, int], int] | None = None


def crc32c(data: bytes | memoryview, seed: int = 0) -> int:
    """The CRC32C of `data`, going on from `seed`, the CRC32C of what came before it."""
    global _native
    if _native is None:
        from fastcrc.crc32 import iscsi as native

        _native = native
    return _native(data, seed)
