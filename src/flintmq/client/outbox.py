"""What is published while the broker is away, kept on the device: `connect(url, outbox=DIR)`.

A broker of our own in a directory (`local`) takes every publish, and the receipt says `queued`; a
line for each topic (`outbox_line.py`) sends from there, in order. The offset in the directory is
the sequence under which a message is sent, and the producer's name is kept there too: the broker
knows what it has already, whoever was killed when. What the broker has is purged here, so that a
topic begins with what is still to be sent.

The name of a topic is escaped for the directory, so partitions are topics of their own there. How
many a topic has is remembered (`NOTES`): without a connection, a key finds its partition still.
Everything but publishing is the remote broker's.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Generator
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

import msgspec

from ..batch import PRODUCER, BatchBuilder, RecordBatch
from ..broker_api import Batch, BrokerApi, ConnectionChanged, Fetch, ReaderApi, ReaderOpening
from ..clock import Clock
from ..errors import Disconnected, FlintError, InvalidRequest, OutboxFull
from ..model import OutboxStats, Receipt, TopicOptions
from ..observe.logs import event
from ..patterns import check_name, escape_name, unescape_name
from .outbox_line import ROW_BYTES, OutboxLine, OutboxRoom
from .parking import Parking

_log = logging.getLogger(__name__)

NOTES, REFUSED = escape_name("\0notes"), escape_name("\0refused")
"""Topics of the directory that have no messages to send; no topic of a broker has such a name."""

REFUSED_BYTES = 16 << 20
BACKOFF_SECONDS = (0.05, 5.0)
FIRST_SECONDS = 1.0
"""How long opening waits for the first connection; then it goes on in the background."""


class OutboxNote(msgspec.Struct, omit_defaults=True):
    """What an outbox remembers beside messages."""

    producer: str | None = None
    topic: str | None = None
    partitions: int = 0


class QueuedReceipt(NamedTuple):
    """The receipt of a publish that is on its way to the device's disk."""

    begun: Awaitable[Receipt]
    topic: str
    failed: Callable[[], None]

    def __await__(self) -> Generator[Any, None, Receipt]:
        try:
            receipt = yield from self.begun.__await__()
        except FlintError:
            self.failed()
            raise
        return queued(receipt, self.topic)


def queued(receipt: Receipt, topic: str) -> Receipt:
    base, _, partition = topic.partition("/")
    return Receipt(base, None, receipt.count, int(partition or 0), durability="queued")


class OutboxBroker:
    """Implements BrokerApi: publishing by the directory, all the rest by the remote broker."""

    def __init__(
        self,
        remote: Any,
        local: BrokerApi,
        *,
        directory: str,
        bytes_max: int,
        auto_create: bool,
        timeout: float | None,
    ) -> None:
        if type(bytes_max) is not int or bytes_max < 1:
            raise InvalidRequest(f"outbox_bytes_max must be a whole number, not {bytes_max!r}")
        self.remote, self.local = remote, local
        self.directory, self.bytes_max, self.auto_create = directory, bytes_max, auto_create
        self.producer = ""
        self.room = OutboxRoom()
        self.emptied = Parking(local.clock)
        self.messages = self.bytes = self.sent = self.refused = 0
        self.last_error: str | None = None
        self._failure: FlintError | None = None
        self._timeout = timeout
        self._lines: dict[str, OutboxLine] = {}
        self._partitions: dict[str, int] = {}
        self._connected = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.remote, name)
        if not iscoroutinefunction(verb):
            return verb

        async def once_connected(*given: Any, **named: Any) -> Any:
            await self._once_connected()
            return await verb(*given, **named)

        return once_connected

    # --- the connection

    @property
    def clock(self) -> Clock:
        return self.local.clock

    @property
    def is_connected(self) -> bool:
        return bool(self.remote.is_connected)

    def on_connection_changed(self, callback: ConnectionChanged) -> None:
        self.remote.on_connection_changed(callback)

    async def open_row(self, reading: ReaderOpening) -> ReaderApi:
        await self._once_connected()
        found: ReaderApi = await self.remote.open_row(reading)
        return found

    async def open(self) -> None:
        """Open the directory; the connection may come later."""
        await self.local.open()
        try:
            await self._recover()
        except BaseException:
            await self.local.close()
            raise
        self._connecting = asyncio.get_running_loop().create_task(self._connect())
        await asyncio.wait([self._connecting], timeout=FIRST_SECONDS)

    async def close(self) -> None:
        """What is not sent is sent by the next connection with this directory."""
        if self._connecting is not None:
            self._connecting.cancel()
        for line in self._lines.values():
            await line.close()
        await self.remote.close()
        await self.local.close()

    async def _connect(self) -> None:
        least, most = BACKOFF_SECONDS
        pause = least
        while True:
            try:
                await self.remote.open()
                break
            except FlintError as error:
                self.failed(error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(most, pause * 2)
        self.last_error = None
        self._connected.set()
        for line in self._lines.values():
            line.start()

    async def _once_connected(self) -> None:
        if not self._connected.is_set():
            waiting = asyncio.get_running_loop().create_task(self._connected.wait())
            await asyncio.wait([waiting], timeout=self._timeout)
            waiting.cancel()
            if not self._connected.is_set():
                error = self._failure
                cause = error.cause if isinstance(error, Disconnected) else self.last_error
                raise Disconnected(self.remote.link.name, cause or "there was no connection yet")

    def failed(self, error: FlintError) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self.last_error:
            event(_log, logging.WARNING, "outbox_waits", f"the outbox waits: {error}")
        self.last_error, self._failure = text, error

    # --- publishing

    def known_options(self, topic: str) -> TopicOptions | None:
        options: TopicOptions | None = self.remote.known_options(topic)
        if options is None and (count := self._partitions.get(topic.partition("/")[0])):
            return TopicOptions(partitions=count)
        return options

    def publish_nowait(
        self, topic: str, rows: Batch, *, qos: int, auto_create: bool, timeout: float | None = None
    ) -> Receipt | Awaitable[Receipt] | None:
        if qos == 0:
            begun: Awaitable[Receipt] | None = self.remote.publish_nowait(
                topic, rows, qos=0, auto_create=auto_create, timeout=timeout
            )
            return begun
        line = self._lines.get(topic)
        if line is None:
            return None
        size = self._check(rows)
        taken = self.local.publish_nowait(line.name, rows, qos=1, auto_create=False)
        if taken is None:
            return None
        count = rows.row_count
        self._count(count, size)
        if isinstance(taken, Receipt):
            return queued(taken, topic)
        return QueuedReceipt(taken, topic, lambda: self._count(-count, -size))

    def publish_value_nowait(self, topic: str, value: bytes) -> Awaitable[Receipt] | None:
        return None

    def publish_rows_nowait(self, *given: Any, **named: Any) -> None:
        return None

    def may_gather(self, topic: str) -> bool:
        return False

    async def publish(
        self, topic: str, rows: Batch, *, qos: int, auto_create: bool, timeout: float | None
    ) -> Receipt:
        if qos == 0:
            await self._once_connected()
            live: Receipt = await self.remote.publish(
                topic, rows, qos=0, auto_create=auto_create, timeout=timeout
            )
            return live
        line = self._lines.get(topic) or await self._new_line(topic)
        size = self._check(rows)
        self._count(rows.row_count, size)
        try:
            taken = await self.local.publish(
                line.name, rows, qos=1, auto_create=False, timeout=timeout
            )
        except BaseException:
            self._count(-rows.row_count, -size)
            raise
        return queued(taken, topic)

    def _check(self, rows: Batch) -> int:
        if isinstance(rows, RecordBatch) and rows.columns & PRODUCER:
            raise InvalidRequest(
                "producer and sequence cannot be given with an outbox: it numbers what it sends"
            )
        size = rows.size(0, rows.row_count) + ROW_BYTES * rows.row_count
        if self.bytes + size > self.bytes_max:
            raise OutboxFull(self.directory, self.bytes, self.bytes_max, self.last_error)
        return size

    def _count(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size

    def done(self, messages: int, size: int) -> None:
        """So much has been sent, or refused for good."""
        self._count(-messages, -size)
        if self.messages <= 0:
            self.messages = self.bytes = 0
            self.emptied.wake()

    async def weigh(self) -> None:
        """Count anew how much there is: of messages that expired here, nobody knows the size."""
        size = 0
        for line in list(self._lines.values()):
            stats = await self.local.topic_stats(line.name)
            size += stats.byte_count + ROW_BYTES * (stats.next_offset - line.position)
        self.bytes = size if self.messages else 0

    async def refuse(self, topic: str, row: BatchBuilder, error: FlintError) -> None:
        """The broker will never take this message: lay it aside, and say so."""
        self.refused += 1
        self.failed(error)
        aside = BatchBuilder()
        aside.append_row(
            row.value(0),
            key=row.key(0),
            headers={**row.headers(0), "outbox-topic": topic, "outbox-error": str(error)[:1000]},
            content_type=row.content_type(0),
        )
        await self.local.publish(REFUSED, aside, qos=1, auto_create=True, timeout=None)

    # --- lines

    def line_before(self, topic: str) -> OutboxLine | None:
        """The line that has to be empty before a partition's is sent: what was published before we
        knew of partitions."""
        base, separator, _ = topic.partition("/")
        return self._lines.get(base) if separator else None

    async def _new_line(self, topic: str) -> OutboxLine:
        base, separator, _ = topic.partition("/")
        check_name(base, "topic")
        options = self.remote.known_options(base)
        if separator and options is not None and options.partitions:
            await self._note_partitions(base, options.partitions)
        await self.local.create_topic(escape_name(topic), {})
        if topic not in self._lines:
            self._add_line(topic, 0)
        return self._lines[topic]

    def _add_line(self, topic: str, position: int) -> None:
        line = self._lines[topic] = OutboxLine(self, topic, escape_name(topic), position)
        if self._connected.is_set():
            line.start()

    async def _note_partitions(self, topic: str, count: int) -> None:
        if self._partitions.get(topic) != count:
            self._partitions[topic] = count
            await self._note(OutboxNote(topic=topic, partitions=count))

    async def _note(self, note: OutboxNote) -> None:
        rows = BatchBuilder()
        rows.append(msgspec.json.encode(note))
        await self.local.publish(NOTES, rows, qos=1, auto_create=True, timeout=None)

    async def _recover(self) -> None:
        names = await self.local.topics(">")
        if REFUSED not in names:
            await self.local.create_topic(REFUSED, {"retention_bytes": REFUSED_BYTES})
        position = 0
        while NOTES in names:
            found = await self.local.fetch(Fetch(NOTES, position))
            for value in found.rows.values:
                note = msgspec.json.decode(value, type=OutboxNote)
                self.producer = note.producer or self.producer
                if note.topic is not None:
                    self._partitions[note.topic] = note.partitions
            position = found.position
            if position >= found.next_offset:
                break
        if not self.producer:
            self.producer = f"outbox-{secrets.token_hex(16)}"
            await self._note(OutboxNote(producer=self.producer))
        for name in names:
            if name in (NOTES, REFUSED):
                continue
            stats = await self.local.topic_stats(name)
            count = stats.next_offset - stats.first_offset
            self._count(count, stats.byte_count + ROW_BYTES * count)
            self._add_line(unescape_name(name), stats.first_offset)
        self.refused = (await self.local.topic_stats(REFUSED)).message_count

    def stats(self) -> OutboxStats:
        return msgspec.convert(self, OutboxStats, from_attributes=True)

    async def wait_sent(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else self.clock.monotonic() + timeout
        while self.messages:
            left = None if deadline is None else deadline - self.clock.monotonic()
            if (left is not None and left <= 0) or not await self.emptied.wait(left):
                return False
        return True
