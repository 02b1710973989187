"""A tour of FlintMQ inside one process: publish, read, share, listen, queues, limits, what lasts.

Run it with `make run`, or `python examples/tour.py` where flintmq is installed.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time

import flintmq


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


async def publish_and_read(mq: flintmq.Client) -> None:
    heading("Publish, and read from the start")
    receipt = await mq.publish("orders.eu", b'{"id": 1}', key="customer-7", priority=3)
    print(f"published to {receipt.topic!r} at offset {receipt.offset} ({receipt.durability})")
    batch = await mq.publish_batch("orders.eu", [b'{"id": 2}', b'{"id": 3}'])
    print(f"published a batch of {batch.count} from offset {batch.offset}")

    async with mq.reader("orders.eu") as reader:
        for message in await reader.read_batch(10, timeout=0):
            print(f"  read offset {message.offset}: {message.value!r} key={message.key!r}")


async def share_a_name(mq: flintmq.Client) -> None:
    heading("Two readers of one name split the messages")
    await mq.publish_batch("jobs", [f"job {number}" for number in range(6)])
    async with (
        mq.reader("jobs", name="workers") as first,
        mq.reader("jobs", name="workers") as second,
    ):
        for reader, label in ((first, "first"), (second, "second")):
            rows = await reader.read_batch(3, timeout=0)
            print(f"  the {label} got {[value.decode() for value in rows.values]}")
        await first.commit()
        await second.commit()
    stats = await mq.topic_stats("jobs")
    print(f"  committed; lag of 'workers' is {stats.lag['workers']}")


async def listen_live(mq: flintmq.Client) -> None:
    heading("A live feed gets what is published from now on, by pattern")
    async with mq.live("orders.>", capacity=100) as feed:
        await mq.publish("orders.eu", b"to the feed and to the log")
        await mq.publish("orders.us", b"to the feed only", qos=0)
        for _ in range(2):
            message = await feed.read(timeout=60)
            assert message is not None
            print(f"  {message.topic}: {message.value.decode()}")


async def keep_limits(mq: flintmq.Client) -> None:
    heading("Retention moves on, and a slow reader is told what it missed")
    await mq.create_topic("ticks", retention_count=100)
    async with mq.reader("ticks") as reader:
        await mq.publish_batch("ticks", [b"tick"] * 250)
        rows = await reader.read_batch(1000)
        print(f"  got {len(rows)} messages from offset {rows[0].offset}, missed {rows.missed}")


async def work_off_a_queue(mq: flintmq.Client) -> None:
    heading("A group works a queue off: priorities first, what fails goes to the dead letters")
    await mq.publish_batch("mails", ["news", "bill", "spam"], priority=[0, 7, 0])
    async with mq.subscribe("mails", group="senders", lease=30) as deliveries:
        for message in await deliveries.read_batch(3):
            if message.decode() == "spam":
                await message.reject("nobody wants it")
            else:
                await message.ack()
            print(f"  {message.decode()}: delivery {message.delivery_count}")
    (letter,) = await mq.dead_letters("mails", "senders")
    print(f"  dead: {letter.message.decode()!r}, because {letter.reason}")


async def go_fast(mq: flintmq.Client) -> None:
    heading("Batches of 100, published, stored, read and touched")
    await mq.create_topic("fast", retention_count=100_000)
    values = [bytes(100)] * 100
    rounds, touched = 3_000, 0
    began = time.perf_counter()
    async with mq.reader("fast") as reader:
        for _ in range(rounds):
            await mq.publish_batch("fast", values)
            for value in (await reader.read_batch(100)).values:
                touched += len(value) > 0
    seconds = time.perf_counter() - began
    print(f"  {touched:,} messages in {seconds:.2f} s: {touched / seconds:,.0f} a second")


async def keep_across_a_restart() -> None:
    heading("On disk, a restart forgets nothing")
    with tempfile.TemporaryDirectory() as directory:
        url = f"file://{directory}"
        async with flintmq.connect(url) as mq:
            receipt = await mq.publish("orders", {"id": 42}, producer="tour", sequence=1)
            print(f"  published at offset {receipt.offset}, {receipt.durability}")
        async with flintmq.connect(url) as mq:
            again = await mq.publish("orders", {"id": 42}, producer="tour", sequence=1)
            print(f"  published again: offset {again.offset}, a duplicate: {again.duplicate}")
            async with mq.reader("orders") as reader:
                rows = await reader.read_batch(10)
                print(f"  what is there: {rows.decode()}")


async def main() -> None:
    # The broker warns of dead letters; here they are made on purpose, and shown.
    logging.getLogger("flintmq").setLevel(logging.ERROR)
    print(f"FlintMQ {flintmq.__version__}, in this process")
    async with flintmq.connect("memory://") as mq:
        await publish_and_read(mq)
        await share_a_name(mq)
        await listen_live(mq)
        await keep_limits(mq)
        await work_off_a_queue(mq)
        await go_fast(mq)
        heading("What is there now")
        print(f"  {'topic':18}{'messages':>11}{'bytes':>12}{'first':>10}{'next':>10}")
        for name in await mq.topics():
            stats = await mq.topic_stats(name)
            offsets = f"{stats.first_offset:>10,}{stats.next_offset:>10,}"
            print(f"  {name:18}{stats.message_count:>11,}{stats.byte_count:>12,}{offsets}")
    await keep_across_a_restart()


if __name__ == "__main__":
    asyncio.run(main())
