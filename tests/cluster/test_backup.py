"""The backup of a cluster, restored as a new one."""

from __future__ import annotations

from pathlib import Path

import pytest

import flintmq

from .processes import NodeProcess, founded, leader_of, seen_by, votes
from .test_recovering import flintmq_command, messages_at

pytestmark = pytest.mark.slow


async def test_a_cluster_is_restored_as_a_new_one_of_other_nodes(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    async with founded(tmp_path / "old", "a", "b", "c") as nodes:
        leader = await leader_of(nodes)
        follower = next(node for node in nodes.values() if node is not leader)
        async with flintmq.connect(leader.url) as mq:
            for number in range(100):
                await mq.publish("orders", number)
            await mq.ack(await mq.poll("orders", "workers", max=30, wait=10))
        code, out, said = await flintmq_command(
            "backup", "--cluster", str(backup), "--server", follower.url
        )
        assert code == 0, said
        assert f"Node {leader.name} wrote" in out
        async with flintmq.connect(leader.url) as mq:
            await mq.publish("orders", "behind the backup")
        old = await seen_by(leader)
    assert old is not None

    directory = tmp_path / "new"
    first = NodeProcess(directory, "x", tmp_path / "old" / "cluster.key")
    directory.mkdir()
    code, out, said = await flintmq_command(
        *("restore", str(backup), str(first.directory)),
        *("--node-name", "x", "--peer-listen", first.peer),
    )
    assert code == 0, said
    assert "--join" in out

    second = NodeProcess(directory, "y", tmp_path / "old" / "cluster.key")
    try:
        await first.start()
        await first.ready()
        assert await messages_at(first) == list(range(100))
        status = await seen_by(first)
        assert status is not None
        assert status.cluster != old.cluster
        assert [node.name for node in status.nodes] == ["x"]
        assert status.level == old.level
        async with flintmq.connect(first.url) as mq:
            rest = await mq.poll("orders", "workers", max=500, wait=10)
            assert [one.decode() for one in rest] == list(range(30, 100))
        await second.start("--join", first.peer)
        await second.ready()
        await votes({"x": first, "y": second}, "y")
    finally:
        for node in (first, second):
            if node.process is not None:
                await node.kill()


async def test_the_copy_of_a_stopped_node_is_restored_as_a_new_cluster_only(tmp_path: Path) -> None:
    async with founded(tmp_path / "old", "a", "b", "c") as nodes:
        leader = await leader_of(nodes)
        async with flintmq.connect(leader.url) as mq:
            for number in range(50):
                await mq.publish("orders", number)
        for node in nodes.values():
            await node.kill()
        copy = tmp_path / "copy"
        code, _, said = await flintmq_command("backup", str(leader.directory), str(copy))
        assert code == 0, said
    node = NodeProcess(tmp_path, "x", tmp_path / "old" / "cluster.key")
    code, _, said = await flintmq_command("restore", str(copy), str(node.directory))
    assert code != 0
    assert "--node-name" in said
    assert not node.directory.exists() or not any(node.directory.iterdir())
    code, _, said = await flintmq_command(
        *("restore", str(copy), str(node.directory)),
        *("--node-name", "x", "--peer-listen", node.peer),
    )
    assert code == 0, said
    try:
        await node.start()
        await node.ready()
        assert await messages_at(node) == list(range(50))
        status = await seen_by(node)
        assert status is not None
        assert [one.name for one in status.nodes] == ["x"]
        assert status.nodes[0].id > 3, "no id of the old cluster is used again"
    finally:
        await node.kill()
