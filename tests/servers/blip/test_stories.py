"""Random stories of publishers and consumers, from a seed: what was published ends in one place.

Every message of QoS 1 is acknowledged in the end or is a dead letter; none is delivered after it
was acknowledged, none more often than it may be.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from flintmq.engine.broker import Broker
from flintmq.frontends.blip.options import PUSH_LEASE_SECONDS
from flintmq.testing import ManualClock

from .raw import DELIVER, NACK, PING, PONG, Delivery, Got, RawBlip

Address = tuple[str, int]
DELIVERIES = 3


class Story:
    def __init__(self, chance: random.Random, clock: ManualClock) -> None:
        self.chance, self.clock = chance, clock
        self.sent: set[bytes] = set()
        self.delivered: Counter[bytes] = Counter()
        self.settled: set[bytes] = set()
        self.out: dict[bytes, int] = {}

    def publish(self, client: RawBlip) -> None:
        for _ in range(self.chance.randint(1, 5)):
            message = b"%d" % len(self.sent)
            self.sent.add(message)
            client.publish("demo", message, 1)

    def note(self, got: Delivery) -> None:
        assert got.message not in self.settled, "it was acknowledged"
        self.delivered[got.message] += 1
        assert self.delivered[got.message] <= DELIVERIES
        tag = self.out.setdefault(got.message, got.tag)
        assert tag == got.tag, "a tag stays"

    def one_that_is_out(self) -> tuple[bytes, int] | None:
        waiting = [item for item in self.out.items() if item[0] not in self.settled]
        return self.chance.choice(waiting) if waiting else None

    async def ends(self, broker: Broker, group: str) -> None:
        letters = await broker.dead_letters("demo", group, 10_000)
        dead = set(letters.values)
        assert self.settled | dead == self.sent
        assert not self.settled & dead
        assert all(self.delivered[message] == DELIVERIES for message in dead)
        assert (await broker.group_stats("demo", group)).lag == 0


async def settle(client: RawBlip, number: int, message: bytes, tag: int, story: Story) -> None:
    """Acknowledge, and hear whether it counts: one that is a dead letter by now does not."""
    client.ack(number, tag)
    ping = client.send(PING)
    is_refused = False
    while (got := await client.next()) != Got(PONG, ping, b""):
        if got.type == NACK:
            assert got.id == tag
            is_refused = True
        else:
            note_delivery(got, story)
    if not is_refused:
        story.settled.add(message)


def note_delivery(got: Got, story: Story) -> None:
    assert got.type == DELIVER
    length = int.from_bytes(got.payload[9:11], "big")
    story.note(Delivery(got.payload[0], got.id, "demo", got.payload[11 + length :]))


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("seed", range(2))
async def test_what_is_polled(
    address: Address, broker: Broker, clock: ManualClock, seed: int, partitions: int | None
) -> None:
    story = Story(random.Random(seed), clock)
    chance = story.chance
    await broker.create_topic("demo", {"partitions": partitions})
    async with RawBlip(address) as one, RawBlip(address) as two:
        await one.login()
        await two.login()
        number = await one.subscribe("demo", 1)
        for _ in range(100):
            client = chance.choice([one, two])
            what = chance.random()
            if what < 0.25:
                story.publish(client)
            elif what < 0.7:
                got = await client.poll(number)
                if got is not None:
                    story.note(got)
            elif what < 0.9:
                if (item := story.one_that_is_out()) is not None:
                    await settle(client, number, *item, story)
            else:
                await clock.advance(chance.choice([0.01, 0.15, 0.5, 1.2]))
        idle = 0
        while idle < 5:
            got = await one.poll(number)
            if got is None:
                idle += 1
                await clock.advance(2)
                continue
            idle = 0
            story.note(got)
            if chance.random() < 0.8:
                await settle(one, number, got.message, got.tag, story)
        await story.ends(broker, f"blip-{number}")


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("seed", range(2))
async def test_what_is_pushed(
    address: Address, broker: Broker, clock: ManualClock, seed: int, partitions: int | None
) -> None:
    story = Story(random.Random(seed), clock)
    await broker.create_topic("demo", {"partitions": partitions})
    async with RawBlip(address) as client:
        await client.login(2)
        await pushed_story(client, story)
    await story.ends(broker, "g")


async def pushed_story(client: RawBlip, story: Story) -> None:
    chance, clock = story.chance, story.clock
    number = await client.subscribe("demo", 1, group="g")

    async def listen() -> None:
        ping = client.send(PING)
        while (got := await client.next()) != Got(PONG, ping, b""):
            note_delivery(got, story)

    for turn in range(80):
        what = chance.random()
        if what < 0.4:
            story.publish(client)
        elif what < 0.9:
            await listen()
            if (item := story.one_that_is_out()) is not None:
                await settle(client, number, *item, story)
        elif turn % 5 == 0:
            await clock.advance(PUSH_LEASE_SECONDS + 1)
    for _ in range(30):
        await listen()
        for item in list(story.out.items()):
            if item[0] not in story.settled and chance.random() < 0.8:
                await settle(client, number, *item, story)
        await clock.advance(4 * PUSH_LEASE_SECONDS)
