"""Nodes are restarted one after the other, under load, as for an upgrade."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .rolling import RollingLoad, restart_all
from .test_processes import running

pytestmark = pytest.mark.slow


async def test_clients_notice_nothing_of_a_rolling_restart(tmp_path: Path) -> None:
    async with running(tmp_path / "cluster") as cluster:
        names = [node["name"] for node in (await cluster.status())["nodes"]]
        before = {name: cluster.pid_of(name) for name in names}
        load = RollingLoad(cluster.url)

        await restart_all(cluster, tmp_path)

        assert all(cluster.pid_of(name) != before[name] for name in names)
        await load.ends()
        assert load.errors == []
        assert len(load.stored) > 100

        code, out = await cluster.command("cluster", "doctor", "--output", "json")
        assert code == 0, out
        assert json.loads(out)["is_well"]


async def test_a_hook_that_fails_ends_the_restart_and_the_cluster_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path / "cluster") as cluster:
        pids = [cluster.pid_of(name) for name in ("n1", "n2", "n3")]
        code, _ = await cluster.command("cluster", "restart-plan", "--run", "exit 7")
        assert code != 0
        assert [cluster.pid_of(name) for name in ("n1", "n2", "n3")] == pids

        code, out = await cluster.command("cluster", "restart-plan", "--output", "json")
        assert code == 0
        steps = json.loads(out)["steps"]
        assert [step["do"] for step in steps] == ["restart", "restart", "transfer", "restart"]
        assert steps[2]["node"] == steps[3]["node"] == (await cluster.status())["leader"]
