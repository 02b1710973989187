"""Members of groups: subscribe, run a handler, poll; ack, nack, reject, let leases run out."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Sequence
from typing import Any

import flintmq
from flintmq.group_model import Order

from ..checker.content import name_of
from .common import GROUPS, JOBS, KEYED, Worker, until_done

LEASE_SECONDS = 6.0
SHORT_LEASE_SECONDS = 1.0
ORDERS: dict[str, Order] = {JOBS: "priority", KEYED: "key"}


async def run(worker: Worker) -> None:
    members = [
        Subscriber(worker, JOBS, "sub"),
        Subscriber(worker, KEYED, "sub"),
        Handler(worker, JOBS, "run"),
        Poller(worker, JOBS, "poll", LEASE_SECONDS),
        Poller(worker, JOBS, "short", SHORT_LEASE_SECONDS),
        Poller(worker, KEYED, "poll", LEASE_SECONDS),
    ]
    async with asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(until_done(worker, member.live))
        tasks.create_task(until_done(worker, lambda: redrive(worker)))


class Member:
    def __init__(self, worker: Worker, topic: str, kind: str) -> None:
        self._worker, self.topic = worker, topic
        self.group = GROUPS[topic]
        self._name = f"{worker.story.worker}/{topic}/{kind}"

    async def live(self) -> None:
        raise NotImplementedError

    def told(
        self, messages: Sequence[flintmq.Delivery], lease: float, asked_ns: int | None
    ) -> None:
        rows = []
        for message in messages:
            value = bytes(message.value)
            key = message.key
            rows.append(
                [message.offset, name_of(value), zlib.crc32(value), message.token,
                 message.delivery_count, key]
            )  # fmt: skip
        self._worker.story.tell(
            "deliver",
            member=self._name,
            topic=self.topic,
            group=self.group,
            lease=lease,
            asked=asked_ns,
            rows=rows,
        )

    async def settle(
        self, messages: Sequence[flintmq.Delivery], fate: str, delay: float = 0.0
    ) -> None:
        story, mq = self._worker.story, self._worker.mq
        op = story.next_op()
        rows = [[message.offset, message.token] for message in messages]
        told = {"topic": self.topic, "group": self.group, "fate": fate, "delay": delay}
        story.tell("settle", op=op, rows=rows, **told)
        lost: list[int] = []
        try:
            if fate == "ack":
                await mq.ack(messages)
            elif fate == "nack":
                await mq.nack(messages, delay)
            else:
                await messages[0].reject("by chance")
        except flintmq.LeaseLost as error:
            lost = list(error.offsets)
        except flintmq.FlintError as error:
            self._worker.failed(op, error)
            return
        story.tell("settled", op=op, lost=lost)

    async def settle_by_chance(self, messages: Sequence[flintmq.Delivery]) -> None:
        chance = self._worker.chance
        match chance.randrange(20):
            case 0:
                await self.settle(messages[:1], "reject")
                messages = messages[1:]
            case 1 | 2:
                await self.settle(messages, "nack", chance.choice((0.0, 0.0, 0.3)))
                messages = []
        if messages:
            await self.settle(messages, "ack")


class Subscriber(Member):
    """The loop that people write: take one, settle it."""

    async def live(self) -> None:
        worker = self._worker
        async with worker.mq.subscribe(
            self.topic, self.group, lease=LEASE_SECONDS, order=ORDERS[self.topic]
        ) as deliveries:
            for _ in range(400):
                message = await deliveries.read(timeout=0.5)
                if worker.done.is_set():
                    return
                if message is None:
                    continue
                self.told([message], LEASE_SECONDS, None)
                await asyncio.sleep(worker.chance.choice((0, 0, 0.005, 0.05)))
                await self.settle_by_chance([message])


class Handler(Member):
    """The handler form; an exception is a nack by itself."""

    async def live(self) -> None:
        worker = self._worker
        subscription = worker.mq.subscribe(self.topic, self.group, lease=LEASE_SECONDS)

        async def handle(message: flintmq.Delivery) -> None:
            self.told([message], LEASE_SECONDS, None)
            await asyncio.sleep(worker.chance.choice((0, 0.005, 0.02)))
            match worker.chance.randrange(16):
                case 0:
                    # `process` gives it another try; told as a nack whose outcome nobody sees.
                    worker.story.tell(
                        "settle", op=worker.story.next_op(), topic=self.topic, group=self.group,
                        fate="nack", delay=0.0, rows=[[message.offset, message.token]],
                    )  # fmt: skip
                    raise RuntimeError("by chance")
                case _:
                    await self.settle([message], "ack")

        running = asyncio.ensure_future(
            subscription.run(handle, concurrency=4, backoff=0.1, backoff_max=0.5)
        )
        ended = asyncio.ensure_future(worker.done.wait())
        await asyncio.wait((running, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        worker.story.tell("closing", member=self._name)
        await subscription.close()
        await running


class Poller(Member):
    def __init__(self, worker: Worker, topic: str, kind: str, lease: float) -> None:
        super().__init__(worker, topic, kind)
        self._lease = lease

    async def live(self) -> None:
        worker, chance = self._worker, self._worker.chance
        while not worker.done.is_set():
            asked_ns = time.monotonic_ns()
            found = await worker.mq.poll(
                self.topic, self.group, chance.randint(1, 12), self._lease, 0.5,
                order=ORDERS[self.topic],
            )  # fmt: skip
            messages = found[:]
            if messages:
                self.told(messages, self._lease, asked_ns)
                if self._lease == SHORT_LEASE_SECONDS and chance.random() < 0.2:
                    messages = messages[1:]  # what is left out runs out
                await asyncio.sleep(chance.choice((0, 0, 0.02)))
            if messages:
                await self.settle_by_chance(messages)
            await worker.pause(0.05)


async def redrive(worker: Worker) -> None:
    for topic, group in GROUPS.items():
        await worker.pause(4)
        if worker.done.is_set():
            return
        call: Any = worker.mq.redrive(topic, group)
        await worker.change("redrive", topic, call, group=group)
