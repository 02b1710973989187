"""One topic of an outbox: sends what is kept for it, in order, each message exactly once.

A batch that the broker has in part (we, or it, were killed in between) is refused by it, and sent
again in halves: what is known there is answered, the rest is taken. In the same way a message that
will never be taken is told from those around it, and laid aside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..batch import BatchBuilder, key_hash
from ..broker_api import Fetch
from ..errors import FlintError, InvalidRequest, TopicFull
from ..rows import Rows
from .routing import partition_name
from .sending import halves, partitions_of

if TYPE_CHECKING:
    from .outbox import OutboxBroker

ROW_BYTES = 64
"""What a message is counted for beside its bytes."""
PIECE_BYTES, PIECE_ROWS = 128 * 1024, 1000
"""What is sent of a topic at once: on a slow link, others of this connection wait no longer."""
PIECES_MAX = 4
"""Of so many topics."""
PAUSE_SECONDS = (0.05, 5.0)
BLOCK_ROWS = 64
"""Messages without a key go to a partition in blocks, by their place in the outbox: a message that
is sent again goes where it went."""


class OutboxRoom(asyncio.Semaphore):
    """What all lines of an outbox may have on the way."""

    def __init__(self) -> None:
        super().__init__(PIECES_MAX)


class OutboxLine:
    def __init__(self, outbox: OutboxBroker, topic: str, name: str, position: int) -> None:
        self.topic, self.name = topic, name
        self.position = position
        """The first that the broker may not have."""
        self._outbox, self._local = outbox, outbox.local
        # A partition may get messages of two lines: of its own, and of its topic's.
        self._producer = f"{outbox.producer}/{topic.partition('/')[2]}"
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        least, most = PAUSE_SECONDS
        pause = least
        while True:
            await self._local.wait_beyond({self.name: self.position}, None)
            try:
                await self._send_some()
                pause = least
            except FlintError as error:
                self._outbox.failed(error)
                await asyncio.sleep(pause)
                pause = min(most, pause * 2)

    async def _send_some(self) -> None:
        """Send a piece, and let it go."""
        before = self._outbox.line_before(self.topic)
        if before is not None and not await before.is_empty():
            await asyncio.sleep(PAUSE_SECONDS[0])
            return
        wanted = Fetch(self.name, self.position, max_rows=PIECE_ROWS, max_bytes=PIECE_BYTES)
        found = await self._local.fetch(wanted)
        size = count = 0
        async with self._outbox.room:
            for first, rows in self._batches(found.rows):
                size += rows.size(0, rows.row_count) + ROW_BYTES * rows.row_count
                count += rows.row_count
                await self._send(first, rows)
        await self._local.purge_topic(self.name, found.position)
        gone, self.position = found.position - self.position, found.position
        self._outbox.last_error = None
        self._outbox.done(gone, size)
        if gone > count:  # the time to live of some was over
            await self._outbox.weigh()

    async def is_empty(self) -> bool:
        stats = await self._local.topic_stats(self.name)
        return stats.message_count == 0

    def _batches(self, found: Rows) -> Iterator[tuple[int, BatchBuilder]]:
        """Messages whose offsets follow on one another, and go to one place."""
        rows, first, ends, place = BatchBuilder(), 0, -1, ""
        for message in found:
            offset = message.offset
            assert offset is not None
            to = self._place(message.key, offset)
            if rows.row_count and (offset != ends or to != place):
                yield first, rows
                rows = BatchBuilder()
            if not rows.row_count:
                first, place = offset, to
            source, row = message._source, message._row
            rows.append_of(source, row, source.value(row))
            ends = offset + 1
        if rows.row_count:
            yield first, rows

    def _place(self, key: str | bytes | None, offset: int) -> str:
        """The plain topic that a message goes to."""
        count = partitions_of(self.topic, self._outbox.known_options(self.topic))
        if count is None:
            return self.topic
        number = offset // BLOCK_ROWS if key is None else key_hash(key)
        return partition_name(self.topic, number % count)

    async def _send(self, first: int, rows: BatchBuilder) -> None:
        outbox, count = self._outbox, rows.row_count
        topic = self._place(rows.key(0), first)
        batch = rows.seal(producer=self._producer, base_sequence=first)
        try:
            receipt = outbox.remote.publish_nowait(
                topic, batch, qos=1, auto_create=outbox.auto_create, timeout=None
            )
            if receipt is None:
                receipt = outbox.remote.publish(
                    topic, batch, qos=1, auto_create=outbox.auto_create, timeout=None
                )
            await receipt
        except (InvalidRequest, TopicFull) as error:
            if isinstance(error, TopicFull) and not error.never_fits:
                raise
            if topic != self._place(rows.key(0), first):
                raise  # it has partitions by now
            if count == 1:
                await outbox.refuse(topic, rows, error)
                return
            one, other = halves(rows)
            assert isinstance(one, BatchBuilder)
            assert isinstance(other, BatchBuilder)
            await self._send(first, one)
            await self._send(first + one.row_count, other)
        else:
            outbox.sent += count
