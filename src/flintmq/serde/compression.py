"""Compression of single messages: gzip from the standard library, zstd and lz4 from an extra.

Output is bounded: what would grow beyond the limit is refused before it is there.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import InvalidRequest, MissingExtra

COMPRESSIONS = ("none", "gzip", "zstd", "lz4")
_LEVELS = {"gzip": range(10), "zstd": range(-7, 23), "lz4": range(17)}
_DEFAULT_LEVELS = {"gzip": 6, "zstd": 3, "lz4": 0}


class BadCompression(Exception):
    """The bytes are not what they should be, or too much of it. Translated by the codec."""


class Compression(NamedTuple):
    """A way of compressing: `zstd`, or with a level `zstd:9`."""

    name: str
    compress: Callable[[bytes], bytes]


def parse_compression(text: str) -> Compression:
    """The compression that `text` names, with its level if it names one."""
    name, separator, level_text = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name not in COMPRESSIONS or (name == "none" and separator):
        raise InvalidRequest(
            f"compression is one of {', '.join(COMPRESSIONS)}, with a level as in 'zstd:9'; "
            f"not {text!r}"
        )
    if name == "none":
        return Compression("none", bytes)
    levels = _LEVELS[name]
    try:
        level = int(level_text) if separator else _DEFAULT_LEVELS[name]
    except ValueError:
        level = -1000
    if level not in levels:
        raise InvalidRequest(f"{name} has levels {levels[0]} to {levels[-1]}, not {level_text!r}")
    return Compression(name, _compressor(name, level))


def _compressor(name: str, level: int) -> Callable[[bytes], bytes]:
    if name == "gzip":

        def gzip(data: bytes) -> bytes:
            # wbits 31 is the gzip container; its time stamp is 0, so equal input gives equal bytes
            compressor = zlib.compressobj(level, wbits=31)
            return compressor.compress(data) + compressor.flush()

        return gzip
    if name == "zstd":
        compress = _zstd().compress
        return lambda data: bytes(compress(data, level))
    frame = _lz4()
    return lambda data: bytes(frame.compress(data, compression_level=level))


def decompress(name: str, data: bytes, bytes_max: int) -> bytes:
    """The bytes that were compressed. Raises BadCompression for damage and for too much of it."""
    if name == "none":
        return data
    if name == "gzip":
        decompressor: Any = zlib.decompressobj(wbits=31)
    elif name == "zstd":
        decompressor = _zstd().ZstdDecompressor()
    elif name == "lz4":
        decompressor = _lz4().LZ4FrameDecompressor()
    else:
        raise BadCompression(f"unknown compression {name!r}")
    try:
        output = bytes(decompressor.decompress(data, bytes_max + 1))
    except Exception as error:  # each library has errors of its own
        raise BadCompression(f"damaged {name}: {error}") from error
    if len(output) > bytes_max:
        raise BadCompression(f"decompresses to more than the {bytes_max:,} bytes allowed")
    if not decompressor.eof or decompressor.unused_data:
        raise BadCompression(f"the {name} data does not end where the message ends")
    return output


def _zstd() -> Any:
    for module in ("compression.zstd", "backports.zstd"):  # Python 3.14 has its own
        try:
            return import_module(module)
        except ImportError:
            continue
    raise MissingExtra("zstd", "compression")


def _lz4() -> Any:
    try:
        return import_module("lz4.frame")
    except ImportError as error:
        raise MissingExtra("lz4", "compression") from error
