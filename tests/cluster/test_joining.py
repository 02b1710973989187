"""Nodes as real processes: joining under load with kills, being removed, being replaced."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import httpx
import pytest

import flintmq
from flintmq.access import PERMISSIONS, Permission, TopicGrant
from flintmq.storage.key_file import KeyFile, make_key

from ..patience import until
from .processes import NodeProcess, founded, leader_of, of, seen_by, votes

pytestmark = pytest.mark.slow


class Publishing:
    """One publisher: each number once, in order."""

    def __init__(self, nodes: dict[str, NodeProcess], api_key: str | None = None) -> None:
        self._url = "flint://" + ",".join(f"127.0.0.1:{node.clients}" for node in nodes.values())
        self._key = api_key
        self.acknowledged = 0
        self._is_over = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        async with flintmq.connect(self._url, api_key=self._key) as mq:
            while not self._is_over.is_set():
                receipt = await mq.publish("orders", self.acknowledged)
                assert receipt.offset == self.acknowledged
                self.acknowledged += 1

    async def goes_on(self) -> None:
        reached = self.acknowledged + 20
        await until(lambda: self._task.done() or self.acknowledged >= reached, "publishing goes on")
        if self._task.done():
            self._task.result()

    async def ends(self, url: str) -> None:
        """What was acknowledged is there, in order, once."""
        self._is_over.set()
        await asyncio.wait_for(self._task, 60)
        read: list[int] = []
        async with (
            flintmq.connect(url, api_key=self._key) as mq,
            mq.reader("orders", start="earliest") as reader,
        ):
            async for message in reader:
                read.append(message.decode())
                if len(read) == self.acknowledged:
                    break
        assert read == list(range(self.acknowledged))


async def test_a_node_joins_under_load_while_it_and_the_leader_are_killed(tmp_path: Path) -> None:
    async with founded(tmp_path / "c", "a", "b", "c") as nodes:
        publishing = Publishing(nodes)
        await publishing.goes_on()
        joins = ("--join", ",".join(nodes[name].peer for name in "abc"))
        new = NodeProcess(tmp_path / "c", "d", tmp_path / "c" / "cluster.key")

        await new.start(*joins)
        await asyncio.sleep(0.3)  # somewhere on its way: every place must do
        await new.kill()
        await new.start(*joins)
        await until(lambda: (new.directory / "node").exists(), "it has begun to join")
        await new.kill()
        await new.start(*joins)
        await new.ready()
        leader = await leader_of(nodes)
        await leader.kill()
        await leader.start()
        await leader.ready()
        nodes["d"] = new

        await votes(nodes, "d")
        await publishing.goes_on()
        await publishing.ends(new.url)
        await new.kill()
        await new.start()  # it knows where it belongs
        await new.ready()
        await votes(nodes, "d")


async def test_a_removed_node_stops_and_says_why_and_a_lost_disk_is_replaced(
    tmp_path: Path,
) -> None:
    async with founded(tmp_path / "c", "a", "b", "c") as nodes:
        async with flintmq.connect(nodes["a"].url) as mq:
            await mq.publish("orders", 1)
        leader = await leader_of(nodes)
        gone = next(node for node in nodes.values() if node is not leader)
        await gone.kill()
        shutil.rmtree(gone.directory)
        joins = ("--join", leader.peer)

        await gone.start(*joins)
        assert await gone.ended() != 0
        assert f"flintmq cluster replace {gone.name} {gone.peer}" in gone.log.read_text()

        assert await asked(leader, "cluster", "replace", gone.name, gone.peer) == 0
        await gone.start(*joins)
        await gone.ready()
        await votes(nodes, gone.name)
        status = await seen_by(leader)
        assert status is not None
        assert (found := of(status, gone.name)) is not None
        assert found.id == 4

        assert await asked(leader, "cluster", "remove", gone.name) == 0
        assert await gone.ended() != 0
        assert "this node was removed from the cluster" in gone.log.read_text()
        await gone.start()
        assert await gone.ended() != 0
        del nodes[gone.name]
        async with flintmq.connect(leader.url) as mq:
            assert (await mq.publish("orders", 2)).offset == 1


async def asked(node: NodeProcess, *arguments: str) -> int:
    process = await asyncio.create_subprocess_exec(
        "python", "-m", "flintmq.cli", *arguments, "--server", node.url
    )
    return await process.wait()


async def test_every_node_serves_every_client_where_keys_are_required(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    secret = make_api_key(keys, "all", ">", *PERMISSIONS)
    poor = make_api_key(keys, "poor", "other", "publish")
    extra = ("--keys-file", str(keys), "--auth", "required")
    async with founded(tmp_path / "c", "a", "b", "c", extra=extra) as nodes:
        for number, node in enumerate(nodes.values()):
            mq = flintmq.connect(node.url, api_key=secret)
            mq._broker.link.dialer.follows = False  # type: ignore[attr-defined]
            async with mq:
                assert (await mq.publish("orders", number)).offset == 2 * number
                deliveries = await mq.poll("orders", "workers", max=1, wait=30)
                assert len(deliveries) == 1
                await deliveries[0].ack()
            status = await seen_by(node, secret)
            assert status is not None
            assert {one.role for one in status.nodes} == {"leader", "follower"}
            assert await posted(node, secret, number) == 200
            assert await posted(node, poor, number) == 403
            assert await posted(node, "nonsense", number) == 401


def make_api_key(file: Path, name: str, topics: str, *may: Permission) -> str:
    entry, key = make_key(name, [TopicGrant.of(topics, may)], now_ms=0, expires_at_ms=None)
    KeyFile(file).add(entry)
    return key


async def posted(node: NodeProcess, key: str, number: int) -> int:
    """Publish over HTTP; the status of the answer."""
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.post(
            f"http://127.0.0.1:{node.http}/api/v1/topics/orders/messages",
            json={"json": number},
            headers={"authorization": f"Bearer {key}"},
        )
        return answer.status_code
