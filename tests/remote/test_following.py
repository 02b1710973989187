"""Clients of a cluster go where the leader is. Two servers stand for two nodes over one broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import flintmq
from flintmq.engine.broker import Broker
from flintmq.errors import Disconnected, NotLeader, TopicDeleted
from flintmq.net.remote.address import Address, shown
from flintmq.net.remote.broker import RemoteBroker
from flintmq.net.remote.dialing import Dialer
from flintmq.net.server.native import NativeServer
from flintmq.net.wire.operations import ClusterMap, MapGroup, MapNode
from flintmq.serde.codec import Codec

from ..patience import until


class TwoNodes:
    """Says who leads: 1, 2, or nobody."""

    def __init__(self) -> None:
        self.leader = self.term = 1
        self.servers: dict[int, NativeServer] = {}
        self.addresses: dict[int, str] = {}

    def lead(self, leader: int) -> None:
        before, self.leader = self.leader, leader
        self.term += 1
        if before != leader and before:
            self.servers[before].send_away(self.error(before))

    def error(self, node: int) -> NotLeader:
        known = [self.addresses[self.leader]] if self.leader else []
        return NotLeader(node, self.leader, known)

    def url(self, *nodes: int) -> str:
        return "flint://" + ",".join(self.addresses[node] for node in nodes)

    def sessions(self, node: int) -> int:
        return len(self.servers[node].sessions)


class KnownLeader:
    def __init__(self, nodes: TwoNodes, node: int) -> None:
        self._nodes, self._node = nodes, node

    def refusal(self) -> NotLeader | None:
        return None if self._nodes.leader == self._node else self._nodes.error(self._node)

    def map(self) -> ClusterMap:
        known = [MapNode(id, str(id), [at]) for id, at in self._nodes.addresses.items()]
        return ClusterMap(
            b"c" * 16, known, [MapGroup(0, self._nodes.leader, self._nodes.term, [1, 2])]
        )


@asynccontextmanager
async def two_nodes() -> AsyncIterator[TwoNodes]:
    broker = Broker(decoder=Codec())
    await broker.open()
    nodes = TwoNodes()
    for node in (1, 2):
        server = NativeServer(broker, leadership=KnownLeader(nodes, node))
        host, port = await server.start("127.0.0.1", 0)
        nodes.servers[node], nodes.addresses[node] = server, f"{host}:{port}"
    try:
        yield nodes
    finally:
        for server in nodes.servers.values():
            await server.close()
        await broker.close()


async def test_a_client_is_sent_to_the_leader_that_its_url_does_not_name() -> None:
    async with two_nodes() as nodes:
        nodes.leader = 2
        async with flintmq.connect(nodes.url(1)) as mq:
            await mq.publish("t", 1)
            assert (nodes.sessions(1), nodes.sessions(2)) == (0, 1)


async def test_when_another_leads_everything_goes_on_there() -> None:
    async with two_nodes() as nodes, flintmq.connect(nodes.url(1, 2)) as mq:
        reader = mq.reader("t", start="earliest")
        pending = [asyncio.ensure_future(mq.publish("t", n)) for n in range(50)]
        await asyncio.sleep(0)
        nodes.lead(2)
        pending += [asyncio.ensure_future(mq.publish("t", n)) for n in range(50, 100)]
        receipts = await asyncio.gather(*pending)
        nodes.lead(1)
        await mq.publish("t", 100)
        seen = []
        async with reader:
            async for message in reader:
                seen.append(message.decode())
                if len(seen) == 101:
                    break

        assert seen == list(range(101))
        assert [receipt.offset for receipt in receipts] == list(range(100))
        await until(lambda: (nodes.sessions(1), nodes.sessions(2)) == (1, 0), "back at node 1")


async def test_who_is_sent_away_to_nobody_asks_the_other_nodes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one that gave up the lead may be stopping, and keep who asks it waiting."""
    asked: list[str] = []
    connect = Dialer._connect

    async def noted(dialer: Dialer, address: Address, seconds: float) -> None:
        asked.append(shown(address))
        await connect(dialer, address, seconds)

    async with two_nodes() as nodes, flintmq.connect(nodes.url(1, 2)) as mq:
        await mq.publish("t", 0)
        monkeypatch.setattr(Dialer, "_connect", noted)
        nodes.lead(0)
        nodes.leader = 2
        await mq.publish("t", 1)

        assert asked == [nodes.addresses[2]]


async def test_messages_in_work_stay_with_their_consumer() -> None:
    async with two_nodes() as nodes, flintmq.connect(nodes.url(1, 2)) as mq:
        await mq.publish_batch("t", list(range(4)))
        deliveries = await mq.poll("t", "g", max=2, wait=10)
        nodes.lead(2)
        for delivery in deliveries:
            await delivery.ack()
        rest = await mq.poll("t", "g", max=10, wait=10)

        assert [one.decode() for one in deliveries] == [0, 1]
        assert [one.decode() for one in rest] == [2, 3]


async def test_a_topic_in_memory_is_another_one_in_each_term() -> None:
    """It is empty then, also where the same node leads again: who went on behind what it had read
    would pass over what is published from now on."""
    async with two_nodes() as nodes, flintmq.connect(nodes.url(1, 2)) as mq:
        await mq.create_topic("t", storage="memory")
        await mq.publish("t", 0)
        reader = mq.reader("t", start="earliest")
        async with reader:
            assert (await reader.read()).decode() == 0
            nodes.lead(0)
            nodes.lead(1)
            with pytest.raises(TopicDeleted):
                await reader.read(timeout=10)


async def test_without_a_leader_a_client_waits_until_there_is_one() -> None:
    async with two_nodes() as nodes:
        nodes.leader = 0
        opening = asyncio.ensure_future(flintmq.connect(nodes.url(1, 2)).__aenter__())
        await until(lambda: nodes.servers[1].accepted >= 2, "asked again")
        nodes.leader = 2
        mq = await opening
        await mq.publish("t", 1)
        nodes.lead(0)
        publishing = asyncio.ensure_future(mq.publish("t", 2))
        asked = nodes.servers[1].accepted
        await until(lambda: nodes.servers[1].accepted >= asked + 2, "asked again")
        nodes.lead(1)
        assert (await publishing).offset == 1
        await mq.close()


async def test_a_client_that_nobody_leads_hears_why_in_time() -> None:
    async with two_nodes() as nodes:
        nodes.leader = 0
        with pytest.raises(Disconnected, match="no leader is known"):
            async with flintmq.connect(nodes.url(1, 2), timeout=0.3):
                pass


async def test_who_does_not_follow_stays_with_the_node_that_answers() -> None:
    async with two_nodes() as nodes:
        nodes.leader = 2
        broker = RemoteBroker(nodes.url(1))
        broker.link.dialer.follows = False
        await broker.open()
        await broker.create_topic("t", {})
        assert nodes.sessions(1) == 1
        await broker.close()
