"""The pull form of a queue: ask for messages, get those that are there or wait for the first.

A connection is one member of each group that it polls, from its first poll until it is closed.
Leases of polled messages are not renewed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from math import inf
from typing import NamedTuple

from ..broker_api import BrokerApi, Grant, MemberApi, TakeMode
from ..clock import Clock, done_within
from ..errors import (
    Closed,
    Disconnected,
    FlintError,
    GroupNotFound,
    LeaseLost,
    OutcomeUnknown,
    TopicNotFound,
)
from ..group_model import Ranges
from ..observe.logs import event
from ..observe.tracing import Tracing
from ..rows import Run
from .background import FLUSH_SECONDS, BackgroundSettler
from .delivery import Deliveries
from .grips import AUTO, RELEASE, Grip, log, settle_lots
from .in_time import ANSWER_SECONDS, in_time
from .intake import GIVE_BACK_SECONDS
from .membership import GroupMembership, JoinOptions

IN_TURN = TakeMode(in_turn=True)


class Asked(NamedTuple):
    """What one poll asks for."""

    topic: str
    group: str
    max_rows: int
    lease: float
    wait: float
    auto: bool
    options: JoinOptions


class Pollers:
    """The groups that a connection polls."""

    def __init__(
        self,
        broker: BrokerApi,
        settler: BackgroundSettler,
        tracing: Tracing | None = None,
        patience: float | None = None,
    ) -> None:
        self._broker = broker
        self._settler = settler
        self._tracing = tracing
        self._patience = patience
        self._pollers: dict[tuple[str, str], Poller] = {}

    async def poll(self, asked: Asked) -> Deliveries:
        poller = self._poller(asked)
        if self._settler.pending:
            await self._settler.room()
            self._settler.push()
        try:
            return await poller.poll(asked)
        finally:
            self._forget_unused(asked, poller)

    async def members(self, asked: Asked) -> list[MemberApi]:
        """Of a group, one for each partition: for who settles what others have polled."""
        poller = self._poller(asked)
        try:
            return await poller.members(asked)
        finally:
            self._forget_unused(asked, poller)

    def _poller(self, asked: Asked) -> Poller:
        place = asked.topic, asked.group
        poller = self._pollers.get(place)
        if poller is None:
            poller = self._pollers[place] = Poller(
                self._broker, *place, self._settler, self._tracing, self._patience
            )
        return poller

    def _forget_unused(self, asked: Asked, poller: Poller) -> None:
        place = asked.topic, asked.group
        if not poller.is_used() and self._pollers.get(place) is poller:
            del self._pollers[place]

    async def put_back(self, topic: str, group: str, found: Deliveries) -> None:
        """Nobody got what a poll had found: others may have it, or the next poll."""
        poller = self._pollers.get((topic, group))
        if poller is not None:
            await poller.put_back(found)

    async def forget(self, topic: str, group: str | None = None) -> None:
        """A topic or group is gone: nothing of it is to be kept for the next poll."""
        for place in [place for place in self._pollers if place[0] == topic]:
            if group is None or place[1] == group:
                await self._pollers.pop(place).close()

    async def close(self) -> None:
        """Leave all groups; what was polled and not settled is given back."""
        await self._settler.flush(FLUSH_SECONDS)
        pollers, self._pollers = self._pollers, {}
        async with AsyncExitStack() as closing:
            for poller in pollers.values():
                closing.push_async_callback(poller.close)


class Poller:
    """A member of one group: of a plain topic, or one for each partition."""

    def __init__(
        self,
        broker: BrokerApi,
        topic: str,
        group: str,
        settler: BackgroundSettler,
        tracing: Tracing | None = None,
        patience: float | None = None,
    ) -> None:
        self._broker = broker
        self._settler = settler
        self._tracing = tracing
        self._clock: Clock = broker.clock
        self._topic, self._group = topic, group
        self._members: list[MemberApi] = []
        self._said: tuple[object, ...] | None = None
        self._has_joined = False
        self._turn = 0
        self._polls = 0
        self._joining = asyncio.Lock()
        self._settled: list[Deliveries] = []
        """With ack="auto": what was settled for a poll that was cancelled then."""
        self._errands: set[asyncio.Task[None]] = set()
        self._patience = inf if patience is None else patience
        self._unanswered_since: float | None = None

    def is_used(self) -> bool:
        return bool(self._members or self._polls)

    async def poll(self, asked: Asked) -> Deliveries:
        self._polls += 1
        began = self._clock.monotonic()
        try:
            found = await self._poll_until(asked, began + asked.wait)
        except (Disconnected, OutcomeUnknown):
            # A broker that is away for a moment has nothing for us. One that stays away for longer
            # than our patience, over any number of polls, is told of.
            if self._unanswered_since is None:
                self._unanswered_since = began
            now = self._clock.monotonic()
            is_late = now >= began + asked.wait
            if not asked.wait or not is_late or now - self._unanswered_since >= self._patience:
                raise
            return Deliveries()
        finally:
            self._polls -= 1
        self._unanswered_since = None
        return found

    async def _poll_until(self, asked: Asked, deadline: float) -> Deliveries:
        is_fresh = not self._members
        members = await self._joined_by(asked, deadline)
        if asked.auto and self._settled:
            return self._again(asked.max_rows)
        # One member looks what there is and waits in one go; of several, each has its share first.
        wait = asked.wait if len(members) == 1 else 0.0
        try:
            found = await self._poll(members, asked, wait, deadline)
        except (TopicNotFound, GroupNotFound, Closed):
            if is_fresh:
                raise
            # It went away since the last poll, or while this one waited. Others may have made it
            # anew; whoever still waits for what was deleted does not make it again.
            await self._leave(members)
            options = asked.options._replace(auto_create=False)
            members = await self._joined_by(asked._replace(options=options), deadline)
            found = await self._poll(members, asked, 0.0, deadline)
        while not found.runs and (left := deadline - self._clock.monotonic()) > 0:
            members = await self._joined_by(asked, deadline)  # there may be more than before
            found = await self._poll(members, asked, left, deadline)
        return found

    async def _poll(
        self, members: list[MemberApi], asked: Asked, wait: float, deadline: float
    ) -> Deliveries:
        if len(members) > 1:
            return await self._poll_row(members, asked, wait, deadline)
        grant = await members[0].take(
            asked.max_rows, asked.lease, wait, TakeMode(asked.auto, in_turn=True)
        )  # and no await until it is returned: nothing is lost on the way
        return self._deliveries(members[0], grant, asked.auto) if grant else Deliveries()

    def _deliveries(self, member: MemberApi, grant: Grant, is_settled: bool) -> Deliveries:
        grip = Grip(member, self._group, grant, self._tracing, settler=self._settler)
        runs = [run._replace(grip=grip) for run in grant.rows.runs]
        found = Deliveries(runs)
        if is_settled:
            for _, ranges in found._lots():
                grip.note(ranges, "auto")
        return found

    # --- members

    async def members(self, asked: Asked) -> list[MemberApi]:
        return await self._joined(asked)

    async def _joined_by(self, asked: Asked, deadline: float) -> list[MemberApi]:
        """The members, one for each partition. To join takes no longer than the poll may."""
        left = deadline - self._clock.monotonic()
        if self._members or not asked.wait:
            return await self._joined(asked)
        return await in_time(self._clock, max(0.0, left), self._joined(asked))

    async def _joined(self, asked: Asked) -> list[MemberApi]:
        membership = GroupMembership(self._broker, self._topic, self._group, asked.options)
        said = asked.options.of_group
        is_known = said is None or said == self._said
        count = membership.partitions() or 1
        if len(self._members) == count and is_known:
            return self._members
        async with self._joining:  # polls that begin together are one member
            if self._members and said is not None and said != self._said:
                await (await membership.join(0)).close()  # raises if the group is another
            while len(self._members) < count:
                # Partitions that were added after the first poll are read from their start.
                membership.is_late = self._has_joined and bool(self._members)
                self._members.append(await membership.join(len(self._members)))
            self._said = said or self._said
            self._has_joined = True
        return self._members

    async def _leave(self, members: list[MemberApi]) -> None:
        if self._members is members:
            self._members, self._said, self._has_joined = [], None, False
        for member in members:
            try:
                await member.close()
            except FlintError as error:
                event(
                    log,
                    logging.DEBUG,
                    "leave_failed",
                    f"leaving a group failed: {error}",
                    topic=self._topic,
                    group=self._group,
                )

    async def close(self) -> None:
        if self._errands:
            await asyncio.wait(self._errands, timeout=GIVE_BACK_SECONDS)
        members, self._members = self._members, []
        async with AsyncExitStack() as closing:
            for member in members:
                closing.push_async_callback(member.close)

    # --- over partitions

    async def _poll_row(
        self, members: list[MemberApi], asked: Asked, wait: float, deadline: float
    ) -> Deliveries:
        """Takes need several steps here, so a task makes them: who is cancelled has taken nothing.

        They are taken under leases, also with ack="auto", so that they can be given back.
        """
        task = asyncio.get_running_loop().create_task(self._take_row(members, asked, wait))
        try:
            if not asked.wait:
                return await asyncio.shield(task)
            left = max(0.0, deadline - self._clock.monotonic()) + ANSWER_SECONDS
            if await done_within(self._clock, task, left):
                return task.result()
            self._take_back(task)
        except asyncio.CancelledError:
            self._take_back(task)
            raise
        raise OutcomeUnknown(f"the broker did not answer within {asked.wait:g} s")

    def _take_back(self, task: asyncio.Task[Deliveries]) -> None:
        task.cancel()
        errand = asyncio.get_running_loop().create_task(self._undo(task))
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    async def _undo(self, task: asyncio.Task[Deliveries]) -> None:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            await self.put_back(task.result())

    async def put_back(self, found: Deliveries) -> None:
        """Give back what was leased; what was settled is for the next poll."""
        if any(ranges for _, ranges in found._lots()):
            await self._give_back(found)
        elif found.runs:
            self._settled.append(found)

    def _again(self, max_rows: int) -> Deliveries:
        first = self._settled.pop(0)
        head, rest = first.split(max_rows)
        if rest.runs:
            self._settled.insert(0, rest)
        return head

    async def _take_row(self, members: list[MemberApi], asked: Asked, wait: float) -> Deliveries:
        turn = self._turn % len(members)
        self._turn = turn + 1
        members = members[turn:] + members[:turn]
        taken: list[Run] = []
        try:
            if wait:
                await self._wait_for_any(members, asked, wait, taken)
            else:
                await self._take_shares(members, asked, taken)
            found, excess = Deliveries(taken).split(asked.max_rows)
            if excess.runs:
                await self._give_back(excess)
        except BaseException:
            await self._give_back(Deliveries(taken))
            raise
        if asked.auto and found.runs:
            found = await self._settle(found)
        return found

    async def _take_shares(
        self, members: Sequence[MemberApi], asked: Asked, taken: list[Run]
    ) -> None:
        """What is there, of each its share; what some leave, others may have."""
        left = asked.max_rows
        while members and left:
            more: list[MemberApi] = []
            for number, member in enumerate(members):
                share = -(-left // (len(members) - number)) if left else 0
                if not share:
                    break
                grant = await member.take(share, asked.lease, 0.0, IN_TURN)
                if grant is None:
                    continue
                taken += self._deliveries(member, grant, False).runs
                left -= len(grant.rows)
                if len(grant.rows) == share:
                    more.append(member)
            members = more

    async def _wait_for_any(
        self, members: Sequence[MemberApi], asked: Asked, wait: float, taken: list[Run]
    ) -> None:
        """Wait at all of them. Two may have something in the same moment: then it is more."""

        async def take_from(member: MemberApi) -> None:
            grant = await member.take(asked.max_rows, asked.lease, wait, IN_TURN)
            if grant is not None:
                taken.extend(self._deliveries(member, grant, False).runs)

        waiting = [asyncio.get_running_loop().create_task(take_from(m)) for m in members]
        try:
            pending = set(waiting)
            while pending and not taken:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    async def _settle(self, found: Deliveries) -> Deliveries:
        """ack="auto": settle what is handed out. Once begun, it is carried through."""
        lots: list[tuple[Grip, Ranges]] = found._lots()
        settling = asyncio.ensure_future(settle_lots(lots, AUTO))
        try:
            await asyncio.shield(settling)
        except LeaseLost:
            return _still_ours(found)
        except asyncio.CancelledError:
            await asyncio.wait([settling])
            if settling.exception() is None:
                self._settled.append(found)
            raise
        return found

    async def _give_back(self, taken: Deliveries) -> None:
        try:
            await settle_lots(taken._lots(), RELEASE)
        except FlintError as error:
            event(
                log,
                logging.DEBUG,
                "give_back_failed",
                f"releasing polled messages failed: {error}",
                topic=self._topic,
                group=self._group,
            )


def _still_ours(found: Deliveries) -> Deliveries:
    runs: list[Run] = []
    for run in found.runs:
        base = run.source.base_offset
        rows = [row for row in run.rows() if run.grip.fate(base + row) != "lost"]
        if rows:
            runs.append(run._replace(picks=rows))
    return Deliveries(runs)
