"""The codec of one connection: what values become on their way out, and how they come back.

    value -> format -> pre hooks -> compression -> post hooks -> magic header -> bytes

Decoding goes the other way, hooks in reverse order. Settings come from the topic, the publisher and
the call; each field is taken from the last of them that names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from ..batch import OBJECTS, RowSource
from ..errors import DecodeFailed, EncodeFailed, FlintError, InvalidRequest
from ..model import TopicOptions
from ..rows import Origin
from .compression import Compression, decompress, parse_compression
from .content_type import ContentType, format_content_type, parse_content_type
from .formats import (
    AvroFormat,
    CustomFormat,
    Format,
    JsonFormat,
    MsgpackFormat,
    RawFormat,
    TextFormat,
    schema_fingerprint,
    schema_text,
)
from .magic import HEADERS, BadHeader, add_header, detect

DECODED_BYTES_MAX = 64 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")

OnError = Literal["raise", "return", "skip"]


class Settings(NamedTuple):
    """How values are written down. None: not said here, so the next in line decides."""

    format: str | None = None
    compression: str | None = None
    pre_hooks: tuple[str, ...] | None = None
    post_hooks: tuple[str, ...] | None = None
    magic_header: str | None = None
    schema: str | None = None

    def over(self, below: Settings) -> Settings:
        """These settings, with what they leave open taken from `below`, field by field."""
        if self == UNSAID:
            return below
        said = {name: value for name, value in self._asdict().items() if value is not None}
        return below._replace(**said)


UNSAID = Settings()


def settings_of(options: TopicOptions | None) -> Settings:
    """What a topic's options say of its values."""
    if options is None:
        return UNSAID
    return Settings(
        options.format,
        options.compression,
        options.pre_hooks,
        options.post_hooks,
        options.magic_header,
        options.schema,
    )


class Hook(NamedTuple):
    """A step of the user's own, from bytes to bytes and back."""

    name: str
    encode: Callable[[bytes], bytes]
    decode: Callable[[bytes], bytes]


class Codec:
    """Formats, hooks and schemas of one connection, and what they make of values."""

    def __init__(self, decoded_bytes_max: int = DECODED_BYTES_MAX) -> None:
        self._decoded_bytes_max = decoded_bytes_max
        self._formats: dict[str, Format] = {}
        self._by_media_type: dict[str, str] = {"application/x-msgpack": "msgpack"}
        self._hooks: dict[str, Hook] = {}
        self._schemas: dict[str, AvroFormat] = {}
        self._plans: dict[tuple[Settings, str | None], EncodePlan] = {}
        for format in (JsonFormat(), MsgpackFormat(), RawFormat(), TextFormat()):
            self._add_format(format)
        self._by_media_type["avro/binary"] = "avro"

    # --- what can be registered

    def register_format(
        self,
        name: str,
        *,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        media_type: str | None = None,
    ) -> None:
        """Add a format of your own: `encode` gives bytes, `decode` gets them back."""
        _check_name(name, "format")
        if name in self._formats or name in ("avro", "object"):
            raise InvalidRequest(f"format {name!r} is there already; choose another name")
        media_type = (media_type or f"application/x-{name}").strip().lower()
        if media_type in self._by_media_type or ";" in media_type or "/" not in media_type:
            raise InvalidRequest(f"media type {media_type!r} is taken, or none at all")
        self._add_format(CustomFormat(name, encode, decode, media_type))
        self._plans.clear()

    def register_hook(
        self, name: str, *, encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes]
    ) -> None:
        """Add a step before or after compression: bytes to bytes, and back."""
        _check_name(name, "hook")
        if name in self._hooks:
            raise InvalidRequest(f"hook {name!r} is there already; choose another name")
        self._hooks[name] = Hook(name, encode, decode)

    def register_schema(self, schema: Any) -> str:
        """Make an Avro schema known for decoding; returns its fingerprint."""
        return self._avro(schema_text(schema)).fingerprint

    def _add_format(self, format: Format) -> None:
        self._formats[format.name] = format
        self._by_media_type[format.media_type] = format.name

    def _avro(self, schema: str) -> AvroFormat:
        fingerprint = schema_fingerprint(schema)
        known = self._schemas.get(fingerprint)
        if known is None:
            known = self._schemas[fingerprint] = AvroFormat(schema)
        return known

    # --- out

    def checked(self, settings: Settings) -> Settings:
        """`settings` if every name in them is known here and they can go together."""
        if settings.schema is not None:
            settings = settings._replace(schema=schema_text(settings.schema))
        self.plan(settings)
        return settings

    def plan(self, settings: Settings, topic_format: str | None = None) -> EncodePlan:
        """How to encode by these settings. `topic_format` is what readers take for granted."""
        plan = self._plans.get((settings, topic_format))
        if plan is None:
            plan = EncodePlan(self, settings, topic_format)
            if len(self._plans) < 1024:
                self._plans[settings, topic_format] = plan
        return plan

    def format(self, name: str, schema: str | None) -> Format:
        if name == "avro":
            if schema is None:
                raise InvalidRequest("format 'avro' needs a schema: schema={...} beside it")
            return self._avro(schema_text(schema))
        format = self._formats.get(name)
        if format is None:
            known = ", ".join([*self._formats, "avro", "object"])
            raise InvalidRequest(f"unknown format {name!r}; known are {known}")
        return format

    def hooks(self, names: Sequence[str]) -> list[Hook]:
        for name in names:
            if name not in self._hooks:
                known = ", ".join(self._hooks) or "none"
                raise InvalidRequest(f"unknown hook {name!r}; registered are: {known}")
        return [self._hooks[name] for name in names]

    def format_of_media_type(self, media_type: str) -> str | None:
        found = self._by_media_type.get(media_type)
        if found is None and media_type.endswith("+json"):
            return "json"
        return found

    # --- back

    def decode(self, data: bytes, content_type: str | None, origin: Origin, type: Any) -> Any:
        """The value of one message. Raises what went wrong; the callers below say where."""
        said = parse_content_type(content_type) if content_type else None
        settings = settings_of(origin.options)
        format, schema = self._format_said(said, settings)
        pre: tuple[str, ...] = ()
        post: tuple[str, ...] = ()
        encoding, header = "none", settings.magic_header or "none"
        if said is not None:
            pre, encoding, post, header = said[1:5]
        if header != "none":
            if header not in HEADERS:
                raise BadHeader(f"unknown magic header {header!r}")
            found = detect(header, data)
            if found is not None:
                format, encoding, schema, data = found
                if said is None:
                    pre, post = settings.pre_hooks or (), settings.post_hooks or ()
        for hook in reversed(self.hooks(post)):
            data = hook.decode(data)
        if encoding != "none":
            data = decompress(encoding, data, self._decoded_bytes_max)
        for hook in reversed(self.hooks(pre)):
            data = hook.decode(data)
        return self._decoder(format, schema, settings).decode(data, type)

    def _format_said(self, said: ContentType | None, settings: Settings) -> tuple[str, str]:
        if said is None:
            return settings.format or "raw", ""
        format = said.format or self.format_of_media_type(said.media_type) or "raw"
        return format, said.schema

    def _decoder(self, name: str, fingerprint: str, settings: Settings) -> Format:
        if name != "avro":
            return self.format(name, None)
        if settings.schema is not None:
            ours = self._avro(settings.schema)
            if fingerprint in ("", ours.fingerprint):
                return ours
        known = self._schemas.get(fingerprint)
        if known is None:
            raise InvalidRequest(
                f"its Avro schema {fingerprint or '(none named)'} is not known here; "
                "register_schema(...) makes it so"
            )
        return known

    def decode_row(self, source: RowSource, row: int, origin: Origin, type: Any = None) -> Any:
        """The value of one row; DecodeFailed names topic, offset and what was expected."""
        value = source.value(row)
        if source.columns & OBJECTS:
            return _object_of(value, source, row, origin, type)
        content_type = source.content_type(row)
        try:
            return self.decode(value, content_type, origin, type)
        except Exception as error:
            raise self._failure(content_type, source, row, origin, error) from error

    def decode_rows(
        self,
        source: RowSource,
        rows: Sequence[int],
        values: Sequence[Any],
        origin: Origin,
        type: Any,
        on_error: OnError,
    ) -> list[Any]:
        """The values of many rows. One that fails raises, stands as its error, or is left out."""
        decode = self._quick(source, origin, type)
        if decode is not None:
            try:
                return [decode(value) for value in values]
            except Exception:
                pass  # one of them is bad: find out which
        decoded: list[Any] = []
        for row in rows:
            try:
                decoded.append(self.decode_row(source, row, origin, type))
            except DecodeFailed as error:
                if on_error == "raise":
                    raise
                if on_error == "return":
                    decoded.append(error)
        return decoded

    def _quick(self, source: RowSource, origin: Origin, type: Any) -> Callable[[Any], Any] | None:
        """One decoder for all rows of a batch, where they say the same and it is that simple."""
        content_type = source.common_content_type()
        if not content_type or source.columns & OBJECTS:
            return None
        said = parse_content_type(content_type)
        if said.encoding != "none" or said.pre_hooks or said.post_hooks or said.header != "none":
            return None
        format, schema = self._format_said(said, UNSAID)
        if format == "avro":
            return None
        decoder = self.format(format, schema)
        quick = getattr(decoder, "quick_decoder", None)
        if quick is not None:
            return quick(type)  # type: ignore[no-any-return]
        return lambda data: decoder.decode(data, type)

    def _failure(
        self,
        content_type: str | None,
        source: RowSource,
        row: int,
        origin: Origin,
        error: Exception,
    ) -> DecodeFailed:
        said = parse_content_type(content_type) if content_type else None
        expected = self._format_said(said, settings_of(origin.options))[0]
        offset = source.base_offset + row if source.base_offset >= 0 else None
        return DecodeFailed(origin.topic, origin.partition, offset, expected, str(error))


class EncodePlan:
    """One resolved set of settings, ready to encode with."""

    __slots__ = (
        "_compression", "_format", "_header", "_post", "_pre", "_types", "codec", "is_bare",
        "settings", "topic_format",
    )  # fmt: skip

    def __init__(self, codec: Codec, settings: Settings, topic_format: str | None) -> None:
        self.codec, self.settings, self.topic_format = codec, settings, topic_format
        self._format = None
        if settings.format is not None:
            self._format = codec.format(settings.format, settings.schema)
        if settings.schema is not None and settings.format != "avro":
            raise InvalidRequest("schema goes with format='avro' only")
        self._compression: Compression | None = None
        if settings.compression not in (None, "none"):
            self._compression = parse_compression(settings.compression)
        self._pre = codec.hooks(settings.pre_hooks or ())
        self._post = codec.hooks(settings.post_hooks or ())
        self._header = settings.magic_header or "none"
        if self._header not in HEADERS:
            raise InvalidRequest(
                f"magic_header is one of {', '.join(HEADERS)}, not {settings.magic_header!r}"
            )
        self.is_bare = (
            self._compression is None
            and not self._pre
            and not self._post
            and self._header == "none"
        )
        self._types: dict[tuple[str, str | None], str | None] = {}

    def encode(self, value: Any, content_type: str | None = None) -> tuple[bytes, str | None]:
        """The bytes of a value, and the content type that tells how to decode them."""
        format = self._format
        if format is None:
            format = self.codec.format(_natural_format(value), None)
        try:
            data = format.encode(value)
            if not self.is_bare:
                data = self._wrapped(format, data)
        except FlintError:
            raise
        except Exception as error:
            raise EncodeFailed(type(value).__name__, format.name, str(error)) from error
        return data, self._content_type(format, content_type)

    def _wrapped(self, format: Format, data: bytes) -> bytes:
        for hook in self._pre:
            data = hook.encode(data)
        compression = "none"
        if self._compression is not None:
            compression = self._compression.name
            data = self._compression.compress(data)
        for hook in self._post:
            data = hook.encode(data)
        if self._header != "none":
            schema = format.fingerprint if isinstance(format, AvroFormat) else ""
            data = add_header(self._header, format.name, compression, schema, data)
        return data

    def _content_type(self, format: Format, given: str | None) -> str | None:
        known = self._types.get((format.name, given), "")
        if known == "":
            known = self._made_content_type(format, given)
            if len(self._types) < 256:
                self._types[format.name, given] = known
        return known

    def _made_content_type(self, format: Format, given: str | None) -> str | None:
        if given is None and format.name == "raw" and self.is_bare:
            # Raw bytes are what a message without a content type is, unless its topic says else.
            return None if self.topic_format in (None, "raw") else format.media_type
        media_type = given or format.media_type
        base = parse_content_type(media_type).media_type
        implied = self.codec.format_of_media_type(base) or "raw"
        if given is not None and format.name == "raw":
            implied = "raw"  # the caller has encoded the value and says what it is
        return format_content_type(
            ContentType(
                media_type,
                tuple(hook.name for hook in self._pre),
                "none" if self._compression is None else self._compression.name,
                tuple(hook.name for hook in self._post),
                self._header,
                format.fingerprint if isinstance(format, AvroFormat) else "",
                "" if implied == format.name else format.name,
            )
        )


def _natural_format(value: Any) -> str:
    """What a value is written as where nobody says: bytes as they are, text as text, else JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return "raw"
    return "text" if isinstance(value, str) else "json"


def _object_of(value: Any, source: RowSource, row: int, origin: Origin, wanted: Any) -> Any:
    if isinstance(wanted, type) and not isinstance(value, wanted):
        raise DecodeFailed(
            origin.topic,
            origin.partition,
            source.base_offset + row,
            "object",
            f"it is a {type(value).__name__}, not a {wanted.__name__}",
        )
    return value


def _check_name(name: str, what: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"a {what} name is letters, digits, '_', '.' and '-' after a letter; not {name!r}"
        )
