"""publish, publish_batch, publish_many: what they take, and what they return."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.contract.conftest import Connect


async def _all(mq: flintmq.Client, topic: str = "orders") -> flintmq.Rows:
    async with mq.reader(topic) as reader:
        return await reader.read_batch(100_000, timeout=0)


async def test_a_receipt_says_where_the_message_went(mq: flintmq.Client) -> None:
    receipt = await mq.publish("orders", b"one")

    assert (receipt.topic, receipt.offset) == ("orders", 0)
    assert (receipt.count, receipt.partition, receipt.dropped) == (1, 0, 0)
    assert receipt.duplicate is False
    assert (await mq.publish("orders", b"two")).offset == 1
    assert (await mq.publish("bills", b"one")).offset == 0


async def test_a_receipt_says_how_safe_the_message_is(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", storage="memory")
    assert (await mq.publish("orders", b"stored")).durability == "memory"
    assert (await mq.publish("orders", b"passed on", qos=0)).durability == "none"


async def test_everything_said_of_a_message_is_read_back(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    now = clock.now_ms() / 1000
    await mq.publish(
        "orders",
        b"value",
        key="42",
        headers={"region": "eu", "raw": b"\xff"},
        priority=7,
        ttl=60,
        delay=timedelta(seconds=5),
        content_type="application/json",
    )
    async with mq.reader("orders") as reader:
        message = await reader.read()

    assert message is not None
    assert message.value == b"value"
    assert message.key == "42"
    assert message.headers == {"region": "eu", "raw": b"\xff"}
    assert message.priority == 7
    assert message.content_type == "application/json"
    assert (message.topic, message.offset, message.partition) == ("orders", 0, 0)
    assert message.timestamp == now
    assert message.time.timestamp() == now
    assert message.expires_at == now + 60
    assert message.deliver_at == now + 5
    assert message.delivery_count == 1
    assert message.size == len(b"value") + len("42") + len("regioneu") + len("raw") + 1


async def test_nothing_said_is_nothing_read(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"value")
    (message,) = await _all(mq)

    assert message.key is None
    assert message.headers == {}
    assert message.priority == 0
    assert message.content_type is None
    assert message.expires_at is None
    assert message.deliver_at is None


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (b"bytes", b"bytes"),
        (b"", b""),
        ("text", b"text"),
        ("Größe 🜂", "Größe 🜂".encode()),
        (bytearray(b"array"), b"array"),
        (memoryview(b"view"), b"view"),
        (b"\xff" * 300, b"\xff" * 300),
        (b"x" * 1_000_000, b"x" * 1_000_000),
    ],
)
async def test_values_are_bytes_or_text(mq: flintmq.Client, value: Any, read: bytes) -> None:
    await mq.publish("orders", value)
    await mq.publish_batch("orders", [value, value])
    await mq.publish_many([("orders", value)])
    async with mq.publisher("orders") as publisher:
        publisher.send(value)

    assert list((await _all(mq)).values) == [read] * 5


async def test_a_value_is_what_it_was_when_it_was_published(mq: flintmq.Client) -> None:
    value = bytearray(b"before")
    await mq.publish("orders", value)
    value[:] = b"after!"
    assert list((await _all(mq)).values) == [b"before"]


@pytest.mark.parametrize("key", ["text", b"bytes", "", b"", "ключ"])
async def test_a_key_is_text_or_bytes_and_stays_what_it_was(
    mq: flintmq.Client, key: str | bytes
) -> None:
    await mq.publish("orders", b"x", key=key)
    await mq.publish_batch("orders", [b"y", b"z"], key=key)
    await mq.publish_batch("orders", [b"z"], key=[key])
    assert (await _all(mq)).keys == [key] * 4


@pytest.mark.parametrize(
    "keywords",
    [
        {"value": object()},
        {"value": {1, object()}},
        {"value": "\ud800"},
        {"key": 5},
        {"key": "\ud800"},
        {"headers": "no"},
        {"headers": {1: "a"}},
        {"headers": {"a": 1}},
        {"headers": {"a": "\ud800"}},
        {"headers": {"\ud800": "a"}},
        {"priority": 8},
        {"priority": -1},
        {"priority": 1.0},
        {"priority": True},
        {"ttl": -1},
        {"ttl": 0},
        {"ttl": "5"},
        {"ttl": float("nan")},
        {"ttl": timedelta(0)},
        {"delay": -1},
        {"delay": float("inf")},
        {"content_type": 5},
        {"content_type": "\ud800"},
        {"qos": 2},
        {"qos": None},
    ],
)
async def test_what_is_wrong_with_a_message_is_said_and_nothing_is_published(
    mq: flintmq.Client, keywords: dict[str, Any]
) -> None:
    await mq.create_topic("orders")
    keywords = dict(keywords)
    value = keywords.pop("value", b"fine")

    with pytest.raises(flintmq.InvalidRequest):
        await mq.publish("orders", value, **keywords)
    with pytest.raises(flintmq.InvalidRequest):
        await mq.publish_batch("orders", [b"fine", value], **keywords)
    lists: dict[str, Any] = {
        name: [None, option] for name, option in keywords.items() if name != "qos"
    }
    if lists:
        with pytest.raises(flintmq.InvalidRequest):
            await mq.publish_batch("orders", [b"fine", value], **lists)
    if "qos" not in keywords:
        publisher = mq.publisher("orders")
        with pytest.raises(flintmq.InvalidRequest):
            publisher.send(value, **keywords)
        await publisher.close()

    assert (await mq.topic_stats("orders")).next_offset == 0


async def test_a_batch_has_one_receipt_with_its_first_offset_and_its_count(
    mq: flintmq.Client,
) -> None:
    await mq.publish("orders", b"before")
    receipt = await mq.publish_batch("orders", [b"a", b"b", b"c"])

    assert (receipt.offset, receipt.count) == (1, 3)
    rows = await _all(mq)
    assert list(rows.values) == [b"before", b"a", b"b", b"c"]
    assert rows.offsets == [0, 1, 2, 3]


async def test_a_batch_is_any_iterable(mq: flintmq.Client) -> None:
    def generate() -> Iterator[bytes]:
        yield b"a"
        yield b"b"

    assert (await mq.publish_batch("orders", generate())).count == 2
    assert (await mq.publish_batch("orders", (b"c",))).count == 1
    assert list((await _all(mq)).values) == [b"a", b"b", b"c"]


async def test_a_batch_owns_its_list(mq: flintmq.Client) -> None:
    values: list[bytes | bytearray | memoryview | str] = [b"a", b"b"]
    await mq.publish_batch("orders", values)
    values.append(b"c")
    assert list((await _all(mq)).values) == [b"a", b"b"]


async def test_an_empty_batch_publishes_nothing(mq: flintmq.Client) -> None:
    receipt = await mq.publish_batch("orders", [])
    assert (receipt.offset, receipt.count) == (None, 0)
    assert await mq.topics() == []


@pytest.mark.parametrize("values", [b"bytes", "text", bytearray(b"x"), {"a": b"b"}])
async def test_one_value_is_not_a_batch(mq: flintmq.Client, values: Any) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="list of values"):
        await mq.publish_batch("orders", values)


async def test_each_keyword_of_a_batch_is_one_for_all_or_a_list(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    now = clock.now_ms() / 1000
    await mq.publish_batch(
        "orders", [b"a", b"b"], key="k", headers={"h": "1"}, priority=3, ttl=9, delay=4,
        content_type="text/plain",
    )  # fmt: skip
    await mq.publish_batch(
        "orders", [b"c", b"d"], key=["x", None], headers=[None, {"h": "2"}], priority=[0, 5],
        ttl=[None, timedelta(seconds=7)], delay=[2, None], content_type=[None, "text/html"],
    )  # fmt: skip
    a, b, c, d = await _all(mq)

    for message in (a, b):
        assert (message.key, message.headers, message.priority) == ("k", {"h": "1"}, 3)
        assert (message.expires_at, message.deliver_at) == (now + 9, now + 4)
        assert message.content_type == "text/plain"
    assert (c.key, c.headers, c.priority, c.content_type) == ("x", {}, 0, None)
    assert (c.expires_at, c.deliver_at) == (None, now + 2)
    assert (d.key, d.headers, d.priority, d.content_type) == (None, {"h": "2"}, 5, "text/html")
    assert (d.expires_at, d.deliver_at) == (now + 7, None)


@pytest.mark.parametrize("name", ["key", "headers", "priority", "ttl", "delay", "content_type"])
@pytest.mark.parametrize("length", [0, 1, 3])
async def test_a_list_of_another_length_is_refused(
    mq: flintmq.Client, name: str, length: int
) -> None:
    options: dict[str, Any] = {name: [None] * length}
    with pytest.raises(flintmq.InvalidRequest, match=f"{name} has {length} entries for 2"):
        await mq.publish_batch("orders", [b"a", b"b"], **options)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
async def test_a_compressed_batch_reads_the_same(mq: flintmq.Client, compression: str) -> None:
    values = [b"%d" % n * 50 for n in range(200)]
    await mq.publish_batch("orders", values, key="k", batch_compression=compression)
    rows = await _all(mq)
    assert list(rows.values) == values
    assert set(rows.keys) == {"k"}


async def test_an_unknown_compression_is_refused(mq: flintmq.Client) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="rar"):
        await mq.publish_batch("orders", [b"x"], batch_compression="rar")
    with pytest.raises(flintmq.InvalidRequest, match="rar"):
        mq.publisher("orders", batch_compression="rar")


async def test_publish_many_goes_to_several_topics_and_keeps_order_within_each(
    mq: flintmq.Client,
) -> None:
    receipts = await mq.publish_many([("a", b"1"), ("b", b"2"), ("a", "3"), ("c", b"4")])

    assert [(receipt.topic, receipt.offset) for receipt in receipts] == [
        ("a", 0), ("b", 0), ("a", 1), ("c", 0),
    ]  # fmt: skip
    assert list((await _all(mq, "a")).values) == [b"1", b"3"]
    assert await mq.publish_many([]) == []


async def test_publish_many_checks_every_value_before_it_publishes_any(mq: flintmq.Client) -> None:
    bad: Any = object()
    with pytest.raises(flintmq.InvalidRequest):
        await mq.publish_many([("a", b"1"), ("b", bad)])
    assert await mq.topics() == []


async def test_an_error_of_publish_many_carries_the_receipts_of_what_was_published(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("full", retention_count=1, overflow="reject")
    await mq.publish("full", b"x")

    with pytest.raises(flintmq.TopicFull) as caught:
        await mq.publish_many([("a", b"1"), ("full", b"2"), ("b", b"3")])

    receipts: list[flintmq.Receipt] = vars(caught.value)["receipts"]
    assert [(receipt.topic, receipt.offset) for receipt in receipts] == [("a", 0)]


async def test_publish_many_says_of_each_message_whether_it_was_dropped(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("small", retention_count=2, overflow="drop_new")
    receipts = await mq.publish_many([("small", b"%d" % n) for n in range(4)])

    assert [(receipt.offset, receipt.count, receipt.dropped) for receipt in receipts] == [
        (0, 1, 0), (1, 1, 0), (None, 0, 1), (None, 0, 1),
    ]  # fmt: skip


async def test_publish_many_at_qos_0_stores_nothing(mq: flintmq.Client) -> None:
    async with mq.live(">") as feed:
        receipts = await mq.publish_many([("a", b"1"), ("b", b"2")], qos=0)
        assert [receipt.offset for receipt in receipts] == [None, None]
        assert list((await feed.read_batch()).values) == [b"1", b"2"]
    assert (await mq.topic_stats("a")).message_count == 0


async def test_messages_over_the_size_limit_are_refused_with_their_whole_batch(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", max_message_bytes=10)
    await mq.publish("orders", b"x" * 10)

    with pytest.raises(flintmq.MessageTooLarge) as caught:
        await mq.publish("orders", b"x" * 11)
    assert (caught.value.size, caught.value.limit) == (11, 10)
    assert caught.value.limit_name == "max_message_bytes"
    with pytest.raises(flintmq.MessageTooLarge):
        await mq.publish("orders", b"x" * 9, key="no")
    with pytest.raises(flintmq.MessageTooLarge):
        await mq.publish("orders", b"x" * 11, qos=0)
    with pytest.raises(flintmq.MessageTooLarge, match="message 1"):
        await mq.publish_batch("orders", [b"fine", b"x" * 11])
    assert (await mq.topic_stats("orders")).next_offset == 1


@pytest.mark.slow
async def test_concurrent_publishes_all_arrive_once_and_each_in_its_own_order(
    mq: flintmq.Client,
) -> None:
    async def publish(who: int) -> list[int | None]:
        return [(await mq.publish("orders", b"%d:%d" % (who, n))).offset for n in range(300)]

    offsets = await asyncio.gather(*map(publish, range(8)))

    values = list((await _all(mq)).values)
    assert len(values) == len(set(values)) == 2400
    for who in range(8):
        mine = [value for value in values if value.startswith(b"%d:" % who)]
        assert mine == [b"%d:%d" % (who, n) for n in range(300)]
        assert [values[offset or 0] for offset in offsets[who]] == mine


async def test_a_timeout_that_is_no_time_is_refused(connect: Connect) -> None:
    bad: Any = "soon"
    with pytest.raises(flintmq.InvalidRequest, match="timeout"):
        connect(timeout=bad)
    with pytest.raises(flintmq.InvalidRequest, match="timeout"):
        connect(timeout=-1)


async def test_publishes_keep_their_order_also_where_the_first_of_them_makes_the_topic(
    mq: flintmq.Client,
) -> None:
    publishing: list[asyncio.Future[flintmq.Receipt]] = []
    while not publishing or (not publishing[0].done() and len(publishing) < 2000):
        publishing.append(asyncio.ensure_future(mq.publish("orders", b"%d" % len(publishing))))
        await asyncio.sleep(0)
    await asyncio.gather(*publishing)

    async with mq.reader("orders") as reader:
        rows = await reader.read_batch(2000, timeout=1)
        assert rows.values == [b"%d" % number for number in range(len(publishing))]


async def test_rows_that_are_encoded_already_are_published_as_they_are(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", format="json", compression="gzip")
    rows = flintmq.BatchBuilder()
    rows.append_row(b"\x00 not JSON", key="k", headers={"a": "b"}, priority=3)
    rows.append_row(b"plain", content_type="text/plain")
    receipt = await mq.publish_batch("orders", rows)

    assert (receipt.offset, receipt.count) == (0, 2)
    first, second = await _all(mq)
    assert (first.value, first.key, first.headers) == (b"\x00 not JSON", "k", {"a": "b"})
    assert (second.value, second.content_type, first.priority) == (b"plain", "text/plain", 3)
    with pytest.raises(flintmq.InvalidRequest, match="carries all options"):
        await mq.publish_batch("orders", rows, key="other")
