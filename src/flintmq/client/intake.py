"""What a subscription has taken ahead.

Messages are taken by tasks of the intake itself, and handed out in the same step in which a reader
asks for them: a read that is cancelled has taken nothing. `renewing` keeps their leases alive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from copy import copy
from typing import Any

from ..batch import RowSource
from ..broker_api import Grant, MemberApi, TakeMode
from ..clock import Clock
from ..errors import (
    Closed,
    FilterFailed,
    FlintError,
    LeaseLost,
    StorageFull,
)
from ..groups.ranges import sorted_ranges
from ..observe.tracing import Tracing
from ..rows import Origin, Run
from .background import FLUSH_SECONDS, BackgroundSettler
from .delivery import Deliveries, Delivery
from .errands import Errands
from .grips import AUTO, Grip, settle_lots
from .parking import Parking
from .renewing import LeaseRenewals
from .take_ahead import TakeAhead

GIVE_BACK_SECONDS = 2.0
"""How long closing waits for a broker to have what is given back; leaving gives it back too."""

JoinPartition = Callable[[int], Coroutine[Any, Any, MemberApi]]


Item = tuple[Grip, RowSource, int, Origin]
"""A message that was taken, before it is handed out."""


class MessageIntake:
    """Takes messages ahead for one subscription, from one member or from one for each partition.

    No more messages are unsettled than the window says, whether handed out or still here.
    """

    def __init__(
        self,
        clock: Clock,
        group: str,
        *,
        lease: float,
        lease_max: float,
        window: TakeAhead,
        auto: bool,
        join: JoinPartition,
        count: Callable[[], int] | None,
        settler: BackgroundSettler,
        tracing: Tracing | None = None,
        in_turn: bool = False,
    ) -> None:
        self._tracing, self._settler = tracing, settler
        self._clock, self._group, self._lease = clock, group, lease
        self._window = window
        window.on_surplus = self._give_surplus
        self._auto, self._join = auto, join
        self._count = count  # None: a plain topic, or these partitions and no others
        self._members: list[MemberApi] = []
        self._turn, self._wanted = 0, 1
        self._taking: dict[MemberApi, asyncio.Task[None]] = {}
        self._called_back: set[asyncio.Task[None]] = set()
        self._ahead: deque[Item] = deque()
        self._in_turn = in_turn and not auto
        """In a queue by key: take several messages of a key at once. So it is while each message is
        settled before the next one is asked for."""
        self._out: Item | None = None
        """With `_in_turn`: the message that was handed out last."""
        self._in_doubt: set[MemberApi] = set()
        """Whose leases may be another's by now: nothing is handed out before that is known."""
        self._stopping: set[MemberApi] = set()
        """Whose broker is about to stop: nothing is kept for later."""
        self._readers: set[asyncio.Task[Any]] = set()
        self._settled: deque[Item] = deque()
        """With ack="auto": settled, and to be handed out next."""
        self._errands = Errands(self._fail)
        self._renewals = LeaseRenewals(clock, self, self._errands, lease, lease_max)
        self._parking = Parking(clock)
        self._growing: asyncio.Task[None] | None = None
        self._failed: Exception | None = None
        self._is_dead = self._is_stopped = False
        self._closing: asyncio.Task[None] | None = None

    async def open(self, partitions: Iterable[int]) -> None:
        """Join these partitions too: all of them or, when one cannot be joined, none."""
        joined: list[MemberApi] = []
        try:
            for partition in partitions:
                joined.append(await self._join(partition))
        except BaseException:
            for member in joined:
                await member.close()
            raise
        for member in joined:
            member.watch(self)
        self._members += joined
        if self._in_turn:
            self._in_turn = all(member.info.order == "key" for member in joined)
        self._refill()

    # --- handing out

    @property
    def unsettled(self) -> int:
        """How many messages are held, whether handed out or still here."""
        return self._renewals.unsettled

    def is_ready(self) -> bool:
        is_over = self._failed is not None or self._is_stopped
        return bool(self._settled or is_over or self._there())

    def take(self, max_rows: int) -> Deliveries:
        """Up to so many that are here; with ack="auto", that are settled already."""
        here = self._here(max_rows)
        if not here or (self._in_doubt and not self._auto):
            self._wanted = max_rows
            return Deliveries()
        items = [here.popleft() for _ in range(min(max_rows, len(here)))]
        self._out = items[-1]
        return Deliveries(_runs(items))

    def take_one(self) -> Delivery | None:
        here = self._here(1)
        if not here or (self._in_doubt and not self._auto):
            self._wanted = 1
            return None
        held, source, row, origin = self._out = here.popleft()
        return Delivery(source, row, origin, held)

    def _here(self, wanted: int) -> deque[Item]:
        """What can be handed out."""
        reader = asyncio.current_task()
        if reader is not None and reader not in self._readers:
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)
        if self._settled:
            return self._settled  # nobody else will get it
        if self._failed is not None or self._is_stopped:
            self._raise_failed()
        if self._in_turn and (wanted > 1 or self._renewals.unsettled > len(self._ahead)):
            # Several are worked on at once: from now on, one message of each key is taken.
            self._in_turn = False
            self._return(lambda item: True)
        return self._settled if self._auto else self._ahead

    def readers(self) -> set[asyncio.Task[Any]]:
        """The tasks that were handed messages, or asked for some, and go on."""
        return {reader for reader in self._readers if not reader.done()}

    async def look(self) -> None:
        """What is there is on its way already."""

    async def wait(self, timeout: float | None) -> bool:
        """Whether there is something to take; False when the time is up."""
        if self.is_ready():
            if self._auto and self._ahead and not self._settled and self._failed is None:
                await self._settle_ahead()
            return True
        # now even one is worth fetching
        return await self._parking.wait_in_turn(timeout, self._refill, self._there)

    def _there(self) -> int:
        return 0 if self._in_doubt else len(self._ahead)

    async def _settle_ahead(self) -> None:
        """ack="auto": settle as many as are asked for, so that they can be handed out.

        In one call to one member: where that need not wait, they are handed out in the same step.
        Whoever asked may be cancelled meanwhile: then they are for whoever asks next.
        """
        ahead = self._ahead
        member = ahead[0][0].member
        items: list[Item] = []
        while ahead and len(items) < self._wanted and ahead[0][0].member is member:
            items.append(ahead.popleft())
        lots = [(grip, sorted_ranges(of_grip)) for grip, of_grip in _offsets_by_grip(items).items()]
        try:
            await settle_lots(lots, AUTO)
        except LeaseLost:
            items = [item for item in items if item[0].fate(_offset(item)) == "auto"]
        except asyncio.CancelledError:
            self._settled += items
            self._parking.wake()
            raise
        except Exception as error:
            self._fail(error)
            return
        self._settled += items

    # --- leases in doubt

    def in_doubt(self, member: MemberApi) -> None:
        self._in_doubt.add(member)
        self._stopping.discard(member)

    def broker_stops(self, member: MemberApi) -> None:
        self._stopping.add(member)
        self._return(lambda item: item[0].member is member)

    def _return(self, is_meant: Callable[[Item], bool]) -> None:
        """Give back what was taken ahead, though there may be time for it later."""
        for grip, offsets in self._give_back(self._take_unseen(is_meant)).items():
            grip.note(sorted_ranges(offsets), "release")
            self.let_go(grip, len(offsets))

    def sure(self, member: MemberApi, lost: Collection[int]) -> None:
        """What was taken ahead and is another's now is dropped; the rest can be handed out."""
        self._in_doubt.discard(member)
        if lost:
            self.lose(self._renewals.of_member(member, lost))
        self._parking.wake()

    # --- failing

    def _fail(self, error: Exception) -> None:
        """Raise into whoever reads. What concerns one message or passes is raised once."""
        if self._is_dead or self._closing is not None:
            return
        self._failed = error
        self._is_dead = not isinstance(error, FilterFailed | StorageFull)
        if self._is_dead:
            self._ahead.clear()
            self._settled.clear()
            self._renewals.drop_all()
        self._parking.wake()

    def _raise_failed(self) -> None:
        error = self._failed
        if error is None:
            raise Closed("the subscription")
        if self._is_dead:
            raise copy(error) if isinstance(error, FlintError) else error
        self._failed = None
        self._refill()
        raise error

    # --- taking ahead

    def _refill(self) -> None:
        """Begin to take, where there is room for a batch or somebody waits for anything at all."""
        room = self._window.limit - self._renewals.unsettled
        if room < self._window.refill_at and not (room > 0 and self._parking and not self._ahead):
            return
        if self._failed is not None or self._is_stopped or self._closing is not None:
            return
        if self._settler.is_full:
            self._settler.when_room(self._refill)
            return
        members = self._members
        self._look_for_more()
        if len(members) == 1:
            if not self._is_taking(members[0]):
                self._begin(members[0], room)
            return
        turn = self._turn
        members = [m for m in members[turn:] + members[:turn] if not self._is_taking(m)]
        if not members:
            return
        self._turn = (turn + 1) % len(self._members)
        ready = sum(member.is_ready() for member in members)
        for member in members:
            # Those with a backlog share the room. What the others bring too much is given back.
            self._begin(member, max(1, room // ready) if member.is_ready() else room)

    def _is_taking(self, member: MemberApi) -> bool:
        return member in self._taking and not self._taking[member].done()

    def _begin(self, member: MemberApi, max_rows: int) -> None:
        task = asyncio.get_running_loop().create_task(self._take_ahead(member, max_rows))
        self._taking[member] = task
        # Not at the end of the task itself: one that is cancelled early never gets there.
        task.add_done_callback(lambda task: self._end(member, task))

    def _end(self, member: MemberApi, task: asyncio.Task[None]) -> None:
        if self._taking.get(member) is task:
            del self._taking[member]
        if task.cancelled() and task not in self._called_back:
            return  # by somebody else: the event loop is coming to its end
        self._called_back.discard(task)
        self._refill()

    async def _take_ahead(self, member: MemberApi, max_rows: int) -> None:
        try:
            in_turn = self._in_turn
            grant = await member.take(max_rows, self._lease, None, TakeMode(in_turn=in_turn))
            if grant is not None:
                self._arrived(member, grant, is_late=in_turn and not self._in_turn)
        except Exception as error:
            self._fail(error)

    def _arrived(self, member: MemberApi, grant: Grant, *, is_late: bool) -> None:
        grip = Grip(member, self._group, grant, self._tracing, self, self._settler)
        rows = grant.rows.runs
        items = [(grip, run.source, row, run.origin) for run in rows for row in run.rows()]
        is_over = self._is_stopped or is_late or member in self._stopping
        room = 0 if is_over else self._window.limit - self._renewals.unsettled
        if len(items) > room:  # several partitions were faster than one
            self._give_back(items[room:])
            del items[room:]
        if not items:
            return
        self._renewals.add(grip, list(map(_offset, items)))
        self._ahead += items
        if self._renewals.unsettled >= self._window.limit:
            for other, task in self._taking.items():
                if other is not member and task.cancel():
                    self._called_back.add(task)
        self._parking.wake_some(1)

    def _give_back(self, items: Iterable[Item]) -> dict[Grip, list[int]]:
        """Release what was not handed out; that, by grip."""
        by_grip = _offsets_by_grip(items)
        for grip, offsets in by_grip.items():
            self._errands.send_off(grip.member.release([(grip.token, sorted_ranges(offsets))]))
        return by_grip

    def _give_surplus(self) -> None:
        surplus = self._renewals.unsettled - self._window.limit
        last = set(map(id, [*self._ahead][-surplus:] if surplus > 0 else ()))
        self._return(lambda item: id(item) in last)

    def _take_unseen(self, is_meant: Callable[[Item], bool]) -> list[Item]:
        """Messages that were taken ahead, as far as they are meant; they are no longer here."""
        unseen = [item for item in self._ahead if is_meant(item)]
        if unseen:
            self._ahead = deque(item for item in self._ahead if not is_meant(item))
        return unseen

    # --- partitions that are added

    def _look_for_more(self) -> None:
        count = self._count
        if count is not None and self._growing is None and count() > len(self._members):
            self._growing = asyncio.get_running_loop().create_task(self._grow())

    async def _grow(self) -> None:
        try:
            assert self._count is not None
            await self.open(range(len(self._members), self._count()))
        except Exception as error:
            self._fail(error)
        finally:
            self._growing = None

    # --- keeping leases

    def let_go(self, grip: Grip, count: int) -> None:
        """`count` messages of a grip are settled or lost: there is room for others."""
        if self._renewals.settled(grip, count):
            self._window.settled(count)
            if self._is_stopped:
                self._parking.wake()
            if self._in_turn and self._out is not None and self._out[0] is grip:
                self._return_followers(self._out)
            self._refill()

    def _return_followers(self, out: Item) -> None:
        """If a message was not done, those behind it in its key have to wait for it."""
        grip, source, row, _ = out
        if grip.fate(_offset(out)) in ("nack", "release", "lost"):
            self._out = None
            key = source.key_hash(row)
            self._return(lambda item: item[0] is grip and item[1].key_hash(item[2]) == key)

    def extended(self, grip: Grip, offset: int, lease_seconds: float) -> None:
        self._renewals.extended(grip, offset, lease_seconds)

    def run_out(self, grip: Grip) -> list[int]:
        unseen = self._take_unseen(lambda item: item[0] is grip)
        self._give_back(unseen)
        self._refill()
        return list(map(_offset, unseen))

    def lose(self, lost: Mapping[Grip, Collection[int]]) -> None:
        for grip, offsets in lost.items():
            grip.lose(offsets)
        self._ahead = deque(item for item in self._ahead if item[0].fate(_offset(item)) is None)

    # --- the end

    def stop(self) -> None:
        """Take nothing more, and give back what nobody has seen. What was handed out stays leased
        until it is settled or this is closed; `wait_settled` waits for that."""
        if self._is_stopped:
            return
        self._is_stopped = True
        for task in self._taking.values():
            task.cancel()
        unseen, self._ahead = self._ahead, deque()
        self._give_back(unseen)
        for item in unseen:
            item[0].lose([_offset(item)])
        self._parking.wake()

    async def wait_settled(self, timeout: float) -> bool:
        """Whether everything that was handed out is settled, within so many seconds."""
        while self._renewals.unsettled:
            began = self._clock.monotonic()
            if not await self._parking.wait(timeout):
                return False
            timeout -= self._clock.monotonic() - began
        return True

    async def close(self) -> None:
        """Give everything back and leave the group; goes on to its end even if cancelled."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._renewals.close()
        self._parking.wake()
        under_way = [*self._taking.values()]
        for task in under_way:
            task.cancel()
        if self._growing is not None:
            under_way.append(self._growing)
        if under_way:
            await asyncio.wait(under_way)
        self._give_back(self._ahead)
        self._ahead.clear()
        await self._settler.flush(FLUSH_SECONDS)
        await self._errands.wait(GIVE_BACK_SECONDS)
        failed: Exception | None = None
        for member in self._members:
            try:
                await member.close()
            except Exception as error:  # the others are left all the same
                failed = failed or error
        if failed is not None and not self._is_dead:
            raise failed


def _offset(item: Item) -> int:
    return item[1].base_offset + item[2]


def _offsets_by_grip(items: Iterable[Item]) -> dict[Grip, list[int]]:
    by_grip: dict[Grip, list[int]] = {}
    for item in items:
        by_grip.setdefault(item[0], []).append(_offset(item))
    return by_grip


def _runs(items: list[Item]) -> list[Run]:
    """Messages one by one as runs of rows: neighbours share one."""
    runs: list[Run] = []
    first = stop = 0
    last: Item | None = None
    for item in items:
        grip, source, row, _ = item
        if last is not None:
            if row == stop and last[1] is source and last[0] is grip:
                stop += 1
                continue
            runs.append(Run(last[1], first, stop, last[3], None, last[0]))
        last, first, stop = item, row, row + 1
    if last is not None:
        runs.append(Run(last[1], first, stop, last[3], None, last[0]))
    return runs
