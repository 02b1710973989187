"""What a queue hands out: messages that can be settled, one by one or many at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, Unpack

from ..errors import InvalidRequest, LeaseLost
from ..groups.ranges import ascending, ranges_of_runs, sorted_ranges
from ..model import Seconds
from ..observe.logs import event
from ..observe.tracing import Processing
from ..rows import Message, RowsOf, Run
from .grips import (
    ACK,
    RELEASE,
    Grip,
    How,
    Lot,
    checked_lease,
    log,
    nacking,
    rejecting,
    settle_lots,
    settle_lots_nowait,
    wait_told,
)
from .keywords import BackoffKeywords, RetryKeywords, takes
from .retrying import Retrying, reason_of


class GrantedMessage(Message, frozen=True, gc=False, eq=False):
    """A message that a queue has handed out to a member of a group."""

    _grip: Grip

    @property
    def offset(self) -> int:
        """Its place in the topic."""
        return self._source.base_offset + self._row

    @property
    def delivery_count(self) -> int:
        """How often the message was delivered, including this time."""
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


class Delivery(GrantedMessage, frozen=True, gc=False, eq=False):
    """A message from a group, with a lease until you settle it.

    Settling it again in the same way does nothing; in a different way is an error. LeaseLost means
    that the lease expired and another consumer got the message: discard the work.
    """

    async def ack(self) -> None:
        """Acknowledge the message: no member of this group gets it again."""
        await self._grip.settle(self._source.base_offset + self._row, ACK)

    async def nack(self, delay: Seconds = 0) -> None:
        """Return the message for redelivery, after `delay` seconds.

        If this was the last of the topic's `max_deliveries`, it becomes a dead letter.
        """
        await self._grip.settle(self._source.base_offset + self._row, nacking(delay))

    async def reject(self, reason: str) -> None:
        """Make the message a dead letter, with this reason."""
        await self._grip.settle(self._source.base_offset + self._row, rejecting(reason))

    def ack_nowait(self) -> None:
        """Acknowledge the message in the background, without waiting for the broker.

        Acks are collected and sent in order; closing flushes them. What a crash loses is delivered
        again. A failed ack is logged, counted (`not_settled` of the connection) and passed to
        `on_not_settled`. A later `ack()` waits for it.
        """
        self._grip.settle_nowait(self._source.base_offset + self._row, ACK)

    def nack_nowait(self, delay: Seconds = 0) -> None:
        """Return the message as `nack` does, in the background as `ack_nowait` does."""
        self._grip.settle_nowait(self._source.base_offset + self._row, nacking(delay))

    async def extend(self, seconds: Seconds) -> None:
        """Set the end of the lease to this many seconds from now."""
        offset = self._source.base_offset + self._row
        await self._grip.extend(offset, checked_lease(seconds, "seconds"))

    @takes(BackoffKeywords)
    def process(
        self,
        retries: int | None = None,
        backoff: Seconds = 1.0,
        **said: Unpack[BackoffKeywords],
    ) -> Process:
        """Process the message: `async with message.process(): ...` settles it when the block ends,
        in the background, as `ack_nowait` does.

        If the block succeeds, the message is acknowledged. An exception is logged and not raised
        further: the message is delivered again after `backoff` seconds. The delay doubles each
        time, up to `backoff_max`, plus or minus the fraction `jitter`. After `retries` retries
        (None: as many as the topic's `max_deliveries` allows), it becomes a dead letter, with the
        text of the exception. If the block is cancelled, the message is returned at once, which
        does not count as a delivery. If the block settles the message itself, nothing more is done.

        Some errors are not worth a retry. Exceptions of the types `dead_on` make the message a dead
        letter at once; with `retry_on`, so do all other types. So does a value that cannot be
        decoded (DecodeFailed), unless `retry_on` names it.
        """
        options: RetryKeywords = {"retries": retries, "backoff": backoff, **said}
        return Process(self, Retrying.checked("process", options))


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
        offset = message.offset
        if isinstance(error, Exception):
            facts: dict[str, Any] = {
                "topic": message.topic,
                "offset": offset,
                "group": message.group,
            }
            if self._retrying.is_hopeless(error, message):
                event(
                    log,
                    logging.WARNING,
                    "message_rejected",
                    f"{message.topic} offset {offset} becomes a dead letter of group "
                    f"{message.group!r}: {reason_of(error)}",
                    **facts,
                )
            else:
                event(
                    log,
                    logging.WARNING,
                    "handler_failed",
                    f"{message.topic} offset {offset} failed in group {message.group!r} "
                    f"(delivery {message.delivery_count}): {error!r}",
                    exc_info=error,
                    delivery_count=message.delivery_count,
                    **facts,
                )
        grip = message._grip
        if grip.fate(offset) is None:
            grip.settle_nowait(offset, self._how(error))
            assert grip.settler is not None
            if grip.settler.is_full and not isinstance(error, asyncio.CancelledError):
                await grip.settler.room()
        return isinstance(error, Exception)

    def _how(self, error: BaseException | None) -> How:
        message, retries = self._message, self._retrying.retries
        if error is None:
            return ACK
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            return RELEASE  # not the message's fault: work is being stopped
        if not isinstance(error, Exception):
            return nacking(0)
        if self._retrying.is_hopeless(error, message) or (
            retries is not None and message.delivery_count > retries
        ):
            return rejecting(reason_of(error))
        return nacking(self._retrying.delay(message.delivery_count))


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

    async def _told(self) -> None:
        """Wait for what was settled in the background."""
        if self._runs:
            await wait_told([self._runs[0].grip])


class Deliveries(GrantedRows[Delivery]):
    """Messages from a group: a sequence that compares equal to a list of them; `values` is the fast
    way to read them. `ack` and `nack` settle all that you have not settled one by one.
    """

    __slots__ = ()

    async def ack(self) -> None:
        """Acknowledge all messages that are not settled yet."""
        await self._told()
        await settle_lots(self._lots(), ACK)

    async def nack(self, delay: Seconds = 0) -> None:
        """Return all messages that are not settled yet for redelivery, after `delay` seconds."""
        how = nacking(delay)
        await self._told()
        await settle_lots(self._lots(), how)

    def ack_nowait(self) -> None:
        """As `ack`, without waiting for the broker; see `ack_nowait` of a message."""
        settle_lots_nowait(self._lots(), ACK)

    def nack_nowait(self, delay: Seconds = 0) -> None:
        """As `nack`, without waiting for the broker."""
        settle_lots_nowait(self._lots(), nacking(delay))

    def __iter__(self) -> Iterator[Delivery]:
        for source, start, stop, origin, picks, grip in self._runs:
            for row in range(start, stop) if picks is None else picks:
                yield Delivery(source, row, origin, grip)

    def _made(self, run: Run, row: int) -> Delivery:
        return Delivery(run.source, row, run.origin, run.grip)


Messages = GrantedMessage | GrantedRows[Any] | Iterable[GrantedMessage]
"""Messages of queues: one, what a poll returned, or any of them."""


async def settle_messages(messages: Messages, how: How) -> None:
    """Settle the messages of one call; checked before anything is done."""
    if isinstance(messages, GrantedRows):
        await messages._told()
        await settle_lots(messages._lots(), how)
        return
    if isinstance(messages, GrantedMessage):
        messages = [messages]
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise InvalidRequest(f"{how.fate} takes messages of a queue group, not {messages!r}")
    offsets: dict[int, tuple[Grip, set[int]]] = {}
    losses: list[LeaseLost] = []
    messages = list(messages)
    for message in messages:
        if not isinstance(message, GrantedMessage):
            raise InvalidRequest(
                f"{message!r} is not a message of a queue group: use subscribe or poll"
            )
    await wait_told(message._grip for message in messages)
    for message in messages:
        offset = message._source.base_offset + message._row
        grip = message._grip
        try:
            if grip.may_settle(offset, how.fate):
                offsets.setdefault(id(grip), (grip, set()))[1].add(offset)
        except LeaseLost as lost:
            losses.append(lost)
    lots = [(grip, sorted_ranges(of_grip)) for grip, of_grip in offsets.values()]
    await settle_lots(lots, how, losses)
