"""The value of a message as it is printed: as published, or decoded. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import FlintError
from ..rows import Message
from ..serde.content_type import parse_content_type

_FORMATS = {
    "application/json": "json",
    "application/msgpack": "msgpack",
    "avro/binary": "avro",
    "text/plain": "text",
}


class Decoded:
    """A value as an object that JSON can hold, and the arguments to `publish` it again."""

    __slots__ = ("content_type", "format", "value")

    def __init__(self, value: Any, format: str | None, content_type: str | None) -> None:
        self.value, self.format, self.content_type = value, format, content_type


def as_bytes(value: Any) -> bytes:
    return (
        bytes(value) if isinstance(value, bytes | bytearray | memoryview) else str(value).encode()
    )


def published(message: Message) -> bytes:
    """The published bytes, decompressed; the stored bytes if they cannot be decompressed."""
    try:
        return as_bytes(message.unpacked())
    except FlintError:
        return as_bytes(message.value)


def decoded(message: Message) -> Decoded | None:
    """None if the value cannot be decoded, or if JSON cannot represent it without loss, for example
    bytes in a list."""
    said = parse_content_type(message.content_type) if message.content_type else None
    try:
        value = message.decode()
    except FlintError:
        return None
    format = None if said is None else said.format or _FORMATS.get(said.media_type)
    if isinstance(value, bytes):
        if format not in (None, "raw"):
            return None
        format = None
    elif not _is_json(value):
        return None
    elif format is None:
        format = "text" if isinstance(value, str) else "json"
    is_own = said is None or _FORMATS.get(said.media_type) == format
    if said is not None and format is None and said.media_type == "application/octet-stream":
        is_own = True
    return Decoded(value, format, None if said is None or is_own else said.media_type)


def _is_json(value: Any) -> bool:
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(value)) == value)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return False


def for_people(message: Message, *, decode: bool = True) -> bytes:
    """Text and JSON as they were published; other formats as JSON."""
    found = decoded(message) if decode and message.content_type else None
    if found is None or found.format in (None, "json", "text"):
        return published(message)
    return msgspec.json.encode(found.value)
