"""A rolling upgrade: nodes of an earlier commit, one after the other, become nodes of this one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flintmq.cluster.levels import LEVEL

from ..patience import until
from .processes import founded, leader_of, seen_by
from .rolling import RollingLoad
from .test_recovering import flintmq_command
from .upgrading import EARLIER, installed, is_known, restarted, stopped, well

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not is_known():
        pytest.skip(f"NOT TESTED: rolling upgrade: commit {EARLIER} is not in this (shallow) clone")
    return installed(tmp_path_factory.mktemp("earlier"))


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
        assert {node.level for node in status.nodes} == {LEVEL}
        code, _, said = await flintmq_command("cluster", "finalize", "--server", leader.url)
        assert code == 0, said
        status = await seen_by(await leader_of(nodes))
        assert status is not None
        assert status.level == LEVEL

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
