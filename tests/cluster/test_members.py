"""Nodes come and go, in one process: the catalog, learners, voters, and kills at each step."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.cluster_model import NodeEntry
from flintmq.errors import FlintError, InvalidRequest, OutcomeUnknown

from .nodes import Cluster, entry_of, publish, values
from .test_nodes import digest

pytestmark = pytest.mark.slow


def standings(cluster: Cluster, id: int) -> dict[str, str]:
    nodes = cluster.nodes[id].local.shard.state.nodes
    return {node.name: node.standing for node in nodes.values()}


async def filled(cluster: Cluster) -> None:
    await cluster.until(
        lambda: all(node.local.shard.state.nodes for node in cluster.nodes.values()),
        "the founders are in the catalog of every node",
    )


async def admitted(cluster: Cluster, id: int) -> NodeEntry:
    """What a node hears that asks until it is let in."""
    wanted = entry_of(id)
    while True:
        leader = await cluster.led()
        try:
            entry = leader.members.admit(wanted.name, wanted.address, wanted.incarnation)
        except InvalidRequest:
            raise
        except FlintError:
            entry = None
        if entry is not None:
            return entry
        await asyncio.sleep(0.01)


async def voters(cluster: Cluster, *ids: int) -> None:
    def hold() -> bool:
        leader = cluster.leader()
        if leader is None:
            return False
        membership = leader.host.raft.membership
        return membership.voters == ids and not membership.outgoing and not membership.learners

    await cluster.until(hold, f"{ids} vote")


class Load:
    """Publishes to whichever node is there, and knows what was acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.acknowledged: list[bytes] = []
        self.unknown: list[bytes] = []
        self._is_over = False
        self._tasks = [asyncio.ensure_future(self._publish(name)) for name in range(3)]

    async def _publish(self, name: int) -> None:
        number = 0
        while not self._is_over:
            value = b"%d-%d" % (name, number)
            number += 1
            try:
                await publish(next(iter(self._cluster.nodes.values())).broker, value)
                self.acknowledged.append(value)
            except OutcomeUnknown:
                self.unknown.append(value)
            except FlintError:
                await asyncio.sleep(0.01)

    async def ends(self) -> None:
        """All that was acknowledged is there once, on every node."""
        await self._cluster.until(lambda: bool(self.acknowledged), "something is acknowledged")
        self._is_over = True
        await asyncio.gather(*self._tasks)
        await self._cluster.agreed()
        held = await values((await self._cluster.led()).broker)
        assert len(held) == len(set(held))
        assert set(self.acknowledged) <= set(held) <= {*self.acknowledged, *self.unknown}
        assert len({digest(self._cluster, id) for id in self._cluster.nodes}) == 1


async def test_founders_write_the_catalog_and_find_it_again(cluster: Cluster) -> None:
    await filled(cluster)
    assert standings(cluster, 2) == {"n1": "member", "n2": "member", "n3": "member"}

    await cluster.kill(2)
    await cluster.start(2)
    await filled(cluster)

    assert digest(cluster, 2) == digest(cluster, 1)


async def test_the_catalog_is_in_checkpoints(cluster: Cluster) -> None:
    await filled(cluster)
    await cluster.nodes.pop(2).close()  # with a checkpoint

    node = await cluster.start(2)

    head = node.local.host.kept[0].checkpoints.manifest.head
    assert [entry.name for entry in head.nodes] == ["n1", "n2", "n3"]


async def test_a_blank_node_joins_catches_up_and_votes(cluster: Cluster) -> None:
    for number in range(30):
        await publish((await cluster.led()).broker, b"%d" % number)
    entry = await admitted(cluster, 4)
    assert (entry.id, entry.name) == (4, "n4")

    await cluster.start(4)

    await voters(cluster, 1, 2, 3, 4)
    await cluster.agreed()
    assert digest(cluster, 4) == digest(cluster, 1)


async def test_asking_again_gives_the_same_id_and_a_wiped_disk_is_refused(
    cluster: Cluster,
) -> None:
    first = await admitted(cluster, 4)
    again = await admitted(cluster, 4)
    assert first == again
    leader = await cluster.led()

    with pytest.raises(InvalidRequest, match=r"cluster replace n4 n4\.example:7602"):
        leader.members.admit("n4", "n4.example:7602", 999)
    with pytest.raises(InvalidRequest, match=r"node n4 has the address n4\.example:7602"):
        leader.members.admit("n5", "n4.example:7602", 999)


async def test_a_join_goes_on_when_the_leader_is_killed_at_each_step(cluster: Cluster) -> None:
    load = Load(cluster)
    entry = await admitted(cluster, 4)
    gone = await cluster.kill_leader()  # the entry is there, nothing else yet
    await cluster.led()
    await cluster.start(gone)
    assert await admitted(cluster, 4) == entry

    await cluster.start(4)
    await cluster.until(
        lambda: (one := cluster.leader()) is not None and 4 in one.host.raft.membership.learners,
        "it is a learner",
    )
    gone = await cluster.kill_leader()
    await cluster.led()
    await cluster.start(gone)

    await voters(cluster, 1, 2, 3, 4)
    await load.ends()


async def test_a_node_that_is_killed_while_it_joins_goes_on(cluster: Cluster) -> None:
    load = Load(cluster)
    await admitted(cluster, 4)
    for _ in range(3):
        await cluster.start(4)
        await asyncio.sleep(0.03)
        await cluster.kill(4)
    await cluster.start(4)

    await voters(cluster, 1, 2, 3, 4)
    await load.ends()


async def test_a_removed_node_is_out_and_its_id_is_not_used_again(cluster: Cluster) -> None:
    await filled(cluster)
    load = Load(cluster)
    follower = next(node for node in cluster.nodes.values() if not node.is_leading())

    leader = await cluster.led()
    await leader.members.remove(f"n{follower.id}")

    left = tuple(id for id in (1, 2, 3) if id != follower.id)
    await voters(cluster, *left)
    await cluster.until(
        lambda: standings(cluster, left[0])[f"n{follower.id}"] == "removed", "it is written down"
    )
    await cluster.kill(follower.id)
    await load.ends()
    assert (await admitted(cluster, 4)).id == 4


async def test_the_leader_hands_over_before_it_is_removed(cluster: Cluster) -> None:
    await filled(cluster)
    load = Load(cluster)
    leader = await cluster.led()

    await leader.members.remove(f"n{leader.id}")

    await voters(cluster, *(id for id in (1, 2, 3) if id != leader.id))
    await cluster.kill(leader.id)
    await load.ends()


async def test_no_node_is_removed_if_the_rest_could_not_go_on(cluster: Cluster) -> None:
    await filled(cluster)
    leader = await cluster.led()
    others = [id for id in (1, 2, 3) if id != leader.id]
    await cluster.kill(others[0])
    await cluster.until(lambda: others[0] not in leader.members.live(), "it is missed")

    with pytest.raises(InvalidRequest, match="1 of 2 voters would be up, which is no majority"):
        await leader.members.remove(f"n{others[1]}")
    with pytest.raises(InvalidRequest, match="the cluster has no node n9; it has n1, n2, n3"):
        await leader.members.remove("n9")


async def test_a_dead_node_is_replaced_in_one_step(cluster: Cluster) -> None:
    await filled(cluster)
    load = Load(cluster)
    gone = next(node.id for node in cluster.nodes.values() if not node.is_leading())
    await cluster.kill(gone)
    leader = await cluster.led()
    name = f"n{gone}"

    await leader.members.replace(name, "n4.example:7602")
    entry = None
    while entry is None:
        entry = leader.members.admit(name, "n4.example:7602", 104)
        await asyncio.sleep(0.01)
    assert (entry.id, entry.replaces) == (4, gone)
    await cluster.start(4)

    await voters(cluster, *sorted({1, 2, 3, 4} - {gone}))
    await cluster.until(
        lambda: cluster.nodes[4].local.shard.state.nodes[gone].standing == "removed",
        "the old one is removed",
    )
    await load.ends()


async def test_the_lead_is_given_to_a_node_by_name(cluster: Cluster) -> None:
    await filled(cluster)
    leader = await cluster.led()
    other = next(id for id in (1, 2, 3) if id != leader.id)

    leader.members.transfer(f"n{other}")

    await cluster.until(lambda: cluster.nodes[other].is_leading(), "it leads")
    with pytest.raises(InvalidRequest, match="n9 is not a voter"):
        cluster.nodes[other].members.transfer("n9")
