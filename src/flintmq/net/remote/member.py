"""A membership of a queue group of a broker that is far away. Implements MemberApi."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from math import inf
from typing import TYPE_CHECKING

import msgspec

from ...broker_api import Grant, LeaseWatcher
from ...errors import Closed, Disconnected, FlintError, LeaseLost, OutcomeUnknown
from ...group_model import GroupInfo, Lease
from ...groups.leases import Lease as Running
from ...groups.offset_set import OffsetSet
from ...groups.ranges import offsets_in, ranges_of_runs
from ...rows import Rows
from ..wire.frames import Frame
from ..wire.operations import (
    CloseStreamRequest,
    GrantedReply,
    JoinedReply,
    JoinGroupRequest,
    Op,
    SettleRequest,
    TakeLeasedRequest,
)
from ..wire.runs import decode_runs
from .link import SessionLost, error_in

if TYPE_CHECKING:
    from .broker import RemoteBroker

_HELD_LOOK = 64
"""From how many grants on it is looked which of them have run out."""


class _PendingTake:
    """A take that is under way. What comes after nobody waits for it any more is given back."""

    def __init__(
        self, member: RemoteMember, asked: TakeLeasedRequest, deadline: float | None
    ) -> None:
        self._asked = asked
        self.is_parked = deadline is None
        self.deadline = deadline
        self.future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._member = member

    def answer(self, frame: Frame) -> None:
        if self.future.done():
            self._member.give_back(frame, self._asked)
        else:
            self.future.set_result(frame)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self, error: Exception) -> bool:
        self.fail(error)
        return True


class RemoteMember:
    """What it holds is known here too: a broker that was restarted is told of it before anything
    else, and says what of it is another's by now."""

    def __init__(self, broker: RemoteBroker, joining: JoinGroupRequest) -> None:
        self._broker = broker
        self._joining = joining
        self._number: int | None = None
        self._info: GroupInfo | None = None
        self._rejoining: asyncio.Task[None] | None = None
        self._ended: FlintError | None = None
        self._trouble: FlintError | None = None
        self._settled: list[Grant] = []
        """Of takes with `auto_ack` that were cancelled when it was too late to take them back."""
        self._giving_back: set[asyncio.Task[None]] = set()
        self._held: dict[int, Running] = {}
        self._look_at = _HELD_LOOK
        self._watcher: LeaseWatcher | None = None

    def watch(self, watcher: LeaseWatcher) -> None:
        self._watcher = watcher

    @property
    def info(self) -> GroupInfo:
        assert self._info is not None
        return self._info

    async def open(self, until: float) -> None:
        frame = await self._broker.ask_stream(Op.JOIN_GROUP, self._joining, until)
        joined = msgspec.msgpack.decode(frame.control, type=JoinedReply)
        self._number = joined.stream
        self._info = msgspec.convert(joined.info, GroupInfo)
        self._broker.members.add(self)

    def is_ready(self) -> bool:
        return True

    async def take(
        self,
        max_rows: int,
        lease_seconds: float,
        wait: float | None,
        *,
        auto_ack: bool = False,
        in_turn: bool = False,
    ) -> Grant | None:
        if auto_ack and self._settled:
            return self._settled.pop(0)
        clock = self._broker.clock
        # Without a wait, to look what there is takes as long as any other question.
        until = inf if wait is None else clock.monotonic() + wait if wait else self._broker.until()
        while True:
            number = await self._joined(until)
            left = wait and max(0.0, until - clock.monotonic())
            control = TakeLeasedRequest(number, max_rows, lease_seconds, left, auto_ack, in_turn)
            try:
                frame = await self._taken(control, None if until == inf else until)
            except SessionLost:
                continue
            return self._grant(frame, control)

    async def _taken(self, control: TakeLeasedRequest, deadline: float | None) -> Frame:
        taking = _PendingTake(self, control, deadline)
        self._broker.before_asking()
        link = self._broker.link
        id = link.send(Op.TAKE_LEASED, self._broker.encode(control), (), taking)
        try:
            frame = await taking.future
        except asyncio.CancelledError:
            if taking.future.done() and not taking.future.cancelled():
                # it came in the very same turn
                self.give_back(taking.future.result(), control)
            else:
                link.cancel(id)
            raise
        except OutcomeUnknown:
            link.cancel(id)
            raise
        if frame.op == Op.ERROR:
            raise error_in(frame)
        return frame

    def _grant(self, frame: Frame, asked: TakeLeasedRequest) -> Grant | None:
        granted = msgspec.msgpack.decode(frame.control, type=GrantedReply | None)
        if granted is None:
            return None
        runs = decode_runs(granted.runs, frame.batches, self._broker.origin)
        grant = Grant(granted.token, Rows(runs), granted.counts)
        if not asked.auto_ack:
            self._hold(grant, asked.lease_seconds)
        return grant

    def give_back(self, frame: Frame, asked: TakeLeasedRequest) -> None:
        """What was granted to a take that nobody waits for goes back at once; what is settled
        already is for the next take."""
        if frame.op == Op.ERROR or self._ended is not None:
            return
        grant = self._grant(frame, asked)
        if grant is not None and asked.auto_ack:
            self._settled.append(grant)
        elif grant is not None:
            task = asyncio.get_running_loop().create_task(self._release(grant))
            self._giving_back.add(task)
            task.add_done_callback(self._giving_back.discard)

    async def _release(self, grant: Grant) -> None:
        try:
            await self.release([(grant.token, ranges_of_runs(grant.rows.runs))])
        except FlintError:
            return  # its lease runs out by itself

    # --- settling

    async def ack(self, leases: Sequence[Lease]) -> None:
        await self._settle("ack", leases)

    async def nack(self, leases: Sequence[Lease], delay: float) -> None:
        await self._settle("nack", leases, delay)

    async def reject(self, leases: Sequence[Lease], reason: str) -> None:
        await self._settle("reject", leases, reason=reason)

    async def extend(self, leases: Sequence[Lease], seconds: float) -> None:
        await self._settle("extend", leases, seconds)

    async def release(self, leases: Sequence[Lease]) -> None:
        link = self._broker.link
        if link.is_silent and self._number is not None:  # it is told, and not waited for
            control = SettleRequest(self._number, "release", list(leases))
            link.send(Op.SETTLE, self._broker.encode(control))
            return
        await self._settle("release", leases)

    async def _settle(
        self, how: str, leases: Sequence[Lease], seconds: float = 0.0, reason: str = ""
    ) -> None:
        until = self._broker.until()
        while True:
            number = await self._joined(until)
            try:
                await self._broker.ask(
                    Op.SETTLE,
                    SettleRequest(number, how, list(leases), seconds, reason),
                    until=until,
                )
            except SessionLost:
                continue
            except (LeaseLost, asyncio.CancelledError) as error:
                if how != "extend":
                    self._let_go(leases)
                elif isinstance(error, LeaseLost):
                    lost = [(offset, offset + 1) for offset in error.offsets]
                    self._let_go([(token, lost) for token, _ in leases])
                raise
            if how == "extend":
                self._extended(leases, seconds)
            else:
                self._let_go(leases)
            return

    # --- what is held

    def _hold(self, grant: Grant, seconds: float) -> None:
        now, held = self._broker.clock.monotonic(), self._held
        if len(held) >= self._look_at:  # leases that run out are nobody's to tell us of
            for token in [token for token, one in held.items() if one.deadline <= now]:
                del held[token]
            self._look_at = max(_HELD_LOOK, 2 * len(held))
        held[grant.token] = Running(
            grant.token, "", now, now + seconds, ranges_of_runs(grant.rows.runs)
        )

    def _let_go(self, leases: Sequence[Lease]) -> None:
        for token, ranges in leases:
            lease = self._held.get(token)
            if lease is not None:
                lease.take(ranges)
                if not lease:
                    del self._held[token]

    def _extended(self, leases: Sequence[Lease], seconds: float) -> None:
        now = self._broker.clock.monotonic()
        for token, _ in leases:
            lease = self._held.get(token)
            if lease is not None:
                lease.granted_at, lease.deadline = now, max(lease.deadline, now + seconds)

    # --- after the connection was lost

    def is_away(self) -> None:
        if self._watcher is not None:
            self._watcher.in_doubt(self)

    def is_back(self, lost: Collection[int] = ()) -> None:
        if self._watcher is not None:
            self._watcher.sure(self, lost)

    def broker_stops(self) -> None:
        if self._watcher is not None:
            self._watcher.broker_stops(self)

    async def _reclaim(self, number: int) -> set[int]:
        """Have the broker confirm what is held; what is another's by now."""
        now = self._broker.clock.monotonic()
        newest = OffsetSet()
        by_seconds: dict[float, list[Lease]] = {}
        for lease in reversed(self._held.values()):
            if self._watcher is None and lease.deadline <= now:
                continue  # polled, and not settled in time
            ranges = [run for mine in lease.outstanding() for run in newest.missing(*mine)]
            newest.add_ranges(ranges)
            seconds = lease.deadline - lease.granted_at
            by_seconds.setdefault(seconds, []).append((lease.token, ranges))
        lost: set[int] = set()
        for seconds, leases in by_seconds.items():
            try:
                await self._broker.ask(Op.SETTLE, SettleRequest(number, "extend", leases, seconds))
            except LeaseLost as error:
                lost.update(error.offsets)
            self._extended(leases, seconds)
        if lost:
            gone = [(offset, offset + 1) for offset in sorted(lost)]
            self._let_go([(token, gone) for token in list(self._held)])
        return lost

    async def _joined(self, until: float) -> int:
        while self._number is None:
            if self._ended is not None:
                raise self._ended
            assert self._rejoining is not None
            if not await self._broker.link.done_by(self._rejoining, until):
                raise self._broker.link.no_answer()
            if self._trouble is not None:
                trouble, self._trouble = self._trouble, None
                self.reopen()
                raise trouble
        return self._number

    def reopen(self) -> None:
        self._number = None
        self._rejoining = asyncio.get_running_loop().create_task(self._rejoin())

    async def _rejoin(self) -> None:
        try:
            frame = await self._broker.ask(Op.JOIN_GROUP, self._joining)
            number = msgspec.msgpack.decode(frame.control, type=JoinedReply).stream
            lost = await self._reclaim(number)
            self._number = number
            self.is_back(lost)
        except SessionLost:
            return
        except (Disconnected, OutcomeUnknown) as error:
            self._trouble = error  # whoever asks hears it, and we try again
        except FlintError as error:
            self.end(error)

    def end(self, error: FlintError) -> None:
        """Nothing is ours any more; whoever asks hears why."""
        self._ended = error
        held = self._held.values()
        self.is_back({o for lease in held for o in offsets_in(lease.outstanding())})

    async def close(self) -> None:
        self._broker.members.discard(self)
        number, self._number = self._number, None
        self._ended = self._ended or Closed(f"the membership of {self._joining.group!r}")
        if number is not None:
            await self._broker.ask_if_connected(Op.CLOSE_STREAM, CloseStreamRequest(number))
