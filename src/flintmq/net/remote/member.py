"""A membership of a queue group of a remote broker. Implements MemberApi."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from math import inf

import msgspec

from ...broker_api import LEASED, Grant, LeaseWatcher, TakeMode
from ...errors import Closed, Disconnected, FlintError, LeaseLost, OutcomeUnknown
from ...group_model import GroupInfo, Lease
from ...groups.held_leases import HeldLeases
from ...groups.ranges import ranges_of_runs
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
from .link import SessionLost
from .requests import RemoteRequests
from .waiting import SentRequest

_GIVES_BACK = ("nack", "release")


class RemoteMember:
    """What it holds is known here too: a broker that was restarted hears of it before anything
    else, and answers what of it is another member's by now."""

    is_instant = False

    def __init__(
        self, requests: RemoteRequests, joining: JoinGroupRequest, registry: set[RemoteMember]
    ) -> None:
        """Those that are open are in the `registry`."""
        self._requests, self._registry = requests, registry
        self._link, self._clock = requests.link, requests.link.clock
        self._joining = joining
        self._number: int | None = None
        self._info: GroupInfo | None = None
        self._rejoining: asyncio.Task[None] | None = None
        self._ended: FlintError | None = None
        self._trouble: FlintError | None = None
        self._settled: list[Grant] = []
        """Of takes with `auto_ack` that were cancelled when it was too late to take them back."""
        self._giving_back: set[asyncio.Task[None]] = set()
        self._held = HeldLeases()
        self._watcher: LeaseWatcher | None = None

    def watch(self, watcher: LeaseWatcher) -> None:
        self._watcher = watcher

    @property
    def info(self) -> GroupInfo:
        assert self._info is not None
        return self._info

    async def open(self) -> None:
        frame = await self._requests.open_stream(Op.JOIN_GROUP, self._joining)
        joined = msgspec.msgpack.decode(frame.control, type=JoinedReply)
        self._number = joined.stream
        self._info = msgspec.convert(joined.info, GroupInfo)
        self._registry.add(self)

    def is_ready(self) -> bool:
        return True

    async def take(
        self, max_rows: int, lease_seconds: float, wait: float | None, mode: TakeMode = LEASED
    ) -> Grant | None:
        if mode.auto_ack and self._settled:
            return self._settled.pop(0)
        # Without a wait, to look what there is takes as long as any other question.
        now = self._clock.monotonic
        until = inf if wait is None else now() + wait if wait else self._requests.until()
        while True:
            number = await self._joined(until)
            left = wait and max(0.0, until - now())
            control = TakeLeasedRequest(number, max_rows, lease_seconds, left, *mode)
            sent = SentRequest(
                None if until == inf else until,
                is_parked=until == inf,
                on_late=partial(self._give_back, control),
            )
            self._requests.before_asking()
            try:
                frame = await self._link.ask(
                    Op.TAKE_LEASED, self._requests.encode(control), sent=sent
                )
            except SessionLost:
                if wait == 0:
                    continue
                await self._joined(until)
                return None  # partitions may have been added while nobody could tell us
            return self._grant(frame, control)

    def _grant(self, frame: Frame, asked: TakeLeasedRequest) -> Grant | None:
        granted = msgspec.msgpack.decode(frame.control, type=GrantedReply | None)
        if granted is None:
            return None
        runs = decode_runs(granted.runs, frame.batches, self._requests.topics.origin)
        grant = Grant(granted.token, Rows(runs), granted.counts)
        if not asked.auto_ack:
            ranges = ranges_of_runs(grant.rows.runs)
            self._held.hold(grant.token, ranges, self._clock.monotonic(), asked.lease_seconds)
        return grant

    def _give_back(self, asked: TakeLeasedRequest, frame: Frame) -> None:
        """What was granted to a take that was cancelled goes back at once; what is settled
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
        if self._link.is_silent and self._number is not None:  # sent without waiting for the answer
            control = SettleRequest(self._number, "release", list(leases))
            self._link.send(Op.SETTLE, self._requests.encode(control))
            return
        await self._settle("release", leases)

    async def _settle(
        self, how: str, leases: Sequence[Lease], seconds: float = 0.0, reason: str = ""
    ) -> None:
        until = self._requests.until()
        is_repeat = False
        while True:
            number = await self._joined(until)
            try:
                await self._requests.ask(
                    Op.SETTLE,
                    SettleRequest(number, how, list(leases), seconds, reason),
                    until=until,
                )
            except SessionLost:
                is_repeat = True
                continue
            except (LeaseLost, asyncio.CancelledError) as error:
                if is_repeat and how in _GIVES_BACK and isinstance(error, LeaseLost):
                    self._held.let_go(leases)
                    return  # it is back, by what was asked first or because the lease is over
                if how != "extend":
                    self._held.let_go(leases)
                elif isinstance(error, LeaseLost):
                    lost = [(offset, offset + 1) for offset in error.offsets]
                    self._held.let_go([(token, lost) for token, _ in leases])
                raise
            if how == "extend":
                self._held.extended(leases, self._clock.monotonic(), seconds)
            else:
                self._held.let_go(leases)
            return

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
        # Of what is renewed by itself, the client knows best whether it is worked on.
        since = self._clock.monotonic() if self._watcher is None else -inf
        lost: set[int] = set()
        for seconds, leases in self._held.to_confirm(since).items():
            try:
                await self._requests.ask(
                    Op.SETTLE, SettleRequest(number, "extend", leases, seconds)
                )
            except LeaseLost as error:
                lost.update(error.offsets)
            self._held.extended(leases, self._clock.monotonic(), seconds)
        if lost:
            self._held.lose(lost)
        return lost

    async def _joined(self, until: float) -> int:
        while self._number is None:
            if self._ended is not None:
                raise self._ended
            assert self._rejoining is not None
            if not await self._link.done_by(self._rejoining, until):
                raise self._link.no_answer()
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
            frame = await self._requests.ask(Op.JOIN_GROUP, self._joining)
            number = msgspec.msgpack.decode(frame.control, type=JoinedReply).stream
            lost = await self._reclaim(number)
            self._number = number
            self.is_back(lost)
        except SessionLost:
            return
        except (Disconnected, OutcomeUnknown) as error:
            self._trouble = error  # the next call raises it, and we try again
        except FlintError as error:
            self.end(error)

    def end(self, error: FlintError) -> None:
        """Nothing is ours any more; calls raise this error."""
        self._ended = error
        self.is_back(self._held.offsets())

    async def close(self) -> None:
        self._registry.discard(self)
        number, self._number = self._number, None
        self._ended = self._ended or Closed(f"the membership of {self._joining.group!r}")
        if number is not None:
            await self._requests.ask_if_connected(Op.CLOSE_STREAM, CloseStreamRequest(number))
