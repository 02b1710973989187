"""A rolling restart: nodes one after the other, by a command of the user."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import time
from collections.abc import Awaitable, Callable

from ..cluster_advice import restart_steps, voters, why_not_restart
from ..cluster_model import ClusterStatus, NodeStatus
from ..errors import FlintError, InvalidRequest
from .cluster_change import asked, cluster_now
from .connecting import Target

AGAIN_SECONDS = 0.2
TRANSFER_SECONDS = 30.0


class RollingRestart:
    """`tell` gets what is done."""

    def __init__(
        self, target: Target, hook: str, seconds: float, tell: Callable[[str], object]
    ) -> None:
        self._target, self._hook, self._seconds, self._tell = target, hook, seconds, tell

    async def run(self, status: ClusterStatus) -> None:
        """Raises InvalidRequest at the step that fails."""
        every = [node.address for node in status.nodes if node.address]
        scheme = self._target.url.partition("://")[0]
        self._target = self._target._replace(url=f"{scheme}://{','.join(every)}")
        done: set[str] = set()
        names = [step.node for step in restart_steps(status) if step.do == "restart"]
        # Who leads may change on the way: then that one is left for the end.
        while left := [name for name in names if name not in done]:
            status = await self._well()
            name = next((name for name in left if name != status.leader), left[0])
            if name == status.leader:
                status = await self._hand_over(status, done)
            await self._restart(name, status)
            done.add(name)

    async def _well(self) -> ClusterStatus:
        """Wait until a node may be stopped."""
        why = ["the cluster cannot be asked"]

        async def is_well() -> ClusterStatus | None:
            status = await self._now()
            why[0] = "the cluster cannot be asked" if status is None else why_not_restart(status)
            return None if why[0] else status

        return await self._until(is_well, self._seconds, lambda: f"no node is restarted: {why[0]}")

    async def _hand_over(self, status: ClusterStatus, done: set[str]) -> ClusterStatus:
        before = status.leader
        able = [node for node in voters(status) if node.name != before and node.disk == "ok"]
        able.sort(key=lambda node: (node.name not in done, node.behind or 0))
        if not able:
            raise InvalidRequest(f"no other node can take over from {before}")
        self._tell(f"{able[0].name} takes over from {before}")
        await asked(self._target, lambda broker: broker.cluster("transfer", able[0].name))

        async def leads() -> ClusterStatus | None:
            status = await self._now()
            return status if status is not None and status.leader not in (None, before) else None

        return await self._until(leads, TRANSFER_SECONDS, lambda: f"{before} still leads")

    async def _restart(self, name: str, status: ClusterStatus) -> None:
        node = _of(status, name)
        self._tell(f"restarting {name}")
        await self._call(node)
        mark = 0

        async def is_back() -> ClusterStatus | None:
            nonlocal mark
            status = await self._now()
            if status is None or status.leader is None:
                return None
            now, leader = _of(status, name), _of(status, status.leader)
            if now.role == "down" or now.life == node.life or leader.committed is None:
                return None
            mark = mark or leader.committed
            return status if leader.committed - (now.behind or 0) >= mark else None

        await self._until(
            is_back,
            self._seconds,
            lambda: (
                f"node {name} was not restarted, or has not caught up; the other nodes keep running"
            ),
        )
        self._tell(f"{name} is back and has caught up")

    async def _call(self, node: NodeStatus) -> None:
        host = node.peer.rpartition(":")[0].strip("[]")
        text = self._hook.replace("{node}", shlex.quote(node.name))
        text = text.replace("{host}", shlex.quote(host))
        process = await asyncio.create_subprocess_shell(
            text, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            os.killpg(process.pid, signal.SIGTERM)
            raise
        if code:
            raise InvalidRequest(
                f"`{text}` failed with exit code {code}; the other nodes keep running"
            )

    async def _now(self) -> ClusterStatus | None:
        try:
            return await cluster_now(self._target)
        except FlintError:
            return None

    async def _until(
        self,
        look: Callable[[], Awaitable[ClusterStatus | None]],
        seconds: float,
        why: Callable[[], str],
    ) -> ClusterStatus:
        until = time.monotonic() + seconds
        while True:
            status = await look()
            if status is not None:
                return status
            if time.monotonic() > until:
                raise InvalidRequest(why())
            await asyncio.sleep(AGAIN_SECONDS)


def _of(status: ClusterStatus, name: str) -> NodeStatus:
    for node in status.nodes:
        if node.name == name:
            return node
    raise InvalidRequest(f"node {name} is no longer in the cluster")
