"""Topics of objects: references are passed on, nothing is written down. In memory only."""

from __future__ import annotations

import asyncio
import gc
import weakref
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

import flintmq
from flintmq.model import OBJECT_RETENTION_COUNT


@dataclass
class Order:
    id: int
    amount: float = 0.0


class OrderDict(TypedDict):
    id: int


@pytest.fixture
async def objects(mq: flintmq.Client) -> flintmq.Client:
    await mq.create_topic("orders", format="object")
    return mq


async def _all(mq: flintmq.Client, topic: str = "orders") -> flintmq.Rows:
    async with mq.reader(topic) as reader:
        return reader.read_batch_nowait(1_000_000)


async def test_an_object_is_handed_out_itself(objects: flintmq.Client) -> None:
    published: list[Any] = [Order(1), object(), lambda: 1, None, b"bytes", "text", [1], {"a": 1}]
    for item in published:
        await objects.publish("orders", item)

    rows = await _all(objects)

    assert all(value is item for value, item in zip(rows.values, published, strict=True))
    assert all(m.value is item for m, item in zip(rows, published, strict=True))
    assert all(m.decode() is item for m, item in zip(rows, published, strict=True))
    assert all(value is item for value, item in zip(rows.decode(), published, strict=True))
    assert [message.content_type for message in rows] == [None] * len(published)


async def test_batches_of_objects_keep_every_reference(objects: flintmq.Client) -> None:
    published = [Order(number) for number in range(2_500)]
    for start in range(0, 2_500, 100):
        receipt = await objects.publish_batch("orders", published[start : start + 100])
        assert (receipt.offset, receipt.count) == (start, 100)

    values = (await _all(objects)).values

    assert len(values) == 2_500
    assert all(value is order for value, order in zip(values, published, strict=True))


async def test_a_publisher_sends_objects_one_by_one(objects: flintmq.Client) -> None:
    published = [Order(number) for number in range(1_500)]
    async with objects.publisher("orders") as publisher:
        for order in published:
            publisher.send(order)

    assert list(map(id, (await _all(objects)).values)) == list(map(id, published))


async def test_several_topics_may_take_the_same_object(objects: flintmq.Client) -> None:
    await objects.create_topic("copies", format="object")
    order = Order(1)
    await objects.publish_many([("orders", order), ("copies", order), ("texts", "text")])

    assert (await _all(objects)).values[0] is (await _all(objects, "copies")).values[0] is order
    assert (await _all(objects, "texts")).decode() == ["text"]


async def test_objects_have_keys_headers_and_the_rest(objects: flintmq.Client) -> None:
    order = Order(1)
    await objects.publish("orders", order, key="k", headers={"region": "eu"}, priority=3, ttl=60,
                          content_type="application/x-order")  # fmt: skip
    await objects.publish_batch("orders", [order, order], key=["a", None], headers={"n": b"1"})

    first, second, third = await _all(objects)

    assert first.value is second.value is third.value is order
    assert (first.key, first.headers, first.priority) == ("k", {"region": "eu"}, 3)
    assert first.content_type == "application/x-order"
    assert [second.key, third.key] == ["a", None]
    assert third.headers == {"n": b"1"}
    assert first == first
    assert "Order(id=1" in repr(first)


async def test_an_object_counts_for_its_key_and_headers_only(objects: flintmq.Client) -> None:
    await objects.publish("orders", b"four")
    await objects.publish("orders", Order(1), key="four")

    rows = await _all(objects)
    stats = await objects.topic_stats("orders")

    assert [message.size for message in rows] == [0, 4]
    assert [facts.size for facts in rows.metadata] == [0, 4]
    assert [facts.offset for facts in rows.metadata] == [0, 1]
    assert (stats.message_count, stats.byte_count) == (2, 4)


async def test_a_type_is_compared_with_the_class_of_an_object(objects: flintmq.Client) -> None:
    order = Order(1)
    await objects.publish("orders", order)
    await objects.publish("orders", "text")
    rows = await _all(objects)

    assert rows[0].decode(Order) is order
    assert rows[0].decode(object) is order
    decoded: object = rows[0].decode(Any)
    assert decoded is order
    assert rows[0].decode(Order | None) is order
    with pytest.raises(
        flintmq.DecodeFailed, match=r"offset 1 .* it is a str, not a Order"
    ) as failed:
        rows.decode(Order)
    assert failed.value.expected == "object"
    assert rows.decode(Order, on_error="skip") == [order]
    for wanted in (OrderDict, list[int]):
        with pytest.raises(flintmq.DecodeFailed, match="not a class"):
            rows[0].decode(wanted)


async def test_a_type_that_a_passing_object_is_not_of_names_no_offset(
    objects: flintmq.Client,
) -> None:
    async with objects.live("orders") as feed:
        await objects.publish("orders", Order(1), qos=0)
        message = await feed.read(timeout=0)

    assert message is not None
    with pytest.raises(flintmq.DecodeFailed) as failed:
        message.decode(str)
    assert failed.value.offset is None


async def test_filters_see_the_fields_of_plain_data_and_functions_see_objects(
    objects: flintmq.Client,
) -> None:
    await objects.publish_batch(
        "orders", [{"amount": 5}, {"amount": 500}, {}, Order(1, 500.0)], headers={"region": "eu"}
    )

    async with objects.reader("orders", filter="value.amount > 100") as reader:
        assert reader.read_batch_nowait(10).values[0] == {"amount": 500}
    async with objects.reader("orders", filter='headers.region == "eu"') as reader:
        assert len(reader.read_batch_nowait(10)) == 4
    async with objects.reader(
        "orders", filter=lambda message: isinstance(message.value, Order)
    ) as reader:
        assert reader.read_batch_nowait(10).values == [Order(1, 500.0)]


async def test_an_object_topic_keeps_a_number_of_objects_unless_told_otherwise(
    objects: flintmq.Client,
) -> None:
    info = await objects.topic_info("orders")
    assert info.options.retention_count == OBJECT_RETENTION_COUNT == 100_000
    for given in (10, None):
        made = await objects.create_topic(f"own.{given}", format="object", retention_count=given)
        assert made.options.retention_count == given
    assert (await objects.create_topic("orders", format="object")).id == info.id

    for _ in range(101):
        await objects.publish_batch("orders", [None] * 1000)

    stats = await objects.topic_stats("orders")
    assert stats.message_count == OBJECT_RETENTION_COUNT
    assert stats.first_offset == 1000


async def test_objects_are_let_go_when_retention_takes_them(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", format="object", retention_count=1)
    first = Order(1)
    seen = weakref.ref(first)
    await mq.publish("orders", first)
    del first
    gc.collect()
    assert seen() is not None
    for _ in range(50):  # rows are freed with the last of their chunk
        await mq.publish_batch("orders", [None] * 100)
    gc.collect()
    assert seen() is None


SETTINGS: list[dict[str, Any]] = [
    {"compression": "gzip"}, {"compression": "none"}, {"magic_header": "flint"},
    {"pre_hooks": ["hook"]}, {"post_hooks": ["hook"]}, {"schema": '"string"'}, {"pre_hooks": []},
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
async def test_nothing_that_makes_bytes_goes_with_objects(
    objects: flintmq.Client, settings: dict[str, Any]
) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="passes references"):
        await objects.create_topic("other", format="object", **settings)
    with pytest.raises(flintmq.InvalidRequest, match="by reference"):
        await objects.publish("orders", 1, **settings)
    with pytest.raises(flintmq.InvalidRequest, match="by reference"):
        await objects.publish_batch("orders", [1], **settings)
    with pytest.raises(flintmq.InvalidRequest, match="by reference"):
        objects.publisher("orders", **settings)

    assert (await objects.topic_stats("orders")).message_count == 0


async def test_another_format_is_refused_on_an_object_topic(objects: flintmq.Client) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="by reference"):
        await objects.publish("orders", 1, format="json")
    await objects.publish("orders", 1, format="object")
    for format in ("json", None):
        with pytest.raises(flintmq.InvalidRequest, match="cannot be set or removed"):
            await objects.configure_topic("orders", format=format)


async def test_objects_are_a_matter_of_the_whole_topic(mq: flintmq.Client) -> None:
    await mq.publish("plain", b"bytes")
    for topic in ("plain", "missing"):
        with pytest.raises(flintmq.InvalidRequest, match="create_topic"):
            await mq.publish(topic, object(), format="object")
        with pytest.raises(flintmq.InvalidRequest, match="create_topic"):
            mq.publisher(topic, format="object")
    with pytest.raises(flintmq.InvalidRequest, match="cannot be set or removed"):
        await mq.configure_topic("plain", format="object")


async def test_a_batch_of_objects_cannot_be_compressed(objects: flintmq.Client) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="objects have no bytes"):
        await objects.publish_batch("orders", [1, 2], batch_compression="zstd")
    publisher = objects.publisher("orders", batch_compression="lz4")
    publisher.send(1)
    with pytest.raises(flintmq.InvalidRequest, match="objects have no bytes"):
        await publisher.close()
    assert (await objects.topic_stats("orders")).message_count == 0


async def test_a_live_feed_gets_the_objects_themselves(objects: flintmq.Client) -> None:
    published = [Order(number) for number in range(3)]
    async with objects.live("orders") as feed, objects.live(">") as all_of_it:
        await objects.publish("orders", published[0])
        await objects.publish("orders", published[1], qos=0)
        await objects.publish_batch("orders", published[2:])
        for each in (feed, all_of_it):
            values = (await each.read_batch(10)).values
            while len(values) < 3:
                values = [*values, *(await each.read_batch(10, timeout=0)).values]
            assert list(map(id, values)) == list(map(id, published))


async def test_a_reader_that_waits_gets_the_object_itself(objects: flintmq.Client) -> None:
    async with objects.reader("orders", start="latest") as reader:
        waiting = asyncio.ensure_future(reader.read())
        await asyncio.sleep(0)
        order = Order(1)
        await objects.publish("orders", order)
        message = await waiting

    assert message is not None
    assert message.value is order


async def test_objects_are_spread_over_partitions_by_key(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", format="object", partitions=4)
    published = [Order(number) for number in range(100)]
    receipt = await mq.publish_batch(
        "orders", published, key=[f"customer-{order.id % 10}" for order in published]
    )
    chosen = await mq.publish(
        "orders", Order(100), partition=lambda key, value, count: value.id % count
    )

    assert receipt.count == 100
    assert chosen.partition == 0
    seen: dict[int, list[Order]] = {}
    for message in await _all(mq):
        seen.setdefault(message.value.id % 10, []).append(message.value)
        assert message.value.id == 100 or message.value is published[message.value.id]
    for orders in seen.values():
        ids = [order.id for order in orders if order.id < 100]
        assert ids == sorted(ids)
    assert sum(map(len, seen.values())) == 101
