"""A cluster uses what all its nodes know, until it is finalized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flintmq.cluster.levels import LEVEL, highest, too_old
from flintmq.cluster.node import ClusterNode
from flintmq.cluster_model import NodeStatus
from flintmq.engine import commands
from flintmq.errors import InvalidRequest

from .nodes import Cluster


class EarlierCluster(Cluster):
    """Founded by an earlier FlintMQ; its nodes run this one."""

    def make(self, id: int) -> ClusterNode:
        node = super().make(id)
        node.catalog.level = 1
        return node


async def finalized(cluster: Cluster) -> None:
    leader = await cluster.led()
    state = leader.local.shard.state
    await cluster.until(lambda: len(state.nodes) == 3, "the leader has written the nodes down")
    await leader.members.finalize(2)


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Creating topics takes a command that level 1 does not know."""
    monkeypatch.setitem(commands._LEVELS, commands.CreateTopics, 3)
    monkeypatch.setattr(commands, "LEVEL", 3)


async def test_a_leader_proposes_what_is_new_only_once_the_cluster_is_finalized(
    tmp_path: Path, newer: None
) -> None:
    async with EarlierCluster(tmp_path) as cluster:
        leader = await cluster.led()
        with pytest.raises(InvalidRequest, match="flintmq cluster finalize"):
            await leader.broker.create_topic("orders", {})
        assert leader.is_leading()  # nothing else has happened

        await finalized(cluster)
        await leader.broker.create_topic("orders", {})
        await cluster.agreed()
        assert {node.catalog.level for node in cluster.nodes.values()} == {2}


async def test_the_level_stays_when_all_nodes_are_started_anew(tmp_path: Path) -> None:
    async with EarlierCluster(tmp_path) as cluster:
        await finalized(cluster)
        await cluster.agreed()

    async with EarlierCluster(tmp_path) as cluster:
        await cluster.led()
        await cluster.agreed()
        assert {node.catalog.level for node in cluster.nodes.values()} == {2}


def node(name: str, level: int | None, role: Any = "follower") -> NodeStatus:
    return NodeStatus(id=1, name=name, role=role, address="", level=level, version="0.9")


def test_the_level_that_a_cluster_can_have_is_that_of_its_oldest_node() -> None:
    assert highest([node("a", LEVEL), node("b", LEVEL)]) == LEVEL
    assert highest([node("a", LEVEL + 1)]) == LEVEL
    nodes = [node("a", LEVEL), node("b", 1)]
    assert highest(nodes) == 1
    assert too_old(nodes, LEVEL) == ["b (0.9)"]


@pytest.mark.parametrize("silent", [node("b", None), node("b", 2, "down")])
def test_nothing_is_finalized_while_a_node_cannot_be_asked(silent: NodeStatus) -> None:
    with pytest.raises(InvalidRequest, match="node b is not known"):
        highest([node("a", LEVEL), silent])
