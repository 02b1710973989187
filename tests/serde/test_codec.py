"""The codec of a connection: every combination comes back, and what does not says so."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flintmq
from flintmq.batch import BatchBuilder, RowSource
from flintmq.errors import DecodeFailed, EncodeFailed, FlintError, InvalidRequest
from flintmq.model import TopicOptions
from flintmq.rows import Origin, Run
from flintmq.serde.codec import UNSAID, Codec, CodecSettings
from flintmq.serde.content_type import ContentType, format_content_type, parse_content_type

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}
ORDER = {"id": 7, "note": "für uns " * 20}
MEDIA_TYPES = {
    "json": "application/json",
    "msgpack": "application/msgpack",
    "raw": "application/octet-stream",
    "text": "text/plain",
    "avro": "avro/binary",
    "shout": "application/x-shout",
}
VALUES: dict[str, Any] = {
    "json": ORDER,
    "msgpack": {**ORDER, "data": b"\x00\xff"},
    "raw": b"\xf5FM raw bytes that begin like a header",
    "text": "für uns",
    "avro": ORDER,
    "shout": "louder",
}
COMPRESSIONS = ("none", "gzip", "gzip:9", "zstd", "zstd:-3", "lz4", "lz4:9")
HEADERS = ("none", "flint", "tmq")
HOOKS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((), ()),
    (("tail",), ()),
    ((), ("turn",)),
    (("turn",), ("tail",)),
    (("tail", "turn", "tail"), ("turn", "tail")),
)


@dataclasses.dataclass
class Order:
    id: int
    note: str


class OrderModel(pydantic.BaseModel):
    id: int
    note: str


def _without_tail(data: bytes) -> bytes:
    if not data.endswith(b"!"):
        raise ValueError("the tail is missing: hooks ran in another order")
    return data[:-1]


def equip(codec: Codec | flintmq.Client) -> None:
    """A format and two hooks whose order matters."""
    codec.register_format(
        "shout", encode=lambda s: s.upper().encode(), decode=lambda data: data.decode().lower()
    )
    codec.register_hook("tail", encode=lambda data: data + b"!", decode=_without_tail)
    codec.register_hook("turn", encode=lambda data: data[::-1], decode=lambda data: data[::-1])


@pytest.fixture
def codec() -> Codec:
    codec = Codec()
    equip(codec)
    return codec


@pytest.fixture
async def mq() -> Any:
    async with flintmq.connect("memory://") as client:
        equip(client)
        yield client


def schema_for(format: str) -> Any:
    return SCHEMA if format == "avro" else None


def rows_of(data: bytes, content_type: str | None, base_offset: int = 40) -> Iterator[RowSource]:
    """One message as row 2 of a batch, open and sealed."""
    builder = BatchBuilder(base_offset)
    builder.append(b"")
    builder.append(b"")
    builder.append_row(data, content_type=content_type)
    yield builder
    yield builder.seal()


def decoded(
    codec: Codec,
    data: bytes,
    content_type: str | None,
    options: TopicOptions | None = None,
    type: Any = None,
) -> Any:
    origin = Origin("orders", 3, codec, options)
    values = [codec.decode_row(rows, 2, origin, type) for rows in rows_of(data, content_type)]
    assert values[0] == values[1]
    return values[0]


def failure(
    codec: Codec, data: bytes, content_type: str | None, options: TopicOptions | None = None
) -> DecodeFailed:
    with pytest.raises(DecodeFailed) as failed:
        decoded(codec, data, content_type, options)
    return failed.value


def is_representable(format: str, compression: str, header: str) -> bool:
    name = compression.partition(":")[0]
    if header != "tmq" or (format == "raw" and name == "none"):
        return True
    return format in ("json", "msgpack") and name != "lz4"


# --- every combination


@pytest.mark.parametrize("format", VALUES)
@pytest.mark.parametrize("header", HEADERS)
def test_every_combination_comes_back(codec: Codec, format: str, header: str) -> None:
    for compression, (pre, post) in product(COMPRESSIONS, HOOKS):
        schema = json.dumps(SCHEMA) if format == "avro" else None
        said = CodecSettings(format, compression, pre, post, header, schema)
        if not is_representable(format, compression, header):
            with pytest.raises(InvalidRequest, match="tmq header supports"):
                codec.plan(said)
            continue

        data, content_type = codec.plan(said).encode(VALUES[format])

        assert decoded(codec, data, content_type) == VALUES[format], said
        written = parse_content_type(content_type or MEDIA_TYPES["raw"])
        assert written == ContentType(
            MEDIA_TYPES[format], pre, compression.partition(":")[0], post, header, written.schema
        )


@pytest.mark.parametrize("format", VALUES)
async def test_every_combination_comes_back_through_a_connection(
    mq: flintmq.Client, format: str
) -> None:
    sent: list[CodecSettings] = []
    for compression, header, (pre, post) in product(COMPRESSIONS, HEADERS, HOOKS):
        if not is_representable(format, compression, header):
            continue
        sent.append(CodecSettings(format, compression, pre, post, header))
        await mq.publish(
            "mixed", VALUES[format], format=format, compression=compression, pre_hooks=pre,
            post_hooks=post, magic_header=header, schema=schema_for(format),
        )  # fmt: skip
        await mq.publish_batch(
            "batches", [VALUES[format]] * 2, format=format, compression=compression, pre_hooks=pre,
            post_hooks=post, magic_header=header, schema=schema_for(format),
        )  # fmt: skip

    async with mq.reader("mixed") as mixed, mq.reader("batches") as batches:
        rows = mixed.read_batch_nowait(10_000)
        assert [message.decode() for message in rows] == [VALUES[format]] * len(sent)
        assert rows.decode() == [VALUES[format]] * len(sent)
        assert batches.read_batch_nowait(10_000).decode() == [VALUES[format]] * 2 * len(sent)


@pytest.mark.slow
@pytest.mark.parametrize("format", VALUES)
async def test_every_combination_comes_back_from_a_topic_that_asks_for_it(
    mq: flintmq.Client, format: str
) -> None:
    for number, (compression, header, (pre, post)) in enumerate(
        product(COMPRESSIONS, HEADERS, HOOKS)
    ):
        if not is_representable(format, compression, header):
            continue
        topic = f"orders.{number}"
        await mq.create_topic(
            topic, format=format, compression=compression, pre_hooks=pre, post_hooks=post,
            magic_header=header, schema=schema_for(format),
        )  # fmt: skip
        await mq.publish_batch(topic, [VALUES[format]] * 3)
        async with mq.publisher(topic) as publisher:
            publisher.send(VALUES[format])
        async with mq.reader(topic) as reader:
            assert reader.read_batch_nowait(10).decode() == [VALUES[format]] * 4


WANTED = CodecSettings("msgpack", "zstd:1", ("turn", "tail"), ("tail",), "flint")
DECOY = CodecSettings("json", "gzip", ("tail",), ("turn",), "tmq")
UNSET = CodecSettings("json", "none", (), (), "none")
FIELDS = ("format", "compression", "pre_hooks", "post_hooks", "magic_header")
LEVELS = ("nobody", "topic", "publisher", "call")


def said_at(level: str, deciding: tuple[str, ...]) -> dict[str, Any]:
    """What a level says: what is wanted where it decides, other things where one above does."""
    said: dict[str, Any] = {}
    for field, decides in zip(FIELDS, deciding, strict=True):
        if decides == level:
            said[field] = getattr(WANTED, field)
        elif LEVELS.index(decides) > LEVELS.index(level):
            said[field] = getattr(DECOY, field)
    return said


def type_of(settings: CodecSettings) -> str:
    return format_content_type(
        ContentType(
            MEDIA_TYPES[settings.format or "json"],
            settings.pre_hooks or (),
            (settings.compression or "none").partition(":")[0],
            settings.post_hooks or (),
            settings.magic_header or "none",
        )
    )


@pytest.mark.slow
async def test_each_field_is_taken_from_the_last_level_that_names_it(mq: flintmq.Client) -> None:
    """All 1,024 ways in which five fields are decided by nobody, topic, publisher or call."""
    topics: dict[str, str] = {}
    expected: dict[str, list[str]] = {}
    for deciding in product(LEVELS, repeat=len(FIELDS)):
        options = said_at("topic", deciding)
        topic = topics.setdefault(repr(options), f"orders.{len(topics)}")
        await mq.create_topic(topic, **options)
        settings = UNSET._replace(
            **{
                field: getattr(WANTED, field)
                for field, decides in zip(FIELDS, deciding, strict=True)
                if decides != "nobody"
            }
        )
        async with mq.publisher(topic, **said_at("publisher", deciding)) as publisher:
            publisher.send(ORDER, **said_at("call", deciding))
        expected.setdefault(topic, []).append(type_of(settings))
        if "publisher" not in deciding:
            await mq.publish(topic, ORDER, **said_at("call", deciding))
            await mq.publish_batch(topic, [ORDER], **said_at("call", deciding))
            expected[topic] += [type_of(settings)] * 2

    for topic, content_types in expected.items():
        async with mq.reader(topic) as reader:
            rows = reader.read_batch_nowait(10_000)
            assert [message.content_type for message in rows] == content_types
            assert rows.decode() == [ORDER] * len(content_types)


async def test_an_overridden_compression_is_really_another_one(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", format="text", compression="gzip")
    text = "over and over " * 100
    async with mq.publisher("orders", compression="lz4") as publisher:
        publisher.send(text)
        publisher.send(text, compression="zstd")
        publisher.send(text, compression="none")
    await mq.publish("orders", text)

    async with mq.reader("orders") as reader:
        rows = reader.read_batch_nowait(10)
        assert [bytes(value[:4]) for value in rows.values] == [
            b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd", b"over", b"\x1f\x8b\x08\x00",
        ]  # fmt: skip
        assert rows.decode() == [text] * 4


async def test_another_format_may_be_used_on_an_avro_topic(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", format="avro", schema=SCHEMA)
    await mq.publish("orders", ORDER)
    await mq.publish("orders", b"raw", format="raw")
    await mq.publish("orders", [1], format="json")
    other = {"type": "array", "items": "int"}
    async with mq.publisher("orders", schema=other) as publisher:
        publisher.send([1, 2])
        publisher.send([3], compression="gzip")
        publisher.send("text", format="text")
        publisher.send(ORDER, schema=SCHEMA)

    async with mq.reader("orders") as reader:
        assert reader.read_batch_nowait(10).decode() == [
            ORDER, b"raw", [1], [1, 2], [3], "text", ORDER,
        ]  # fmt: skip


# --- what stands in the message


@pytest.mark.parametrize(
    ("value", "data", "content_type"),
    [
        (b"as it is", b"as it is", None),
        (bytearray(b"bytes"), b"bytes", None),
        (memoryview(b"bytes"), b"bytes", None),
        ("text", b"text", "text/plain"),
        ({"id": 1}, b'{"id":1}', "application/json"),
        (None, b"null", "application/json"),
        (Order(1, "x"), b'{"id":1,"note":"x"}', "application/json"),
    ],
)
def test_the_value_is_exactly_the_encoded_bytes(
    codec: Codec, value: Any, data: bytes, content_type: str | None
) -> None:
    assert codec.plan(UNSAID).encode(value) == (data, content_type)


def test_json_is_readable_without_us(codec: Codec) -> None:
    data, _ = codec.plan(CodecSettings("json")).encode(ORDER)
    assert json.loads(data) == ORDER


def test_hooks_run_in_order_and_come_back_in_reverse() -> None:
    codec, ran = Codec(), []

    def noting(name: str, way: str) -> Any:
        def note(data: bytes) -> bytes:
            ran.append((way, name))
            return data

        return note

    for name in ("a", "b", "c", "d"):
        codec.register_hook(name, encode=noting(name, "out"), decode=noting(name, "in"))
    settings = CodecSettings("json", "gzip", ("a", "b"), ("c", "d"))
    data, content_type = codec.plan(settings).encode(1)
    codec.decode(data, content_type, Origin("orders"), None)

    assert ran == [*(("out", name) for name in "abcd"), *(("in", name) for name in "dcba")]


def test_pre_hooks_see_what_is_not_compressed_and_post_hooks_what_is() -> None:
    codec, seen = Codec(), []

    def look(data: bytes) -> bytes:
        seen.append(data[:2])
        return data

    codec.register_hook("look", encode=look, decode=look)
    codec.plan(CodecSettings("text", "gzip", ("look",), ("look",))).encode("text")

    assert seen == [b"te", b"\x1f\x8b"]


# --- content types of callers


@pytest.mark.parametrize(
    ("value", "settings", "given", "stored"),
    [
        (b"%PDF", UNSAID, "application/pdf", "application/pdf"),
        (b"%PDF", CodecSettings(compression="gzip"), "application/pdf",
         "application/pdf; encoding=gzip"),
        (b'{"id": 1}', UNSAID, "application/json; charset=utf-8",
         "application/json; charset=utf-8"),
        (ORDER, UNSAID, "application/vnd.orders+json; charset=utf-8",
         "application/vnd.orders+json; charset=utf-8"),
        (ORDER, UNSAID, "application/vnd.orders", "application/vnd.orders; format=json"),
        (ORDER, CodecSettings("msgpack"), "application/vnd.orders+json",
         "application/vnd.orders+json; format=msgpack"),
        ("text", UNSAID, "text/html", "text/html; format=text"),
        ("{}", UNSAID, "application/json", "application/json; format=text"),
    ],
)  # fmt: skip
def test_a_content_type_of_the_callers_own_is_kept(
    codec: Codec, value: Any, settings: CodecSettings, given: str, stored: str
) -> None:
    data, content_type = codec.plan(settings).encode(value, given)

    assert content_type == stored
    expected = {"id": 1} if value == b'{"id": 1}' else value
    assert decoded(codec, data, content_type) == expected


def test_bytes_with_a_content_type_decode_by_it_with_or_without_a_header(codec: Codec) -> None:
    for header, compression in product(("none", "flint"), COMPRESSIONS):
        settings = CodecSettings(None, compression, None, None, header)
        data, content_type = codec.plan(settings).encode(b'{"id": 1}', "application/json")
        assert decoded(codec, data, content_type) == {"id": 1}


@pytest.mark.parametrize(
    "parameter",
    ["format=msgpack", "encoding=gzip", "header=flint", "pre=tail", "post=tail", "schema=00"],
)
def test_what_we_say_of_a_value_is_not_said_by_the_caller(codec: Codec, parameter: str) -> None:
    given = f"application/json; {parameter}"
    for value, said in ((ORDER, UNSAID), (b"{}", CodecSettings("raw", "gzip"))):
        with pytest.raises(InvalidRequest, match="reserved for FlintMQ"):
            codec.plan(said).encode(value, given)


def test_an_encoded_message_can_be_passed_on_with_its_content_type(codec: Codec) -> None:
    for compression, header in product(("gzip", "zstd"), HEADERS):
        settings = CodecSettings("json", compression, ("turn",), ("tail",), header)
        data, content_type = codec.plan(settings).encode(ORDER)

        again = codec.plan(CodecSettings("raw")).encode(data, content_type)

        assert again == (data, content_type)
        assert decoded(codec, *again) == ORDER


def test_raw_bytes_on_a_topic_of_another_format_say_that_they_are_raw(codec: Codec) -> None:
    data, content_type = codec.plan(CodecSettings("raw"), "json").encode(b'{"id": 1}')

    assert content_type == "application/octet-stream"
    assert decoded(codec, data, content_type, TopicOptions(format="json")) == b'{"id": 1}'


def test_a_foreign_message_without_content_type_is_of_its_topics_format(codec: Codec) -> None:
    assert decoded(codec, b'{"id": 1}', None, TopicOptions(format="json")) == {"id": 1}
    assert decoded(codec, b"\x81\xa1a\x01", None, TopicOptions(format="msgpack")) == {"a": 1}
    assert decoded(codec, b"text", None, TopicOptions(format="text")) == "text"
    assert decoded(codec, b"LOUD", None, TopicOptions(format="shout")) == "loud"
    assert decoded(codec, b"bytes", None, TopicOptions()) == b"bytes"
    assert decoded(codec, b"bytes", None) == b"bytes"
    avro, _ = codec.plan(CodecSettings("avro", schema=json.dumps(SCHEMA))).encode(ORDER)
    options = TopicOptions(format="avro", schema=json.dumps(SCHEMA))
    assert decoded(codec, avro, None, options) == ORDER


def test_a_content_type_goes_before_the_topics_format(codec: Codec) -> None:
    options = TopicOptions(format="msgpack", compression="gzip", pre_hooks=("turn",))
    assert decoded(codec, b'{"id": 1}', "application/json", options) == {"id": 1}
    assert decoded(codec, b"%PDF", "application/pdf", options) == b"%PDF"


# --- headers


@pytest.mark.parametrize("header", ["flint", "tmq"])
def test_bytes_alone_are_read_where_the_topic_declares_a_header(codec: Codec, header: str) -> None:
    for format, compression, (pre, post) in product(VALUES, COMPRESSIONS, HOOKS):
        if not is_representable(format, compression, header) or format == "raw":
            continue
        schema = json.dumps(SCHEMA) if format == "avro" else None
        settings = CodecSettings(format, compression, pre, post, header, schema)
        data, _ = codec.plan(settings).encode(VALUES[format])
        options = TopicOptions(magic_header=header, pre_hooks=pre, post_hooks=post)

        assert decoded(codec, data, None, options) == VALUES[format]


def test_a_header_is_not_looked_for_where_none_is_declared(codec: Codec) -> None:
    flint, _ = codec.plan(CodecSettings("json", magic_header="flint")).encode(ORDER)
    for look_alike in (flint, b"\xf5FM", b"TMQ\x01\x00\x00", b'TMQ\x01\x01\x00{"id":1}'):
        data, content_type = codec.plan(UNSAID).encode(look_alike)
        assert content_type is None
        assert decoded(codec, data, content_type) == look_alike
        assert decoded(codec, data, "application/pdf") == look_alike


@pytest.mark.parametrize("header", ["flint", "tmq"])
async def test_raw_bytes_that_look_like_a_header_come_back_where_one_is_declared(
    mq: flintmq.Client, header: str
) -> None:
    await mq.create_topic("orders", magic_header=header)
    look_alikes = [b"\xf5FM", b"\xf5FM\x01\x01\x00\x00\x00abcd{}", b"TMQ\x01\x01\x00{}", b"TMQ"]
    kept = []
    for value in look_alikes:
        await mq.publish("orders", value, magic_header="none")
        kept.append(value)
        if header == "tmq" and value.startswith(b"TMQ"):
            with pytest.raises(EncodeFailed, match="cannot be distinguished"):
                await mq.publish("orders", value)
        else:
            await mq.publish("orders", value)
            kept.append(value)

    async with mq.reader("orders") as reader:
        assert reader.read_batch_nowait(100).decode() == kept


@pytest.mark.parametrize(
    ("data", "header", "why"),
    [
        (b"TMQ\x01\x00\x00abc", "tmq", "bincode"),
        (b"TMQ\x07\x01\x00{}", "tmq", "version 7"),
        (b"TMQ\x01\x63\x00{}", "tmq", "unknown format 99"),
        (b"TMQ\x01\x01\x63{}", "tmq", "unknown compression 99"),
        (b"\xf5FM\x01\x01\x00\x00\x00\x00\x00\x00\x00{}", "flint", "checksum"),
        (b"\xf5FM\x09", "flint", "is too short"),
    ],
)
def test_a_bad_header_is_a_message_that_does_not_decode(
    codec: Codec, data: bytes, header: str, why: str
) -> None:
    assert why in str(failure(codec, data, None, TopicOptions(magic_header=header)))
    assert why in str(failure(codec, data, f"application/json; header={header}"))


# --- what is refused


@pytest.mark.parametrize(
    "settings",
    [
        CodecSettings("yaml"),
        CodecSettings(""),
        CodecSettings("JSON"),
        CodecSettings("bincode"),
        CodecSettings("object"),
        CodecSettings("avro"),
        CodecSettings("json", schema='"string"'),
        CodecSettings(schema='"string"'),
        CodecSettings(compression="brotli"),
        CodecSettings(compression=""),
        CodecSettings(compression="gzip:10"),
        CodecSettings(compression="zstd:x"),
        CodecSettings(compression="none:1"),
        CodecSettings(pre_hooks=("unknown",)),
        CodecSettings(post_hooks=("tail", "unknown")),
        CodecSettings(magic_header="magic"),
        CodecSettings(magic_header=""),
        CodecSettings(magic_header="FLINT"),
        CodecSettings("text", magic_header="tmq"),
        CodecSettings("json", "lz4", magic_header="tmq"),
        CodecSettings("raw", "gzip", magic_header="tmq"),
        CodecSettings("shout", magic_header="tmq"),
        CodecSettings("avro", schema="{"),
        CodecSettings("avro", schema='{"type": "nonsense"}'),
    ],
    ids=str,
)
def test_unknown_names_and_settings_without_effect_are_errors(
    codec: Codec, settings: CodecSettings
) -> None:
    with pytest.raises(InvalidRequest):
        codec.checked(settings)


UNKNOWN: list[dict[str, Any]] = [
    {"format": "yaml"}, {"format": 5}, {"format": ["json"]}, {"format": ""}, {"format": "avro"},
    {"compression": "brotli"}, {"compression": 9}, {"compression": ["gzip"]},
    {"compression": "gzip:99"}, {"pre_hooks": ["unknown"]}, {"post_hooks": ["unknown"]},
    {"pre_hooks": "tail"}, {"post_hooks": [5]}, {"post_hooks": {"tail": 1}},
    {"magic_header": "magic"}, {"magic_header": True}, {"magic_header": {}}, {"schema": SCHEMA},
    {"format": "json", "schema": SCHEMA}, {"format": "avro", "schema": "{"},
    {"format": "text", "magic_header": "tmq"},
]  # fmt: skip


@pytest.mark.parametrize("settings", UNKNOWN, ids=repr)
async def test_unknown_names_are_errors_at_every_level(
    mq: flintmq.Client, settings: dict[str, Any]
) -> None:
    await mq.create_topic("there")
    with pytest.raises(InvalidRequest):
        await mq.create_topic("orders", **settings)
    with pytest.raises(InvalidRequest):
        await mq.configure_topic("there", **settings)
    with pytest.raises(InvalidRequest):
        mq.publisher("orders", **settings)
    with pytest.raises(InvalidRequest):
        await mq.publish("orders", "text", **settings)
    if not any(isinstance(settings.get(name), list) for name in ("format", "compression")):
        with pytest.raises(InvalidRequest):
            await mq.publish_batch("orders", ["text"], **settings)
    async with mq.publisher("orders") as publisher:
        with pytest.raises(InvalidRequest):
            publisher.send("text", **settings)

    assert await mq.topics() == ["there"]


@pytest.mark.parametrize("limit", [0, -1, 1.5, "64", None, True])
def test_the_limit_of_decoded_bytes_is_a_whole_number(limit: Any) -> None:
    with pytest.raises(InvalidRequest, match="decoded_bytes_max"):
        flintmq.connect("memory://", decoded_bytes_max=limit)


@pytest.mark.parametrize(
    "given",
    [
        {"name": "json"}, {"name": "avro"}, {"name": "object"}, {"name": "shout"}, {"name": ""},
        {"name": "a b"}, {"name": "a;b"}, {"name": "1st"}, {"name": 5}, {"name": "x" * 101},
        {"media_type": "application/json"}, {"media_type": "Application/JSON"},
        {"media_type": "text/plain"}, {"media_type": "avro/binary"}, {"media_type": "none"},
        {"media_type": "a/b; c=d"}, {"media_type": ""}, {"media_type": 5},
        {"media_type": "application/x-shout"}, {"media_type": " a/b"},
        {"encode": None}, {"decode": "pickle"},
    ],
    ids=repr,
)  # fmt: skip
def test_what_cannot_be_registered_as_a_format(codec: Codec, given: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {"name": "mine", "encode": bytes, "decode": bytes, **given}
    with pytest.raises(InvalidRequest):
        codec.register_format(**wanted)


@pytest.mark.parametrize(
    "given", [{"name": "tail"}, {"name": "a,b"}, {"name": ""}, {"encode": 5}, {"decode": None}]
)
def test_what_cannot_be_registered_as_a_hook(codec: Codec, given: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {"name": "mine", "encode": bytes, "decode": bytes, **given}
    with pytest.raises(InvalidRequest):
        codec.register_hook(**wanted)


def _raises(data: bytes) -> bytes:
    raise LookupError("no key to seal with")


@pytest.mark.parametrize("result", ["text", None, bytearray(b"x"), 5])
@pytest.mark.parametrize("place", ["pre_hooks", "post_hooks"])
def test_a_hook_that_gives_no_bytes_is_an_error_both_ways(
    codec: Codec, result: Any, place: str
) -> None:
    codec.register_hook("out", encode=lambda data: result, decode=lambda data: data)
    codec.register_hook("in", encode=lambda data: data, decode=lambda data: result)

    outward, inward = (
        CodecSettings("raw", pre_hooks=("out",)),
        CodecSettings("raw", pre_hooks=("in",)),
    )
    if place == "post_hooks":
        outward, inward = (
            CodecSettings("raw", post_hooks=("out",)),
            CodecSettings("raw", post_hooks=("in",)),
        )
    with pytest.raises(EncodeFailed, match="hook 'out' returned"):
        codec.plan(outward).encode(b"x")
    encoded = codec.plan(inward).encode(b"x")
    assert "hook 'in' returned" in str(failure(codec, *encoded))


def test_a_hook_that_raises_is_an_error_both_ways(codec: Codec) -> None:
    codec.register_hook("out", encode=_raises, decode=lambda data: data)
    codec.register_hook("in", encode=lambda data: data, decode=_raises)

    with pytest.raises(EncodeFailed, match="no key to seal with"):
        codec.plan(CodecSettings("raw", post_hooks=("out",))).encode(b"x")
    encoded = codec.plan(CodecSettings("raw", post_hooks=("in",))).encode(b"x")
    assert "no key to seal with" in str(failure(codec, *encoded))


async def test_two_connections_do_not_see_each_others_formats_hooks_and_schemas() -> None:
    async with flintmq.connect("memory://") as ours, flintmq.connect("memory://") as theirs:
        equip(ours)
        fingerprint = ours.register_schema(SCHEMA)
        for settings in ({"format": "shout"}, {"pre_hooks": ["tail"]}, {"post_hooks": ["turn"]}):
            await ours.publish("orders", "text", **settings)
            with pytest.raises(InvalidRequest):
                await theirs.publish("orders", "text", **settings)
        await theirs.publish("orders", b"", content_type=f"avro/binary; schema={fingerprint}")
        await theirs.publish("orders", b"", content_type="application/x-shout")
        await theirs.publish("orders", b"", content_type="application/json; pre=tail")
        async with theirs.reader("orders") as reader:
            first, second, third = reader.read_batch_nowait(3)
        for message in (first, third):
            with pytest.raises(DecodeFailed):
                message.decode()
        assert second.decode() == b""  # a media type that means nothing there
        theirs.register_format(
            "shout", encode=lambda value: b"theirs", decode=lambda data: "theirs"
        )
        assert second.decode() == "theirs"


# --- what does not decode


@pytest.mark.parametrize(
    ("data", "content_type", "expected"),
    [
        (b"{", "application/json", "json"),
        (b"", "application/json", "json"),
        (b"\xc1", "application/msgpack", "msgpack"),
        (b"\xff", "text/plain", "text"),
        (b"\x01", "avro/binary; schema=00", "avro"),
        (b"x", "application/x-mine; format=unknown", "unknown"),
        (b"x", "application/json; encoding=gzip", "json"),
        (b"x", "application/json; encoding=unknown", "json"),
        (b"x", "text/plain; header=unknown", "text"),
        (b"x", "text/plain; pre=unknown", "text"),
        (b"x", "text/plain; post=tail", "text"),
        (b"x", "a/b; format=object", "object"),
    ],
)
def test_an_error_names_topic_partition_offset_and_expected_format(
    codec: Codec, data: bytes, content_type: str, expected: str
) -> None:
    error = failure(codec, data, content_type)

    assert (error.topic, error.partition, error.offset) == ("orders", 3, 42)
    assert error.expected == expected
    assert str(error).startswith(
        f"'orders' partition 3 offset 42 cannot be decoded as {expected}: "
    )
    assert not str(error).endswith(": ")


def test_a_message_that_was_never_stored_has_no_offset_to_name(codec: Codec) -> None:
    builder = BatchBuilder()
    builder.append_row(b"{", content_type="application/json")
    with pytest.raises(DecodeFailed) as failed:
        codec.decode_row(builder, 0, Origin("orders"))
    assert failed.value.offset is None


@pytest.mark.parametrize("wanted", [int, Order, OrderModel, list[int], dict | Order, "Order"])
@pytest.mark.parametrize("content_type", ["application/json", "application/msgpack", "text/plain"])
def test_rows_that_do_not_fit_a_type_each_fail_for_themselves(
    codec: Codec, content_type: str, wanted: Any
) -> None:
    encode = msgspec.msgpack.encode if "msgpack" in content_type else msgspec.json.encode
    values = [encode("text"), encode({"id": 1, "note": "x"})]
    rows = BatchBuilder.of(values, content_type)
    run = Run(rows, 0, 2, Origin("orders", 0, codec))

    with pytest.raises(DecodeFailed):
        codec.decode_rows(run, wanted, "raise")
    kept = codec.decode_rows(run, wanted, "return")
    assert len(kept) == 2
    assert isinstance(kept[0], DecodeFailed)
    left = codec.decode_rows(run, wanted, "skip")
    assert left == [item for item in kept if not isinstance(item, DecodeFailed)]


# --- random bytes


CONTENT_TYPES = st.one_of(
    st.none(),
    st.text(max_size=30),
    st.builds(
        lambda *parts: "; ".join(part for part in parts if part),
        st.sampled_from([*MEDIA_TYPES.values(), "a/vnd.b+json", "application/pdf", ""]),
        st.sampled_from(["", "format=json", "format=avro", "format=object", "format=?"]),
        st.sampled_from(["", "encoding=gzip", "encoding=zstd", "encoding=lz4", "encoding=?"]),
        st.sampled_from(["", "pre=tail", "pre=turn,turn", "post=turn", "post=?"]),
        st.sampled_from(["", "header=flint", "header=tmq", "header=?"]),
        st.sampled_from(["", "schema=00", "schema=", f"schema={'0' * 16}"]),
    ),
)
OPTIONS = st.builds(
    TopicOptions,
    format=st.sampled_from([None, "json", "msgpack", "text", "raw", "avro", "shout"]),
    magic_header=st.sampled_from([None, "none", "flint", "tmq"]),
    pre_hooks=st.sampled_from([None, ("tail",), ("unknown",)]),
    schema=st.just(json.dumps(SCHEMA)),
)
STARTS = [b"", b"\xf5FM\x01", b"TMQ\x01\x01\x00", b"TMQ\x01\x02\x01", b"\x1f\x8b\x08",
          b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b'{"id":', b"\x82\xa2id"]  # fmt: skip


@given(
    start=st.sampled_from(STARTS),
    data=st.binary(max_size=120),
    content_type=CONTENT_TYPES,
    options=st.none() | OPTIONS,
    wanted=st.sampled_from([None, Order, OrderModel, dict[str, int], int]),
)
@settings(max_examples=500, deadline=None)
def test_random_bytes_decode_or_raise_decode_failed(
    start: bytes, data: bytes, content_type: str | None, options: TopicOptions | None, wanted: Any
) -> None:
    codec = Codec(decoded_bytes_max=64 * 1024)
    equip(codec)
    codec.register_schema(SCHEMA)
    origin = Origin("orders", 0, codec, options)
    builder = BatchBuilder(0)
    builder.append_row(start + data, content_type=content_type)

    with suppress(DecodeFailed):
        codec.decode_row(builder, 0, origin, wanted)
    assert len(codec.decode_rows(Run(builder, 0, 1, origin), wanted, "return")) == 1


@given(
    format=st.sampled_from(sorted(VALUES)),
    compression=st.sampled_from(COMPRESSIONS),
    header=st.sampled_from(["none", "flint"]),
    hooks=st.sampled_from(HOOKS),
    at=st.integers(0, 10_000),
    bits=st.integers(1, 255),
)
@settings(max_examples=300, deadline=None)
def test_a_damaged_message_decodes_or_raises_decode_failed(
    format: str, compression: str, header: str, hooks: Any, at: int, bits: int
) -> None:
    codec = Codec()
    equip(codec)
    schema = json.dumps(SCHEMA) if format == "avro" else None
    plan = codec.plan(CodecSettings(format, compression, hooks[0], hooks[1], header, schema))
    data, content_type = plan.encode(VALUES[format])
    damaged = bytearray(data)
    damaged[at % len(damaged)] ^= bits
    builder = BatchBuilder(0)
    builder.append_row(bytes(damaged), content_type=content_type)

    with suppress(DecodeFailed):
        codec.decode_row(builder, 0, Origin("orders", 0, codec))


@given(
    value=st.one_of(
        st.binary(max_size=20), st.text(max_size=20), st.integers(), st.floats(), st.none(),
        st.just(object()), st.sets(st.integers(), max_size=2), st.complex_numbers(),
        st.dictionaries(st.integers() | st.text(max_size=3), st.floats(), max_size=2),
    ),
    format=st.sampled_from([None, *VALUES]),
    compression=st.sampled_from(["none", "gzip"]),
    header=st.sampled_from(HEADERS),
    content_type=st.none() | st.text(max_size=10),
)  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_any_value_is_encoded_or_refused(
    value: Any, format: str | None, compression: str, header: str, content_type: str | None
) -> None:
    codec = Codec()
    equip(codec)
    schema = json.dumps(SCHEMA) if format == "avro" else None
    try:
        plan = codec.plan(CodecSettings(format, compression, None, None, header, schema))
        data, _ = plan.encode(value, content_type)
    except FlintError:
        return
    assert type(data) is bytes


# --- bombs


@pytest.mark.parametrize("compression", ["gzip", "zstd", "lz4"])
@pytest.mark.parametrize("header", ["none", "flint"])
def test_a_message_that_would_grow_beyond_the_limit_is_refused(
    compression: str, header: str
) -> None:
    codec = Codec(decoded_bytes_max=256 * 1024)
    plan = codec.plan(CodecSettings("raw", compression, magic_header=header))
    data, content_type = plan.encode(bytes(16 * 1024 * 1024))
    assert len(data) < 100_000

    tracemalloc.start()
    error = failure(codec, data, content_type)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert "more than the 262,144 bytes allowed" in str(error)
    assert peak < 2 * 1024 * 1024


def test_a_bomb_within_a_bomb_is_unpacked_once_only(codec: Codec) -> None:
    inner, _ = codec.plan(CodecSettings("raw", "gzip")).encode(bytes(16 * 1024 * 1024))
    outer, _ = codec.plan(CodecSettings("raw", "gzip")).encode(inner)
    content_type = "application/octet-stream; encoding=gzip; encoding=gzip"

    assert decoded(codec, outer, content_type) == inner


async def test_the_limit_is_set_with_the_connection() -> None:
    async with flintmq.connect("memory://", decoded_bytes_max=1000) as mq:
        for size in (1000, 1001):
            await mq.publish("orders", bytes(size), compression="zstd")
        async with mq.reader("orders") as reader:
            small, large = reader.read_batch_nowait(2)
        assert small.decode() == bytes(1000)
        with pytest.raises(DecodeFailed, match="more than the 1,000 bytes"):
            large.decode()
