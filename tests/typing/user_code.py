"""Code as users write it, read by type checkers only: what it is given must be known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypedDict, assert_type

import flintmq


class Order(TypedDict):
    id: int


async def publish(mq: flintmq.Client) -> None:
    receipt = await mq.publish("orders", {"id": 42}, key="42", priority=3, ttl=60, delay=5)
    assert_type(receipt.offset, int)
    batch = await mq.publish_batch("orders", [b"a", b"b"], headers={"region": "eu"})
    assert_type(batch, flintmq.Receipt)
    assert_type(batch.offset, int | None)
    await mq.publish_many([("orders", b"a"), ("bills", "b")])
    async with mq.publisher("orders", linger=timedelta(milliseconds=2)) as publisher:
        assert_type(publisher, flintmq.Publisher)
        publisher.send(b"...")
        await publisher.flush()


async def read(mq: flintmq.Client) -> None:
    async with mq.reader("orders", start="earliest", filter="priority > 3") as reader:
        message = await reader.read(timeout=1)
        assert_type(message, flintmq.Message | None)
        rows = await reader.read_batch(1000, timeout=0.5)
        assert_type(rows.decode(Order), list[Order])
        assert_type(rows.decode(Order, on_error="return"), list[Order | flintmq.DecodeFailed])
        for row in rows:
            assert_type(row.decode(Order), Order)
            assert_type(row.decode(dict[str, object]), dict[str, object])
            assert_type(row.decode(list[int]), list[int])
        assert_type(await reader.read(), flintmq.Message)
        values: Sequence[object] = rows.values
        print(values)
        async for one in reader:
            assert_type(one, flintmq.Message)
            break
    async with mq.live("orders.>", capacity=512, overflow="drop_oldest") as feed:
        assert_type(await feed.read(), flintmq.Message)


async def work(mq: flintmq.Client) -> None:
    async with mq.subscribe("orders", group="billing", lease=30) as deliveries:
        async for message in deliveries:
            async with message.process(retries=5):
                print(message.decode(), message.offset, message.delivery_count)
    found = await mq.poll("orders", "billing", max=256, lease=30, wait=1.0, ack="manual")
    await mq.ack(found)
    await mq.nack(found, delay=1)


async def administer(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=10, overflow="reject", partitions=4)
    assert_type(await mq.topics("orders.*"), list[str])
    stats = await mq.topic_stats("orders")
    assert_type(stats.message_count, int)
    group = await mq.group_stats("orders", "billing")
    assert_type(group.lag, int)
    await mq.redrive("orders", "billing")
    await mq.delete_topic("orders")


async def connect() -> None:
    async with flintmq.connect("flint://one:7600,two:7600", on_full="raise", timeout=5) as mq:
        assert_type(mq, flintmq.Client)
        try:
            await mq.publish("orders", b"x")
        except flintmq.OutcomeUnknown:
            pass
        except flintmq.QueueFull as error:
            assert_type(error.capacity, int)


def blocking() -> None:
    with flintmq.connect_sync("flint://localhost:7600") as mq:
        assert_type(mq.publish("orders", b"x").offset, int)
        with mq.reader("orders") as reader:
            assert_type(reader.read(), flintmq.Message)
            message = reader.read(timeout=1)
            assert_type(message, flintmq.Message | None)
            if message is not None:
                print(message.value)
        mq.publish("orders", b"x", key="42", ttl=timedelta(minutes=1))
        mq.publish("orders", b"x", prio=3)  # type: ignore[call-arg]
        mq.publish("orders", b"x", priority="high")  # type: ignore[arg-type]
        mq.reader("orders", begin="earliest")  # type: ignore[call-arg]
        assert_type(mq.create_topic("orders", partitions=4), flintmq.TopicInfo)
        mq.create_topic("orders", partitions="four")  # type: ignore[arg-type]
        with mq.publisher("orders", linger=0.002) as publisher:
            publisher.send(b"x", key="42")
            publisher.flush(timeout=1)
        with mq.subscribe("orders", group="billing", lease=30) as subscription:
            assert_type(subscription.topic, str)
            assert_type(subscription.read(), flintmq.BlockingDelivery)
            subscription.run(lambda message: message.ack(), concurrency=4, retries=3)
        for delivery in mq.poll("orders", "billing", max=256, wait=1.0):
            assert_type(delivery, flintmq.BlockingDelivery)
            with delivery.process(retries=5) as message_in_work:
                assert_type(message_in_work, flintmq.BlockingDelivery)
            delivery.nack(later=3)  # type: ignore[call-arg]
        assert_type(mq.peek("orders", "billing"), flintmq.Rows)
        assert_type(mq.topics(), list[str])
