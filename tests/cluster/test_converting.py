"""A broker that ran alone becomes a cluster: what it has stays, and others get all of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flintmq.batch import BatchBuilder
from flintmq.broker_api import BrokerApi, Joining
from flintmq.cluster.catalog import ClusterCatalog
from flintmq.cluster.converting import make_cluster
from flintmq.cluster.identity import NODE_FILE
from flintmq.cluster.node import ClusterNode
from flintmq.cluster.transport import LocalNetwork
from flintmq.engine.broker import Broker
from flintmq.engine.host import Host, durable_broker
from flintmq.errors import InvalidRequest
from flintmq.model import Receipt
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.storage.group_files import files_of
from flintmq.storage.manifest import read_manifest, write_manifest

from ..engine.test_replicas import digest as digest_of
from .nodes import Cluster, entry_of, publish
from .test_members import admitted, voters

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "first_file_bytes", 16 * 1024)


async def fill(broker: Broker) -> None:
    """Topics, a group that has settled some, a producer, something staged."""
    await broker.create_topic("orders", {"retention_count": 80})
    for number in range(100):
        await from_producer(broker, number)
    member = await broker.join_group(Joining("orders", "workers", "w1"))
    grant = await member.take(10, 30.0, 0)
    assert grant is not None
    await member.ack([(grant.token, [(20, 27)])])
    await broker.stage("w", 1, "0", [("bills", BatchBuilder.of([b"x"]))], auto_create=True)
    await broker.host.checkpoint()
    await publish(broker, b"behind the checkpoint")


async def from_producer(broker: BrokerApi, number: int) -> Receipt:
    rows = BatchBuilder.of([b"%d" % number]).seal(producer="p", base_sequence=number)
    return await broker.publish("orders", rows, qos=1, auto_create=True, timeout=None)


def content(broker: Broker) -> dict[str, Any]:
    found = digest_of(broker)
    del found["nodes"], found["number"]  # who belongs to the cluster is no content
    return found


class Grown(Cluster):
    """One node that was converted, to which others come."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 1)


async def test_all_three_nodes_hold_what_the_broker_alone_had(tmp_path: Path) -> None:
    directory = tmp_path / "1"
    directory.mkdir()
    alone = durable_broker(LocalFileSystem(directory))
    await alone.open()
    await fill(alone)
    before = content(alone)
    await alone.close()

    await make_cluster(LocalFileSystem(directory), "n1", entry_of(1).address)

    with pytest.raises(InvalidRequest, match="node of a cluster"):
        await durable_broker(LocalFileSystem(directory)).open()
    async with Grown(tmp_path) as cluster:
        leader = await cluster.led()
        assert content(leader.local) == before
        for id in (2, 3):
            await admitted(cluster, id)
            await cluster.start(id)
        await voters(cluster, 1, 2, 3)
        await cluster.agreed()
        assert [content(node.local) == before for node in cluster.nodes.values()] == [True] * 3

        assert (await from_producer(leader.broker, 99)).offset == 99  # it was there already
        gone = await cluster.kill_leader()
        assert gone == 1
        second = await cluster.led()
        assert (await publish(second.broker, b"after")).offset == 101


async def test_who_joins_gets_a_checkpoint_also_where_the_log_begins_with_its_first_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small broker: its journal has everything, but for who votes."""
    monkeypatch.setattr(Host, "first_file_bytes", 1 << 20)
    directory = tmp_path / "1"
    directory.mkdir()
    alone = durable_broker(LocalFileSystem(directory))
    await alone.open()
    await fill(alone)
    before = content(alone)
    await alone.close()
    await make_cluster(LocalFileSystem(directory), "n1", entry_of(1).address)

    async with Grown(tmp_path) as cluster:
        await admitted(cluster, 2)
        second = await cluster.start(2)
        await voters(cluster, 1, 2)
        await cluster.agreed()
        assert content(second.local) == before


async def test_what_a_crash_left_half_done_is_finished_by_doing_it_again(tmp_path: Path) -> None:
    alone = durable_broker(LocalFileSystem(tmp_path))
    await alone.open()
    await fill(alone)
    before = content(alone)
    await alone.close()
    first = await make_cluster(LocalFileSystem(tmp_path), "a", "a.example:7602")
    # The node file was there, and the manifest was not changed yet.
    node_file = (tmp_path / NODE_FILE).read_bytes()
    await _undone(tmp_path)
    (tmp_path / NODE_FILE).write_bytes(node_file)

    again = await make_cluster(LocalFileSystem(tmp_path), "a", "a.example:7602")

    assert again == first
    with pytest.raises(InvalidRequest, match="belongs to node a of a cluster already"):
        await make_cluster(LocalFileSystem(tmp_path), "a", "a.example:7602")
    node = await opened(tmp_path)
    assert content(node.local) == before
    await node.close()


async def test_an_empty_directory_becomes_a_cluster_of_one(tmp_path: Path) -> None:
    await make_cluster(LocalFileSystem(tmp_path), "a", "a.example:7602")
    node = await opened(tmp_path)

    assert (await publish(node.broker, b"one")).durability == "replicated"
    await node.close()


async def opened(directory: Path) -> ClusterNode:
    node = ClusterNode(
        LocalFileSystem(directory),
        LocalNetwork().transport(1),
        node=1,
        founders=(1,),
        catalog=ClusterCatalog([entry_of(1)]),
    )
    await node.open()
    for _ in range(1000):
        if node.is_leading():
            break
        await asyncio.sleep(0.01)
    assert node.is_leading()
    return node


async def _undone(directory: Path) -> None:
    """The manifest as it was before."""
    files = files_of(LocalFileSystem(directory), 0)
    manifest = read_manifest(files)
    assert manifest is not None
    write_manifest(files, replace(manifest, members=b""))
