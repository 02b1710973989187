"""A rolling upgrade of a cluster of real processes under load: what do its clients notice?

    python -m tests.cluster.upgrading --nodes 5

Nodes of the wheel of an earlier commit become nodes of this one, in the order of `flintmq cluster
restart-plan`; then the cluster is finalized. Publishers and consumers have the default timeouts and
do not try again: each error is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flintmq.cluster_advice import restart_steps

from ..patience import until
from .processes import NodeProcess, founded, leader_of, seen_by
from .rolling import RollingLoad

ROOT = Path(__file__).parents[2]
EARLIER = "3d7e6288"
"""The last commit whose clusters knew nothing of levels."""


def is_known() -> bool:
    """Whether the earlier commit is here: it is not in a shallow clone."""
    ask = ["git", "cat-file", "-e", f"{EARLIER}^{{commit}}"]
    return subprocess.run(ask, cwd=ROOT, capture_output=True).returncode == 0


def installed(place: Path) -> Path:
    """FlintMQ of the earlier commit, installed from its wheel into a directory of its own."""
    source, target = place / "source", place / "installed"
    source.mkdir()
    archive = subprocess.run(
        ["git", "archive", EARLIER], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "-w", str(place), str(source)]
    subprocess.run([*pip, *build], check=True)
    wheel = next(place.glob("*.whl"))
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True)
    where = [sys.executable, "-c", "import flintmq; print(flintmq.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(target)}
    found = subprocess.run(where, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(target)), "the earlier version runs"
    return target


async def stopped(node: NodeProcess) -> None:
    assert node.process is not None
    os.kill(node.process.pid, signal.SIGTERM)
    await node.ended()


async def restarted(node: NodeProcess, version: Path | None) -> None:
    """With that version; None: with this one."""
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


async def asked(node: NodeProcess, *words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flintmq.cli", "cluster", *words, "--server", node.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def upgraded(directory: Path, earlier: Path, names: Iterable[str]) -> dict[str, Any]:
    """What clients saw."""
    environment = {"PYTHONPATH": str(earlier)}
    async with founded(directory, *names, environment=environment) as nodes:
        load = RollingLoad("flint://" + ",".join(f"127.0.0.1:{n.clients}" for n in nodes.values()))
        began = time.monotonic()
        await asyncio.sleep(2)
        status = await seen_by(await leader_of(nodes))
        assert status is not None
        for step in restart_steps(status):
            if step.do == "transfer":
                await asked(nodes[step.to], "transfer", step.to)
            else:
                await restarted(nodes[step.node], None)
            await well(nodes)
        leader = await leader_of(nodes)
        await asked(leader, "finalize")
        status = await seen_by(leader)
        assert status is not None
        assert status.level == 2
        await asyncio.sleep(2)
        await load.ends()
        return {
            "nodes": len(nodes),
            "from": EARLIER,
            "level": status.level,
            "seconds": round(time.monotonic() - began, 1),
            "acknowledged": len(load.stored),
            "lost": 0,
            "acked_again": load.again,
            "errors": load.errors,
            "longest_publish_seconds": round(load.longest, 3),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()
    if not is_known():
        print(f"commit {EARLIER} is not in this (shallow) clone", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place:
        earlier = installed(Path(place))
        names = "abcdefg"[: options.nodes]
        found = asyncio.run(upgraded(Path(place) / "cluster", earlier, names))
    print(json.dumps(found))
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
