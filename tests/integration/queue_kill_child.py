"""The process that is killed: publishers and members of two groups, telling what they do.

Lines on standard output, each written at once and whole. A small letter is told before, the large
one after; offsets are separated by commas.

    O <seconds>                                   the broker is open
    S <topic> <lag> <in flight>                   a group as it was found
    p <topic> <worker> <first> <count>            about to publish these
    P <topic> <worker> <first> <count> <offset>   they have a receipt
    D <topic> <offset> <deliveries> <ms> <token> <value>  somebody has got this one
    a <topic> <offsets>   A ...                   ack
    n <topic> <offsets> <due ms>   N ...          nack; due: not before that, told before
    r <topic> <offset>   R ...                    reject
    c <topic> <offset>   C ...                    cancel of a delayed message
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from flintmq.client.client import Client
from flintmq.client.delivery import Delivery
from flintmq.errors import LeaseLost
from flintmq.group_model import Order

from .kill_child import connect, tell

MIXED, KEYED = "mixed", "keyed"
GROUPS = {MIXED: "g", KEYED: "k"}
ORDERS: dict[str, Order] = {MIXED: "priority", KEYED: "key"}
KEYS = 12
LONG_LEASE = 120.0
"""Far longer than all rounds together take: what it holds over a kill would be missed."""
SHORT_LEASE = 0.15
DELAY_MAX = 0.3
BACKOFF = 0.05


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def value_of(worker: str, number: int, key: str, not_before_ms: int) -> str:
    return f"{worker} {number} {key} {not_before_ms}"


class Worker:
    """Publishes to one topic, one numbered message after another."""

    def __init__(self, mq: Client, topic: str, name: str, chance: random.Random) -> None:
        self._mq, self._topic, self._name, self._chance = mq, topic, name, chance
        self._number = 0

    async def run(self) -> None:
        while True:
            await self._publish(self._chance.choice((1, 1, 1, 4, 12)))
            await asyncio.sleep(self._chance.random() / 40)

    async def _publish(self, count: int) -> None:
        chance, first = self._chance, self._number
        self._number += count
        delay = chance.random() * DELAY_MAX if self._topic == MIXED and not first % 5 else 0.0
        not_before_ms = now_ms() + int(delay * 1000) if delay else 0
        keys: list[str | bytes | None] = [f"k{chance.randrange(KEYS)}" for _ in range(count)]
        values = [
            value_of(self._name, first + at, str(key), not_before_ms) for at, key in enumerate(keys)
        ]
        tell("p", self._topic, self._name, first, count)
        receipt = await self._mq.publish_batch(
            self._topic,
            values,
            key=keys,
            priority=[chance.choice((0, 0, 3, 7)) for _ in keys] if first % 3 else 0,
            delay=delay or None,
        )
        tell("P", self._topic, self._name, first, count, receipt.offset)
        if delay > DELAY_MAX * 0.7:
            tell("c", self._topic, receipt.offset)
            one = type(receipt)(receipt.topic, receipt.offset, 1, receipt.partition)
            if await self._mq.cancel(one):
                tell("C", self._topic, receipt.offset)


# --- members


def told(messages: Sequence[Delivery]) -> Sequence[Delivery]:
    ms = now_ms()
    for message in messages:
        text = message.value.decode()
        facts = message.offset, message.delivery_count, ms, message.token
        tell("D", message.topic, *facts, text)
    return messages


def _offsets(messages: Sequence[Delivery]) -> str:
    return ",".join(str(message.offset) for message in messages)


class Settler:
    """Settles messages in one way or another."""

    def __init__(self, mq: Client, chance: random.Random) -> None:
        self._mq, self._chance = mq, chance

    async def ack(self, messages: Sequence[Delivery]) -> None:
        topic = messages[0].topic
        tell("a", topic, _offsets(messages))
        try:
            await self._mq.ack(messages)
        except LeaseLost as lost:
            messages = [message for message in messages if message.offset not in lost.offsets]
        if messages:
            tell("A", topic, _offsets(messages))

    async def nack(self, messages: Sequence[Delivery]) -> None:
        topic = messages[0].topic
        delay = self._chance.choice((0.0, 0.02, self._chance.random() * DELAY_MAX))
        due_ms = now_ms() + int(delay * 1000) if delay else 0
        tell("n", topic, _offsets(messages), due_ms)
        try:
            await self._mq.nack(messages, delay)
        except LeaseLost as lost:
            messages = [message for message in messages if message.offset not in lost.offsets]
        if messages:
            tell("N", topic, _offsets(messages), due_ms)

    async def reject(self, message: Delivery) -> None:
        tell("r", message.topic, message.offset)
        try:
            await message.reject("by chance")
        except LeaseLost:
            return
        tell("R", message.topic, message.offset)

    async def extend(self, message: Delivery) -> None:
        try:
            await message.extend(SHORT_LEASE)
        except LeaseLost:
            return
        await asyncio.sleep(SHORT_LEASE / 2)
        await self.ack([message])

    async def one(self, message: Delivery) -> None:
        match self._chance.randrange(40):
            case 0:
                await self.reject(message)
            case 1 | 2 | 3 | 4:
                await self.nack([message])
            case 5:
                raise RuntimeError("by chance")
            case _:
                await self.ack([message])


async def handle(mq: Client, topic: str, chance: random.Random) -> None:
    """The handler form."""
    settler = Settler(mq, chance)

    async def handler(message: Delivery) -> None:
        told([message])
        await asyncio.sleep(chance.choice((0, 0, 0.001, 0.01)))
        await settler.one(message)

    subscription = mq.subscribe(topic, GROUPS[topic], order=ORDERS[topic], lease=LONG_LEASE)
    await subscription.run(handler, concurrency=4, backoff=BACKOFF, backoff_max=DELAY_MAX)


async def read_batches(mq: Client, topic: str, chance: random.Random) -> None:
    settler = Settler(mq, chance)
    async with mq.subscribe(topic, GROUPS[topic], lease=LONG_LEASE, prefetch=24) as deliveries:
        while True:
            messages = (await deliveries.read_batch(chance.randint(1, 24)))[:]
            told(messages)
            cut = chance.randint(1, len(messages))
            await settler.ack(messages[:cut])
            if messages[cut:]:
                await settler.nack(messages[cut:])


async def poll(mq: Client, topic: str, lease: float, chance: random.Random) -> None:
    settler = Settler(mq, chance)
    while True:
        most = chance.randint(1, 40)
        found = await mq.poll(topic, GROUPS[topic], most, lease, 0.05, order=ORDERS[topic])
        messages = found[:]
        told(messages)
        chance.shuffle(messages)
        if lease == SHORT_LEASE:
            for message in messages[:2]:
                await settler.extend(message)
            messages = messages[chance.choice((2, 2, 4)) :]  # what is left out runs out
        if messages:
            await settler.reject(messages[0])
        if messages[1:3]:
            await settler.nack(messages[1:3])
        if messages[3:]:
            await settler.ack(messages[3:])
        await asyncio.sleep(chance.random() / 50)


async def tell_groups(mq: Client) -> None:
    for topic, group in GROUPS.items():
        if topic in await mq.topics() and any(g.name == group for g in await mq.groups(topic)):
            stats = await mq.group_stats(topic, group)
            tell("S", topic, stats.lag, stats.in_flight)


async def main(directory: Path, life: int) -> None:
    logging.disable()  # handlers that fail are told about, and nobody reads that
    chance = random.Random(life)
    start = time.perf_counter()
    async with connect(directory) as mq:
        tell("O", time.perf_counter() - start)
        await tell_groups(mq)
        async with asyncio.TaskGroup() as tasks:
            for at in range(3):
                for topic in (MIXED, KEYED):
                    worker = Worker(mq, topic, f"w-{life}-{at}", random.Random(f"{life} {at}"))
                    tasks.create_task(worker.run())
            for topic in (MIXED, KEYED):
                tasks.create_task(handle(mq, topic, chance))
                tasks.create_task(poll(mq, topic, LONG_LEASE, chance))
            tasks.create_task(read_batches(mq, MIXED, chance))
            tasks.create_task(poll(mq, MIXED, SHORT_LEASE, chance))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
