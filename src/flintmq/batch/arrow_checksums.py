"""CRC32C of many short byte strings at once, by Arrow: a few operations for each byte position.

A checksum is affine: that of a string is the one of as many zeros, and for each of its bytes a word
that depends on the byte and on how many bytes follow it, all joined by exclusive or. So a column is
done position by position, and no string is looked at by itself. Longer strings are better off in
the library, one by one.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..errors import extra_module
from .checksum import crc32c

if TYPE_CHECKING:
    import pyarrow

LENGTH_MAX = 40
ROWS_MIN = 64
"""For fewer rows the fixed cost of Arrow's operations is more than is saved."""

_POLYNOMIAL = 0x82F63B78  # of CRC32C, lowest bit first


@cache
def pyarrow_modules() -> tuple[Any, Any]:
    """pyarrow and pyarrow.compute, imported when first used."""
    what = "the Arrow view"
    pa = extra_module(what, "arrow", "pyarrow")
    return pa, extra_module(what, "arrow", "pyarrow.compute")


def checksums(offsets: pyarrow.Array, data: Any) -> pyarrow.Array:
    """The CRC32C of each byte string, as uint32. Offsets are int32 and one more than strings."""
    pa, compute = pyarrow_modules()
    count = len(offsets) - 1
    ends = offsets.slice(1)
    lengths = compute.subtract(ends, offsets.slice(0, count))
    shortest, longest = compute.min_max(lengths).as_py().values()
    if count < ROWS_MIN or longest > LENGTH_MAX:
        text = bytes(data)
        each = [crc32c(text[start:stop]) for start, stop in pairwise(offsets.to_pylist())]
        return pa.array(each, pa.uint32())
    stored = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
    sums = _of_zeros().take(lengths)
    for following in range(longest):
        places = compute.subtract(ends, pa.scalar(following + 1, pa.int32()))
        if following >= shortest:
            # What is before a string counts as zeros, whose words are 0.
            is_there = compute.greater(lengths, pa.scalar(following, pa.int32()))
            places = compute.if_else(is_there, places, pa.scalar(None, pa.int32()))
        words = _words(following).take(stored.take(places))
        if following >= shortest:
            words = compute.fill_null(words, pa.scalar(0, pa.uint32()))
        sums = compute.bit_wise_xor(sums, words)
    return sums


@cache
def _of_zeros() -> Any:
    pa, _ = pyarrow_modules()
    return pa.array([crc32c(bytes(length)) for length in range(LENGTH_MAX + 1)], pa.uint32())


@cache
def _words(following: int) -> Any:
    """What each of the 256 bytes adds, with so many bytes behind it."""
    pa, _ = pyarrow_modules()
    return pa.array(_table(following), pa.uint32())


@cache
def _table(following: int) -> tuple[int, ...]:
    if not following:
        return tuple(_byte_word(byte) for byte in range(256))
    first = _table(0)
    return tuple((word >> 8) ^ first[word & 0xFF] for word in _table(following - 1))


def _byte_word(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte
