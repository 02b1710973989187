"""What a message of a chaos run says: a name of its own, and bytes that follow from the name.

So whoever reads it can tell whose it is, and whether every byte is as it was published.
"""

from __future__ import annotations

import hashlib
import zlib


def value_of(name: str, size: int) -> bytes:
    """`size` counts what stands behind the name."""
    filler = hashlib.sha256(name.encode()).hexdigest().encode()
    return name.encode() + b" " + (filler * (size // len(filler) + 1))[:size]


def checksum_of(name: str, size: int) -> int:
    return zlib.crc32(value_of(name, size))


def name_of(value: bytes) -> str:
    return value.partition(b" ")[0].decode(errors="replace")
