"""A message as one JSON object: what `sub -J` prints and `pub -J` takes. Pure.

A UTF-8 value is written as text, any other as base64 in `value_base64`. Keys and headers are text
or bytes; bytes are always base64. So every message survives the round trip. Offsets are strings,
because they have 64 bits.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ..errors import InvalidRequest
from ..rows import Message
from .values import decoded

_TOLD = ("topic", "partition", "offset", "timestamp", "delivery_count")
"""Fields that only the broker sets; ignored on input."""

_TAKEN = ("key", "headers", "priority", "content_type", "format", "expires_at", "deliver_at")


class Outgoing(NamedTuple):
    """A message to publish: its value, and the keyword arguments of `publish`; times since 1970."""

    value: Any
    keywords: dict[str, Any]
    expires_at: float | None = None
    is_written: bool = False
    """The envelope states its own encoding: the topic's format and compression do not apply."""


def envelope(message: Message, *, decode: bool = False) -> dict[str, Any]:
    """The message as it is printed; with `decode`, the decoded value.

    If JSON cannot represent the decoded value, the stored bytes are printed.
    """
    found: dict[str, Any] = {
        "topic": message.topic,
        "partition": str(message.partition),
        "offset": None if message.offset is None else str(message.offset),
        "timestamp": message.timestamp,
    }
    if message.key is not None:
        found.update(_told("key", message.key))
    if message.headers:
        found["headers"] = {
            name: value if isinstance(value, str) else {"base64": b64encode(value).decode()}
            for name, value in message.headers.items()
        }
    told = decoded(message) if decode else None
    more = {
        "priority": message.priority or None,
        "expires_at": message.expires_at,
        "deliver_at": message.deliver_at,
        "content_type": message.content_type if told is None else told.content_type,
    }
    found |= {name: value for name, value in more.items() if value is not None}
    if told is None or told.format is None:
        return found | readable("value", message.value if told is None else told.value)
    return found | {"format": told.format, "value": told.value}


def readable(name: str, value: str | bytes | memoryview) -> dict[str, str]:
    """UTF-8 as text under this name, other bytes as base64 under `name_base64`."""
    try:
        return {name: value if isinstance(value, str) else str(value, "utf-8")}
    except UnicodeDecodeError:
        return _told(name, value)


def _told(name: str, value: str | bytes | memoryview) -> dict[str, str]:
    if isinstance(value, str):
        return {name: value}
    return {f"{name}_base64": b64encode(value).decode()}


def line(message: Message, *, decode: bool = False) -> bytes:
    """The envelope as one line of JSON."""
    return msgspec.json.encode(envelope(message, decode=decode))


def outgoing(text: bytes) -> Outgoing:
    """The message to publish from one line. An error names what is wrong."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"an envelope must be a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise InvalidRequest('an envelope must be a JSON object, for example {"value": "..."}')
    unknown = set(found) - {"value", "value_base64", "key_base64", *_TOLD, *_TAKEN}
    if unknown:
        raise InvalidRequest(
            f"unknown field {sorted(unknown)[0]!r} in the envelope; known fields: value or "
            f"value_base64, key or key_base64, {', '.join(_TAKEN[1:])}"
        )
    has_format = found.get("format") is not None
    value = _heard(found, "value")
    if isinstance(value, str) and not has_format:
        value = value.encode()
    elif value is None and not has_format:
        raise InvalidRequest("the envelope needs value or value_base64")
    keywords = {name: found[name] for name in _TAKEN[2:5] if found.get(name) is not None}
    _check(keywords)
    if (key := _heard(found, "key")) is not None:
        if not isinstance(key, str | bytes):
            raise InvalidRequest(f"key must be text, not {key!r}; use key_base64 for bytes")
        keywords["key"] = key
    if found.get("headers"):
        keywords["headers"] = _headers(found["headers"])
    if (due := _moment(found, "deliver_at")) is not None:
        keywords["at"] = due
    is_written = "content_type" in keywords and not has_format
    return Outgoing(value, keywords, _moment(found, "expires_at"), is_written)


def _check(keywords: Mapping[str, Any]) -> None:
    priority = keywords.get("priority", 0)
    if type(priority) is not int or not 0 <= priority <= 7:
        raise InvalidRequest(f"priority must be 0 to 7 (7 is delivered first), not {priority!r}")
    for name in ("content_type", "format"):
        if not isinstance(keywords.get(name, ""), str):
            raise InvalidRequest(f"{name} must be text, not {keywords[name]!r}")


def _moment(found: Mapping[str, Any], name: str) -> float | None:
    value = found.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 10**11:
        raise InvalidRequest(f"{name} must be a time in seconds since 1970, not {value!r}")
    return float(value)


def _heard(found: Mapping[str, Any], name: str) -> Any:
    packed = found.get(f"{name}_base64")
    if packed is None:
        return found.get(name)
    if found.get(name) is not None:
        raise InvalidRequest(f"the envelope can have {name} or {name}_base64, not both")
    return _unpacked(packed, f"{name}_base64")


def _unpacked(text: Any, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (TypeError, ValueError, Base64Error):
        raise InvalidRequest(f"{name} is not base64") from None


def _headers(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise InvalidRequest("headers must be an object of names and values")
    found: dict[str, Any] = {}
    for name, value in said.items():
        if isinstance(value, dict):
            found[name] = _unpacked(value.get("base64"), f"header {name!r}")
        elif isinstance(value, str):
            found[name] = value
        else:
            raise InvalidRequest(
                f'header {name!r} must be text or {{"base64": ...}}, not {value!r}'
            )
    return found
