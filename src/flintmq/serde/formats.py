"""Formats: how an object becomes bytes. JSON and MessagePack by msgspec, Avro by fastavro.

Typed decoding gives dataclasses, msgspec Structs, TypedDicts and, where pydantic is installed, its
models. A format raises whatever it raises; the codec translates.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol
from uuid import UUID

import msgspec

from ..errors import InvalidRequest, extra_module


class Format(Protocol):
    """One way of writing objects down."""

    @property
    def name(self) -> str: ...
    @property
    def media_type(self) -> str: ...
    def encode(self, value: Any, /) -> bytes: ...
    def decode(self, data: bytes, type: Any) -> Any:
        """The object; of `type` where that is not None."""
        ...


def _plain_data(format: str, **how: str) -> Callable[[Any], Any]:
    """A hook for what msgspec does not know: pydantic models give themselves as plain data."""

    def dump(value: Any) -> Any:
        if not hasattr(value, "model_dump"):
            raise TypeError(f"{type(value).__name__} cannot be encoded as {format}")
        return value.model_dump(**how)

    return dump


def _validated(type: Any, value: Any) -> Any:
    """What msgspec does not know: pydantic models within other types validate plain data."""
    if type is object:
        return value
    if hasattr(type, "model_validate"):
        return type.model_validate(value)
    raise TypeError(f"cannot decode to the type {type!r}")


@lru_cache(maxsize=256)
def _json_decoder(type: Any) -> Callable[[bytes], Any]:
    if hasattr(type, "model_validate_json"):
        validate: Callable[[bytes], Any] = type.model_validate_json
        return validate
    return msgspec.json.Decoder(type, dec_hook=_validated).decode


@lru_cache(maxsize=256)
def _msgpack_decoder(type: Any) -> Callable[[bytes], Any]:
    if hasattr(type, "model_validate"):
        return lambda data: type.model_validate(msgspec.msgpack.decode(data))
    return msgspec.msgpack.Decoder(type, dec_hook=_validated).decode


@lru_cache(maxsize=256)
def _fields_type(names: tuple[str, ...]) -> Any:
    """A type that has these fields and skips all others; None where there is none."""
    fields = [(f"f{number}", Any, msgspec.UNSET) for number in range(len(names))]
    rename = {f"f{number}": name for number, name in enumerate(names)}
    try:
        return msgspec.defstruct("Fields", fields, rename=rename, gc=False)
    except (ValueError, TypeError):  # a name that msgspec cannot look for
        return None


def _some_fields(
    decoder: Callable[[Any], Callable[[bytes], Any]], data: bytes, names: tuple[str, ...]
) -> dict[str, Any] | None:
    """Of a map, these fields; None where it takes a whole look. What is skipped costs a tenth, and
    makes no objects."""
    type = _fields_type(names)
    if type is None:
        return None
    try:
        found = msgspec.structs.astuple(decoder(type)(data))
    except msgspec.ValidationError:
        return None
    return {name: v for name, v in zip(names, found, strict=True) if v is not msgspec.UNSET}


def _converted(value: Any, type: Any) -> Any:
    """Plain data as an object of `type`."""
    if type is None:
        return value
    if hasattr(type, "model_validate"):
        return type.model_validate(value)
    return msgspec.convert(value, type, dec_hook=_validated)


class MsgspecFormat:
    """JSON or MessagePack, by msgspec."""

    def __init__(
        self,
        name: str,
        media_type: str,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        decoder: Callable[[Any], Callable[[bytes], Any]],
    ) -> None:
        self.name, self.media_type = name, media_type
        self.encode = encode
        self._decode, self._decoder = decode, decoder

    def decode(self, data: bytes, type: Any) -> Any:
        return self._decode(data) if type is None else self._decoder(type)(data)

    def quick_decoder(self, type: Any) -> Callable[[bytes], Any]:
        """One function for many values."""
        return self._decode if type is None else self._decoder(type)

    def decode_fields(self, data: bytes, names: tuple[str, ...]) -> Any:
        """A value that has at least these fields, where it has any."""
        found = _some_fields(self._decoder, data, names)
        return self._decode(data) if found is None else found


_decode_json = msgspec.json.Decoder().decode
_json_encoder = msgspec.json.Encoder(enc_hook=_plain_data("JSON", mode="json"))
_msgpack_hook = _plain_data("MessagePack")


def _encode_json(value: Any) -> bytes:
    """Bytes are taken as JSON that is encoded already, if they are."""
    if not isinstance(value, bytes | bytearray | memoryview):
        return _json_encoder.encode(value)
    data = bytes(value)
    try:
        _decode_json(data)
    except msgspec.DecodeError:
        raise ValueError(
            "bytes must contain encoded JSON here; publish other bytes with format='raw'"
        ) from None
    return data


JSON = MsgspecFormat("json", "application/json", _encode_json, _decode_json, _json_decoder)
MSGPACK = MsgspecFormat(
    "msgpack",
    "application/msgpack",
    msgspec.msgpack.Encoder(enc_hook=_msgpack_hook).encode,
    msgspec.msgpack.Decoder().decode,
    _msgpack_decoder,
)


class RawFormat:
    """Bytes as they are."""

    name = "raw"
    media_type = "application/octet-stream"

    def encode(self, value: Any) -> bytes:
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise TypeError(f"raw takes bytes, not {type(value).__name__}")

    def decode(self, data: bytes, type: Any) -> Any:
        if type not in (None, bytes):
            raise TypeError(f"raw bytes cannot be decoded to {type!r}")
        return data


class TextFormat:
    """Text in UTF-8."""

    name = "text"
    media_type = "text/plain"

    def encode(self, value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode()
        raise TypeError(f"text takes str, not {type(value).__name__}")

    def decode(self, data: bytes, type: Any) -> Any:
        if type not in (None, str):
            raise TypeError(f"text cannot be decoded to {type!r}")
        return data.decode()


class AvroFormat:
    """Avro's binary encoding of one schema; the schema itself is not in the bytes.

    Bytes cannot make it recurse or grow beyond their own length: fastavro's compiled functions do
    not look at the depth of the stack, so schemas that contain themselves go by its Python ones,
    and arrays whose items take no bytes, of which a few bytes can claim any number, are refused.
    """

    name = "avro"
    media_type = "avro/binary"

    def __init__(self, schema: str) -> None:
        self._avro = extra_module("avro", "avro", "fastavro")
        self.schema = schema
        self.fingerprint = schema_fingerprint(schema)
        try:
            self._parsed = self._avro.parse_schema(json.loads(schema))
        except Exception as error:  # fastavro has many
            raise InvalidRequest(f"not an Avro schema: {error}") from error
        shape = _Shape()
        shape.least_bytes(self._parsed)
        if shape.has_weightless_items:
            raise InvalidRequest("an Avro array whose items take no bytes could claim any length")
        reading = writing = self._avro
        if shape.contains_itself:
            reading = import_module("fastavro._read_py")
            writing = import_module("fastavro._write_py")
        self._read: Any = reading.schemaless_reader
        self._write: Any = writing.schemaless_writer

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, dict | list | str | bytes | int | float | None | bool):
            value = msgspec.to_builtins(value, builtin_types=_AVRO_TYPES, enc_hook=_msgpack_hook)
        buffer = io.BytesIO()
        self._write(buffer, self._parsed, value, strict=True)
        return buffer.getvalue()

    def decode(self, data: bytes, type: Any) -> Any:
        buffer = io.BytesIO(data)
        value = self._read(buffer, self._parsed, None)
        if buffer.read(1):
            raise ValueError("extra bytes after the Avro value")
        return _converted(value, type)


_AVRO_TYPES = (bytes, bytearray, datetime, date, time, Decimal, UUID)
"""What fastavro writes by itself, in the schema's logical types."""


class _Shape:
    """What a parsed schema lets bytes do. Names stand for records that came before, or around."""

    def __init__(self) -> None:
        self.contains_itself = False
        self.has_weightless_items = False
        self._around: set[str] = set()
        self._least: dict[str, int] = {}

    def least_bytes(self, schema: Any) -> int:
        """How many bytes a value takes at least: 0, or 1 for more."""
        if isinstance(schema, str):
            if schema in self._around:
                self.contains_itself = True
            return 0 if schema == "null" else self._least.get(schema, 1)
        if isinstance(schema, list):
            for branch in schema:
                self.least_bytes(branch)
            return 1  # the number of the branch
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._of_record(schema)
        if kind == "array":
            if not self.least_bytes(schema["items"]):
                self.has_weightless_items = True
            return 1
        if kind == "map":
            self.least_bytes(schema["values"])
            return 1
        if kind in ("fixed", "enum"):
            self._least[schema["name"]] = 1 if schema.get("size", 1) else 0
            return self._least[schema["name"]]
        return self.least_bytes(kind)

    def _of_record(self, schema: Any) -> int:
        name = schema["name"]
        self._around.add(name)
        least = max((self.least_bytes(field["type"]) for field in schema["fields"]), default=0)
        self._around.discard(name)
        self._least[name] = least
        return least


def schema_text(schema: Any) -> str:
    """A schema as its canonical JSON text: sorted keys, no blanks."""
    try:
        parsed = json.loads(schema) if isinstance(schema, str) else schema
        return json.dumps(parsed, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidRequest(
            f"schema must be an Avro schema as JSON text or a dict: {error}"
        ) from None


def schema_fingerprint(schema: str) -> str:
    """Sixteen hex digits that stand for a schema: the start of its text's SHA-256."""
    return hashlib.sha256(schema.encode()).hexdigest()[:16]


class CustomFormat:
    """A format of the user's own."""

    def __init__(
        self,
        name: str,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        media_type: str,
    ) -> None:
        self.name, self.media_type = name, media_type
        self._encode, self._decode = encode, decode

    def encode(self, value: Any) -> bytes:
        data = self._encode(value)
        if not isinstance(data, bytes):
            raise TypeError(f"its encoder returned {type(data).__name__}, not bytes")
        return data

    def decode(self, data: bytes, type: Any) -> Any:
        return _converted(self._decode(data), type)
