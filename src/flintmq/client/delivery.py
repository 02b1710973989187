"""What a queue hands out: messages that can be settled, one by one or many at once.

A `Grip` is the hold on what was granted in one step. It remembers what became of each message, so
that nothing is settled twice, however many message objects were made of it.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right, insort
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from random import uniform
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from ..broker_api import MemberApi
from ..errors import (
    Closed,
    DecodeFailed,
    Disconnected,
    InvalidRequest,
    LeaseLost,
    OutcomeUnknown,
)
from ..group_model import LEASE_SECONDS_MAX, Lease, Ranges
from ..groups.ranges import ascending, ranges_of_runs, sorted_ranges, without
from ..model import SECONDS_MAX, Seconds, seconds
from ..observe.logs import event
from ..observe.tracing import Processing, Tracing
from ..rows import Message, RowsOf, Run

log = logging.getLogger("flintmq.client")

Fate = Literal["ack", "nack", "reject", "release", "lost", "auto"]
_PAST: dict[Fate, str] = {
    "ack": "acked",
    "nack": "nacked",
    "reject": "rejected",
    "release": "released",
    "auto": "acked before delivery (ack='auto')",
}

Settle = Callable[[MemberApi, list[Lease]], Awaitable[None]]


class Keeper(Protocol):
    """Who renews the leases of a grip: a subscription."""

    def let_go(self, grip: Grip, count: int) -> None:
        """So many of its messages are settled, or lost."""
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
        "token",
        "topic",
        "tracing",
    )

    def __init__(
        self,
        member: MemberApi,
        topic: str,
        group: str,
        token: int,
        counts: Mapping[int, int],
        keeper: Keeper | None = None,
    ) -> None:
        self.member, self.topic, self.group = member, topic, group
        self.token, self.counts = token, counts
        self.keeper = keeper
        self.tracing: Tracing | None = None
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
            self._ranges += [(first, end, fate) for first, end in ranges]
            self._ranges.sort()

    def lose(self, offsets: Iterable[int]) -> None:
        """These are somebody else's now."""
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

    async def settle(self, offset: int, fate: Fate, settle: Settle) -> None:
        """Settle one message. Where that fails, it is as unsettled as before.

        Cancelled, it counts as settled: the broker has heard of it, and carries it out.
        """
        if not self.may_settle(offset, fate):
            return
        fates = self._fates
        fates[offset] = fate
        try:
            await settle(self.member, [(self.token, [(offset, offset + 1)])])
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


async def settle_lots(
    lots: Iterable[Lot], fate: Fate, settle: Settle, losses: Sequence[LeaseLost] = ()
) -> None:
    """Settle messages of many grips: one call for each member, all under way at once.

    A LeaseLost names everything that was lost, `losses` known before included, after the rest was
    settled.
    """
    by_member: dict[int, list[Lot]] = {}
    for grip, ranges in lots:
        if ranges:
            by_member.setdefault(id(grip.member), []).append((grip, ranges))
    calls = [_settle_of_member(of_one, fate, settle) for of_one in by_member.values()]
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


async def _settle_of_member(lots: list[Lot], fate: Fate, settle: Settle) -> LeaseLost | None:
    for grip, ranges in lots:
        grip.note(ranges, fate)
    loss: LeaseLost | None = None
    try:
        await settle(lots[0][0].member, [(grip.token, ranges) for grip, ranges in lots])
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


def acking(member: MemberApi, leases: list[Lease]) -> Awaitable[None]:
    return member.ack(leases)


def nacking(delay: Seconds) -> Settle:
    after = checked_delay(delay)
    return lambda member, leases: member.nack(leases, after)


def rejecting(reason: str) -> Settle:
    if not isinstance(reason, str):
        raise InvalidRequest(f"a reason must be a str, not {reason!r}")
    reason = reason.encode(errors="replace").decode()  # of an error about an odd file name, say
    return lambda member, leases: member.reject(leases, reason)


def releasing(member: MemberApi, leases: list[Lease]) -> Awaitable[None]:
    return member.release(leases)


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


# --- messages


class GrantedMessage(Message, frozen=True, gc=False, eq=False):
    """A message that a queue has handed out to a member of a group."""

    _grip: Grip

    @property
    def offset(self) -> int:
        """Its place in the topic."""
        return self._source.base_offset + self._row

    @property
    def delivery_count(self) -> int:
        """How often it was handed out, this time included."""
        return self._grip.counts.get(self._source.base_offset + self._row, 1)

    @property
    def token(self) -> int:
        """The fencing token: of two deliveries of a message, the later has the higher one."""
        return self._grip.token

    @property
    def group(self) -> str:
        return self._grip.group

    def __repr__(self) -> str:
        shown = Message.__repr__(self).removeprefix("Message(").removesuffix(")")
        return f"{type(self).__name__}({shown}, delivery_count={self.delivery_count})"

    def _lot(self) -> Lot:
        offset = self._source.base_offset + self._row
        return self._grip, [(offset, offset + 1)]


class Delivery(GrantedMessage, frozen=True, gc=False, eq=False):
    """A message from a queue, yours under a lease until it is settled.

    Settled again in the same way, nothing happens; in another way, that is an error. LeaseLost says
    that the lease ran out and the message went to somebody else: drop the work.
    """

    async def ack(self) -> None:
        """It is done: nobody of this group gets it again."""
        await self._grip.settle(self._source.base_offset + self._row, "ack", acking)

    async def nack(self, delay: Seconds = 0) -> None:
        """It is not done: it is delivered again, in `delay` seconds.

        Where that was the last of the topic's `max_deliveries`, it goes to the dead letters.
        """
        await self._grip.settle(self._source.base_offset + self._row, "nack", nacking(delay))

    async def reject(self, reason: str) -> None:
        """It cannot be done: straight to the dead letters, with the reason."""
        await self._grip.settle(self._source.base_offset + self._row, "reject", rejecting(reason))

    async def extend(self, seconds: Seconds) -> None:
        """Have the lease end that many seconds from now."""
        offset = self._source.base_offset + self._row
        await self._grip.extend(offset, checked_lease(seconds, "seconds"))

    def process(
        self,
        retries: int | None = None,
        backoff: Seconds = 1.0,
        backoff_max: Seconds = 60.0,
        jitter: float = 0.2,
        *,
        dead_on: Errors = (),
        retry_on: Errors | None = None,
    ) -> Process:
        """Work on it: `async with message.process(): ...` settles it by how the block ends.

        Without an error it is acked. An exception is logged and goes no further: the message is
        delivered again after `backoff` seconds, twice that the next time, and so on up to
        `backoff_max`, each up to the part `jitter` longer or shorter. Once that was done `retries`
        times (None: as often as `max_deliveries` of the topic allows), it goes to the dead letters
        with the exception's text. A block that is cancelled gives it back at once, and it does not
        count as a delivery. A block that settles the message itself has the last word.

        Some errors are the same the next time. Exceptions of the types `dead_on` send the message
        to the dead letters at once; with `retry_on`, all but those types do, too. So does a value
        that cannot be decoded (DecodeFailed), unless `retry_on` names it.
        """
        retrying = Retrying.checked(retries, backoff, backoff_max, jitter, dead_on, retry_on)
        return Process(self, retrying)


Errors = type[Exception] | tuple[type[Exception], ...]
"""A type of exceptions, or several: what `except` takes."""


class Retrying(NamedTuple):
    """Whether and when a message that failed is tried again."""

    retries: int | None
    backoff: float
    backoff_max: float
    jitter: float
    dead_on: Errors = ()
    retry_on: Errors | None = None

    @classmethod
    def checked(
        cls,
        retries: int | None,
        backoff: Seconds,
        backoff_max: Seconds,
        jitter: float,
        dead_on: Errors = (),
        retry_on: Errors | None = None,
    ) -> Retrying:
        if retries is not None and (type(retries) is not int or retries < 0):
            raise InvalidRequest(
                "retries must be a whole number of at least 0, or None for as many as "
                f"max_deliveries allows; not {retries!r}"
            )
        if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
            raise InvalidRequest(f"jitter must be a fraction from 0 to 1, not {jitter!r}")
        return cls(
            retries,
            seconds(backoff, "backoff"),
            min(seconds(backoff_max, "backoff_max"), float(SECONDS_MAX)),
            float(jitter),
            _checked_errors(dead_on, "dead_on"),
            None if retry_on is None else _checked_errors(retry_on, "retry_on"),
        )

    def is_hopeless(self, error: Exception, message: Delivery) -> bool:
        """Whether trying again would end the same way."""
        if isinstance(error, self.dead_on):
            return True
        if self.retry_on is not None:
            return not isinstance(error, self.retry_on)
        return isinstance(error, DecodeFailed) and (
            (error.topic, error.offset) == (message.topic, message.offset)
        )

    def delay(self, delivery_count: int) -> float:
        """How long to wait before the next delivery."""
        longer: int = 2 ** min(max(0, delivery_count - 1), 62)
        chosen = min(self.backoff * longer, self.backoff_max)
        return chosen * uniform(1 - self.jitter, 1 + self.jitter) if self.jitter else chosen


def _checked_errors(errors: Errors, name: str) -> Errors:
    kinds = errors if isinstance(errors, tuple) else (errors,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise InvalidRequest(
            f"{name} must be an exception class, or a tuple of them; not {errors!r}"
        )
    return errors


class Process:
    """Made by `Delivery.process`; use it as `async with`."""

    def __init__(self, message: Delivery, retrying: Retrying) -> None:
        self._message = message
        self._retrying = retrying
        self._processing: Processing | None = None

    async def __aenter__(self) -> Delivery:
        self._begin()
        return self._message

    def _begin(self) -> None:
        """In the task or thread that does the work: its span is the current one there."""
        tracing = self._message._grip.tracing
        if tracing is not None:
            self._processing = tracing.processing(self._message, self._message.group)

    def _end(self, error: BaseException | None) -> None:
        if self._processing is not None:
            self._processing.end(error)
            self._processing = None

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        try:
            return await self._settle_by(error)
        finally:
            self._end(error)

    async def _settle_by(self, error: BaseException | None) -> bool:
        """Settle the message by how the work ended; whether that is all there is to the error."""
        message = self._message
        failed = isinstance(error, Exception)
        if isinstance(error, Exception) and self._retrying.is_hopeless(error, message):
            event(
                log,
                logging.WARNING,
                "message_rejected",
                f"{message.topic} offset {message.offset} becomes a dead letter of group "
                f"{message.group!r}: {reason_of(error)}",
                topic=message.topic,
                offset=message.offset,
                group=message.group,
            )
        elif failed:
            event(
                log,
                logging.WARNING,
                "handler_failed",
                f"{message.topic} offset {message.offset} failed in group {message.group!r} "
                f"(delivery {message.delivery_count}): {error!r}",
                exc_info=error,
                topic=message.topic,
                offset=message.offset,
                group=message.group,
                delivery_count=message.delivery_count,
            )
        offset = message.offset
        assert offset is not None
        if message._grip.fate(offset) is None:
            try:
                await self._settle(error)
            except (LeaseLost, Closed, Disconnected, OutcomeUnknown) as lost:
                event(
                    log,
                    logging.WARNING,
                    "not_settled",
                    f"{message.topic} offset {offset} was not settled: {lost}",
                    topic=message.topic,
                    offset=offset,
                    group=message.group,
                )
        return failed

    async def _settle(self, error: BaseException | None) -> None:
        message, retries = self._message, self._retrying.retries
        if error is None:
            await message.ack()
        elif isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            # Not the message's fault: work is being stopped.
            offset = message._source.base_offset + message._row
            await message._grip.settle(offset, "release", releasing)
        elif not isinstance(error, Exception):
            await message.nack()
        elif self._retrying.is_hopeless(error, message) or (
            retries is not None and message.delivery_count > retries
        ):
            await message.reject(reason_of(error))
        else:
            await message.nack(self._retrying.delay(message.delivery_count))


REASON_LENGTH_MAX = 1000


def reason_of(error: BaseException) -> str:
    """An exception in a line, as the reason of a dead letter."""
    return f"{type(error).__name__}: {error}"[:REASON_LENGTH_MAX]


G = TypeVar("G", bound=GrantedMessage)


class GrantedRows(RowsOf[G]):
    """Rows whose runs have a grip."""

    __slots__ = ()

    def _lots(self) -> list[Lot]:
        """What of these is not settled yet, by grip."""
        by_grip: dict[int, tuple[Grip, list[Run]]] = {}
        for run in self._runs:
            by_grip.setdefault(id(run.grip), (run.grip, []))[1].append(run)
        return [
            (grip, grip.unsettled_of(ascending(ranges_of_runs(runs))))
            for grip, runs in by_grip.values()
        ]


class Deliveries(GrantedRows[Delivery]):
    """Messages from a queue: a sequence that equals the list of them, with `values` as the fast way
    through it. `ack` and `nack` settle at once what was not settled one by one."""

    __slots__ = ()

    async def ack(self) -> None:
        """All of these are done, but for those that were settled otherwise."""
        await settle_lots(self._lots(), "ack", acking)

    async def nack(self, delay: Seconds = 0) -> None:
        """All of these that are not settled yet are delivered again, in `delay` seconds."""
        await settle_lots(self._lots(), "nack", nacking(delay))

    def __iter__(self) -> Iterator[Delivery]:
        for source, start, stop, origin, picks, grip in self._runs:
            for row in range(start, stop) if picks is None else picks:
                yield Delivery(source, row, origin, grip)

    def _made(self, run: Run, row: int) -> Delivery:
        return Delivery(run.source, row, run.origin, run.grip)


Messages = GrantedMessage | GrantedRows[Any] | Iterable[GrantedMessage]
"""Messages of queues: one, what a poll returned, or any of them."""


async def settle_messages(messages: Messages, fate: Fate, settle: Settle) -> None:
    """Settle the messages of one call; checked before anything is done."""
    if isinstance(messages, GrantedRows):
        await settle_lots(messages._lots(), fate, settle)
        return
    if isinstance(messages, GrantedMessage):
        messages = [messages]
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise InvalidRequest(f"{fate} takes messages of a queue group, not {messages!r}")
    offsets: dict[int, tuple[Grip, set[int]]] = {}
    losses: list[LeaseLost] = []
    for message in messages:
        if not isinstance(message, GrantedMessage):
            raise InvalidRequest(
                f"{message!r} is not a message of a queue group: use subscribe or poll"
            )
        offset = message._source.base_offset + message._row
        grip = message._grip
        try:
            if grip.may_settle(offset, fate):
                offsets.setdefault(id(grip), (grip, set()))[1].add(offset)
        except LeaseLost as lost:
            losses.append(lost)
    lots = [(grip, sorted_ranges(of_grip)) for grip, of_grip in offsets.values()]
    await settle_lots(lots, fate, settle, losses)
