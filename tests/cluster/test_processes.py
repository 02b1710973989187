"""Three real processes under `flintmq cluster run`: founding, fail-over, restart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import flintmq

from ..patience import until

READY_SECONDS = 90.0


class RunningCluster:
    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process, self.url = process, url

    async def command(self, *arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "flintmq.cli", *arguments, "--server", self.url),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def status(self) -> dict[str, Any]:
        _, out = await self.command("cluster", "status", "--output", "json")
        found: dict[str, Any] = json.loads(out)
        return found

    def pid_of(self, name: str) -> int:
        """Of a node, by its command line; it is a child of ours."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in children.read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"--node-name" in words and words[words.index(b"--node-name") + 1] == name.encode():
                return int(pid)
        raise AssertionError(f"{name} does not run")


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@asynccontextmanager
async def running(directory: Path, nodes: int = 3) -> AsyncIterator[RunningCluster]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flintmq.cli", "cluster", "run", "--nodes", str(nodes)),
        *("--data-dir", str(directory), "--base-port", "0"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), READY_SECONDS)).decode()
        assert "ready at " in line
        yield RunningCluster(process, line.split("ready at ")[1].strip())
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)  # to the supervisor alone, as Ctrl-C
        await process.communicate()


@pytest.mark.slow
async def test_a_client_goes_on_when_the_leader_is_killed_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "cluster") as cluster:
        async with flintmq.connect(cluster.url) as mq:
            first = await mq.publish("orders", 0)
            assert first.durability == "replicated"
            leader = (await cluster.status())["leader"]
            acknowledged = [0]
            is_killed = asyncio.Event()

            async def publish() -> None:
                while len(acknowledged) < 400 or not is_killed.is_set():
                    receipt = await mq.publish("orders", len(acknowledged))
                    assert receipt.offset == len(acknowledged)
                    acknowledged.append(len(acknowledged))

            publishing = asyncio.ensure_future(publish())
            await until(lambda: len(acknowledged) > 100, "publishing goes on")
            os.kill(cluster.pid_of(leader), signal.SIGKILL)
            behind = len(acknowledged)
            is_killed.set()
            await asyncio.wait_for(publishing, 60)
            await mq.publish("orders", len(acknowledged))
            acknowledged.append(len(acknowledged))
            assert len(acknowledged) > behind

            read: list[int] = []
            async with mq.reader("orders", start="earliest") as reader:
                async for message in reader:
                    read.append(message.decode())
                    if len(read) == len(acknowledged):
                        break
            assert read == acknowledged

            deliveries = await mq.poll("orders", "workers", max=10, wait=30)
            for delivery in deliveries:
                await delivery.ack()
            assert [one.decode() for one in deliveries] == acknowledged[:10]

        async def is_whole_again() -> bool:
            status = await cluster.status()
            return status["leader"] not in (None, leader) and all(
                node["role"] != "down" and not node["behind"] for node in status["nodes"]
            )

        await until(is_whole_again, "the node that was killed is started again and catches up")


@pytest.mark.slow
async def test_every_node_serves_clients_that_do_not_follow_the_leader(tmp_path: Path) -> None:
    async with running(tmp_path / "cluster") as cluster:
        nodes = (await cluster.status())["nodes"]
        for number, node in enumerate(nodes):
            mq = flintmq.connect(f"flint://{node['address']}")
            mq._broker.link.dialer.follows = False  # type: ignore[attr-defined]
            async with mq:
                assert (await mq.publish("orders", number)).offset == number
                deliveries = await mq.poll("orders", "workers", max=1, wait=30)
                assert [one.decode() for one in deliveries] == [number]
                await deliveries[0].ack()
                assert (await mq.topic_info("orders")).name == "orders"


@pytest.mark.slow
async def test_a_cluster_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    async with running(tmp_path / "cluster") as cluster:
        async with flintmq.connect(cluster.url) as mq:
            for number in range(20):
                await mq.publish("orders", number)
        first = await cluster.status()
    assert cluster.process.returncode == 0
    async with running(tmp_path / "cluster") as cluster:
        async with flintmq.connect(cluster.url) as mq:
            assert (await mq.publish("orders", 20)).offset == 20
        again = await cluster.status()

    assert again["cluster"] == first["cluster"]
    assert [node["address"] for node in again["nodes"]] == [
        node["address"] for node in first["nodes"]
    ]


@pytest.mark.slow
async def test_a_second_signal_kills_the_nodes_and_leaves_none_behind(tmp_path: Path) -> None:
    async with running(tmp_path / "cluster") as cluster:
        pids = [cluster.pid_of(name) for name in ("n1", "n2", "n3")]
        cluster.process.send_signal(signal.SIGINT)
        cluster.process.send_signal(signal.SIGTERM)
        await cluster.process.wait()

        assert not any(map(is_running, pids))


@pytest.mark.slow
async def test_a_directory_with_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path / "cluster", 1) as cluster:
        code, out = await cluster.command("cluster", "status")
        assert code == 0
        assert "1 nodes, 0 down, n1 leads" in out
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flintmq.cli", "cluster", "run", "--nodes", "3"),
        *("--data-dir", str(tmp_path / "cluster")),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode != 0
    assert b"pass --nodes 1" in said
