"""Nodes as real processes: what a data directory must be so that its node is let in."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import flintmq
from flintmq.net.remote.broker import RemoteBroker

from ..patience import until
from ..tls.throw_away import Authority
from .processes import NodeProcess, founded, make_key

pytestmark = pytest.mark.slow


@asynccontextmanager
async def alone(node: NodeProcess) -> AsyncIterator[NodeProcess]:
    """A cluster of this one."""
    await node.start("--initial-cluster", f"{node.name}={node.peer}")
    try:
        await node.ready()
        yield node
    finally:
        await node.kill()


async def test_a_founder_that_has_lost_its_data_does_not_begin_anew(tmp_path: Path) -> None:
    async with founded(tmp_path / "c", "a", "b", "c") as nodes:
        lost = nodes["b"]
        async with flintmq.connect(nodes["a"].url) as mq:
            await mq.publish("orders", 1)
        await lost.kill()
        for entry in lost.directory.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name not in ("node", "node.lock"):
                entry.unlink()

        await lost.start()

        assert await lost.ended() != 0
        assert "flintmq cluster replace b host:port" in lost.log.read_text()
        async with flintmq.connect(nodes["a"].url) as mq:
            assert (await mq.publish("orders", 2)).offset == 1


async def test_the_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    key = make_key(tmp_path)
    other = NodeProcess(tmp_path, "d", key)
    async with alone(other):
        pass
    async with alone(NodeProcess(tmp_path, "a", key)) as ours:
        await other.start("--join", ours.peer)

        assert await other.ended() != 0
        assert "the data directory belongs to another cluster" in other.log.read_text()


async def test_a_node_joins_over_tls_by_a_certificate_of_its_name(tmp_path: Path) -> None:
    ca = Authority(tmp_path)

    def node(name: str, named: str) -> NodeProcess:
        pair = ca.pair(named, "127.0.0.1")
        files = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--peer-ca")
        return NodeProcess(tmp_path, name, tmp_path, *files, str(ca.file), scheme="flints")

    async with alone(node("a", "a")) as first:
        async with flintmq.connect(first.url, tls_ca=ca.file) as mq:
            await mq.publish("orders", 1)
        stranger, new = node("b", "somebody"), node("c", "c")
        await stranger.start("--join", first.peer)
        assert await stranger.ended() != 0
        assert "its certificate does not name 'b'" in stranger.log.read_text()
        try:
            await new.start("--join", first.peer)
            await new.ready()
            url = f"{new.url},{first.url.removeprefix('flints://')}"
            async with flintmq.connect(url, tls_ca=ca.file) as mq:
                broker = mq._broker
                assert isinstance(broker, RemoteBroker)

                async def votes() -> bool:
                    nodes = (await broker.cluster("status")).nodes
                    return [one.role for one in nodes] == ["leader", "follower"]

                await until(votes, "both vote")
                assert (await mq.publish("orders", 2)).offset == 1
        finally:
            await new.kill()
