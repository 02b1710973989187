"""Magic headers: a few bytes in front of a value that say how to decode it.

For readers that get bytes alone. They are written and looked for only where topic, publisher or
call declares one, as any payload may happen to begin with the same bytes.

    flint   F5 46 4D 01   format u8   compression u8   name length u8   0
            CRC32C u32 over the eight bytes before it, the name, and the body
            name          body

            format: 0 raw, 1 json, 2 msgpack, 3 text, 4 avro, 255 another, by name; of avro the
            name is the fingerprint of the schema. compression: 0 none, 1 gzip, 2 zstd, 3 lz4.
            Numbers are little-endian. Raw, uncompressed payloads are written bare, except for
            those that begin with F5 46 4D: these get a header of format 0, which is the escape.

    tmq     54 4D 51 01   format u8   compression u8   body

            tokio-memq's. format: 0 bincode, 1 json, 2 msgpack; compression: 0 none, 1 gzip,
            2 zstd. It has no checksum, no names and no escape.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ..batch.checksum import crc32c

HEADERS = ("none", "flint", "tmq")

FLINT = b"\xf5FM"
TMQ = b"TMQ"
VERSION = 1
_FLINT_HEADER = Struct("<3sBBBBB")
_CHECKSUM = Struct("<I")
_TMQ_HEADER = Struct("<3sBBB")

_FLINT_FORMATS = {"raw": 0, "json": 1, "msgpack": 2, "text": 3, "avro": 4}
_FLINT_COMPRESSIONS = {"none": 0, "gzip": 1, "zstd": 2, "lz4": 3}
_TMQ_FORMATS = {"json": 1, "msgpack": 2}
_TMQ_COMPRESSIONS = {"none": 0, "gzip": 1, "zstd": 2}
_OTHER = 255


class BadHeader(Exception):
    """The header cannot be written, or not be read. Translated by the codec."""


class Detected(NamedTuple):
    """What a header says, and the body behind it."""

    format: str
    compression: str
    schema: str
    body: bytes


def add_header(kind: str, format: str, compression: str, schema: str, body: bytes) -> bytes:
    """The body with its header in front."""
    return (
        _add_flint(format, compression, schema, body)
        if kind == "flint"
        else _add_tmq(format, compression, body)
    )


def check_header(kind: str, format: str, compression: str) -> None:
    """Raises BadHeader if such a header cannot say so."""
    if kind != "tmq" or (format == "raw" and compression == "none"):
        return
    if format not in _TMQ_FORMATS or compression not in _TMQ_COMPRESSIONS:
        raise BadHeader(
            f"a tmq header supports json and msgpack with gzip, zstd or none; not {format} "
            f"with {compression}"
        )


def detect(kind: str, data: bytes) -> Detected | None:
    """What the header in front of `data` says; None if there is none. Raises BadHeader."""
    return _detect_flint(data) if kind == "flint" else _detect_tmq(data)


def _add_flint(format: str, compression: str, schema: str, body: bytes) -> bytes:
    if format == "raw" and compression == "none" and not body.startswith(FLINT):
        return body
    code = _FLINT_FORMATS.get(format, _OTHER)
    name = (format if code == _OTHER else schema).encode()
    if len(name) > 255:
        raise BadHeader(f"the format name {format!r} is longer than 255 bytes")
    fixed = _FLINT_HEADER.pack(FLINT, VERSION, code, _FLINT_COMPRESSIONS[compression], len(name), 0)
    return b"".join((fixed, _CHECKSUM.pack(crc32c(body, crc32c(fixed + name))), name, body))


def _detect_flint(data: bytes) -> Detected | None:
    if not data.startswith(FLINT):
        return None
    start = _FLINT_HEADER.size + _CHECKSUM.size
    if len(data) < start:
        raise BadHeader("it starts like a flint header but is too short")
    _, version, code, compression, name_length, _ = _FLINT_HEADER.unpack_from(data)
    if version != VERSION:
        raise BadHeader(f"its flint header has version {version}; this FlintMQ reads {VERSION}")
    if len(data) < start + name_length:
        raise BadHeader("it ends inside the name in its flint header")
    name, body = data[start : start + name_length], data[start + name_length :]
    (checksum,) = _CHECKSUM.unpack_from(data, _FLINT_HEADER.size)
    if crc32c(body, crc32c(data[: _FLINT_HEADER.size] + name)) != checksum:
        raise BadHeader("its flint header does not match its checksum")
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise BadHeader("the format name in its flint header is not UTF-8") from None
    compression_name = _name_of(_FLINT_COMPRESSIONS, compression, "compression")
    if code == _OTHER:
        return Detected(text, compression_name, "", body)
    return Detected(_name_of(_FLINT_FORMATS, code, "format"), compression_name, text, body)


def _add_tmq(format: str, compression: str, body: bytes) -> bytes:
    if format == "raw" and compression == "none":
        if body.startswith(TMQ):
            raise BadHeader(
                "raw bytes that start with 'TMQ' cannot be distinguished from a tmq header"
            )
        return body
    check_header("tmq", format, compression)
    codes = _TMQ_FORMATS[format], _TMQ_COMPRESSIONS[compression]
    return _TMQ_HEADER.pack(TMQ, VERSION, *codes) + body


def _detect_tmq(data: bytes) -> Detected | None:
    if not data.startswith(TMQ) or len(data) < _TMQ_HEADER.size:
        return None
    _, version, format, compression = _TMQ_HEADER.unpack_from(data)
    if version != VERSION:
        raise BadHeader(f"its tmq header has version {version}; only 1 is supported")
    if format == 0:
        raise BadHeader(
            "its tmq header says bincode, which only Rust can decode; use json or msgpack"
        )
    return Detected(
        _name_of(_TMQ_FORMATS, format, "format"),
        _name_of(_TMQ_COMPRESSIONS, compression, "compression"),
        "",
        data[_TMQ_HEADER.size :],
    )


def _name_of(codes: dict[str, int], code: int, what: str) -> str:
    for name, known in codes.items():
        if known == code:
            return name
    raise BadHeader(f"its header has the unknown {what} {code}")
