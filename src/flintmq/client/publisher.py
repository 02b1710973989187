"""A publisher: gathers what is sent into batches, without an await or a future per message."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self, Unpack

from ..batch import BatchBuilder, RecordBatch
from ..broker_api import BrokerApi
from ..clock import Timer
from ..errors import Closed, FlintError, OutcomeUnknown, QueueFull, TopicDeleted, TopicFull
from ..model import Receipt, Seconds, TopicOptions, timeout_seconds
from ..observe.tracing import PublisherTracing, Tracing
from ..serde.codec import UNSAID, CodecSettings
from .in_time import ANSWER_SECONDS
from .keywords import MessageKeywords, takes
from .routing import Route
from .sending import Sender, halves, sealed
from .values import PLAIN, Encoder, Value, said_of_one

BATCH_ROWS_MAX = 1000
BATCH_BYTES_MAX = 256 * 1024
BUFFER_BYTES_MAX = 64 * 1024 * 1024
FLYING_BYTES_MAX = 8 * 1024 * 1024
FLYING_BATCHES_MAX = 64
"""What is on its way to the disk at once; the rest waits its turn here."""
ROW_BYTES = 64
"""What a waiting message is counted for beside its bytes, so that empty ones are bounded too."""


class Publisher:
    """Created by `Client.publisher`; use it with `async with`.

    `send` adds a message to the open batch. The batch is sent when it is full, when `linger`
    seconds have passed, or (with linger 0) at the end of this turn of the event loop. `flush` waits
    until everything sent is acknowledged, and raises if something failed.
    """

    def __init__(
        self,
        broker: BrokerApi,
        encoder: Encoder,
        sender: Sender,
        topic: str,
        *,
        linger: float,
        qos: int,
        auto_create: bool,
        timeout: float | None,
        batch_compression: str,
        settings: CodecSettings,
        partition: Route | None,
        on_close: Callable[[Publisher], None],
        tracing: Tracing | None = None,
    ) -> None:
        self.topic = topic
        self.sent = 0
        self.acknowledged = 0
        self.last_receipt: Receipt | None = None
        self._broker = broker
        self._encoder = encoder
        self._sender = sender
        self._clock = broker.clock
        self._linger = linger
        self._qos, self._auto_create, self._timeout = qos, auto_create, timeout
        self._compression = batch_compression
        self._settings = settings
        self._partition: Route | None = partition
        self._options: TopicOptions | None = None
        self._take_options()
        self._armed: Timer | asyncio.Handle | None = None
        self._waiting: deque[tuple[str, BatchBuilder | RecordBatch, int]] = deque()
        self._waiting_bytes = 0
        self._flying: deque[tuple[Awaitable[Receipt], int, int]] = deque()
        self._flying_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._failed: list[tuple[Exception, int]] = []
        self._heard_at = 0.0
        self._closed = False
        self._on_close = on_close
        self._spans = None if tracing is None else PublisherTracing(tracing, topic)

    @takes(MessageKeywords)
    def send(self, value: Value, **said: Unpack[MessageKeywords]) -> None:
        """Add one message. Never waits: raises QueueFull if too much is unacknowledged."""
        if self._armed is None:
            self._arm()
        rows = self._rows
        if self._spans is not None:
            said["headers"] = self._spans.headers(said.get("headers"))
        options, plan = PLAIN, self._plan
        if said:
            options, settings = said_of_one("send", said, MessageKeywords)
            if settings is not UNSAID:
                plan = self._encoder.plan(self.topic, self._options, settings.over(self._settings))
        if options is PLAIN and plan is self._encoder.default and type(value) is bytes:
            rows.append(value)
        else:
            self._encoder.add(rows, value, plan, options, self._clock.now_ms())
        if rows.byte_count >= BATCH_BYTES_MAX or rows.row_count >= BATCH_ROWS_MAX:
            self._dispatch()

    def _take_options(self) -> None:
        """Look at the topic's options anew: they may have been changed, or the topic made."""
        self._options = self._broker.known_options(self.topic)
        self._plan = self._encoder.plan(self.topic, self._options, self._settings)
        self._rows = BatchBuilder(objects=self._plan is None)

    async def flush(self, timeout: Seconds | None = None) -> None:
        """Wait until everything sent so far is acknowledged.

        If something failed, it raises the first error, with a note of how many messages failed.
        After `timeout` seconds it raises OutcomeUnknown; you can flush again. Without a `timeout`
        it waits while messages are being acknowledged, until none was for the publisher's own
        `timeout`.
        """
        self._dispatch()
        if self._task is not None and not await self._flushed(timeout_seconds(timeout)):
            count = sum(batch.row_count for _, batch, _ in self._waiting)
            count += sum(count for _, count, _ in self._flying)
            raise OutcomeUnknown(
                f"{count:,} messages sent to {self.topic!r} are not acknowledged yet"
            )
        if self._failed:
            failed, self._failed = self._failed, []
            error = failed[0][0]
            count = sum(count for _, count in failed)
            error.add_note(f"{count:,} messages sent to {self.topic!r} were not published")
            if self._spans is not None:
                self._spans.flushed(error)
            raise error
        if self._spans is not None:
            self._spans.flushed(None)

    async def _flushed(self, left: float | None) -> bool:
        if left is not None or self._timeout is None:
            return await self._all_sent(left)
        patience = self._timeout + ANSWER_SECONDS
        self._heard_at = max(self._heard_at, self._clock.monotonic())
        while (left := self._heard_at + patience - self._clock.monotonic()) > 0:
            if await self._all_sent(left):
                return True
        return False

    async def _all_sent(self, left: float | None) -> bool:
        """Whether everything is answered before the time is up."""
        late = asyncio.Event()
        timer = None if left is None else self._clock.call_later(left, late.set)
        giving_up = asyncio.ensure_future(late.wait())
        try:
            while self._task is not None and not late.is_set():
                await asyncio.wait((self._task, giving_up), return_when=asyncio.FIRST_COMPLETED)
            return self._task is None
        finally:
            giving_up.cancel()
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        """Flush, then reject further sends."""
        try:
            await self.flush()
        finally:
            self._closed = True
            self._on_close(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.close()
        except FlintError:
            if error is None:  # the block's own error goes first
                raise

    def _arm(self) -> None:
        """Begin a batch: see to it that it goes out in time."""
        self._check_room(self._waiting_bytes + self._flying_bytes)
        if self._linger:
            self._armed = self._clock.call_later(self._linger, self._dispatch)
        else:
            self._armed = asyncio.get_running_loop().call_soon(self._dispatch)

    def _check_room(self, buffered: int, flush: str = "await publisher.flush()") -> None:
        """Before a batch begins: whether there may be one, and with which options."""
        if self._closed:
            raise Closed(f"the publisher of {self.topic!r}")
        if buffered > BUFFER_BYTES_MAX:
            raise QueueFull(
                f"the publisher of {self.topic!r}",
                BUFFER_BYTES_MAX,
                f"call `{flush}` now and then, so that the broker can keep up",
            )
        if self._broker.known_options(self.topic) is not self._options:
            self._take_options()

    def _dispatch(self) -> None:
        """Send the open batch off: at once where the broker takes it, else by a task that waits."""
        armed, self._armed = self._armed, None
        if armed is not None:
            armed.cancel()
        rows = self._rows
        count = rows.row_count
        if not count:
            return
        self._rows = rows.empty_like()
        self.sent += count
        if self._spans is not None:
            self._spans.dispatched()
        try:
            routed = self._sender.routed(self.topic, rows, self._options, self._partition)
        except Exception as error:  # flush tells it
            self._failed.append((error, count))
            return
        for name, part in routed:
            self._send_off(name, part)

    def _send_off(self, name: str, rows: BatchBuilder | RecordBatch) -> None:
        count = rows.row_count
        size = rows.size(0, count) + ROW_BYTES * count
        try:
            batch = sealed(rows, self._compression)
            if not self._waiting and self._begin(name, batch, size):
                return
        except TopicFull as error:
            if not error.never_fits or count == 1:
                self._failed.append((error, count))
                return
            for part in halves(rows):  # the topic is smaller than our batches
                self._send_off(name, part)
            return
        except Exception as error:  # flush tells it
            self._failed.append((error, count))
            return
        self._waiting.append((name, batch, size))
        self._waiting_bytes += size
        self._go_on()

    def _begin(self, name: str, batch: BatchBuilder | RecordBatch, size: int) -> bool:
        """Publish a batch, or set it on its way; False if it has to wait."""
        if len(self._flying) >= FLYING_BATCHES_MAX or self._flying_bytes >= FLYING_BYTES_MAX:
            return False
        count = batch.row_count
        receipt = self._broker.publish_nowait(
            name, batch, qos=self._qos, auto_create=self._auto_create, timeout=self._timeout
        )
        if receipt is None:
            return False
        if isinstance(receipt, Receipt):
            self._acknowledge(receipt, count)
        else:
            self._flying.append((receipt, count, size))
            self._flying_bytes += size
            self._go_on()
        return True

    def _go_on(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_waiting())

    async def _send_waiting(self) -> None:
        """Publish what waits, in order: several batches are on their way to the disk at once."""
        try:
            while self._flying or self._waiting:
                if self._waiting and await self._send_first():
                    self._waiting_bytes -= self._waiting.popleft()[2]
                elif self._flying:
                    await self._land()
        finally:
            self._task = None

    async def _send_first(self) -> bool:
        """Send the batch that has waited longest, or see that it has failed for good."""
        name, batch, size = self._waiting[0]
        count = batch.row_count
        try:
            if self._begin(name, batch, size):
                return True
            if self._flying:
                return False  # they may make room; and one that waits must not be overtaken
            receipt = await self._broker.publish(
                name, batch, qos=self._qos, auto_create=self._auto_create, timeout=self._timeout
            )
            self._acknowledge(receipt, count)
        except TopicFull as error:
            if error.never_fits and count > 1:
                first, second = halves(batch)
                self._waiting[0] = (name, second, size - size // 2)
                self._waiting.appendleft((name, first, size // 2))
                return False
            self._give_up_on(name, error)
            return False
        except (QueueFull, TopicDeleted) as error:
            self._give_up_on(name, error)
            return False
        except Exception as error:  # flush tells it
            self._failed.append((error, count))
        return True

    async def _land(self) -> None:
        """Wait for the disk to have the batch that was sent first."""
        receipt, count, size = self._flying[0]
        try:
            self._acknowledge(await receipt, count)
        except Exception as error:  # flush tells it
            self._failed.append((error, count))
        self._flying.popleft()
        self._flying_bytes -= size

    def _give_up_on(self, name: str, error: Exception) -> None:
        """What waits for a topic that took nothing in time, or is gone, fails with the first."""
        kept = [entry for entry in self._waiting if entry[0] != name]
        count = sum(batch.row_count for topic, batch, _ in self._waiting if topic == name)
        self._failed.append((error, count))
        self._waiting = deque(kept)
        self._waiting_bytes = sum(size for _, _, size in kept)

    def _acknowledge(self, receipt: Receipt, count: int) -> None:
        self.last_receipt = receipt
        self._heard_at = self._clock.monotonic()
        if self._spans is not None:
            self._spans.answered(count)
        self.acknowledged += count - receipt.dropped
