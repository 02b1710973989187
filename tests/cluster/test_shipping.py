"""A node that was away for longer than the journal is kept gets the last checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker_api import BrokerApi, Fetch, Joining
from flintmq.cluster import receiving, shipping
from flintmq.cluster.node import ClusterNode
from flintmq.cluster.peer_frames import FrameKind
from flintmq.cluster.ship_frames import ShipEnd, ShipOffer, decode_end, encode_offer
from flintmq.errors import StorageFull
from flintmq.raft import MessageKind, RaftMessage

from ..engine.test_replicas import digest as digest_of_broker
from .nodes import Cluster, publish, values

pytestmark = pytest.mark.slow

LARGE = bytes(400_000)
SMALL_SIZES: dict[str, Any] = {"keep_bytes": 1 << 20, "checkpoint_bytes": 1 << 20}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, **SMALL_SIZES) as cluster:
        yield cluster


def digest(cluster: Cluster, id: int) -> str:
    return repr(digest_of_broker(cluster.nodes[id].local))


async def same(cluster: Cluster) -> None:
    await cluster.agreed()
    assert len({digest(cluster, id) for id in cluster.nodes}) == 1


async def let_go(cluster: Cluster) -> ClusterNode:
    """Publish so much that the journal of who leads no longer has the beginning."""
    leader = await cluster.led()
    for _ in range(8):
        await publish(leader.broker, LARGE)
    await leader.local.host.checkpoint()
    assert leader.host.storage.first_index() > 4
    return leader


async def one_away(cluster: Cluster) -> int:
    """A node that has what was there first, and then misses what the others let go."""
    leader = await cluster.led()
    await publish(leader.broker, b"one", b"two", b"three")
    await publish(leader.broker, b"gone soon", topic="gone")
    member = await leader.broker.join_group(Joining("orders", "g", "holder"))
    await cluster.agreed()
    away = next(id for id in cluster.ids if id != leader.id)
    await cluster.kill(away)
    grant = await member.take(1, 30.0, 0)
    assert grant is not None
    await member.ack([(grant.token, [(0, 1)])])
    await leader.broker.delete_topic("gone")
    await let_go(cluster)
    return away


async def all_values(broker: BrokerApi) -> list[bytes]:
    found: list[bytes] = []
    while rows := (await broker.fetch(Fetch("orders", len(found)))).rows.values:
        found += rows
    return found


def received(cluster: Cluster, id: int) -> int:
    shipping = cluster.nodes[id]._shipping
    assert shipping is not None
    return shipping.receiver.received_bytes


async def test_a_node_that_was_away_for_long_gets_a_checkpoint_and_holds_the_same(
    cluster: Cluster,
) -> None:
    away = await one_away(cluster)
    before = await all_values((await cluster.led()).local)

    await cluster.start(away)
    await same(cluster)

    assert received(cluster, away) > 8 * len(LARGE)
    files = cluster.nodes[away].filesystem
    await cluster.until(lambda: not files.exists(receiving.ASIDE), "nothing is left aside")
    leader = await cluster.led()
    await publish(leader.broker, b"and it follows again")
    await same(cluster)
    leader.hand_over(away)
    await cluster.until(lambda: cluster.nodes[away].is_leading(), "it leads")
    assert await all_values(cluster.nodes[away].local) == [*before, b"and it follows again"]
    await publish(cluster.nodes[away].broker, b"decided there")
    await same(cluster)


async def test_it_holds_the_same_after_its_next_starts(cluster: Cluster) -> None:
    away = await one_away(cluster)
    node = await cluster.start(away)
    await cluster.until(lambda: received(cluster, away) > 0 and node.host.leader != 0, "has it")
    await cluster.agreed()
    await cluster.kill(away)  # before anything followed

    await cluster.start(away)
    await same(cluster)
    await publish((await cluster.led()).broker, b"more")
    await same(cluster)
    await cluster.kill(away)
    await publish((await cluster.led()).broker, b"and more")
    await cluster.start(away)
    await same(cluster)
    assert received(cluster, away) == 0


async def test_a_blank_node_gets_all(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, **SMALL_SIZES)
    await cluster.open(1, 2)
    try:
        await let_go(cluster)
        await cluster.start(3)
        await same(cluster)
        assert received(cluster, 3) > 8 * len(LARGE)
    finally:
        await cluster.close()


async def test_publishing_goes_on_while_a_node_catches_up(cluster: Cluster) -> None:
    away = await one_away(cluster)
    leader = await cluster.led()
    is_over = False

    async def load() -> int:
        count = 0
        while not is_over:
            await publish(leader.broker, LARGE, topic="load")
            count += 1
        return count

    loading = asyncio.ensure_future(load())
    node = await cluster.start(away)
    await cluster.until(lambda: node.status().committed > 20, "it follows")
    is_over = True

    assert await loading > 0
    await same(cluster)


async def test_a_line_that_breaks_meanwhile_costs_no_byte_twice(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "CHUNK_SECONDS", 0.05)
    monkeypatch.setattr(shipping, "CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr(receiving, "CHUNK_BYTES", 1 << 16)
    away = await one_away(cluster)
    leader, chunks = await cluster.led(), 0
    carry = cluster.network.ship

    def lossy(sender: int, receiver: int, kind: int, body: bytes) -> None:
        nonlocal chunks
        if kind == FrameKind.CHUNK:
            chunks += 1
            if chunks % 7 == 0:
                return
        carry(sender, receiver, kind, body)

    monkeypatch.setattr(cluster.network, "ship", lossy)
    await cluster.start(away)
    await same(cluster)

    assert chunks > 50
    sender = leader._shipping
    assert sender is not None
    assert received(cluster, away) < sender.sender.sent_bytes


async def test_what_is_shipped_stays_until_it_is_over(cluster: Cluster) -> None:
    away = await one_away(cluster)
    leader = await cluster.led()
    sender = leader._shipping.sender  # type: ignore[union-attr]
    sender.needed_by([away])
    await cluster.until(lambda: sender.shipment is not None, "it is offered")
    shipment = sender.shipment
    assert shipment is not None

    await leader.broker.purge_topic("orders", None)
    await let_go(cluster)
    assert all(leader.filesystem.exists(name) for name in shipment.names)
    assert leader.host.storage.first_index() <= shipment.offer.index + 1

    await cluster.start(away)
    await same(cluster)
    await cluster.until(lambda: sender.shipment is None, "it is let go")
    await leader.local.host.checkpoint()
    assert not any(leader.filesystem.exists(name) for name in shipment.names)


async def test_a_damaged_file_is_not_taken(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    away = await one_away(cluster)
    leader = await cluster.led()
    largest = max((cluster.directory / str(leader.id) / "segments").iterdir(), key=size_of)
    content = largest.read_bytes()
    largest.write_bytes(content[:1000] + b"?" + content[1001:])

    node = await cluster.start(away)
    await cluster.until(lambda: "could not be used" in caplog.text, "it is told")

    assert node.status().committed < leader.status().committed
    assert await values(leader.broker, "orders")


def size_of(path: Path) -> int:
    return path.stat().st_size


async def test_where_there_is_no_room_for_it_the_node_goes_on_as_it_was(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(receiving, "PAUSE_SECONDS", 0.1)
    away = await one_away(cluster)
    node = cluster.make(away)
    checkpoints = node.local.host.kept[0].checkpoints
    adopt = checkpoints.adopt

    def full(manifest: object) -> None:
        raise StorageFull("manifest", "no room")

    checkpoints.adopt = full  # type: ignore[method-assign]
    await node.open()
    cluster.nodes[away] = node
    await cluster.until(lambda: "could not be used" in caplog.text, "it is told")
    assert not node.host.is_stopped
    assert node.local.shard.failure is None

    checkpoints.adopt = adopt  # type: ignore[method-assign]
    await same(cluster)


# -- offers that are of no use ----------------------------------------------------------------


class Heard:
    """What a follower says, in place of its lines."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replies: list[RaftMessage] = []
        self.ends: list[ShipEnd] = []
        leader = cluster.leader()
        assert leader is not None
        self.leader, self.node = leader, next(n for n in cluster.nodes.values() if n is not leader)
        shipping = self.node._shipping
        assert shipping is not None
        self._shipping = shipping
        monkeypatch.setattr(self.node.host, "_send", self.replies.extend)
        monkeypatch.setattr(shipping.receiver, "_send", self._sent)

    def _sent(self, peer: int, kind: int, body: bytes) -> None:
        if kind == FrameKind.SHIPPED:
            self.ends.append(decode_end(memoryview(body)))

    def offer(self, index: int, term: int) -> None:
        offer = ShipOffer(index, term, 1, 1)
        self._shipping.receive(self.leader.id, FrameKind.SHIP, memoryview(encode_offer(0, offer)))


async def test_who_has_it_and_does_not_know_that_it_is_committed_says_that_it_has_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish((await cluster.led()).broker, b"one")
    await cluster.agreed()
    heard = Heard(cluster, monkeypatch)
    log, last = heard.node.host.raft.log, heard.node.host.raft.log.last_index()
    monkeypatch.setattr(heard.node.host.shard.proposer, "applied", last - 1)

    heard.offer(last, log.last_id().term)

    assert [(reply.kind, reply.index) for reply in heard.replies] == [
        (MessageKind.APPEND_REPLY, last)
    ]
    assert heard.ends == [ShipEnd(0, last, False)], "nobody has to keep it for us"


async def test_who_has_something_else_there_asks_for_a_later_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish((await cluster.led()).broker, b"one")
    await cluster.agreed()
    heard = Heard(cluster, monkeypatch)
    log, last = heard.node.host.raft.log, heard.node.host.raft.log.last_index()
    monkeypatch.setattr(heard.node.host.shard.proposer, "applied", last - 1)

    heard.offer(last, log.last_id().term - 1)

    assert heard.replies == []
    assert heard.ends == [ShipEnd(0, last, False)]


async def test_a_checkpoint_from_which_the_log_does_not_go_on_is_not_offered(
    cluster: Cluster,
) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"one")
    await leader.local.host.checkpoint()
    shipping = leader._shipping
    assert shipping is not None
    sender = shipping.sender
    peer = next(id for id in cluster.ids if id != leader.id)
    sender.needed_by([peer])
    await cluster.until(lambda: sender.shipment is not None, "it is kept")
    assert sender.shipment is not None
    early = sender.shipment.offer.index
    leader.host.storage.held_behind = None  # as where another host follows
    await let_go(cluster)
    assert leader.host.storage.first_index() > early + 1

    sender.needed_by([peer])

    await cluster.until(lambda: sender.shipment is not None, "another is kept")
    assert sender.shipment.offer.index > early


async def test_where_one_is_refused_and_nobody_publishes_there_is_a_later_one(
    cluster: Cluster,
) -> None:
    """The log of who needs it goes on beyond it with what was never committed (seed 801005)."""
    leader = await cluster.led()
    await publish(leader.broker, b"one")
    await leader.local.host.checkpoint()
    assert leader._shipping is not None
    sender = leader._shipping.sender
    peer = next(id for id in cluster.ids if id != leader.id)
    for _ in range(3):
        sender.needed_by([peer])
        await cluster.until(lambda: sender.shipment is not None, "it is offered")
        assert sender.shipment is not None
        refused = sender.shipment.offer.index
        sender.ended(peer, ShipEnd(0, refused, False))

        def is_a_later_one(refused: int = refused) -> bool:
            sender.needed_by([peer])  # as the log tells again and again
            return sender.shipment is not None and sender.shipment.offer.index > refused

        await cluster.until(is_a_later_one, "a later one")
    await publish(leader.broker, b"two")
    await same(cluster)
    assert await values(leader.broker) == [b"one", b"two"]
