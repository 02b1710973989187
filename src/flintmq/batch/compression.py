"""Compression of a batch's payload: lz4 and zstd, imported when first used."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..errors import Corrupt, InvalidRequest, MissingExtra, extra_module
from .format import COMPRESSION_NAMES, COMPRESSIONS, Buffer


def check_compression(name: object) -> str:
    """`name` if payloads can be compressed so here; an error that says what can."""
    if not isinstance(name, str) or name not in COMPRESSIONS:
        known = ", ".join(COMPRESSIONS)
        raise InvalidRequest(f"unknown batch compression {name!r}; known are {known}")
    if name != "none":
        _codec(COMPRESSIONS[name])
    return name


def compress_payload(name: str, raw: bytes) -> bytes:
    compress, _ = _codec(COMPRESSIONS[check_compression(name)])
    return compress(raw)


def decompress_payload(code: int, stored: Buffer, raw_length: int) -> bytes:
    _, decompress = _codec(code)
    try:
        raw = decompress(stored, raw_length)
    except MissingExtra:
        raise
    except Exception as error:  # each library has errors of its own
        raise Corrupt(
            f"a {COMPRESSION_NAMES[code]} payload does not decompress: {error}"
        ) from error
    if len(raw) != raw_length:
        raise Corrupt(
            f"a payload decompresses to {len(raw):,} bytes; its header says {raw_length:,}"
        )
    return raw


LZ4_USUAL = 16
"""Up to this many times its size, what an lz4 block claims to make is believed."""

_FULL = re.compile(b"\xff*")


def lz4_length(block: Buffer, at_most: int) -> int | None:
    """What an lz4 block makes, without making it; None for more than `at_most`, or for damage.

    A block is sequences: a token with the lengths of literals and match, 4 bits each, the rest of
    the first length, the literals, 2 bytes of offset, the rest of the second. Where a block makes
    many times its size the sequences are few.
    """
    made, at, end = 0, 0, len(block)
    try:
        while at < end and made <= at_most:
            token = block[at]
            count, at = _lz4_count(block, at + 1, token >> 4)
            at += count
            made += count
            if at == end:  # the last sequence is literals alone
                return made if made <= at_most else None
            count, at = _lz4_count(block, at + 2, token & 15)
            made += count + 4
    except IndexError:  # a length goes on behind the end
        pass
    return None


def _lz4_count(block: Buffer, at: int, count: int) -> tuple[int, int]:
    """A length whose 4 bits say `count`, and where the rest of it, which is at `at`, ends."""
    if count < 15:
        return count, at
    more = _FULL.match(block, at)
    full = at if more is None else more.end()
    return count + 255 * (full - at) + block[full], full + 1


_Codec = tuple[Callable[[bytes], bytes], Callable[[Buffer, int], bytes]]


@lru_cache(maxsize=4)
def _codec(code: int) -> _Codec:
    return _lz4_codec() if code == COMPRESSIONS["lz4"] else _zstd_codec()


def _lz4_codec() -> _Codec:
    lz4 = extra_module("lz4", "compression", "lz4.block")

    def compress(raw: bytes) -> bytes:
        return bytes(lz4.compress(raw, store_size=False))

    def decompress(stored: Buffer, raw_length: int) -> bytes:
        # It takes the memory that is claimed before it looks. So where far more is claimed than
        # usual, the block is asked first what it makes.
        if raw_length > LZ4_USUAL * len(stored) and lz4_length(stored, raw_length) != raw_length:
            raise Corrupt(f"{len(stored):,} bytes of lz4 do not make {raw_length:,}")
        return bytes(lz4.decompress(stored, uncompressed_size=raw_length))

    return compress, decompress


def zstd_module() -> Any:
    return extra_module("zstd", "compression", "compression.zstd", "backports.zstd")


def _zstd_codec() -> _Codec:
    zstd = zstd_module()

    def compress(raw: bytes) -> bytes:
        return bytes(zstd.compress(raw, 1))

    def decompress(stored: Buffer, raw_length: int) -> bytes:
        # Bounded: the output grows as it comes and stops one byte beyond what was declared, and
        # the frame may not ask for a window far beyond what it holds. 8 MiB is what every
        # decoder should grant (RFC 8878, 3.1.1.1.2); 128 MiB is zstd's own limit.
        window_log_max = min(max(23, raw_length.bit_length()), 27)
        decompressor = zstd.ZstdDecompressor(
            options={zstd.DecompressionParameter.window_log_max: window_log_max}
        )
        raw = bytes(decompressor.decompress(stored, raw_length + 1))
        if not decompressor.eof or decompressor.unused_data:
            raise Corrupt("the zstd frame does not end where the payload ends")
        return raw

    return compress, decompress
