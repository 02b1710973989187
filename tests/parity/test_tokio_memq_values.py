"""tokio-memq's serialization, section by section: what it does, and what it only means to do.

Numbers are those of the reference: 2.1 formats, 2.2 registry, 2.3 precedence, 2.4 header, 2.5
decoding and detection, 4.15 and 4.16 faults.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec
import pytest

import flintmq


@dataclass
class Order:
    id: int
    note: str


@pytest.fixture
async def mq() -> AsyncIterator[flintmq.Client]:
    async with flintmq.connect("memory://") as client:
        yield client


async def _all(mq: flintmq.Client, topic: str = "orders") -> flintmq.Rows:
    async with mq.reader(topic) as reader:
        return reader.read_batch_nowait(1000)


# --- 2.1 formats


async def test_2_1_native_passes_the_object_itself(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", format="object")
    order = Order(1, "x")
    await mq.publish("orders", order)

    (message,) = await _all(mq)
    assert message.value is message.decode(Order) is order
    with pytest.raises(flintmq.DecodeFailed, match="not a str"):
        message.decode(str)


@pytest.mark.parametrize("format", ["json", "msgpack"])
async def test_2_1_json_and_messagepack(mq: flintmq.Client, format: str) -> None:
    await mq.publish("orders", Order(1, "x"), format=format)
    assert (await _all(mq))[0].decode(Order) == Order(1, "x")


async def test_2_1_a_custom_format_has_a_name(mq: flintmq.Client) -> None:
    mq.register_format("upper", encode=lambda s: s.upper().encode(), decode=lambda b: b.decode())
    await mq.publish("orders", "loud", format="upper")
    assert (await _all(mq)).decode() == ["LOUD"]


@pytest.mark.parametrize("name", ["bincode", "binary", "native", "messagepack", "anything"])
async def test_2_1_a_name_that_nobody_registered_is_an_error(mq: flintmq.Client, name: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match=f"unknown format '{name}'"):
        await mq.publish("orders", 1, format=name)


async def test_2_1_settings_that_would_be_ignored_are_errors(mq: flintmq.Client) -> None:
    with pytest.raises(TypeError):
        await mq.publish("orders", 1, format="json", struct_map=True)  # type: ignore[call-arg]
    with pytest.raises(flintmq.InvalidRequest, match="unknown topic option"):
        await mq.create_topic("orders", pretty=True)  # type: ignore[call-arg]
    with pytest.raises(flintmq.InvalidRequest, match="schema can only be used with"):
        await mq.publish("orders", 1, format="json", schema={"type": "int"})


# --- 2.2 registry


async def test_2_2_what_is_registered_belongs_to_one_connection() -> None:
    async with flintmq.connect("memory://") as ours, flintmq.connect("memory://") as theirs:
        ours.register_format("mine", encode=lambda value: b"x", decode=lambda data: "ours")
        theirs.register_format("mine", encode=lambda value: b"x", decode=lambda data: "theirs")
        await ours.create_topic("orders", format="mine")
        await ours.publish("orders", 1)
        await theirs.publish("orders", b"default of that name there: none")

        assert (await _all(ours)).decode() == ["ours"]
        assert (await _all(theirs)).decode() == [b"default of that name there: none"]


async def test_2_2_a_built_in_format_cannot_be_replaced(mq: flintmq.Client) -> None:
    for name in ("json", "msgpack", "raw", "text", "avro", "object"):
        with pytest.raises(flintmq.InvalidRequest, match="already registered"):
            mq.register_format(name, encode=bytes, decode=bytes)


# --- 2.3 precedence


async def test_2_3_publisher_goes_before_topic_and_call_before_both_field_by_field(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", format="json", compression="gzip", magic_header="flint")
    async with mq.publisher("orders", format="msgpack") as publisher:
        publisher.send(1)
        publisher.send(2, compression="none")
        publisher.send(3, format="json", magic_header="none")

    rows = await _all(mq)
    assert rows.decode() == [1, 2, 3]
    assert [message.content_type for message in rows] == [
        "application/msgpack; encoding=gzip; header=flint",
        "application/msgpack; header=flint",
        "application/json; encoding=gzip",
    ]


async def test_2_3_a_call_that_names_a_format_keeps_the_compression(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", compression="gzip")
    await mq.publish("orders", {"id": 1}, format="json")

    (message,) = await _all(mq)
    assert json.loads(gzip.decompress(message.value)) == {"id": 1}
    assert message.decode() == {"id": 1}


# --- 2.4 header


@pytest.mark.parametrize(
    ("format", "compression", "header"),
    [
        ("json", "none", "54 4d 51 01 01 00"),
        ("json", "gzip", "54 4d 51 01 01 01"),
        ("json", "zstd", "54 4d 51 01 01 02"),
        ("msgpack", "none", "54 4d 51 01 02 00"),
        ("msgpack", "gzip", "54 4d 51 01 02 01"),
        ("msgpack", "zstd", "54 4d 51 01 02 02"),
    ],
)
async def test_2_4_the_six_bytes_of_its_header_are_written_on_request(
    mq: flintmq.Client, format: str, compression: str, header: str
) -> None:
    await mq.publish(
        "orders", {"id": 1}, format=format, compression=compression, magic_header="tmq"
    )

    (message,) = await _all(mq)
    assert message.value[:6] == bytes.fromhex(header)
    assert message.decode() == {"id": 1}


async def test_2_4_steps_run_in_its_order(mq: flintmq.Client) -> None:
    mq.register_hook("pre", encode=lambda b: b"<" + b, decode=lambda b: b.removeprefix(b"<"))
    mq.register_hook("post", encode=lambda b: b"[" + b, decode=lambda b: b.removeprefix(b"["))
    await mq.publish("orders", 7, compression="gzip", pre_hooks=["pre"], post_hooks=["post"],
                     magic_header="tmq")  # fmt: skip

    (message,) = await _all(mq)
    assert message.value.startswith(b"TMQ\x01\x01\x01[\x1f\x8b")
    assert gzip.decompress(message.value[7:]) == b"<7"
    assert message.decode() == 7


async def test_2_4_headers_are_off_unless_asked_for(mq: flintmq.Client) -> None:
    await mq.publish("orders", {"id": 1})
    assert (await _all(mq)).values == [b'{"id":1}']


# --- 2.5 decoding and detection


async def test_2_5_its_messages_are_read_where_its_header_is_declared(mq: flintmq.Client) -> None:
    theirs = [
        b'TMQ\x01\x01\x00{"id":1}',
        b"TMQ\x01\x02\x00" + msgspec.msgpack.encode({"id": 2}),
        b"TMQ\x01\x01\x01" + gzip.compress(b'{"id":3}'),
    ]
    for data in theirs:
        await mq.publish("theirs", data)
    assert (await _all(mq, "theirs")).decode() == theirs  # not declared: bytes as they are

    await mq.configure_topic("theirs", magic_header="tmq")

    assert (await _all(mq, "theirs")).decode() == [{"id": 1}, {"id": 2}, {"id": 3}]


async def test_2_5_one_message_may_declare_its_header_itself(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"TMQ\x01\x02\x00\x07", content_type="a/b; header=tmq")
    assert (await _all(mq)).decode() == [7]


async def test_2_5_raw_bytes_that_start_with_its_magic_are_not_mangled(mq: flintmq.Client) -> None:
    data = b"TMQ\x01\x00\x00 a payload like any other"
    await mq.publish("orders", data)
    assert (await _all(mq)).decode() == [data]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"TMQ\x01\x00\x00\x01", "bincode"),
        (b"TMQ\x02\x01\x00{}", "version 2"),
        (b"TMQ\x01\x03\x00{}", "unknown format 3"),
        (b"TMQ\x01\xff\x00{}", "unknown format 255"),
        (b"TMQ\x01\x01\x07{}", "unknown compression 7"),
    ],
)
async def test_2_5_what_it_guesses_is_an_error_here(
    mq: flintmq.Client, data: bytes, why: str
) -> None:
    await mq.publish("orders", data)
    await mq.configure_topic("orders", magic_header="tmq")
    with pytest.raises(flintmq.DecodeFailed, match=why):
        (await _all(mq)).decode()


async def test_2_5_strings_are_text_and_never_guessed_at(mq: flintmq.Client) -> None:
    texts = ["plain", "5", "true", '"quoted"', '{"a": 1}', "[", "TMQ\x01\x01\x00{}", ""]
    await mq.publish_batch("orders", texts)
    assert (await _all(mq)).decode() == texts
    assert (await _all(mq)).decode(str) == texts


async def test_2_5_decompression_has_a_limit_and_an_end() -> None:
    async with flintmq.connect("memory://", decoded_bytes_max=1000) as mq:
        for data in (gzip.compress(bytes(1_000_000)), gzip.compress(b"{}") + b"trailing"):
            await mq.publish("orders", b"TMQ\x01\x01\x01" + data, content_type="a/b; header=tmq")
        too_much, trailing = (await _all(mq)).decode(on_error="return")
        assert "more than the 1,000 bytes" in str(too_much)
        assert "does not end where the message ends" in str(trailing)


# --- 4 faults


async def test_4_15_a_filter_by_size_does_not_eat_what_it_rejects(mq: flintmq.Client) -> None:
    await mq.create_topic("objects", format="object")
    await mq.publish_batch("objects", [Order(1, "x"), Order(2, "y")])
    async with mq.reader("objects", filter="size > 0") as filtered, mq.reader("objects") as other:
        assert filtered.read_batch_nowait(10) == []
        assert len(other.read_batch_nowait(10)) == 2
    async with mq.reader("objects", filter=lambda message: message.value.id == 2) as filtered:
        assert filtered.read_batch_nowait(10).values == [Order(2, "y")]


async def test_4_15_an_object_is_never_shown_as_text_or_empty_bytes(mq: flintmq.Client) -> None:
    await mq.create_topic("objects", format="object")
    order = Order(1, "x")
    await mq.publish("objects", order)

    (message,) = await _all(mq, "objects")
    assert message.value is order
    for wanted in (str, bytes):
        with pytest.raises(flintmq.DecodeFailed, match="it is a Order"):
            message.decode(wanted)


async def test_4_16_decode_hooks_run(mq: flintmq.Client) -> None:
    ran: list[str] = []

    def turned(way: str) -> object:
        def turn(data: bytes) -> bytes:
            ran.append(way)
            return data[::-1]

        return turn

    mq.register_hook("turn", encode=turned("encode"), decode=turned("decode"))  # type: ignore[arg-type]
    await mq.create_topic("orders", pre_hooks=["turn"], post_hooks=["turn"])
    await mq.publish("orders", {"id": 1})

    assert (await _all(mq)).decode() == [{"id": 1}]
    assert ran == ["encode", "encode", "decode", "decode"]


@pytest.mark.parametrize("compression", ["gzip", "zstd", "lz4"])
async def test_4_16_compression_without_a_header_is_read(
    mq: flintmq.Client, compression: str
) -> None:
    await mq.create_topic("orders", compression=compression)
    await mq.publish("orders", {"id": 1})
    assert (await _all(mq)).decode() == [{"id": 1}]


async def test_4_16_a_custom_format_under_the_header_decodes_as_itself(mq: flintmq.Client) -> None:
    mq.register_format("upper", encode=lambda s: s.upper().encode(), decode=lambda b: b.decode())
    await mq.publish("orders", "loud", format="upper", magic_header="flint")
    (data,) = (await _all(mq)).values
    await mq.publish("alone", data)
    await mq.configure_topic("alone", magic_header="flint")

    assert (await _all(mq)).decode() == (await _all(mq, "alone")).decode() == ["LOUD"]
    with pytest.raises(flintmq.InvalidRequest, match="tmq header supports"):
        await mq.publish("orders", "loud", format="upper", magic_header="tmq")


async def test_4_16_settings_are_used_or_refused(mq: flintmq.Client) -> None:
    for level in ("gzip:1", "gzip:9"):
        await mq.publish("orders", "over and over " * 500, compression=level)
    fast, small = (await _all(mq)).values
    assert len(small) < len(fast)
    with pytest.raises(flintmq.InvalidRequest, match="levels"):
        await mq.publish("orders", 1, compression="gzip:11")
