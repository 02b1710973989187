"""The codec of one connection: what values become on their way out, and how they come back.

    value -> format -> pre hooks -> compression -> post hooks -> magic header -> bytes

Decoding goes the other way, hooks in reverse order. Settings come from the topic, the publisher and
the call; each field is taken from the last of them that names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from ..batch import OBJECTS, RowSource
from ..errors import DecodeFailed, EncodeFailed, FlintError, InvalidRequest
from ..model import TopicOptions
from ..rows import OnError, Origin, Run, ValueTooLarge
from .compression import Compression, GrowsTooLarge, decompress, parse_compression
from .content_type import ContentType, format_content_type, parse_content_type
from .formats import (
    JSON,
    MSGPACK,
    AvroFormat,
    CustomFormat,
    Format,
    MsgspecFormat,
    RawFormat,
    TextFormat,
    schema_fingerprint,
    schema_text,
)
from .magic import HEADERS, BadHeader, add_header, check_header, detect

DECODED_BYTES_MAX = 64 * 1024 * 1024
FILTERED_BYTES_MAX = 1024 * 1024
"""How large a value may be, uncompressed, for a filter to look into it."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}")

_UNWRAPPED = ("none", "none")


class CodecSettings(NamedTuple):
    """How values are written down. None: not said here, so the next in line decides."""

    format: str | None = None
    compression: str | None = None
    pre_hooks: tuple[str, ...] | None = None
    post_hooks: tuple[str, ...] | None = None
    magic_header: str | None = None
    schema: str | None = None

    def over(self, below: CodecSettings) -> CodecSettings:
        """These settings, with what they leave open taken from `below`, field by field."""
        if self == UNSAID:
            return below
        said = {name: value for name, value in self._asdict().items() if value is not None}
        if said.get("format", "avro") != "avro" and self.schema is None:
            below = below._replace(schema=None)  # it belongs to the format that is not used
        return below._replace(**said)


UNSAID = CodecSettings()
_said_of_values = attrgetter(*CodecSettings._fields)


def settings_of(options: TopicOptions | None) -> CodecSettings:
    """What a topic's options say of its values."""
    if options is None:
        return UNSAID
    return CodecSettings._make(_said_of_values(options))


class Hook(NamedTuple):
    """A step of the user's own, from bytes to bytes and back."""

    name: str
    encode: Callable[[bytes], bytes]
    decode: Callable[[bytes], bytes]

    def forth(self, data: bytes) -> bytes:
        return self._checked(self.encode(data))

    def back(self, data: bytes) -> bytes:
        return self._checked(self.decode(data))

    def _checked(self, data: bytes) -> bytes:
        if not isinstance(data, bytes):
            raise TypeError(f"hook {self.name!r} returned {type(data).__name__}, not bytes")
        return data


class Codec:
    """Formats, hooks and schemas of one connection, and what they make of values."""

    def __init__(
        self,
        decoded_bytes_max: int = DECODED_BYTES_MAX,
        filtered_bytes_max: int = FILTERED_BYTES_MAX,
    ) -> None:
        if type(decoded_bytes_max) is not int or decoded_bytes_max < 1:
            raise InvalidRequest(
                f"decoded_bytes_max must be a whole number of at least 1, not {decoded_bytes_max!r}"
            )
        self.replier: Callable[..., Any] | None = None
        """How the connection replies to a message."""
        self._decoded_bytes_max = decoded_bytes_max
        self._filtered_bytes_max = filtered_bytes_max
        self._formats: dict[str, Format] = {}
        self._by_media_type: dict[str, str] = {"application/x-msgpack": "msgpack"}
        self._hooks: dict[str, Hook] = {}
        self._schemas: dict[str, AvroFormat] = {}
        self._plans: dict[tuple[CodecSettings, str], EncodePlan] = {}
        self._bare_formats: dict[str, Format | None] = {}
        for format in (JSON, MSGPACK, RawFormat(), TextFormat()):
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
            raise InvalidRequest(f"format {name!r} is already registered; choose another name")
        _check_callable(encode, decode, "format")
        if media_type is None:
            media_type = f"application/x-{name}".lower()
        if not isinstance(media_type, str) or not _MEDIA_TYPE.fullmatch(media_type):
            raise InvalidRequest(
                f"a media type must look like 'application/x-mine', not {media_type!r}"
            )
        media_type = media_type.lower()
        if media_type in self._by_media_type:
            raise InvalidRequest(
                f"media type {media_type!r} is already used by "
                f"{self._by_media_type[media_type]!r}; use another one"
            )
        self._add_format(CustomFormat(name, encode, decode, media_type))
        self._plans.clear()

    def register_hook(
        self, name: str, *, encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes]
    ) -> None:
        """Add a step before or after compression: bytes to bytes, and back."""
        _check_name(name, "hook")
        if name in self._hooks:
            raise InvalidRequest(f"hook {name!r} is already registered; choose another name")
        _check_callable(encode, decode, "hook")
        self._hooks[name] = Hook(name, encode, decode)

    def register_schema(self, schema: Any) -> str:
        """Make an Avro schema known for decoding; returns its fingerprint."""
        return self._avro(schema_text(schema)).fingerprint

    def _add_format(self, format: Format) -> None:
        self._formats[format.name] = format
        self._by_media_type[format.media_type] = format.name
        self._bare_formats.clear()

    def _avro(self, schema: str) -> AvroFormat:
        fingerprint = schema_fingerprint(schema)
        known = self._schemas.get(fingerprint)
        if known is None:
            known = self._schemas[fingerprint] = AvroFormat(schema)
        return known

    # --- out

    def checked(self, settings: CodecSettings) -> CodecSettings:
        """`settings` if every name in them is known here and they can go together."""
        if settings.schema is not None:
            settings = settings._replace(schema=schema_text(settings.schema))
        self.plan(settings)
        return settings

    def plan(self, settings: CodecSettings, taken_for_granted: str = "raw") -> EncodePlan:
        """How to encode by these settings.

        `taken_for_granted` is what readers make of a message without content type: the topic's
        format, or "header" where they look for one.
        """
        plan = self._plans.get((settings, taken_for_granted))
        if plan is None:
            plan = EncodePlan(self, settings, taken_for_granted)
            if len(self._plans) < 1024:
                self._plans[settings, taken_for_granted] = plan
        return plan

    def format(self, name: str, schema: str | None) -> Format:
        if name == "avro":
            if schema is None:
                raise InvalidRequest("format 'avro' needs a schema: pass schema={...}")
            return self._avro(schema_text(schema))
        format = self._formats.get(name)
        if format is None:
            known = ", ".join([*self._formats, "avro", "object"])
            raise InvalidRequest(f"unknown format {name!r}; known: {known}")
        return format

    def hooks(self, names: Sequence[str]) -> list[Hook]:
        for name in names:
            if name not in self._hooks:
                known = ", ".join(self._hooks) or "none"
                raise InvalidRequest(f"unknown hook {name!r}; registered: {known}")
        return [self._hooks[name] for name in names]

    def format_of_media_type(self, media_type: str) -> str | None:
        found = self._by_media_type.get(media_type)
        if found is None and media_type.endswith("+json"):
            return "json"
        return found

    # --- back

    def decode(self, data: bytes, content_type: str | None, origin: Origin, type: Any) -> Any:
        """The value of one message. Raises what went wrong; the callers below say where."""
        format, schema, data = self._unwrapped(data, content_type, origin, self._decoded_bytes_max)
        settings = settings_of(origin.options)
        return self._decoder(format, schema, settings).decode(data, type)

    def _unwrapped(
        self, data: bytes, content_type: str | None, origin: Origin, bytes_max: int
    ) -> tuple[str, str, bytes]:
        """Format, schema, and what the format wrote: header, compression and hooks are undone."""
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
                encoding, data = found.compression, found.body
                if said is None or found.format != "raw":  # raw is of whatever type was said
                    format, schema = found.format, found.schema
                if said is None:
                    pre, post = settings.pre_hooks or (), settings.post_hooks or ()
        for hook in reversed(self.hooks(post)):
            data = hook.back(data)
        if encoding != "none":
            data = decompress(encoding, data, bytes_max)
        for hook in reversed(self.hooks(pre)):
            data = hook.back(data)
        return format, schema, data

    def _format_said(self, said: ContentType | None, settings: CodecSettings) -> tuple[str, str]:
        if said is None:
            return settings.format or "raw", ""
        format = said.format or self.format_of_media_type(said.media_type) or "raw"
        return format, said.schema

    def _decoder(self, name: str, fingerprint: str, settings: CodecSettings) -> Format:
        if name != "avro":
            return self.format(name, None)
        if settings.schema is not None:
            ours = self._avro(settings.schema)
            if fingerprint in ("", ours.fingerprint):
                return ours
        known = self._schemas.get(fingerprint)
        if known is None:
            raise InvalidRequest(
                f"its Avro schema {fingerprint or '(none named)'} is unknown here; "
                "register it with register_schema(...)"
            )
        return known

    def decode_row(self, source: RowSource, row: int, origin: Origin, type: Any = None) -> Any:
        """The value of one row; DecodeFailed names topic, offset and what was expected."""
        value = source.value(row)
        if source.columns & OBJECTS:
            return _object_of(value, source, row, origin, type)
        content_type = source.content_type(row)
        try:
            bare = self._bare_format(content_type) if content_type else None
            if bare is not None:
                return bare.decode(value, type)
            return self.decode(value, content_type, origin, type)
        except Exception as error:
            raise self._failure(content_type, source, row, origin, error) from error

    def value_for_filter(
        self, source: RowSource, row: int, origin: Origin, fields: tuple[str, ...] | None
    ) -> Any:
        """What a filter gets to see of one row: its value, or at least these fields of it.

        Raises ValueTooLarge where it would have to look at more than it may in one step, and
        whatever else keeps the value from being decoded.
        """
        value = source.value(row)
        if source.columns & OBJECTS:
            return value
        bytes_max = self._filtered_bytes_max
        if len(value) > bytes_max:
            raise ValueTooLarge(bytes_max)
        content_type = source.content_type(row)
        format = self._bare_format(content_type) if content_type else None
        if format is None:
            try:
                name, schema, value = self._unwrapped(value, content_type, origin, bytes_max)
            except GrowsTooLarge:
                raise ValueTooLarge(bytes_max) from None
            if len(value) > bytes_max:
                raise ValueTooLarge(bytes_max)  # by a hook
            format = self._decoder(name, schema, settings_of(origin.options))
        if fields is not None and isinstance(format, MsgspecFormat):
            return format.decode_fields(value, fields)
        return format.decode(value, None)

    def unpack_row(self, source: RowSource, row: int, origin: Origin) -> bytes:
        """The value of one row as its format wrote it; DecodeFailed as of `decode_row`."""
        value: bytes = source.value(row)
        content_type = source.content_type(row)
        if source.columns & OBJECTS:
            return value
        if not content_type and (origin.options is None or origin.options.magic_header is None):
            return value
        try:
            if content_type and self._bare_format(content_type) is not None:
                return value
            return self._unwrapped(value, content_type, origin, self._decoded_bytes_max)[2]
        except Exception as error:
            raise self._failure(content_type, source, row, origin, error) from error

    def decode_rows(self, run: Run, type: Any, on_error: OnError) -> list[Any]:
        """The values of many rows. One that fails raises, stands as its error, or is left out."""
        try:
            decode = self._quick(run.source, type)
            if decode is not None:
                return [decode(value) for value in run.values()]
        except Exception:
            pass  # one of them is bad: find out which
        decoded: list[Any] = []
        for row in run.rows():
            try:
                decoded.append(self.decode_row(run.source, row, run.origin, type))
            except DecodeFailed as error:
                if on_error == "raise":
                    raise
                if on_error == "return":
                    decoded.append(error)
        return decoded

    def _quick(self, source: RowSource, type: Any) -> Callable[[Any], Any] | None:
        """One decoder for all rows of a batch, where they say the same and it is that simple."""
        content_type = source.common_content_type()
        if not content_type or source.columns & OBJECTS:
            return None
        decoder = self._bare_format(content_type)
        if decoder is None:
            return None
        if isinstance(decoder, MsgspecFormat):
            return decoder.quick_decoder(type)
        return lambda data: decoder.decode(data, type)

    def _bare_format(self, content_type: str) -> Format | None:
        """The format of values that are written in it and nothing else; None if there is more."""
        if content_type in self._bare_formats:
            return self._bare_formats[content_type]
        said = parse_content_type(content_type)
        name, bare = self._format_said(said, UNSAID)[0], None
        is_wrapped = said.pre_hooks or said.post_hooks or (said.encoding, said.header) != _UNWRAPPED
        if not is_wrapped and name != "avro":
            bare = self.format(name, None)
        if len(self._bare_formats) < 256:
            self._bare_formats[content_type] = bare
        return bare

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
        return _decode_failed(source, row, origin, expected, str(error) or type(error).__name__)


class EncodePlan:
    """One resolved set of settings, ready to encode with."""

    __slots__ = (
        "_compression", "_format", "_header", "_post", "_pre", "_types", "codec", "is_bare",
        "settings", "taken_for_granted",
    )  # fmt: skip

    def __init__(self, codec: Codec, settings: CodecSettings, taken_for_granted: str) -> None:
        self.codec, self.settings, self.taken_for_granted = codec, settings, taken_for_granted
        self._format = None
        if settings.format is not None:
            self._format = codec.format(settings.format, settings.schema)
        if settings.schema is not None and settings.format != "avro":
            raise InvalidRequest("schema can only be used with format='avro'")
        self._compression: Compression | None = None
        if settings.compression not in (None, "none"):
            self._compression = parse_compression(settings.compression)
        self._pre = codec.hooks(settings.pre_hooks or ())
        self._post = codec.hooks(settings.post_hooks or ())
        self._header = "none" if settings.magic_header is None else settings.magic_header
        if self._header not in HEADERS:
            raise InvalidRequest(
                f"magic_header must be one of {', '.join(HEADERS)}, not {settings.magic_header!r}"
            )
        if self._format is not None:
            compression = "none" if self._compression is None else self._compression.name
            try:
                check_header(self._header, self._format.name, compression)
            except BadHeader as error:
                raise InvalidRequest(str(error)) from None
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
            data = hook.forth(data)
        compression = "none"
        if self._compression is not None:
            compression = self._compression.name
            data = self._compression.compress(data)
        for hook in self._post:
            data = hook.forth(data)
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
            return None if self.taken_for_granted == "raw" else format.media_type
        media_type = given or format.media_type
        said = parse_content_type(media_type)
        if said != ContentType(said.media_type) and not (format.name == "raw" and self.is_bare):
            # Bytes that are passed on as they are may come with what they said of themselves.
            raise InvalidRequest(
                f"content_type {given!r}: the parameters pre, encoding, post, header, "
                "schema and format are reserved for FlintMQ"
            )
        implied = self.codec.format_of_media_type(said.media_type) or "raw"
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
    if wanted is None or wanted is Any:
        return value
    try:
        if isinstance(value, wanted):
            return value
        why = f"it is a {type(value).__name__}, not a {getattr(wanted, '__name__', wanted)}"
    except TypeError:
        why = f"{wanted!r} is not a class"
    raise _decode_failed(source, row, origin, "object", why)


def _decode_failed(
    source: RowSource, row: int, origin: Origin, expected: str, why: str
) -> DecodeFailed:
    offset = source.base_offset + row if source.base_offset >= 0 else None
    return DecodeFailed(origin.topic, origin.partition, offset, expected, why)


def _check_callable(encode: Any, decode: Any, what: str) -> None:
    if not callable(encode) or not callable(decode):
        raise InvalidRequest(f"a {what} needs two functions: encode and decode")


def _check_name(name: str, what: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"a {what} name must be letters, digits, '_', '.' and '-' after a letter; not {name!r}"
        )
