"""Requests of a client: sent behind what was published before, and asked again of a new session
where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar, cast

import msgspec

from ...errors import Closed, Disconnected, InvalidRequest, MessageTooLarge, OutcomeUnknown
from ...model import Receipt
from ...rows import Rows
from ..wire.frames import HEADER_BYTES, Buffer, Frame
from ..wire.operations import OPERATIONS, CloseStreamRequest, Op, TakenReply, encode
from ..wire.runs import decode_runs
from ..wire.values import receipt_of
from .dialing import decoded
from .link import CLOSE_SECONDS, Link, SessionLost
from .send_buffer import SendBuffer
from .topics import KnownTopics
from .waiting import SentRequest

T = TypeVar("T")


class RemoteRequests:
    def __init__(self, link: Link, send_buffer: SendBuffer, topics: KnownTopics) -> None:
        self.link, self.topics = link, topics
        self.before_asking = send_buffer.flush
        """What was published before something is asked is sent before it."""
        self.is_open = self.is_closed = False

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed("the broker")
        if not self.is_open:
            raise InvalidRequest(
                "this connection is not open: use `async with`, or `await` it first"
            )

    def encode(self, control: Any) -> bytes:
        try:
            return encode(control)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRequest(f"this cannot be sent to a remote broker: {error}") from None

    def until(self) -> float:
        """The deadline of a call that begins now, which may ask more than once."""
        deadline = self.link.deadline()
        return inf if deadline is None else deadline

    async def ask(
        self,
        op: Op,
        control: Any,
        batches: Sequence[Buffer] = (),
        *,
        until: float | None = None,
        on_answer: Callable[[Frame], None] | None = None,
        on_expired: Callable[[Exception], None] | None = None,
    ) -> Frame:
        """Ask, and wait for the answer until then; by default, as long as the connection's
        `timeout` says. `inf` is as long as it takes, while there is a connection."""
        self.check_open()
        encoded = self.encode(control)
        size = HEADER_BYTES + len(encoded) + 8 + sum(map(len, batches))
        if size > self.link.frame_bytes_max:
            raise MessageTooLarge("a request", size, self.link.frame_bytes_max, "frame_bytes")
        self.before_asking()
        deadline = self.link.deadline() if until is None else until
        sent = SentRequest(
            None if deadline == inf else deadline, on_answer=on_answer, on_expired=on_expired
        )
        return await self.link.ask(op, encoded, batches, sent=sent)

    async def ask_again(
        self,
        op: Op,
        control: Any,
        batches: Sequence[Buffer] = (),
        *,
        until: float | None = None,
        on_answer: Callable[[Frame], None] | None = None,
    ) -> Frame:
        """The same; what may be repeated is asked again of a new session."""
        until = self.until() if until is None else until
        while True:
            try:
                return await self.ask(op, control, batches, until=until, on_answer=on_answer)
            except SessionLost:
                if OPERATIONS[op].once:
                    raise OutcomeUnknown(
                        f"the connection to {self.link.name} was lost during the request"
                    ) from None

    async def asked(
        self,
        op: Op,
        control: Any,
        kind: type[T] | Any = Any,
        batches: Sequence[Buffer] = (),
        *,
        until: float | None = None,
    ) -> T:
        """Ask and decode the answer."""
        frame = await self.ask_again(op, control, batches, until=until)
        if kind is Rows:
            taken: TakenReply = decoded(frame, TakenReply)
            return cast(T, Rows(decode_runs(taken.runs, frame.batches, self.topics.origin)))
        if kind == list[Receipt]:
            return cast(T, [receipt_of(one) for one in decoded(frame, list[Any])])
        return cast(T, decoded(frame, kind))

    async def open_stream(self, op: Op, control: Any) -> Frame:
        """Open a stream. Cancelled or too late, what is opened all the same is closed."""
        abandoned = False
        opened: list[int] = []

        def answered(frame: Frame) -> None:
            if frame.op == Op.REPLY:
                opened.append(msgspec.msgpack.decode(frame.control)[0])
                if abandoned:
                    close()

        def close() -> None:
            self.link.send(Op.CLOSE_STREAM, encode(CloseStreamRequest(opened[0])))

        try:
            return await self.ask_again(op, control, on_answer=answered)
        except (asyncio.CancelledError, OutcomeUnknown):
            abandoned = True
            if opened:
                close()
            raise

    async def ask_if_connected(self, op: Op, control: Any) -> None:
        """Ask what needs no answer where there is no connection: then there is nothing to do. It
        is sent to a broker that does not answer, but not waited for."""
        if self.is_closed or not self.link.is_up:
            return
        if self.link.is_silent:
            self.link.send(op, self.encode(control))
            return
        until = min(self.until(), self.link.clock.monotonic() + CLOSE_SECONDS)
        try:
            await self.ask(op, control, until=until)
        except (SessionLost, Closed, Disconnected, OutcomeUnknown):
            return
