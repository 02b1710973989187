"""Compression of a batch's payload: lz4 and zstd, imported when first used."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from ..errors import Corrupt, InvalidRequest, MissingExtra
from .format import COMPRESSION_NAMES, COMPRESSIONS, Buffer


def check_compression(name: str) -> str:
    """`name` if payloads can be compressed so here; an error that says what can."""
    if name not in COMPRESSIONS:
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


_Codec = tuple[Callable[[bytes], bytes], Callable[[Buffer, int], bytes]]


@lru_cache(maxsize=4)
def _codec(code: int) -> _Codec:
    return _lz4_codec() if code == COMPRESSIONS["lz4"] else _zstd_codec()


def _lz4_codec() -> _Codec:
    try:
        import lz4.block as lz4
    except ImportError as error:
        raise MissingExtra("lz4", "compression") from error

    def compress(raw: bytes) -> bytes:
        return bytes(lz4.compress(raw, store_size=False))

    def decompress(stored: Buffer, raw_length: int) -> bytes:
        return bytes(lz4.decompress(stored, uncompressed_size=raw_length))

    return compress, decompress


def _zstd_codec() -> _Codec:
    try:
        zstd: Any = import_module("compression.zstd")  # Python 3.14 has it
    except ImportError:
        try:
            zstd = import_module("backports.zstd")
        except ImportError as error:
            raise MissingExtra("zstd", "compression") from error

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
