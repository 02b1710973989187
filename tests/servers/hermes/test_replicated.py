"""HermesMQ's protocol on three nodes in one process: leases, and what HermesMQ's cluster lacks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from flintmq.clock import SystemClock
from flintmq.cluster.node import ClusterNode
from flintmq.engine.host import Host
from flintmq.errors import Corrupt
from flintmq.frontends.cluster_view import LogStanding
from flintmq.frontends.hermes.server import HermesServer
from tests.cluster.nodes import Cluster

from .client import HermesClient, Refused

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def small_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "first_file_bytes", 16 * 1024)


class ViewOfNode:
    """Implements ClusterView over a node that was founded without clients."""

    def __init__(self, cluster: Cluster, node: ClusterNode) -> None:
        self._cluster, self._node = cluster, node
        self.name = f"node-{node.id}"

    def addresses(self) -> dict[str, str]:
        return {f"node-{id}": f"Peer-{id}:7700" for id in self._cluster.ids}

    def leader(self) -> str | None:
        leader = self._node.leader()
        return f"node-{leader}" if leader else None

    def is_leading(self) -> bool:
        return self._node.is_leading()

    def standing(self) -> LogStanding:
        status = self._node.status()
        return LogStanding(status.term, status.last_index, status.applied)

    def on_leader_changed(self, callback: Callable[[], None]) -> None:
        self._node.on_leader_changed(lambda leader, term: callback())

    async def found(self, members: Sequence[tuple[str, str]], seconds: float) -> None:
        raise AssertionError("it is founded")


class HermesCluster:
    """A server of HermesMQ's protocol on every node, and clients of each."""

    def __init__(self, cluster: Cluster, stack: AsyncExitStack) -> None:
        self.cluster, self._stack = cluster, stack
        self.servers: dict[int, HermesServer] = {}

    async def serve(self, node: ClusterNode) -> None:
        server = HermesServer(node.local, node_id=node.id, cluster=ViewOfNode(self.cluster, node))
        self._stack.push_async_callback(server.close)
        self.servers[node.id] = server
        self.address = await server.start("127.0.0.1", 0)

    async def client(self, id: int) -> HermesClient:
        port = self.servers[id]._servers[0].sockets[0].getsockname()[1]
        made = await HermesClient.connect(("127.0.0.1", port))
        return await self._stack.enter_async_context(made)

    async def leader(self) -> tuple[int, HermesClient]:
        await self.cluster.until(
            lambda: any(self.servers[id].is_leading for id in self.cluster.nodes), "one leads"
        )
        (id,) = [id for id in self.cluster.nodes if self.servers[id].is_leading]
        return id, await self.client(id)


@asynccontextmanager
async def hermes_cluster(cluster: Cluster) -> AsyncIterator[HermesCluster]:
    async with cluster, AsyncExitStack() as stack:
        served = HermesCluster(cluster, stack)
        for node in cluster.nodes.values():
            await served.serve(node)
        yield served


async def test_leases_survive_a_fail_over(tmp_path: Path) -> None:
    """What was polled from the leader that died is acked and nacked at the next one, by its id."""
    async with hermes_cluster(Cluster(tmp_path)) as hermes:
        first, client = await hermes.leader()
        for number in range(6):
            await client.produce("t", b"%d" % number)
        acked, nacked, *others = await client.poll("t", max=4)
        subscriber = await hermes.client(first)
        subscriber.send("subscribe", topic="t", group="g", prefetch=1)
        pushed = await subscriber.pushed()
        await hermes.cluster.kill(first)

        second, client = await hermes.leader()
        await client.ack("t", acked.lease_id)
        await client.nack("t", nacked.lease_id)
        (again,) = await client.poll("t", max=1)
        assert again.offset == nacked.offset
        await client.ack("t", nacked.lease_id)  # of a delivery that is over: it says nothing
        subscriber = await hermes.client(second)
        subscriber.send("subscribe", topic="t", group="g", prefetch=8)
        subscriber.send("ack", lease_id=pushed.lease_id)
        last = await subscriber.pushed()
        assert last.offset == 5
        for item in (again, *others):
            await client.ack("t", item.lease_id)
        subscriber.send("ack", lease_id=last.lease_id)

        queue = hermes.cluster.nodes[second].local.shard.state.topics["t"].groups["g"].queue
        await hermes.cluster.until(lambda: queue.floor == 6, "everything is settled")


async def test_who_does_not_lead_says_who_does_and_who_loses_the_lead_too(tmp_path: Path) -> None:
    async with hermes_cluster(Cluster(tmp_path)) as hermes:
        leader, client = await hermes.leader()
        await client.produce("t", b"0")
        subscriber, waiting = await hermes.client(leader), await hermes.client(leader)
        subscriber.send("subscribe", topic="t", group="g")
        await subscriber.pushed()
        client.send("poll", topic="t", group="g", wait_ms=60_000)
        waiting.send("poll", topic="not there yet", group="g", wait_ms=60_000)
        other = next(id for id in hermes.cluster.ids if id != leader)
        follower = await hermes.client(other)
        with pytest.raises(Refused) as caught:
            await follower.produce("t", b"x")
        assert (caught.value.code, caught.value.leader_addr) == (
            "not_leader",
            f"Peer-{leader}:7700",
        )
        await hermes.cluster.agreed()
        stats = await follower.call("stats")
        assert (stats.current_leader, stats.is_leader) == (leader, False)
        assert (stats.topics, stats.messages, stats.in_flight) == (1, 1, 0)

        hermes.cluster.nodes[leader].hand_over(other)
        for parked in (client, waiting, subscriber):
            with pytest.raises(Refused, match="not_leader"):
                await parked.read_ok()
        assert await subscriber.is_closed()
        second, client = await hermes.leader()
        assert second == other
        assert await client.produce("t", b"1") == 1


async def test_w7_a_follower_that_was_away_catches_up_by_files_while_producing_goes_on(
    tmp_path: Path,
) -> None:
    """HermesMQ copies its whole state several times, and everything waits for that."""
    small: dict[str, Any] = {"keep_bytes": 1 << 20, "checkpoint_bytes": 1 << 20}
    async with hermes_cluster(Cluster(tmp_path, **small)) as hermes:
        leader, client = await hermes.leader()
        await client.produce("t", b"first")
        away = next(id for id in hermes.cluster.ids if id != leader)
        await hermes.cluster.kill(away)
        for _ in range(8):
            await client.produce("t", bytes(400_000))
        node = hermes.cluster.nodes[leader]
        await node.local.host.checkpoint()
        missed = node.host.storage.first_index()

        back = await hermes.cluster.start(away)
        assert back.host.shard.proposer.applied < missed
        while back.host.shard.proposer.applied < missed:
            await client.produce("t", b"meanwhile")
        await client.produce("t", b"last")
        await hermes.cluster.agreed()
        ends = [
            node.local.shard.state.topics["t"].log.next_offset
            for node in hermes.cluster.nodes.values()
        ]
        assert len(set(ends)) == 1


async def test_an_ack_that_no_majority_has_confirmed_is_not_answered_with_ok(
    tmp_path: Path,
) -> None:
    async with hermes_cluster(Cluster(tmp_path)) as hermes:
        leader, client = await hermes.leader()
        await client.produce("t", b"0")
        (item,) = await client.poll("t")
        for id in [id for id in hermes.cluster.ids if id != leader]:
            await hermes.cluster.kill(id)
        with pytest.raises(Refused, match="not_leader"):
            await client.ack("t", item.lease_id)


async def test_a_poll_is_answered_only_with_what_a_majority_knows_of(tmp_path: Path) -> None:
    """Else the next leader would not understand its lease ids."""
    async with hermes_cluster(Cluster(tmp_path)) as hermes:
        leader, client = await hermes.leader()
        for payload in (b"0", b"1"):
            await client.produce("t", payload)
        await client.poll("t", max=1)
        hermes.cluster.network.cut_off(leader)
        with pytest.raises(Refused, match="not_leader"):
            await client.poll("t", max=1)
        hermes.cluster.network.heal()


async def test_w8_without_a_majority_nobody_claims_to_lead_and_requests_fail(
    tmp_path: Path,
) -> None:
    async with hermes_cluster(Cluster(tmp_path)) as hermes:
        leader, client = await hermes.leader()
        await client.produce("t", b"kept")
        others = [id for id in hermes.cluster.ids if id != leader]
        for id in others:
            await hermes.cluster.kill(id)
        client.send("produce", topic="t", payload=b"whether this is stored is not known")
        client.send("poll", topic="t", group="g", wait_ms=60_000)
        for _ in range(2):
            with pytest.raises(Refused, match="not_leader"):
                await client.read_ok()

        stats = await client.call("stats")
        assert (stats.is_leader, stats.current_leader) == (False, 0)
        with pytest.raises(Refused) as caught:
            await client.produce("t", b"refused at once")
        assert (caught.value.code, caught.value.leader_addr) == ("not_leader", "")
        for id in others:
            await hermes.serve(await hermes.cluster.start(id))
        _, client = await hermes.leader()
        assert (await client.payloads("t", wait_ms=30_000))[0] == b"kept"


class SkewedClock(SystemClock):
    def __init__(self, ahead_ms: int) -> None:
        super().__init__()
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


class SkewedCluster(Cluster):
    """Whoever leads next is an hour ahead of, or behind, who led first."""

    ahead_ms = 0

    def make(self, id: int) -> ClusterNode:
        self.clock = SkewedClock(0 if id == 1 else self.ahead_ms)
        return super().make(id)


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
async def test_w9_another_wall_clock_neither_ends_leases_nor_turns_back_time(
    tmp_path: Path, ahead_ms: int
) -> None:
    cluster = SkewedCluster(tmp_path)
    cluster.ahead_ms = ahead_ms
    async with hermes_cluster(cluster) as hermes:
        first, client = await hermes.leader()
        assert first == 1
        for payload in (b"0", b"1"):
            await client.produce("t", payload)
        items = await client.poll("t", visibility_timeout_ms=60_000)
        await hermes.cluster.kill(first)

        _, client = await hermes.leader()
        await client.produce("t", b"2")
        (later,) = await client.poll("t")
        assert later.payload == b"2", "what is leased does not come by another's clock"
        assert later.ts_ms >= items[1].ts_ms
        for item in (*items, later):
            await client.ack("t", item.lease_id)
        assert await client.poll("t") == []
        assert (await client.call("stats")).messages == 0


async def test_w10_a_log_that_is_damaged_is_not_dropped_but_told(tmp_path: Path) -> None:
    """HermesMQ drops what it cannot make sense of, keeps its vote, and goes on."""
    async with hermes_cluster(Cluster(tmp_path)) as hermes:
        leader, client = await hermes.leader()
        for number in range(50):
            await client.produce("t", b"%d" % number * 20)
        await hermes.cluster.agreed()
        away = next(id for id in hermes.cluster.ids if id != leader)
        await hermes.cluster.kill(away)
        (journal, *_) = sorted((tmp_path / str(away)).rglob("*.journal")) or sorted(
            path for path in (tmp_path / str(away)).rglob("journal*") if path.is_file()
        )
        data = bytearray(journal.read_bytes())
        middle = data.index(b"10" * 20)
        data[middle] ^= 0xFF
        journal.write_bytes(data)

        with pytest.raises(Corrupt, match=journal.name):
            await hermes.cluster.start(away)
        assert journal.read_bytes() == data
        assert await client.produce("t", b"the others go on") == 50
