"""Values: what is published comes back as what it was, whatever else is on the topic."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import flintmq
from tests.contract.conftest import Connect

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}
FORMATS = ["json", "msgpack", "avro"]


@dataclass
class Order:
    id: int
    note: str


class OrderStruct(msgspec.Struct):
    id: int
    note: str


class OrderDict(TypedDict):
    id: int
    note: str


class OrderModel(pydantic.BaseModel):
    id: int
    note: str


async def _all(mq: flintmq.Client, topic: str = "orders") -> flintmq.Rows:
    async with mq.reader(topic) as reader:
        return await reader.read_batch(100_000, timeout=0)


def _without(mark: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.removeprefix(mark)


def _schema(format: str) -> dict[str, Any]:
    return {"format": format, "schema": SCHEMA} if format == "avro" else {"format": format}


# --- formats


async def test_without_a_format_bytes_are_raw_text_is_text_and_objects_are_json(
    mq: flintmq.Client,
) -> None:
    values = [b"\x00\xff", "für uns", {"id": 1}, [1, 2], 5, 1.5, True, None]
    for value in values:
        await mq.publish("orders", value)
    await mq.publish_batch("orders", values)

    rows = await _all(mq)

    assert rows.decode() == values * 2
    assert [message.decode() for message in rows] == values * 2
    assert [message.content_type for message in rows][:3] == [
        None, "text/plain", "application/json",
    ]  # fmt: skip


async def test_the_value_of_a_message_is_exactly_its_encoded_bytes(mq: flintmq.Client) -> None:
    await mq.publish("orders", {"id": 1, "note": "für uns"})
    await mq.publish("orders", "für uns")

    first, second = (await _all(mq)).values

    assert json.loads(first) == {"id": 1, "note": "für uns"}
    assert second == "für uns".encode()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("order", [Order(1, "x"), OrderStruct(1, "x"), OrderModel(id=1, note="x")])
async def test_objects_come_back_as_the_type_that_is_asked_for(
    mq: flintmq.Client, format: str, order: Any
) -> None:
    await mq.create_topic("orders", **_schema(format))
    await mq.publish("orders", order)

    rows = await _all(mq)

    assert rows[0].decode() == {"id": 1, "note": "x"}
    assert rows[0].decode(Order) == Order(1, "x")
    assert rows[0].decode(OrderStruct) == OrderStruct(1, "x")
    assert rows[0].decode(OrderDict) == {"id": 1, "note": "x"}
    assert rows[0].decode(dict[str, object]) == {"id": 1, "note": "x"}
    assert rows.decode(OrderModel) == [OrderModel(id=1, note="x")]
    assert rows.decode(Order) == [Order(1, "x")]


async def test_a_format_of_ones_own_is_used_by_its_name(mq: flintmq.Client) -> None:
    mq.register_format(
        "csv",
        encode=lambda row: ",".join(row).encode(),
        decode=lambda data: data.decode().split(","),
        media_type="text/csv",
    )
    await mq.create_topic("rows", format="csv")
    await mq.publish("rows", ["a", "b"])
    await mq.publish("rows", b"c,d", format="raw", content_type="text/csv; header=absent")

    rows = await _all(mq, "rows")

    assert rows.values == [b"a,b", b"c,d"]
    assert rows.decode() == [["a", "b"], ["c", "d"]]
    assert rows[0].content_type == "text/csv"


async def test_an_avro_message_names_its_schema_and_finds_it(mq: flintmq.Client) -> None:
    fingerprint = mq.register_schema(SCHEMA)
    newer = {**SCHEMA, "fields": [{"name": "id", "type": "long"}]}
    await mq.create_topic("orders", format="avro", schema=SCHEMA)
    await mq.publish("orders", {"id": 1, "note": "old"})
    await mq.configure_topic("orders", schema=newer)
    await mq.publish("orders", {"id": 2})

    rows = await _all(mq)

    assert rows.decode() == [{"id": 1, "note": "old"}, {"id": 2}]
    assert rows[0].content_type == f"avro/binary; schema={fingerprint}"


async def test_a_value_that_the_format_cannot_write_is_not_published(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", format="json")
    for value, format in [(object(), None), (b"no json", None), ("text", "raw"), (b"x", "text")]:
        with pytest.raises(flintmq.EncodeFailed) as refused:
            await mq.publish("orders", value, format=format)
        assert refused.value.format == (format or "json")
    with pytest.raises(flintmq.EncodeFailed):
        await mq.publish_batch("orders", [1, object(), 2])
    async with mq.publisher("orders") as publisher:
        publisher.send(1)
        with pytest.raises(flintmq.EncodeFailed):
            publisher.send(object())
        publisher.send(2)

    assert (await _all(mq)).decode() == [1, 2]


# --- content types


async def test_bytes_published_as_raw_on_a_json_topic_decode_to_their_bytes(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", format="json")
    await mq.publish("orders", {"id": 1})
    await mq.publish("orders", b'{"id": 1}', format="raw")
    await mq.publish("orders", b'{"id": 1}')

    assert (await _all(mq)).decode() == [{"id": 1}, b'{"id": 1}', {"id": 1}]


async def test_what_was_on_a_topic_before_it_had_a_format_is_taken_for_it(
    mq: flintmq.Client,
) -> None:
    await mq.publish("orders", b'{"id": 1}')  # says nothing of itself, as foreign messages do
    await mq.configure_topic("orders", format="json")

    assert (await _all(mq)).decode() == [{"id": 1}]


async def test_a_content_type_of_ones_own_is_kept_and_tells_how_to_decode(
    mq: flintmq.Client,
) -> None:
    await mq.publish("files", b"%PDF", content_type="application/pdf")
    await mq.publish("files", b'{"id": 1}', content_type="application/vnd.x+json; charset=utf-8")
    await mq.publish("files", {"id": 1}, content_type="application/vnd.x+json")
    await mq.publish_batch("files", [b"[1]", b"two"], content_type=["application/json", None])

    rows = await _all(mq, "files")

    assert rows.decode() == [b"%PDF", {"id": 1}, {"id": 1}, [1], b"two"]
    assert [message.content_type for message in rows] == [
        "application/pdf",
        "application/vnd.x+json; charset=utf-8",
        "application/vnd.x+json",
        "application/json",
        None,
    ]


async def test_a_message_can_be_passed_on_as_it_is(mq: flintmq.Client) -> None:
    await mq.publish("orders", {"id": 1}, compression="zstd", magic_header="flint")
    (message,) = await _all(mq)

    await mq.publish("copies", message.value, content_type=message.content_type)

    (copy,) = await _all(mq, "copies")
    assert copy.value == message.value
    assert copy.decode() == {"id": 1}


# --- compression, hooks, headers


@pytest.mark.parametrize("compression", ["gzip", "zstd", "lz4", "gzip:9", "zstd:1", "lz4:9"])
async def test_compressed_values_are_smaller_and_come_back(
    mq: flintmq.Client, compression: str
) -> None:
    await mq.create_topic("orders", compression=compression)
    note = "over and over " * 100
    await mq.publish("orders", {"note": note})

    (message,) = await _all(mq)

    assert len(message.value) < len(note)
    assert message.content_type == f"application/json; encoding={compression.partition(':')[0]}"
    assert message.decode() == {"note": note}


async def test_others_can_decompress_what_was_compressed(mq: flintmq.Client) -> None:
    await mq.publish("orders", {"id": 1}, compression="gzip")

    assert json.loads(gzip.decompress((await _all(mq)).values[0])) == {"id": 1}


async def test_call_goes_before_publisher_and_publisher_before_topic_field_by_field(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", format="msgpack", compression="gzip")
    async with mq.publisher("orders", compression="zstd") as publisher:
        publisher.send(1)
        publisher.send(2, format="json")
        publisher.send(3, compression="none")
    await mq.publish("orders", 4)
    await mq.publish("orders", 5, format="json", compression="none")

    rows = await _all(mq)

    assert rows.decode() == [1, 2, 3, 4, 5]
    assert [message.content_type for message in rows] == [
        "application/msgpack; encoding=zstd",
        "application/json; encoding=zstd",
        "application/msgpack",
        "application/msgpack; encoding=gzip",
        "application/json",
    ]


async def test_hooks_run_in_reverse_order_on_the_way_back(mq: flintmq.Client) -> None:
    for mark in (b"a", b"b"):
        mq.register_hook(mark.decode(), encode=mark.__add__, decode=_without(mark))
    await mq.create_topic("orders", format="text", pre_hooks=["a"], post_hooks=["b", "a"])
    await mq.publish("orders", "bb")

    (message,) = await _all(mq)

    assert message.value == b"ababb"  # a, then b before it, then a before that
    assert message.decode() == "bb"


@pytest.mark.parametrize("header", ["flint", "tmq"])
async def test_a_header_lets_readers_of_bytes_alone_decode(mq: flintmq.Client, header: str) -> None:
    await mq.create_topic("declared", magic_header=header)
    await mq.publish("declared", {"id": 1}, compression="zstd")
    (bytes_alone,) = (await _all(mq, "declared")).values
    await mq.publish("copies", bytes_alone)

    assert (await _all(mq, "copies")).decode() == [bytes_alone]  # not looked for
    await mq.configure_topic("copies", magic_header=header)
    assert (await _all(mq, "copies")).decode() == [{"id": 1}]  # declared


async def test_raw_bytes_that_begin_like_a_header_come_back(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", magic_header="flint")
    values = [b"\xf5FM", b"\xf5FM\x01\x01\x00\x00\x00....{}", b"TMQ\x01\x01\x00{}", b"plain"]
    await mq.publish_batch("orders", values)
    await mq.publish_batch("orders", values, magic_header="none")

    assert (await _all(mq)).decode() == values * 2


async def test_formats_and_hooks_belong_to_a_connection(connect: Connect) -> None:
    async with connect() as ours, connect() as theirs:
        ours.register_format("mine", encode=lambda value: b"x", decode=lambda data: "x")
        ours.register_hook("mine", encode=lambda data: data, decode=lambda data: data)
        await ours.publish("orders", 1, format="mine", pre_hooks=["mine"])
        with pytest.raises(flintmq.InvalidRequest, match="unknown format 'mine'"):
            await theirs.publish("orders", 1, format="mine")
        with pytest.raises(flintmq.InvalidRequest, match="unknown hook 'mine'"):
            await theirs.publish("orders", 1, pre_hooks=["mine"])


# --- what does not decode


async def test_a_message_that_does_not_decode_concerns_itself_alone(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", format="json")
    await mq.publish("orders", {"id": 0})
    await mq.publish("orders", b"{broken", format="raw", content_type="application/json")
    await mq.publish("orders", {"id": 2})

    async with mq.reader("orders") as reader:
        first, broken, third = [await reader.read(timeout=0) for _ in range(3)]

    assert first is not None
    assert broken is not None
    assert third is not None
    with pytest.raises(flintmq.DecodeFailed) as failed:
        broken.decode()
    assert (failed.value.topic, failed.value.offset, failed.value.expected) == ("orders", 1, "json")
    assert broken.value == b"{broken"
    assert [first.decode(), third.decode()] == [{"id": 0}, {"id": 2}]


async def test_a_batch_with_one_bad_message_hands_out_the_others(mq: flintmq.Client) -> None:
    values = [b"0", b"{broken", b"2"]
    await mq.publish_batch("orders", values, content_type="application/json")
    rows = await _all(mq)

    with pytest.raises(flintmq.DecodeFailed, match="'orders' offset 1 cannot be decoded as json"):
        rows.decode()
    zero, error, two = rows.decode(on_error="return")
    assert (zero, two) == (0, 2)
    assert isinstance(error, flintmq.DecodeFailed)
    assert error.offset == 1
    assert rows.decode(on_error="skip") == [0, 2]
    assert list(rows.values) == values
    with pytest.raises(flintmq.InvalidRequest, match="on_error"):
        rows.decode(on_error="ignore")  # type: ignore[call-overload]


async def test_a_batch_of_messages_of_an_unknown_format_fails_one_by_one(
    mq: flintmq.Client,
) -> None:
    await mq.publish_batch("orders", [b"1", b"2"], content_type="a/b; format=unknown")
    rows = await _all(mq)

    assert rows.decode(on_error="skip") == []
    assert [error.offset for error in rows.decode(on_error="return")] == [0, 1]
    with pytest.raises(flintmq.DecodeFailed, match="unknown"):
        rows.decode()


async def test_an_error_names_the_partition(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", partitions=3, format="json")
    await mq.publish("orders", 1, partition=2)
    await mq.publish("orders", b"{", format="raw", content_type="application/json", partition=2)

    rows = await _all(mq)

    with pytest.raises(flintmq.DecodeFailed) as failed:
        rows.decode()
    assert (failed.value.partition, failed.value.offset) == (2, 1)
    assert "partition 2" in str(failed.value)


async def test_a_value_of_another_shape_than_the_type_does_not_decode(mq: flintmq.Client) -> None:
    await mq.publish_batch("orders", [{"id": 1, "note": "x"}, {"id": "one"}])
    rows = await _all(mq)

    for wanted in (Order, OrderStruct, OrderDict, OrderModel):
        with pytest.raises(flintmq.DecodeFailed):
            rows[1].decode(wanted)
        assert len(rows.decode(wanted, on_error="skip")) == 1


async def test_a_message_that_would_grow_beyond_the_limit_does_not_decode(
    connect: Connect,
) -> None:
    async with connect(decoded_bytes_max=1000) as mq:
        for compression in ("gzip", "zstd", "lz4"):
            await mq.publish("orders", bytes(1_000_000), compression=compression)
            await mq.publish("orders", bytes(1000), compression=compression)

        assert (await _all(mq)).decode(on_error="skip") == [bytes(1000)] * 3


# --- live feeds, batches


async def test_a_live_feed_decodes_as_a_reader_does(mq: flintmq.Client) -> None:
    async with mq.live("orders") as feed:
        await mq.publish("orders", {"id": 1}, compression="gzip", qos=0)
        await mq.publish("orders", "text")
        rows = await feed.read_batch(10)

    assert rows.decode() == [{"id": 1}, "text"]
    assert rows[0].decode() == {"id": 1}


@pytest.mark.parametrize("batch_compression", ["lz4", "zstd"])
async def test_a_compressed_batch_may_hold_values_of_any_format(
    mq: flintmq.Client, batch_compression: str
) -> None:
    values = [{"id": 1}, "text", b"bytes"]
    await mq.publish_batch("orders", values, batch_compression=batch_compression)
    async with mq.publisher("orders", batch_compression=batch_compression) as publisher:
        for value in values:
            publisher.send(value, compression="gzip")

    assert (await _all(mq)).decode() == values * 2


async def test_messages_to_several_topics_are_written_as_each_topic_says(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("packed", format="msgpack", compression="zstd")
    await mq.publish_many([("packed", {"id": 1}), ("orders", {"id": 2}), ("packed", {"id": 3})])

    packed = await _all(mq, "packed")
    assert packed.decode() == [{"id": 1}, {"id": 3}]
    assert packed[0].content_type == "application/msgpack; encoding=zstd"
    assert (await _all(mq)).decode() == [{"id": 2}]


async def test_a_topic_that_changes_its_format_still_reads_what_it_has(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", format="json", compression="gzip")
    async with mq.publisher("orders") as publisher:
        publisher.send({"id": 1})
        await publisher.flush()
        await mq.configure_topic("orders", format="msgpack", compression=None)
        publisher.send({"id": 2})

    rows = await _all(mq)
    assert rows.decode() == [{"id": 1}, {"id": 2}]
    assert rows[1].content_type == "application/msgpack"
