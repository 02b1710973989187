"""One member's hold on a queue group. Implements MemberApi."""

from __future__ import annotations

from collections.abc import Sequence

from ...broker_api import LEASED, Grant, LeaseWatcher, TakeMode
from ...errors import Closed
from ...group_model import GroupInfo, Lease
from .queue_group import QueueGroup, Taker


class GroupMember:
    def __init__(self, group: QueueGroup, holder: str) -> None:
        self._group, self._holder = group, holder
        self._settling = group.settling
        self.is_instant = group.topic.proposer.is_instant
        self._closed = False
        self._settled: list[Taker] = []
        """Of takes with `auto_ack` that were cancelled when it was too late to take them back."""
        group.members.add(holder)

    @property
    def info(self) -> GroupInfo:
        return self._group.info

    def watch(self, watcher: LeaseWatcher) -> None:
        """There is never any doubt here."""

    def is_ready(self) -> bool:
        return bool(self._settled) or self._group.is_ready()

    def seconds_until_token(self) -> float:
        return self._group.seconds_until_token()

    def standing(self) -> list[Lease]:
        return self._group.queue.standing()

    async def take(
        self, max_rows: int, lease_seconds: float, wait: float | None, mode: TakeMode = LEASED
    ) -> Grant | None:
        self._check_open()
        taker = Taker(self._holder, max_rows, lease_seconds, mode)
        if mode.auto_ack and self._settled:
            taker = self._settled.pop(0)
            wait = 0
        try:
            return await self._group.take(taker, wait)
        finally:
            if taker.handed is not None:
                self._settled.append(taker)

    async def ack(self, leases: Sequence[Lease]) -> None:
        await self._settling.ack(leases)

    async def nack(self, leases: Sequence[Lease], delay: float) -> None:
        await self._settling.nack(leases, delay)

    async def reject(self, leases: Sequence[Lease], reason: str) -> None:
        await self._settling.reject(leases, reason)

    async def extend(self, leases: Sequence[Lease], seconds: float) -> None:
        await self._settling.extend(leases, seconds, self._holder)

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._settling.release(leases)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._group.leave(self._holder)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the member of group {self._group.name!r}")
