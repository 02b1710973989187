"""Publishes of one session: taken in order, answered when they are safe, held back when too many.

Publishes to one topic keep the order they came in. One that only waits for the disk has its place
already; one that has to wait in line does so in a task, and those behind it to that topic as well.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from ...batch import DELIVER_AT, EXPIRY, PRIORITY, RELATIVE, TIMES, RecordBatch, slice_batch
from ...broker_api import Placed
from ...errors import FlintError, InvalidRequest, MalformedFrame, QueueFull
from ...model import PRIORITY_MAX, Receipt
from ..wire.frames import Frame
from ..wire.operations import Op, PublishRequest, RowsRequest, encode
from ..wire.rules import may_publish
from ..wire.values import receipt_fields
from .rows import DURATION_MAX, RowBatches, check_time

if TYPE_CHECKING:
    from .session import Session

RAW_BYTES_MAX = 64 * 1024 * 1024
"""What the payload of a compressed batch may grow to."""

BESIDE_BYTES_MAX = 256
"""What a batch that is not copied may keep in memory beside itself: the rest of its frame."""

FRAME_COST = 512
"""What a publish is counted for beside its bytes."""

PublishWanted = PublishRequest | RowsRequest


class Draining(FlintError):
    """Nothing was published. Clients keep such publishes until they are connected anew."""


class LandingRows:
    """What a session has published as rows and shares with others: told once, by the engine."""

    __slots__ = ("_publishes", "bytes", "durability", "places", "shared")

    def __init__(self, publishes: IncomingPublishes, placed: Placed) -> None:
        self._publishes = publishes
        self.shared, self.durability = placed.shared, placed.durability
        self.places: list[int] = []
        """Ids and offsets by turns."""
        self.bytes = 0
        placed.shared.waiters.append(self)

    def applied(self) -> None:
        self._publishes.rows_landed(self)

    def failed(self, error: BaseException) -> None:
        self._publishes.rows_failed(self, error)


class IncomingPublishes:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._landing: deque[tuple[int, asyncio.Future[Receipt], int, bool]] = deque()
        self._landing_bytes = 0
        self._all_landed: asyncio.Future[None] | None = None
        self._in_line: Counter[str] = Counter()
        self._in_line_bytes = 0
        self._tasks: dict[int, list[asyncio.Task[Any]]] = {}
        self._rows = RowBatches()
        self._rows_landing = 0
        self._together: LandingRows | None = None
        self.is_held = False
        """Whether nothing more is read until the disk has caught up."""

    def is_busy(self) -> bool:
        return bool(self._landing or self._rows_landing or self._tasks)

    def receive(self, frame: Frame) -> None:
        session = self._session
        try:
            wanted = session.control(frame, PublishRequest)
            may_publish(session, wanted)
            batch = checked_batch(frame.batches)
            self._check_room(frame.byte_length)
            self._publish(frame.id, wanted, batch, frame.byte_length + FRAME_COST)
        except MalformedFrame:
            raise
        except FlintError as error:
            session.fail(frame.id, error)

    def receive_rows(self, frame: Frame) -> None:
        """The publishes of a frame, each as if it had come by itself."""
        session, rows = self._session, self._rows
        try:
            publishes = rows.publishes(frame)
        except InvalidRequest as error:
            session.fail(frame.id, error)
            return
        size = frame.byte_length // len(publishes) + FRAME_COST
        server, broker = session.server, session.server.broker
        together = self._together
        for id, wanted in enumerate(publishes, frame.id):
            try:
                may_publish(session, wanted)
                begun = None
                if not self._in_line and not server.is_draining:
                    begun = rows.begin(broker, wanted)
                if isinstance(begun, Placed):
                    if together is None or together.shared is not begun.shared:
                        together = self._together = LandingRows(self, begun)
                        self._rows_landing += 1
                    together.places += (id, begun.offset)
                    together.bytes += size
                    self._landing_bytes += size
                elif begun is not None:
                    self._answer_later(id, begun, size, was_rows=True)
                else:
                    self._check_room(size)
                    self._publish(id, wanted, rows.batch(wanted), size)
            except FlintError as error:
                session.fail(id, error)
        if self._landing_bytes > server.limits.in_flight_bytes:
            self._hold()

    def _check_room(self, size: int) -> None:
        """What waits for the disk is held back by not reading on; what waits in line cannot be, as
        what would make room may come by the same connection."""
        limit = self._session.server.limits.in_flight_bytes
        if self._in_line_bytes and self._in_line_bytes + size > 2 * limit:
            raise QueueFull(
                "the publish queue of this connection",
                limit,
                "wait for receipts before publishing more",
            )

    def _publish(self, id: int, wanted: PublishWanted, batch: RecordBatch, size: int) -> None:
        broker = self._session.server.broker
        if self._session.server.is_draining:
            raise Draining("the broker is stopping; publish again after the restart")
        topic, counts = wanted.topic, wanted.counts
        if type(topic) is not str:
            raise InvalidRequest(f"a topic name must be a str, not {topic!r}")
        if wanted.qos not in (0, 1):
            raise InvalidRequest(f"qos must be 0 or 1, not {wanted.qos!r}")
        if counts is not None and len(counts) > 1:
            if sum(counts) != batch.row_count or min(counts) < 1:
                raise InvalidRequest(f"{batch.row_count} rows are not made of {counts}")
            if self._in_line[topic] or not broker.may_gather(topic):
                self._publish_apart(id, wanted, _apart(batch, counts), size)
                return
        if not self._in_line[topic]:
            try:
                receipt = broker.publish_nowait(
                    topic,
                    batch,
                    qos=wanted.qos,
                    auto_create=wanted.auto_create,
                    timeout=wanted.timeout,
                )
            except FlintError:
                if counts is None or len(counts) < 2:
                    raise
                self._publish_apart(id, wanted, _apart(batch, counts), size)
                return
            if receipt is not None:
                self._answer_later(id, receipt, size, type(wanted) is RowsRequest)
                return
        self._wait_in_line(id, wanted, [batch], size)

    # --- what only waits for the disk

    def rows_landed(self, rows: LandingRows) -> None:
        """Answer all that shares a publish, when the engine tells of it."""
        self._rows_landing -= 1
        if self._together is rows:
            self._together = None
        self._landing_bytes -= rows.bytes
        if self.is_held or self._all_landed is not None:
            self._has_landed(0)
        session = self._session
        session.receipts.add_all(rows.places, rows.durability)
        if session.connection is not None:
            session.connection.flush_soon()

    def rows_failed(self, rows: LandingRows, error: BaseException) -> None:
        self._rows_landing -= 1
        if self._together is rows:
            self._together = None
        for id in rows.places[::2]:
            self._session.fail(id, error)
        self._has_landed(rows.bytes)

    def _hold(self) -> None:
        if not self.is_held:
            self.is_held = True
            if self._session.connection is not None:
                self._session.connection.hold("publishes")

    def _has_landed(self, size: int) -> None:
        self._landing_bytes -= size
        if self.is_held and (
            self._landing_bytes <= self._session.server.limits.in_flight_bytes // 2
        ):
            self.go_on()
        if self._all_landed is not None and not (self._landing or self._rows_landing):
            self._all_landed.set_result(None)
            self._all_landed = None

    def _answer_later(
        self, id: int, receipt: Receipt | Awaitable[Receipt], size: int, was_rows: bool
    ) -> None:
        if isinstance(receipt, Receipt):
            self._stored(id, receipt, was_rows)
            return
        coming = asyncio.ensure_future(receipt)
        if not self._landing:
            coming.add_done_callback(self._land)
        self._landing.append((id, coming, size, was_rows))
        self._landing_bytes += size
        if self._landing_bytes > self._session.server.limits.in_flight_bytes:
            self._hold()

    def _land(self, _: asyncio.Future[Receipt]) -> None:
        """Answer in the order of the journal: one wake-up for everything that one sync has made
        safe."""
        session = self._session
        landing = self._landing
        landed = 0
        while landing and landing[0][1].done():
            id, receipt, size, was_rows = landing.popleft()
            try:
                self._stored(id, receipt.result(), was_rows)
            except (Exception, asyncio.CancelledError) as error:
                session.fail(id, error)
            landed += size
        if landing:
            landing[0][1].add_done_callback(self._land)
        self._has_landed(landed)
        if session.connection is not None and not session.server.looking:
            session.connection.flush()  # the turn that made them safe is over

    def _stored(self, id: int, receipt: Receipt, was_rows: bool) -> None:
        if was_rows:
            self._session.receipts.add(id, receipt)
        else:
            self._session.send(Op.REPLY, id, encode([receipt_fields(receipt)]))

    async def landed(self) -> None:
        """Wait until everything that was on its way to the disk is answered."""
        if self._landing or self._rows_landing:
            if self._all_landed is None:
                self._all_landed = self._session.loop.create_future()
            await asyncio.shield(self._all_landed)

    def go_on(self) -> None:
        self.is_held = False
        if self._session.connection is not None:
            self._session.connection.go_on("publishes")

    # --- what has to wait in line

    def _wait_in_line(
        self, id: int, wanted: PublishWanted, batches: Sequence[RecordBatch], size: int
    ) -> None:
        """Tasks begin in the order they are made, so the order of publishes is kept."""
        topic = wanted.topic
        self._in_line[topic] += 1
        self._in_line_bytes += size
        loop = self._session.loop
        tasks = [loop.create_task(self._outcome(wanted, batch)) for batch in batches]
        self._tasks[id] = tasks
        gathered = asyncio.gather(*tasks, return_exceptions=True)

        def done(outcomes: asyncio.Future[list[Any]]) -> None:
            self._tasks.pop(id, None)
            self._in_line_bytes -= size
            self._in_line[topic] -= 1
            if not self._in_line[topic]:
                del self._in_line[topic]
            if not outcomes.cancelled():
                self._answer(id, outcomes.result())

        gathered.add_done_callback(done)

    async def _outcome(self, wanted: PublishWanted, batch: RecordBatch) -> Receipt:
        return await self._session.server.broker.publish(
            wanted.topic,
            batch,
            qos=wanted.qos,
            auto_create=wanted.auto_create,
            timeout=wanted.timeout,
        )

    def _publish_apart(
        self, id: int, wanted: PublishWanted, batches: Sequence[RecordBatch], size: int
    ) -> None:
        """Publishes that share a batch and have to be looked at one by one, as if each had come by
        itself."""
        self._wait_in_line(id, wanted, batches, size)

    def _answer(self, id: int, outcomes: Sequence[Any]) -> None:
        session = self._session
        if len(outcomes) == 1 and isinstance(outcomes[0], BaseException):
            session.fail(id, outcomes[0])
            return
        session.send(
            Op.REPLY,
            id,
            encode(
                [
                    receipt_fields(outcome)
                    if isinstance(outcome, Receipt)
                    else session.fault(outcome)
                    for outcome in outcomes
                ]
            ),
        )

    def cancel(self, id: int, piece: int | None) -> None:
        for number, task in enumerate(self._tasks.get(id, ())):
            if piece is None or piece == number:
                task.cancel()

    def end(self) -> None:
        for tasks in list(self._tasks.values()):
            for task in tasks:
                task.cancel()


def _apart(batch: RecordBatch, counts: Sequence[int]) -> list[RecordBatch]:
    parts = []
    start = 0
    for count in counts:
        parts.append(slice_batch(batch, start, start + count))
        start += count
    return parts


def checked_batch(buffer: memoryview) -> RecordBatch:
    """One batch of a producer: what it says of itself holds, and it stamps nothing itself."""
    # What is kept must not keep all alive that was received together with it.
    is_alone = isinstance(buffer.obj, bytes) and len(buffer.obj) <= len(buffer) + BESIDE_BYTES_MAX
    batch = RecordBatch.decode(buffer if is_alone else bytes(buffer), raw_bytes_max=RAW_BYTES_MAX)
    columns = batch.columns
    if columns & TIMES:
        raise InvalidRequest("clients cannot set the timestamp of messages")
    if columns & PRIORITY and max(batch.control_column(PRIORITY)) > PRIORITY_MAX:
        raise InvalidRequest(f"priority must be 0 to {PRIORITY_MAX} (7 is delivered first)")
    lowest = -DURATION_MAX if columns & RELATIVE else 0
    for column in (EXPIRY, DELIVER_AT):
        if columns & column:
            times = batch.control_column(column).cast("q")
            check_time(min(times), max(times), lowest)
    if not batch.compression:
        batch.size(0, batch.row_count)  # walks every column
    batch.stamp(-1, 0)
    return batch
