"""What a publish costs the lines of a cluster: messages between the nodes are counted.

Time stands still meanwhile: heartbeats come with time, and not with publishes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from flintmq.broker_api import BrokerApi
from flintmq.raft import MessageKind, RaftMessage

from .nodes import Cluster, publish

pytestmark = pytest.mark.slow

ROUNDS = 20
TURNS_OF_A_BEAT = 20
"""More than a heartbeat, its answer and what that brings about take on lines inside the loop."""


class Heard:
    """What went over the lines."""

    def __init__(self) -> None:
        self.kinds: Counter[MessageKind] = Counter()
        self.empty = self.frames = 0

    def sent(self, sender: int, receiver: int, messages: Sequence[RaftMessage]) -> None:
        self.kinds.update(message.kind for message in messages)
        self.frames += 1
        self.empty += sum(
            message.kind is MessageKind.APPEND and not message.entries for message in messages
        )


async def in_step(cluster: Cluster) -> tuple[BrokerApi, Heard]:
    """Who leads, once all nodes have the same and time has stopped; and what is sent from then."""
    broker = (await cluster.led()).broker
    await publish(broker, b"first")
    await cluster.agreed()
    cluster.stop_time()
    for _ in range(TURNS_OF_A_BEAT):  # the last one is answered
        await asyncio.sleep(0)
    heard = Heard()
    cluster.network.on_sent = heard.sent
    return broker, heard


async def until_answered(heard: Heard, appends: int) -> None:
    """The receipt needs one follower only; the other answers a little later."""
    async with asyncio.timeout(30):
        while heard.kinds[MessageKind.APPEND_REPLY] < appends:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_publish_is_one_append_and_one_answer_for_each_follower(cluster: Cluster) -> None:
    broker, heard = await in_step(cluster)

    for number in range(ROUNDS):
        await publish(broker, b"%d" % number)
        await until_answered(heard, 2 * (number + 1))

    # The commit of a round goes along with the next append, in no message of its own.
    assert heard.empty == 0
    assert heard.kinds == {
        MessageKind.APPEND: 2 * ROUNDS,
        MessageKind.APPEND_REPLY: 2 * ROUNDS,
    }


async def test_what_is_published_in_one_turn_is_one_append_for_each_follower(
    cluster: Cluster,
) -> None:
    broker, heard = await in_step(cluster)

    await asyncio.gather(*(publish(broker, b"%d" % number) for number in range(64)))
    await until_answered(heard, 2)

    assert heard.empty == 0
    assert heard.kinds == {MessageKind.APPEND: 2, MessageKind.APPEND_REPLY: 2}
    assert heard.frames == 4
