"""The hold on messages that a queue has handed out, and how they are settled.

A `Grip` is the hold on what was granted in one step. It remembers what became of each message, so
that nothing is settled twice, however many message objects were made of it.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right, insort
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ..broker_api import Grant, MemberApi
from ..errors import InvalidRequest, LeaseLost
from ..group_model import LEASE_SECONDS_MAX, Lease, Ranges
from ..groups.ranges import count_in, offsets_in, sorted_ranges, without
from ..model import SECONDS_MAX, Seconds, seconds
from ..observe.tracing import Tracing

if TYPE_CHECKING:
    from .background import BackgroundSettler

log = logging.getLogger("flintmq.client")

Fate = Literal["ack", "nack", "reject", "release", "lost", "auto"]
_PAST: dict[Fate, str] = {
    "ack": "acked",
    "nack": "nacked",
    "reject": "rejected",
    "release": "released",
    "auto": "acked before delivery (ack='auto')",
}


class How(NamedTuple):
    """How messages are settled. Those that are settled alike can be settled at once."""

    fate: Fate
    delay: float = 0.0
    """Of a nack."""
    reason: str = ""
    """Of a reject."""

    def tell(self, member: MemberApi, leases: list[Lease]) -> Awaitable[None]:
        match self.fate:
            case "ack" | "auto":
                return member.ack(leases)
            case "nack":
                return member.nack(leases, self.delay)
            case "reject":
                return member.reject(leases, self.reason)
            case _:
                return member.release(leases)


ACK, AUTO, RELEASE = How("ack"), How("auto"), How("release")


class Keeper(Protocol):
    """What renews the leases of a grip: a subscription's intake."""

    def let_go(self, grip: Grip, count: int) -> None:
        """`count` of its messages are settled, or lost."""
        ...

    def extended(self, grip: Grip, offset: int, lease_seconds: float) -> None: ...


class Grip:
    """The hold on messages that one member was granted under one token."""

    __slots__ = (
        "_fates",
        "_ranges",
        "counts",
        "group",
        "keeper",
        "member",
        "settler",
        "token",
        "topic",
        "tracing",
    )

    def __init__(
        self,
        member: MemberApi,
        group: str,
        grant: Grant,
        tracing: Tracing | None = None,
        keeper: Keeper | None = None,
        settler: BackgroundSettler | None = None,
    ) -> None:
        self.member, self.group = member, group
        self.topic = member.info.topic
        self.token, self.counts = grant.token, grant.counts
        self.tracing = tracing
        self.keeper = keeper
        self.settler = settler
        """For what nobody waits for."""
        self._fates: dict[int, Fate] = {}
        self._ranges: list[tuple[int, int, Fate]] = []  # what was settled many at once, ascending

    def fate(self, offset: int) -> Fate | None:
        """What became of a message; None while it is unsettled."""
        found = self._fates.get(offset)
        if found is None and self._ranges:
            at = bisect_right(self._ranges, offset, key=_first_of) - 1
            if at >= 0 and offset < self._ranges[at][1]:
                return self._ranges[at][2]
        return found

    def is_fresh(self) -> bool:
        """Whether nothing is settled yet."""
        return not self._fates and not self._ranges

    def note(self, ranges: Ranges, fate: Fate) -> None:
        """Many have met their fate. None of them had one."""
        if len(ranges) == 1:
            insort(self._ranges, (*ranges[0], fate))
        else:
            self._ranges.extend((first, end, fate) for first, end in ranges)
            self._ranges.sort()

    def lose(self, offsets: Iterable[int]) -> None:
        """Another consumer has these now."""
        lost = [offset for offset in offsets if self.fate(offset) is None]
        for offset in lost:
            self._fates[offset] = "lost"
        self._tell(len(lost))

    def may_settle(self, offset: int, fate: Fate) -> bool:
        """Whether this is still to be done; raises if something else was done instead."""
        had = self.fate(offset)
        if had is None:
            return True
        if had == "lost":
            raise LeaseLost(self.topic, self.group, [offset])
        if had == fate or (had == "auto" and fate == "ack"):
            return False
        raise InvalidRequest(
            f"offset {offset} of {self.topic!r} was {_PAST[had]}: it cannot be {_PAST[fate]} now"
        )

    async def settle(self, offset: int, how: How) -> None:
        """Settle one message. Where that fails, it is as unsettled as before.

        Cancelled, it counts as settled: the broker has heard of it, and carries it out. What was
        settled in the background before is waited for.
        """
        while not self.may_settle(offset, how.fate):
            if self.settler is None or not self.settler.pending:
                return
            await self.settler.flush()
        fates = self._fates
        fates[offset] = how.fate
        try:
            await how.tell(self.member, [(self.token, [(offset, offset + 1)])])
        except LeaseLost:
            fates[offset] = "lost"
            self._tell(1)
            raise
        except asyncio.CancelledError:
            self._tell(1)
            raise
        except BaseException:
            del fates[offset]
            raise
        if self.keeper is not None:
            self.keeper.let_go(self, 1)

    def settle_nowait(self, offset: int, how: How) -> None:
        """Settle one message without waiting for it. For others it is settled from now on."""
        if not self.may_settle(offset, how.fate):
            return
        assert self.settler is not None, "grips of a client have one"
        self._fates[offset] = how.fate
        self.settler.settle(self, [(offset, offset + 1)], 1, how)
        if self.keeper is not None:
            self.keeper.let_go(self, 1)

    def failed(self, ranges: Ranges, lost: set[int] | None) -> None:
        """What nobody waited for: these were lost. Where it is not known what became of them
        (None), they are as unsettled as before, but their leases are not renewed any more."""
        if lost is None:
            for offset in offsets_in(ranges):
                self._fates.pop(offset, None)
            self._ranges = [
                (start, stop, fate)
                for first, end, fate in self._ranges
                for start, stop in without([(first, end)], ranges)
            ]
        else:
            for offset in lost.intersection(offsets_in(ranges)):
                self._fates[offset] = "lost"

    async def extend(self, offset: int, lease_seconds: float) -> None:
        had = self.fate(offset)
        if had == "lost":
            raise LeaseLost(self.topic, self.group, [offset])
        if had is not None:
            raise InvalidRequest(
                f"offset {offset} of {self.topic!r} was {_PAST[had]}: it has no lease to extend"
            )
        try:
            await self.member.extend([(self.token, [(offset, offset + 1)])], lease_seconds)
        except LeaseLost:
            self.lose([offset])
            raise
        if self.keeper is not None:
            self.keeper.extended(self, offset, lease_seconds)

    def settled_many(self, ranges: Ranges, fate: Fate, lost: set[int]) -> None:
        """A settle of many was answered: these were lost, the others have met their fate."""
        if lost:
            self.forget(ranges)
            for first, end in ranges:
                for offset in range(first, end):
                    self._fates[offset] = "lost" if offset in lost else fate
        self._tell(sum(end - first for first, end in ranges))

    def forget(self, ranges: Ranges) -> None:
        """A settle of many failed: they are as unsettled as before."""
        gone = set(ranges)
        self._ranges = [entry for entry in self._ranges if entry[:2] not in gone]

    def unsettled_of(self, ranges: Ranges) -> Ranges:
        if self.is_fresh():
            return ranges
        if not self._fates:
            return without(ranges, [(first, end) for first, end, _ in self._ranges])
        offsets = (offset for first, end in ranges for offset in range(first, end))
        return sorted_ranges(offset for offset in offsets if self.fate(offset) is None)

    def _tell(self, count: int) -> None:
        if self.keeper is not None and count:
            self.keeper.let_go(self, count)


def _first_of(entry: tuple[int, int, Fate]) -> int:
    return entry[0]


Lot = tuple[Grip, Ranges]
"""Messages of one grip."""


async def settle_lots(lots: Iterable[Lot], how: How, losses: Sequence[LeaseLost] = ()) -> None:
    """Settle messages of many grips: one call for each member, all under way at once.

    A LeaseLost names everything that was lost, `losses` known before included, after the rest was
    settled.
    """
    by_member: dict[int, list[Lot]] = {}
    for grip, ranges in lots:
        if ranges:
            by_member.setdefault(id(grip.member), []).append((grip, ranges))
    calls = [_settle_of_member(of_one, how) for of_one in by_member.values()]
    if len(calls) == 1:  # no task is needed
        answers: Sequence[BaseException | None] = [await calls[0]]
    else:
        answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, LeaseLost):
            raise answer
    losses = [*losses, *(answer for answer in answers if isinstance(answer, LeaseLost))]
    if losses:
        raise LeaseLost(
            ", ".join(dict.fromkeys(lost.topic for lost in losses)),
            ", ".join(dict.fromkeys(lost.group for lost in losses)),
            [offset for lost in losses for offset in lost.offsets],
        )


async def wait_told(grips: Iterable[Grip]) -> None:
    """Wait for what was settled in the background: who settles it again wants to know."""
    for settler in {grip.settler for grip in grips}:
        if settler is not None and settler.pending:
            await settler.flush()


def settle_lots_nowait(lots: Iterable[Lot], how: How) -> None:
    """Settle messages of many grips without waiting for it."""
    for grip, ranges in lots:
        if ranges:
            assert grip.settler is not None, "grips of a client have one"
            grip.note(ranges, how.fate)
            grip.settler.settle(grip, ranges, count_in(ranges), how)
            grip.settled_many(ranges, how.fate, set())


async def _settle_of_member(lots: list[Lot], how: How) -> LeaseLost | None:
    fate = how.fate
    for grip, ranges in lots:
        grip.note(ranges, fate)
    loss: LeaseLost | None = None
    try:
        await how.tell(lots[0][0].member, [(grip.token, ranges) for grip, ranges in lots])
    except LeaseLost as error:
        loss = error
    except asyncio.CancelledError:
        for grip, ranges in lots:
            grip.settled_many(ranges, fate, set())
        raise
    except BaseException:
        for grip, ranges in lots:
            grip.forget(ranges)
        raise
    lost = set(loss.offsets) if loss else set()
    for grip, ranges in lots:
        grip.settled_many(ranges, fate, lost)
    return loss


# --- how a message is settled


def nacking(delay: Seconds) -> How:
    return How("nack", checked_delay(delay))


def rejecting(reason: str) -> How:
    if not isinstance(reason, str):
        raise InvalidRequest(f"a reason must be a str, not {reason!r}")
    reason = reason.encode(errors="replace").decode()  # of an error about an odd file name, say
    return How("reject", reason=reason)


def checked_delay(delay: Seconds) -> float:
    checked = seconds(delay, "delay")
    if checked > SECONDS_MAX:
        raise InvalidRequest(f"delay must be at most {SECONDS_MAX:,} seconds")
    return checked


def checked_lease(lease: Seconds, name: str = "lease") -> float:
    checked = seconds(lease, name, positive=True)
    if checked > LEASE_SECONDS_MAX:
        raise InvalidRequest(
            f"{name} must be at most {LEASE_SECONDS_MAX:,.0f} seconds at a time, not "
            f"{checked:g}; extend the lease instead"
        )
    return checked
