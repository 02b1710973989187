"""A majority is lost for good: the node that is left goes on as a new cluster."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.cluster.identity import NodeStanding
from flintmq.cluster.recovering import recover, stopped_node
from flintmq.errors import FlintError, InvalidRequest, StorageFailed
from flintmq.storage.filesystem import LocalFileSystem

from ..patience import until
from .processes import NodeProcess, founded, leader_of, seen_by, votes

pytestmark = pytest.mark.slow


async def flintmq_command(*words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flintmq.cli", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )
    out, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), error.decode()


async def messages_at(node: NodeProcess) -> list[Any]:
    async with flintmq.connect(node.url) as mq, mq.reader("orders", start="earliest") as reader:
        rows = await reader.read_batch(10_000, timeout=10)
        return [row.decode() for row in rows]


async def test_one_of_three_nodes_goes_on_with_everything_it_has_and_the_others_are_refused(
    tmp_path: Path,
) -> None:
    async with founded(tmp_path, "a", "b", "c") as nodes:
        url = "flint://" + ",".join(f"127.0.0.1:{node.clients}" for node in nodes.values())
        async with flintmq.connect(url) as mq:
            for number in range(200):
                await mq.publish("orders", number)
            deliveries = await mq.poll("orders", "workers", max=50, wait=10)
            await mq.ack(deliveries)
        leader = await leader_of(nodes)
        old = await seen_by(leader)
        assert old is not None
        left = next(node for node in nodes.values() if node is not leader)
        await until(lambda: caught_up(left, leader), "the follower has everything")
        for node in nodes.values():
            await node.kill()
        lost = [node for node in nodes.values() if node is not left]
        before = sorted(path.name for path in left.directory.iterdir())

        code, _, said = await flintmq_command("cluster", "recover", str(left.directory))
        assert code != 0
        assert "--unsafe" in said
        directory = str(left.directory)
        code, out, _ = await flintmq_command("cluster", "recover", "--unsafe", directory)
        assert code != 0, "nothing is done without being asked"
        code, out, _ = await flintmq_command(
            "cluster", "recover", "--unsafe", "--dry-run", directory, "--output", "json"
        )
        assert code == 0
        shown = json.loads(out)
        assert sorted(shown["lost"]) == sorted(node.name for node in lost)
        assert shown["groups"][0]["last_index"] > 200
        assert sorted(path.name for path in left.directory.iterdir()) == before

        code, out, said = await flintmq_command(
            "cluster", "recover", "--unsafe", "--yes", directory
        )
        assert code == 0, said
        assert "new cluster" in out

        await left.start()
        await left.ready()
        status = await seen_by(left)
        assert status is not None
        assert status.cluster != old.cluster
        assert [node.name for node in status.nodes] == [left.name]
        assert await messages_at(left) == list(range(200))
        async with flintmq.connect(left.url) as mq:
            rest = await mq.poll("orders", "workers", max=500, wait=10)
            assert [one.decode() for one in rest] == list(range(50, 200)), "what was acked stays so"
            await mq.publish("orders", 200)

        # A node of the old cluster comes back: it is refused, and does no harm.
        back = lost[0]
        await back.start()
        await until(
            lambda: any(
                said in back.log.read_text() + left.log.read_text()
                for said in ("belongs to cluster", "belongs to another cluster")
            ),
            "the node of the old cluster is refused",
        )
        await back.kill()
        status = await seen_by(left)
        assert status is not None
        assert [node.role for node in status.nodes] == ["leader"]

        # With empty directories the others join the new cluster.
        there = {left.name: left}
        for node in lost:
            shutil.rmtree(node.directory)
            await node.start("--join", left.peer)
            await node.ready()
            there[node.name] = node
            await votes(there, node.name)
        async with flintmq.connect(left.url) as mq:
            await mq.publish("orders", 201)  # the others have heard of the membership then
        await left.kill()
        rest_of = {node.name: node for node in lost}
        assert await messages_at(await leader_of(rest_of)) == list(range(202))


async def caught_up(node: NodeProcess, leader: NodeProcess) -> bool:
    status = await seen_by(leader)
    return status is not None and all(
        one.behind == 0 for one in status.nodes if one.name == node.name
    )


class NoManifest(LocalFileSystem):
    """Its disk fails when the manifest is replaced."""

    def rename(self, old: str, new: str) -> None:
        if new == "manifest":
            raise StorageFailed("rename", new, "the disk is gone")
        super().rename(old, new)


async def test_a_recovery_that_was_interrupted_is_refused_by_a_start_and_goes_on(
    tmp_path: Path,
) -> None:
    async with founded(tmp_path, "a") as nodes:
        node = nodes["a"]
        async with flintmq.connect(node.url) as mq:
            for number in range(20):
                await mq.publish("orders", number)
        await node.kill()
        filesystem = LocalFileSystem(node.directory)
        with stopped_node(filesystem) as file:
            assert file.record is not None
            old = file.record.cluster
            with pytest.raises(FlintError):
                await recover(NoManifest(node.directory), file)
        code, _, said = await flintmq_command(
            *("serve", "--data-dir", str(node.directory), "--node-name", "a"),
            *("--peer-listen", node.peer, "--listen", "127.0.0.1:0"),
            *("--cluster-key-file", str(tmp_path / "cluster.key")),
        )
        assert code != 0
        assert "recover` was interrupted" in said

        with stopped_node(filesystem) as file:
            assert file.record is not None
            assert file.record.standing is NodeStanding.RECOVERING
            record = await recover(filesystem, file)
            assert record.cluster != old
        await node.start()
        await node.ready()
        assert await messages_at(node) == list(range(20))


def test_a_directory_that_is_not_that_of_a_member_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidRequest, match="nothing to continue with"),
        stopped_node(LocalFileSystem(tmp_path)),
    ):
        pass
