"""A rolling upgrade: nodes of an earlier commit, one after the other, become nodes of this one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..patience import until
from .processes import NodeProcess, founded, leader_of, seen_by
from .rolling import RollingLoad
from .test_recovering import flintmq_command

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EARLIER = "3d7e6288"
"""The last commit whose clusters knew nothing of levels."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FlintMQ of the earlier commit, installed from its wheel into a directory of its own."""
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{EARLIER}^{{commit}}"], cwd=ROOT, capture_output=True
    )
    if known.returncode:
        pytest.skip(f"NOT TESTED: rolling upgrade: commit {EARLIER} is not in this (shallow) clone")
    place = tmp_path_factory.mktemp("earlier")
    source, installed = place / "source", place / "installed"
    source.mkdir()
    archive = subprocess.run(
        ["git", "archive", EARLIER], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "-w", str(place), str(source)]
    subprocess.run([*pip, *build], check=True)
    wheel = next(place.glob("*.whl"))
    subprocess.run([*pip, "install", "--no-deps", "--target", installed, wheel], check=True)
    where = [sys.executable, "-c", "import flintmq; print(flintmq.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    found = subprocess.run(where, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(installed)), "the earlier version runs"
    return installed


async def stopped(node: NodeProcess) -> None:
    assert node.process is not None
    os.kill(node.process.pid, signal.SIGTERM)
    await node.ended()


async def restarted(node: NodeProcess, version: Path | None) -> None:
    await stopped(node)
    node.environment = {} if version is None else {"PYTHONPATH": str(version)}
    await node.start()
    await node.ready()


async def well(nodes: dict[str, NodeProcess]) -> None:
    """Wait until the leader sees all of them, and all have what it has."""

    async def is_well() -> bool:
        status = await seen_by(await leader_of(nodes))
        return status is not None and all(
            node.role != "down" and (node.behind or 0) < 1000 for node in status.nodes
        )

    await until(is_well, "all nodes are there")


async def test_a_cluster_is_upgraded_under_load_and_finalized_and_the_old_version_is_refused(
    tmp_path: Path, earlier: Path
) -> None:
    old = {"PYTHONPATH": str(earlier)}
    async with founded(tmp_path, "a", "b", "c", environment=old) as nodes:
        load = RollingLoad("flint://" + ",".join(f"127.0.0.1:{n.clients}" for n in nodes.values()))
        leader = await leader_of(nodes)
        order = [node for node in nodes.values() if node is not leader]
        await restarted(order[0], None)
        await well(nodes)

        status = await seen_by(order[0])
        assert status is not None
        code, _, said = await flintmq_command("cluster", "finalize", "--server", order[0].url)
        assert code != 0, "a mixed cluster is not finalized"

        await restarted(order[0], earlier)  # back again: nothing has changed yet
        await well(nodes)
        for node in (*order, leader):
            await restarted(node, None)
            await well(nodes)

        status = await seen_by(await leader_of(nodes))
        assert status is not None
        assert status.level == 1
        assert {node.level for node in status.nodes} == {2}
        code, _, said = await flintmq_command("cluster", "finalize", "--server", leader.url)
        assert code == 0, said
        status = await seen_by(await leader_of(nodes))
        assert status is not None
        assert status.level == 2

        await stopped(order[0])
        order[0].environment = old
        await order[0].start()

        def is_refused() -> bool:
            logs = "".join(node.log.read_text() for node in nodes.values())
            return "update the older of the two" in logs

        await until(is_refused, "a node of the earlier version is refused")
        await order[0].kill()
        order[0].environment = {}
        await order[0].start()
        await order[0].ready()
        await well(nodes)

        await asyncio.wait_for(load.ends(), 120)
        assert load.errors == []
        assert len(load.stored) > 100
