"""What a request publishes: envelopes in JSON, raw bodies with headers, CloudEvents. Pure.

    envelope      {"json": {"id": 42}, "key": "42"}              models.Publish
    raw           the body as it is; `X-Flint-Key: 42`, `X-Flint-Header-region: eu`
    CloudEvents   1.0 in JSON, or raw with `ce-id`, `ce-source` ... as HTTP headers

Attributes of CloudEvents are headers `ce-NAME` of the message, whichever way they came.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from ...errors import InvalidRequest
from . import models

EXAMPLE = '{"json": {"id": 42}, "key": "42"}'
KEY, HEADER = "x-flint-key", "x-flint-header-"
PRODUCER, SEQUENCE = "x-flint-producer", "x-flint-sequence"
CLOUD = "ce-"
TRACE = ("traceparent", "tracestate")


class Once(NamedTuple):
    """What is said of a publish, and not of a message. Messages for which it is the same can be
    published together."""

    partition: str | None = None
    qos: int = 1
    auto_create: bool = True
    timeout: float = 5.0
    producer: str | None = None


class PublishedRow(NamedTuple):
    """A message to publish."""

    value: Any
    is_json: bool = False
    """Whether the value is to be encoded, in the topic's format or as JSON."""
    key: str | bytes | None = None
    headers: Mapping[str, str | bytes] | None = None
    priority: int = 0
    ttl: float | None = None
    delay: float | None = None
    content_type: str | None = None
    sequence: int | None = None
    once: Once = Once()


def whole_number(text: str, what: str, below: int = 2**63) -> int:
    if not text.isascii() or not text.isdecimal() or (found := int(text[:20])) >= below:
        power = below.bit_length() - 1
        raise InvalidRequest(f"{what} must be a whole number below 2**{power}, not {text[:40]!r}")
    return found


# --- envelopes


def of_envelope(text: bytes) -> PublishedRow:
    try:
        return from_envelope(msgspec.json.decode(text, type=models.Publish))
    except msgspec.ValidationError as error:
        # Often it is the value itself that was sent.
        raise InvalidRequest(f"invalid body: {error}; a JSON value is sent as {EXAMPLE}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"invalid body: {error}") from None


def from_envelope(body: models.Publish) -> PublishedRow:
    given = [body.text is not None, body.base64 is not None, body.json is not msgspec.UNSET]
    if sum(given) != 1:
        raise InvalidRequest(
            f"a message needs exactly one value: `text`, `base64` or `json`, as in {EXAMPLE}"
        )
    value: Any = body.json
    if body.text is not None:
        value = body.text
    elif body.base64 is not None:
        value = _from_base64(body.base64, "base64")
    return PublishedRow(
        value,
        body.json is not msgspec.UNSET,
        _key_of(body),
        _headers_of(body) or None,
        body.priority,
        body.ttl,
        body.delay,
        body.content_type,
        None if body.sequence is None else whole_number(body.sequence, "sequence"),
        Once(body.partition, body.qos, body.auto_create, body.timeout, body.producer),
    )


def _key_of(body: models.Publish) -> str | bytes | None:
    if body.key_base64 is None:
        return body.key
    if body.key is not None:
        raise InvalidRequest("a message has one key: `key` or `key_base64`")
    return _from_base64(body.key_base64, "key_base64")


def _headers_of(body: models.Publish) -> Mapping[str, str | bytes]:
    if not body.binary_headers:
        return body.headers
    binary = {name: _from_base64(one, name) for name, one in body.binary_headers.items()}
    if twice := sorted(binary.keys() & body.headers.keys()):
        raise InvalidRequest(f"{twice[0]!r} is in `headers` and in `binary_headers`")
    return {**body.headers, **binary}


def _from_base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"{name}: {error}") from None


# --- raw bodies


def is_raw(content_type: str, headers: Iterable[str]) -> bool:
    """Whether the body of a request is the value itself, by its headers' names."""
    if content_type not in ENVELOPES:
        return True
    return any(
        name == f"{CLOUD}specversion"
        or (name.startswith("x-flint-") and name not in (PRODUCER, SEQUENCE))
        for name in headers
    )


FORM = "application/x-www-form-urlencoded"


def is_form(headers: Mapping[str, str]) -> bool:
    """Nobody has said what the value is: curl says that it is a form where it is told nothing."""
    return headers.get("content-type", FORM).strip().lower() in (FORM, "")


def of_raw(value: bytes, headers: Mapping[str, str]) -> PublishedRow:
    """The body as it is; the rest from headers, whose names are in lower case."""
    said: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, text in headers.items():
        if name.startswith(HEADER) and len(name) > len(HEADER):
            own[name.removeprefix(HEADER)] = _utf8(text)
        elif name.startswith(CLOUD) and f"{CLOUD}specversion" in headers:
            own[name] = unquote(_utf8(text))
        elif name.startswith("x-flint-"):
            said[name] = text
    if f"{CLOUD}specversion" in headers:
        _check_cloud_event({name.removeprefix(CLOUD): text for name, text in own.items()})
    key, producer, sequence = (said.pop(name, None) for name in (KEY, PRODUCER, SEQUENCE))
    try:
        more = msgspec.convert(said, models.RawOptions, strict=False)
    except msgspec.ValidationError as error:
        unknown = said.keys() - _RAW_OPTIONS
        why = f"there is no {unknown.pop()}" if unknown else str(error)
        raise InvalidRequest(f"invalid X-Flint header: {why}") from None
    return PublishedRow(
        value,
        key=own.get(f"{CLOUD}partitionkey") if key is None else _utf8(key),
        headers=own or None,
        priority=more.priority,
        ttl=more.ttl,
        delay=more.delay,
        content_type=None if is_form(headers) else headers["content-type"],
        sequence=None if sequence is None else whole_number(sequence, "X-Flint-Sequence"),
        once=Once(more.partition, more.qos, more.auto_create, more.timeout, producer),
    )


_RAW_OPTIONS = {field.encode_name for field in msgspec.structs.fields(models.RawOptions)}


def _utf8(text: str) -> str:
    """A header as most clients mean it; HTTP itself knows bytes only."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


# --- CloudEvents


def of_cloud_event(text: bytes) -> PublishedRow:
    """Structured mode, or one of a batch."""
    try:
        event = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"invalid body: {error}") from None
    if not isinstance(event, dict):
        raise InvalidRequest(f"a CloudEvent must be a JSON object, not {type(event).__name__}")
    has_data, data = "data" in event, event.pop("data", None)
    encoded = event.pop("data_base64", None)
    if has_data and encoded is not None:
        raise InvalidRequest("a CloudEvent has `data` or `data_base64`, not both")
    _check_cloud_event(event)
    kind = event.pop("datacontenttype", None)
    if kind is not None and not isinstance(kind, str):
        raise InvalidRequest(f"datacontenttype of a CloudEvent must be a string, not {kind!r}")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise InvalidRequest("data_base64 of a CloudEvent must be a string")
        value = _from_base64(encoded, "data_base64")
    elif not has_data:
        value = b""
    elif isinstance(data, str) and kind is not None and not _is_json(kind):
        value = data.encode(errors="surrogatepass")
    else:
        value = msgspec.json.encode(data)
        kind = kind or "application/json"
    headers = {f"{CLOUD}{name}": _attribute(one) for name, one in event.items() if one is not None}
    return PublishedRow(
        value,
        key=headers.get(f"{CLOUD}partitionkey"),
        headers=headers,
        content_type=kind,
    )


def _check_cloud_event(attributes: Mapping[str, Any]) -> None:
    if attributes.get("specversion") != "1.0":
        raise InvalidRequest(
            "a CloudEvent needs specversion 1.0, "
            f"not {str(attributes.get('specversion', 'none'))[:40]!r}"
        )
    for name in ("id", "source", "type"):
        found = attributes.get(name)
        if not isinstance(found, str) or not found:
            raise InvalidRequest(f"a CloudEvent needs the attribute `{name}`")


def _attribute(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int):
        return msgspec.json.encode(value).decode()
    raise InvalidRequest("attributes of a CloudEvent are strings, whole numbers or booleans")


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


JSON = "application/json"
NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
CLOUD_EVENT = "application/cloudevents+json"
CLOUD_EVENTS = "application/cloudevents-batch+json"
ENVELOPES = (JSON, *NDJSON, CLOUD_EVENT, CLOUD_EVENTS)
"""Content types whose bodies say what is to be published. Any other body is the value itself."""
