"""Compression of single messages: gzip from the standard library, zstd and lz4 from an extra.

Output is bounded: what would grow beyond the limit is refused before it is there.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from ..batch.compression import zstd_module
from ..errors import InvalidRequest, extra_module

COMPRESSIONS = ("none", "gzip", "zstd", "lz4")
_LEVELS = {"gzip": range(10), "zstd": range(-7, 23), "lz4": range(17)}
_DEFAULT_LEVELS = {"gzip": 6, "zstd": 3, "lz4": 0}
_LEVEL = re.compile(r"-?[0-9]{1,2}")
PIECE_BYTES = 64 * 1024
ZSTD_WINDOW_LOGS = range(23, 28)
"""A zstd frame names the memory it wants. 8 MiB is what every decoder should grant (RFC 8878)."""


class BadCompression(Exception):
    """The bytes are not what they should be, or too much of it. Translated by the codec."""


class GrowsTooLarge(BadCompression):
    """It would grow beyond the limit."""


class Compression(NamedTuple):
    """A way of compressing: `zstd`, or with a level `zstd:9`."""

    name: str
    compress: Callable[[bytes], bytes]


def parse_compression(text: str) -> Compression:
    """The compression that `text` names, with its level if it names one."""
    name, separator, level_text = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name not in COMPRESSIONS or (name == "none" and separator):
        raise InvalidRequest(
            f"compression must be one of {', '.join(COMPRESSIONS)}, with a level as in "
            f"'zstd:9'; not {text!r}"
        )
    if name == "none":
        return Compression("none", bytes)
    levels = _LEVELS[name]
    level = _DEFAULT_LEVELS[name]
    if separator:
        level = int(level_text) if _LEVEL.fullmatch(level_text) else -1000
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
        compress = zstd_module().compress
        return lambda data: bytes(compress(data, level))
    frame = _lz4()
    return lambda data: bytes(frame.compress(data, compression_level=level))


def decompress(name: str, data: bytes, bytes_max: int) -> bytes:
    """The bytes that were compressed. Raises BadCompression for damage and for too much of it."""
    if name == "none":
        return data
    if name not in COMPRESSIONS:
        raise BadCompression(f"unknown compression {name!r}")
    decompressor = _decompressor(name, bytes_max)
    try:
        if _claimed_bytes(name, data) <= bytes_max:
            output = _output(decompressor, data, bytes_max)
        else:
            output = None
    except Exception as error:  # each library has errors of its own
        raise BadCompression(f"damaged {name}: {error}") from error
    if output is None:
        raise GrowsTooLarge(f"decompresses to more than the {bytes_max:,} bytes allowed")
    if not decompressor.eof or decompressor.unused_data:
        raise BadCompression(f"the {name} data does not end where the message ends")
    return output


def _decompressor(name: str, bytes_max: int) -> Any:
    if name == "gzip":
        return zlib.decompressobj(wbits=31)
    if name == "lz4":
        return _lz4().LZ4FrameDecompressor()
    zstd = zstd_module()
    wanted = (bytes_max - 1).bit_length()
    window_log = min(max(wanted, ZSTD_WINDOW_LOGS[0]), ZSTD_WINDOW_LOGS[-1])
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window_log})


def _claimed_bytes(name: str, data: bytes) -> int:
    """What the frame says it decompresses to; 0 where it does not say."""
    if name == "zstd":
        return zstd_module().get_frame_info(data).decompressed_size or 0
    if name == "lz4":
        return int(_lz4().get_frame_info(data)["content_size"])
    return 0


def _output(decompressor: Any, data: bytes, bytes_max: int) -> bytes | None:
    """All of the output; None if that is more than `bytes_max`.

    It is asked for in growing pieces, as lz4 takes memory for all that it is allowed to return.
    """
    pieces: list[bytes] = []
    room = bytes_max + 1
    size = max(PIECE_BYTES, 4 * len(data))
    while room:
        piece = bytes(decompressor.decompress(data, min(size, room)))
        pieces.append(piece)
        room -= len(piece)
        # zlib hands back what it did not look at, the others keep it
        data = getattr(decompressor, "unconsumed_tail", b"")
        if decompressor.eof or not (piece or data):
            return b"".join(pieces) if room else None
        size *= 2
    return None


def _lz4() -> Any:
    return extra_module("lz4", "compression", "lz4.frame")
