"""One client's session: its requests, what it holds open, and what it may resume.

Every frame behind the opening exchange is counted on both sides. Frames that were sent and not yet
acknowledged are kept while the client may come back: after a lost connection both sides send again
what the other has not received, so nothing is carried out twice and no reply is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ...access import Access
from ...errors import (
    Closed,
    FlintError,
    InvalidRequest,
    MalformedFrame,
    NotAuthenticated,
    NotLeader,
    PermissionDenied,
    QueueFull,
)
from ...observe.logs import event, limited
from ...rows import Run
from ..wire.faults import fault_of, undecodable
from ..wire.frames import Buffer, Frame, encode_frame
from ..wire.hello import DURATIONS
from ..wire.operations import (
    OPERATIONS,
    CancelPieceRequest,
    Control,
    Fault,
    Op,
    OpenRequest,
    RunInfo,
    TakeRequest,
    encode,
)
from . import requests
from .connection import ServerConnection
from .kept_replies import KeptReplies
from .publishing import IncomingPublishes
from .receipts import GatheredReceipts
from .streams import OpenMembership, OpenStream

if TYPE_CHECKING:
    from .native import NativeServer

_log = logging.getLogger(__name__)

C = TypeVar("C", bound=Control)
_PUBLISH_ROWS = int(Op.PUBLISH_ROWS)


class Session:
    def __init__(
        self, server: NativeServer, id: bytes, wanted: OpenRequest, access: Access
    ) -> None:
        self.server = server
        self.access = access
        self.id = id
        self.client = wanted.client
        self.follows = wanted.follows  # goes where the leader is
        self.loop = asyncio.get_running_loop()
        self.received = 0
        self.connection: ServerConnection | None = None
        self.streams: dict[int, OpenStream | OpenMembership] = {}
        self.publishes = IncomingPublishes(self)
        self._resumable = wanted.resumable
        self.replies = KeptReplies(is_needed=wanted.resumable)
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._takes: dict[int, OpenStream] = {}
        self._to_look: list[OpenStream] = []
        self._waits: dict[int, tuple[int, Any]] = {}  # of the tasks, what may wait for ever
        self._refused: dict[int, FlintError] = {}
        self._parked = 0  # of the tasks, those that wait
        self._room: asyncio.Event | None = None
        self._stream_count = 0
        self._grace: asyncio.TimerHandle | None = None
        self._ended = False
        self._is_silent = False
        self._knows_durations = False
        self.receipts = GatheredReceipts(self)

    def encode_runs(
        self, runs: Sequence[Run], *, keep: bool = True
    ) -> tuple[list[RunInfo], list[Buffer]]:
        """Rows as they go out to this client."""
        return self.server.encoder.encode(runs, keep=keep, durations=self._knows_durations)

    # --- the connection

    def attach(self, connection: ServerConnection) -> None:
        self.server.is_back(self)
        before, self.connection = self.connection, connection
        self._knows_durations = bool(connection.features & DURATIONS)
        if before is not None and before is not connection:
            before.session = None
            before.abort()  # the client has given it up; we have not heard of that yet
        if self.publishes.is_held:
            connection.hold("publishes")
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def can_resume(self, received: int) -> bool:
        return self._resumable and not self._ended and self.replies.reach_back_to(received)

    def send_again(self, received: int) -> None:
        """Send what the client did not receive before its connection was lost."""
        self.replies.acknowledge(received)
        assert self.connection is not None
        for parts in self.replies.frames:
            self.connection.write(list(parts))
        self.has_room()

    def lost(self, connection: ServerConnection) -> None:
        if self.connection is not connection:
            return
        self.receipts.send()  # they count as sent
        self.connection = None
        self._ring_for_room()  # what was asked is done, also if the answer has to wait
        if self._resumable and not self._ended and not self.server.is_draining:
            self._grace = self.loop.call_later(self.server.limits.grace_seconds, self.end)
            self.server.is_away(self)
        else:
            self.end()

    def end(self) -> None:
        """Give back everything; the session cannot be resumed any more."""
        if not self._ended:
            self._ended = True
            self.server.forget(self)
            self.server.spawn(self._close_everything())

    # --- the key

    def use(self, access: Access) -> None:
        """Go by what the key may do now. What it may not do any more ends."""
        before, self.access = self.access, access
        if access is before:
            return
        self.server.tell_topics(self, before)
        for stream in list(self.streams.values()):
            self._check_still(stream)
        for request, (op, control) in list(self._waits.items()):
            try:
                OPERATIONS[Op(op)].rule.check(self, control)
            except FlintError as error:
                self._refused[request] = error
                self._tasks[request].cancel()

    def _check_still(self, stream: OpenStream | OpenMembership) -> None:
        if stream.denied is None:
            try:
                stream.need.check(self.access)
            except PermissionDenied as error:
                stream.deny(error)
                self.server.spawn(stream.close())

    def expel(self, error: NotAuthenticated | NotLeader) -> None:
        """The key is gone, or the lead: say so, and give everything back. It cannot be resumed."""
        connection = self.connection
        self.silence()  # what is cut off is not answered one by one
        self.end()
        if connection is not None:
            connection.refuse(error)

    def writer_topics(self, writer: str) -> Collection[str]:
        return self.server.broker.writer_topics(writer)

    def silence(self) -> None:
        """Send nothing any more: to the client, the connection is lost."""
        self._is_silent = True

    async def finish(self) -> None:
        if not self._ended:
            self._ended = True
            self.server.forget(self)
            await self._close_everything()

    async def _close_everything(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        self.publishes.end()
        for stream in list(self.streams.values()):
            try:
                if isinstance(stream, OpenStream) and stream.left():
                    requests.give_back(stream, [])  # never sent, so no client has it
                await stream.close()
            except FlintError as error:
                event(
                    _log,
                    logging.INFO,
                    "session_end_failed",
                    f"releasing what a client held failed: {error}",
                    client=self.client,
                )
        self.streams.clear()
        self.replies.frames.clear()

    # --- sending

    def send(self, op: int, id: int, control: bytes, batches: Sequence[Buffer] = ()) -> None:
        if self._is_silent or (self._ended and self.connection is None):
            return
        if self.receipts.places:
            self.receipts.send()
        parts = encode_frame(op, id, control, batches, received=self.received)
        self.replies.add(parts)
        if self.connection is not None:
            self.connection.write(parts)

    def uncounted(self, op: int, id: int, control: bytes) -> list[Buffer]:
        return encode_frame(op, id, control, received=self.received)

    def reply(self, request: int, value: Any = None, batches: Sequence[Buffer] = ()) -> None:
        self.send(Op.REPLY, request, encode(value), batches)

    def fail(self, request: int, error: BaseException) -> None:
        self.send(Op.ERROR, request, encode(self.fault(error)))

    def fault(self, error: BaseException) -> Fault:
        return client_fault(error, self.client)

    def is_full(self) -> bool:
        """Whether replies should wait: the client reads slower than we write, or is away."""
        return self.connection is None or self.connection.is_full

    def look_later(self, stream: OpenStream) -> None:
        """Have streams that may have something look for it, all of them with one write."""
        if not self._to_look:
            self.server.looking += 1
            self.loop.call_soon(self._look)
        self._to_look.append(stream)

    def _look(self) -> None:
        self.server.looking -= 1
        streams, self._to_look = self._to_look, []
        for stream in streams:
            stream.look()
        if self.connection is not None:
            self.connection.flush()

    async def room(self) -> None:
        """Wait until there is room for a reply that may be large."""
        while self.is_full():
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        if self._room is None:
            self._room = asyncio.Event()
        await self._room.wait()

    def _ring_for_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None

    def has_room(self) -> None:
        self._ring_for_room()
        for stream in self._takes.copy().values():
            stream.has_room()

    # --- receiving

    def receive(self, frame: Frame) -> None:
        if self._ended:
            raise Closed("the session")  # what would be opened now would never be closed
        self.received += 1
        if frame.received:
            self.replies.acknowledge(frame.received)
        if self.replies.bytes > self.server.limits.unacknowledged_bytes:
            raise QueueFull(
                "the reply buffer of this client",
                self.server.limits.unacknowledged_bytes,
                "acknowledge received frames, or do not ask to resume",
            )
        op = frame.op
        if op == _PUBLISH_ROWS:
            return self.publishes.receive_rows(frame)
        if op == Op.PUBLISH:
            return self.publishes.receive(frame)
        try:
            if op == Op.TAKE:
                self._take(frame)
            elif op == Op.CANCEL:
                self._cancel(frame)
            elif op == Op.PING:
                self.reply(frame.id)
            elif op == Op.GOODBYE:
                self._goodbye(frame.id)
            else:
                self._begin(frame)
        except MalformedFrame:
            raise
        except Exception as error:
            # It was counted, so a client that resumes does not send it again: it has to hear.
            self.fail(frame.id, error)

    def control(self, frame: Frame, kind: type[C]) -> C:
        try:
            return decoder(kind).decode(frame.control)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise undecodable(kind, error) from None

    def _begin(self, frame: Frame) -> None:
        """Carry a request out in a task of its own."""
        handler = requests.HANDLERS.get(frame.op)
        if handler is None:
            raise InvalidRequest(f"unknown operation {frame.op}")
        if frame.id in self._tasks or frame.id in self._takes:
            raise MalformedFrame(f"request {frame.id} is already pending")
        self.check_requests()
        operation, work = handler
        control = self.control(frame, operation.request)
        for name in _names_in(operation.request):
            if isinstance(getattr(control, name), (list, dict)):
                raise InvalidRequest(f"{name} must not be a list or a map")
        operation.rule.check(self, control)
        waits = operation.waits
        if waits:
            self._waits[frame.id] = (frame.op, control)
        self.run(frame.id, work(self, control, frame), waits=waits)

    def check_requests(self) -> None:
        if len(self._tasks) + len(self._takes) >= self.server.limits.requests:
            raise QueueFull(
                "the request queue of this connection",
                self.server.limits.requests,
                "wait for replies before asking for more",
            )

    def run(self, request: int, work: Coroutine[Any, Any, Any], *, waits: bool) -> None:
        self._parked += waits
        task = self._tasks[request] = self.loop.create_task(self._carry_out(request, work))

        def done(task: asyncio.Task[None]) -> None:
            # Not at the end of the work itself: what is cancelled early never gets there.
            self._parked -= waits
            self._tasks.pop(request, None)
            self._waits.pop(request, None)
            refused = self._refused.pop(request, None)
            work.close()
            if task.cancelled():
                self.fail(request, refused or asyncio.CancelledError())
            elif (error := task.exception()) is not None:
                self.fail(request, error)

        task.add_done_callback(done)

    async def _carry_out(self, request: int, work: Coroutine[Any, Any, Any]) -> None:
        """Do it and answer in one step, once there is room for the answer: what many requests of
        one turn ask for is never held all at once."""
        while self.connection is not None and self.is_full():
            await self._wait_for_room()
        answer = await work
        if isinstance(answer, requests.WithBatches):
            self.reply(request, answer.control, answer.batches)
        elif answer is not requests.ANSWERED:
            self.reply(request, answer)

    def _take(self, frame: Frame) -> None:
        wanted = self.control(frame, TakeRequest)
        OPERATIONS[Op.TAKE].rule.check(self, wanted)
        stream = self.stream(wanted.stream)
        if not isinstance(stream, OpenStream):
            raise InvalidRequest("a group member must use TAKE_LEASED")
        self.check_requests()
        self._takes[frame.id] = stream
        try:
            stream.take(frame.id, wanted.max_rows, wanted.timeout)
        except FlintError:
            self._takes.pop(frame.id, None)
            raise

    def answered(self, request: int) -> None:
        self._takes.pop(request, None)

    def _cancel(self, frame: Frame) -> None:
        """End a request that waits; it is answered all the same. Too late is no error."""
        request = frame.id
        task = self._tasks.get(request)
        if task is not None:
            task.cancel()
        elif (stream := self._takes.get(request)) is not None:
            stream.cancel(request)
        else:
            self.publishes.cancel(request, self.control(frame, CancelPieceRequest).piece)

    def _goodbye(self, request: int) -> None:
        self._resumable = False
        self.server.spawn(self._leave(request))

    async def _leave(self, request: int) -> None:
        await self.finish()
        await self.publishes.landed()  # what was on its way to the disk is answered first
        self.reply(request)
        if self.connection is not None:
            self.connection.close()

    # --- streams

    def add_stream(self, stream: OpenStream | OpenMembership) -> int:
        self._stream_count += 1
        self.streams[self._stream_count] = stream
        self._check_still(stream)  # the key may have changed while it was opened
        return self._stream_count

    def check_streams(self) -> None:
        if len(self.streams) >= self.server.limits.streams:
            raise QueueFull(
                "the stream table of this connection",
                self.server.limits.streams,
                "close some streams",
            )

    def reads(self, topic: str, name: str) -> bool:
        """Whether it has a reader of that name open on the topic, or on a partition of it."""
        plain = topic.partition("/")[0]
        return any(
            isinstance(stream, OpenStream)
            and stream.name == name
            and stream.need.name.partition("/")[0] == plain
            for stream in self.streams.values()
        )

    def stream(self, number: int) -> OpenStream | OpenMembership:
        found = self.streams.get(number)
        if found is None:
            raise Closed(f"stream {number}")
        return found

    def is_busy(self) -> bool:
        """Whether anything is under way that ends by itself: not what waits for messages."""
        return self.publishes.is_busy() or self._parked < len(self._tasks)


_NAMES = ("topic", "name", "group", "pattern", "writer", "part")
"""What the broker looks things up by."""


@cache
def _names_in(kind: type[Control]) -> tuple[str, ...]:
    return tuple(name for name in _NAMES if name in kind.__struct_fields__)


_decoders: dict[type[Control], Any] = {}


def decoder(kind: type[C]) -> msgspec.msgpack.Decoder[C]:
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    return found


def client_fault(error: BaseException, client: str) -> Fault:
    """An error as it is sent to a client. An unexpected one is logged."""
    if isinstance(error, FlintError):
        return fault_of(error)
    if isinstance(error, asyncio.CancelledError):
        return Fault("Cancelled", "the request was cancelled")
    limited(
        _log,
        logging.ERROR,
        "request_failed",
        type(error).__name__,
        "a request failed because of an internal error; please report it",
        exc_info=error,
        client=client,
    )
    return Fault("FlintError", f"internal error of the broker: {type(error).__name__}: {error}")
