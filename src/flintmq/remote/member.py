"""A membership of a queue group of a broker that is far away. Implements MemberApi."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import msgspec

from ..broker_api import Grant
from ..errors import Closed, Disconnected, FlintError, OutcomeUnknown
from ..group_model import GroupInfo, Lease
from ..rows import Rows
from ..wire.frames import Frame
from ..wire.operations import (
    CloseStream,
    Granted,
    Joined,
    JoinGroup,
    Op,
    Settle,
    TakeLeased,
)
from ..wire.runs import decode_runs
from .link import SessionLost, error_in

if TYPE_CHECKING:
    from .broker import RemoteBroker


class _Taking:
    """A take that is under way. What comes after nobody waits for it any more is given back."""

    def __init__(self, member: RemoteMember, is_settled: bool, deadline: float | None) -> None:
        self._is_settled = is_settled
        self.is_parked = deadline is None
        self.deadline = deadline
        self.future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._member = member

    def answer(self, frame: Frame) -> None:
        if self.future.done():
            self._member.give_back(frame, self._is_settled)
        else:
            self.future.set_result(frame)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self, error: Exception) -> bool:
        self.fail(error)
        return True


class RemoteMember:
    def __init__(self, broker: RemoteBroker, joining: JoinGroup) -> None:
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

    @property
    def info(self) -> GroupInfo:
        assert self._info is not None
        return self._info

    async def open(self, until: float) -> None:
        frame = await self._broker.ask_stream(Op.JOIN_GROUP, self._joining, until)
        joined = msgspec.msgpack.decode(frame.control, type=Joined)
        self._number = joined.stream
        self._info = msgspec.convert(joined.info, GroupInfo)
        self._broker.members.add(self)

    def is_ready(self) -> bool:
        return True

    async def take(
        self, max_rows: int, lease_seconds: float, wait: float | None, *, auto_ack: bool = False
    ) -> Grant | None:
        if auto_ack and self._settled:
            return self._settled.pop(0)
        clock = self._broker.clock
        # Without a wait, to look what there is takes as long as any other question.
        until = inf if wait is None else clock.monotonic() + wait if wait else self._broker.until()
        while True:
            number = await self._joined(until)
            left = wait and max(0.0, until - clock.monotonic())
            control = TakeLeased(number, max_rows, lease_seconds, left, auto_ack)
            try:
                frame = await self._taken(control, None if until == inf else until)
            except SessionLost:
                continue
            return self._grant(frame)

    async def _taken(self, control: TakeLeased, deadline: float | None) -> Frame:
        taking = _Taking(self, control.auto_ack, deadline)
        self._broker.before_asking()
        link = self._broker.link
        id = link.send(Op.TAKE_LEASED, self._broker.encode(control), (), taking)
        try:
            frame = await taking.future
        except asyncio.CancelledError:
            if taking.future.done() and not taking.future.cancelled():
                # it came in the very same turn
                self.give_back(taking.future.result(), control.auto_ack)
            else:
                link.cancel(id)
            raise
        except OutcomeUnknown:
            link.cancel(id)
            raise
        if frame.op == Op.ERROR:
            raise error_in(frame)
        return frame

    def _grant(self, frame: Frame) -> Grant | None:
        granted = msgspec.msgpack.decode(frame.control, type=Granted | None)
        if granted is None:
            return None
        runs = decode_runs(granted.runs, frame.batches, self._broker.origin)
        return Grant(granted.token, Rows(runs), granted.counts)

    def give_back(self, frame: Frame, is_settled: bool) -> None:
        """What was granted to a take that nobody waits for goes back at once; what is settled
        already is for the next take."""
        if frame.op == Op.ERROR or self._ended is not None:
            return
        grant = self._grant(frame)
        if grant is not None and is_settled:
            self._settled.append(grant)
        elif grant is not None:
            task = asyncio.get_running_loop().create_task(self._release(grant))
            self._giving_back.add(task)
            task.add_done_callback(self._giving_back.discard)

    async def _release(self, grant: Grant) -> None:
        ranges = [
            (run.source.base_offset + row, run.source.base_offset + row + 1)
            for run in grant.rows.runs
            for row in run.rows()
        ]
        try:
            await self.release([(grant.token, ranges)])
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
            control = Settle(self._number, "release", list(leases))
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
                    Op.SETTLE, Settle(number, how, list(leases), seconds, reason), until=until
                )
                return
            except SessionLost:
                continue

    # --- after the session was lost

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
            self._number = msgspec.msgpack.decode(frame.control, type=Joined).stream
        except SessionLost:
            return
        except (Disconnected, OutcomeUnknown) as error:
            self._trouble = error  # whoever asks hears it, and we try again
        except FlintError as error:
            self._ended = error

    async def close(self) -> None:
        self._broker.members.discard(self)
        number, self._number = self._number, None
        self._ended = self._ended or Closed(f"the membership of {self._joining.group!r}")
        if number is not None:
            await self._broker.ask_if_connected(Op.CLOSE_STREAM, CloseStream(number))
