"""Sealed segments of a cluster: who leads uploads once, every node lets its own files go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flintmq.cluster.node import ClusterNode
from flintmq.storage.topic_log import TopicLog
from flintmq.testing import SimulatedObjects

from .nodes import Cluster, publish, values

pytestmark = pytest.mark.slow

TIER = {"tier": "s3://bucket/tier", "local_retention_bytes": 1}


@pytest.fixture
async def objects() -> SimulatedObjects:
    return SimulatedObjects()


@pytest.fixture
async def cluster(tmp_path: Path, objects: SimulatedObjects) -> AsyncIterator[Cluster]:
    async with Cluster(
        tmp_path, check_ticks=1 << 40, scrub_bytes_per_second=0, objects=objects
    ) as cluster:
        yield cluster


def log_of(node: ClusterNode) -> TopicLog:
    log = node.local.shard.state.topics["orders"].log
    assert isinstance(log, TopicLog)
    return log


async def tier(cluster: Cluster) -> None:
    """Checkpoints on all nodes, what the leader uploads, and the checkpoints that let files go."""
    for _ in range(2):
        await cluster.agreed()
        for node in cluster.nodes.values():
            await node.local.host.checkpoint()
            await node.local.host.kept[0].tiering.settled()
    await cluster.agreed()


async def fill(node: ClusterNode, first: int, count: int) -> list[bytes]:
    sent = [b"value %d" % number for number in range(first, first + count)]
    await publish(node.broker, *sent)
    return sent


async def test_who_leads_uploads_once_and_replicas_let_their_files_go(
    cluster: Cluster, objects: SimulatedObjects
) -> None:
    leader = await cluster.led()
    await leader.broker.create_topic("orders", TIER)
    sent = await fill(leader, 0, 50)
    await tier(cluster)
    sent += await fill(leader, 50, 50)
    await tier(cluster)

    assert len(objects.stored) == 2
    logs = [log_of(node) for node in cluster.nodes.values()]
    assert all(log.far.all == logs[0].far.all for log in logs)
    assert all(log.sections == [] and log.far.end == 100 for log in logs)
    assert await values(leader.broker) == sent


async def test_whoever_leads_next_reads_and_goes_on_and_removes_what_was_left(
    cluster: Cluster, objects: SimulatedObjects
) -> None:
    leader = await cluster.led()
    await leader.broker.create_topic("orders", TIER)
    sent = await fill(leader, 0, 50)
    await tier(cluster)
    sent += await fill(leader, 50, 50)
    objects.damages_uploads = True  # so an object is left that nobody may rely on
    await tier(cluster)
    assert len(objects.stored) == 2
    objects.damages_uploads = False

    await cluster.kill(leader.id)
    leader = await cluster.led()
    sent += await fill(leader, 100, 10)
    await tier(cluster)

    state = leader.local.shard.state
    assert set(objects.stored) == {one.section.file for one in log_of(leader).far.all}
    assert not state.loose
    assert await values(leader.broker) == sent


async def test_a_node_that_comes_late_gets_the_places_and_not_the_contents(
    cluster: Cluster, objects: SimulatedObjects
) -> None:
    leader = await cluster.led()
    await leader.broker.create_topic("orders", TIER)
    late = next(id for id in cluster.ids if id != leader.id)
    await cluster.kill(late)
    sent = await fill(leader, 0, 100)
    await tier(cluster)
    node = await cluster.start(late)
    await cluster.agreed()
    await tier(cluster)

    assert log_of(node).far.all == log_of(leader).far.all
    assert log_of(node).sections == []
    assert await values(node.broker) == sent
