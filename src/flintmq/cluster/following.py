"""A member of a group, whoever leads: for servers of protocols whose clients stay where they are.

Where this node leads, a member is one of its engine, and ends with the lead. What it held is
claimed at the next leader then, under its tokens, and what was asked is asked again there: it was
surely not done. Implements MemberApi.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from typing import TypeVar

from ..broker_api import LEASED, Grant, LeaseWatcher, MemberApi, TakeMode
from ..clock import Clock
from ..errors import FlintError, LeaseLost, NotLeader
from ..group_model import GroupInfo, Lease
from ..groups.held_leases import HeldLeases
from ..groups.ranges import ranges_of_runs

T = TypeVar("T")


class FollowingMember:
    def __init__(self, join: Callable[[], Awaitable[MemberApi]], member: MemberApi, clock: Clock):
        """`join` waits for somebody to lead, and raises NotLeader where nobody does for long."""
        self._join, self._member, self._clock = join, member, clock
        self._held = HeldLeases()
        self._watcher: LeaseWatcher | None = None
        self._joining = asyncio.Lock()

    @property
    def info(self) -> GroupInfo:
        return self._member.info

    @property
    def is_instant(self) -> bool:
        return self._member.is_instant

    def watch(self, watcher: LeaseWatcher) -> None:
        self._watcher = watcher
        self._member.watch(watcher)

    def is_ready(self) -> bool:
        return self._member.is_ready()

    async def take(
        self, max_rows: int, lease_seconds: float, wait: float | None, mode: TakeMode = LEASED
    ) -> Grant | None:
        now = self._clock.monotonic
        until = inf if wait is None else now() + wait

        def left() -> float | None:
            return wait and max(0.0, until - now())

        grant = await self._ask(lambda member: member.take(max_rows, lease_seconds, left(), mode))
        if grant is not None and not mode.auto_ack:
            self._held.hold(grant.token, ranges_of_runs(grant.rows.runs), now(), lease_seconds)
        return grant

    async def ack(self, leases: Sequence[Lease]) -> None:
        await self._settle(leases, lambda member: member.ack(leases))

    async def nack(self, leases: Sequence[Lease], delay: float) -> None:
        await self._settle(leases, lambda member: member.nack(leases, delay))

    async def reject(self, leases: Sequence[Lease], reason: str) -> None:
        await self._settle(leases, lambda member: member.reject(leases, reason))

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._settle(leases, lambda member: member.release(leases))

    async def extend(self, leases: Sequence[Lease], seconds: float) -> None:
        try:
            await self._ask(lambda member: member.extend(leases, seconds))
        except LeaseLost as error:
            self._held.lose(error.offsets)
            raise
        finally:
            self._held.extended(leases, self._clock.monotonic(), seconds)

    async def close(self) -> None:
        await self._member.close()

    # --- whoever leads

    async def _settle(
        self, leases: Sequence[Lease], verb: Callable[[MemberApi], Awaitable[None]]
    ) -> None:
        try:
            await self._ask(verb)
        except NotLeader:
            raise  # not done: it is held still
        except BaseException:
            self._held.let_go(leases)
            raise
        self._held.let_go(leases)

    async def _ask(self, verb: Callable[[MemberApi], Awaitable[T]]) -> T:
        while True:
            member = self._member
            try:
                return await verb(member)
            except NotLeader:
                await self._join_again(member)

    async def _join_again(self, ended: MemberApi) -> None:
        async with self._joining:
            if self._member is not ended:
                return  # somebody has done it meanwhile
            member = await self._join()
            try:
                await self._claim(member)
            except BaseException:
                with suppress(FlintError):
                    await member.close()
                raise
            if self._watcher is not None:
                member.watch(self._watcher)
            self._member = member
        with suppress(FlintError):  # where it is of another node it may be there still
            await ended.close()

    async def _claim(self, member: MemberApi) -> None:
        """Have who leads now keep what is held."""
        for seconds, leases in self._held.to_confirm(self._clock.monotonic()).items():
            try:
                await member.extend(leases, seconds)
            except LeaseLost as error:
                self._held.lose(error.offsets)
