"""What was let into a topic and is on its way through the log.

Publishes of one turn of the event loop share a batch. Their places are decided at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...batch import BatchBuilder, RecordBatch
from ...errors import FlintError
from ...model import Receipt
from ...observe.metrics import PUBLISH_SECONDS, Histogram
from ..commands import Append
from ..pending import Pending
from ..state.memory_log import CHUNK_BYTES, CHUNK_ROWS, JOIN_ROWS_MAX
from ..waiting import again
from .feeds import LiveFeed

if TYPE_CHECKING:
    from .topic import LeadingTopic


class PublishIntake:
    def __init__(self, topic: LeadingTopic) -> None:
        self._topic, self._proposer, self._view = topic, topic.proposer, topic.view
        self.seconds: Histogram | None = None
        """From being let in to being safe, of each batch."""
        self._gatherers: list[Pending] = []
        self.expected: deque[tuple[int, int, LiveFeed]] = deque()  # offset, count, who expects them

    def publish_value(self, value: bytes) -> Pending | None:
        """The quick way for one plain value; None where the topic has more to think about."""
        topic, proposer = self._topic, self._proposer
        if (
            topic.is_involved
            or topic.publishers
            or topic.known_feeds
            or (topic.feeds_version != topic.board.version and topic.feeds)
            or len(value) > topic.state.bytes_max
            or proposer.failure is not None
            or proposer.full is not None
            or proposer.is_full
        ):
            return None
        offset, time = self._view.place(1, topic.clock.now_ms())
        pending = Pending(loop=asyncio.get_running_loop())
        pending.receipt = Receipt(
            topic.base, offset, 1, topic.partition, durability=proposer.durability
        )
        gathered = self._view.gathered or self._begin_gathering(offset)
        gathered.append_at(value, time)
        self._gatherers.append(pending)
        if gathered.row_count >= CHUNK_ROWS or gathered.byte_count >= CHUNK_BYTES:
            self.propose_gathered()
        return pending

    def take_in(
        self, rows: BatchBuilder | RecordBatch, count: int, now_ms: int, dropped: int
    ) -> Pending:
        topic, proposer, view = self._topic, self._proposer, self._view
        pending = Pending(loop=asyncio.get_running_loop())
        if isinstance(rows, BatchBuilder) and count < JOIN_ROWS_MAX:
            batch = None
            offset, time = view.place(count, now_ms)
            gathered = view.gathered or self._begin_gathering(offset)
            gathered.extend_at(rows, time)
            self._gatherers.append(pending)
        else:
            if view.gathered is not None:
                self.propose_gathered()
            batch = rows.seal() if isinstance(rows, BatchBuilder) else rows
            offset = view.propose(batch, now_ms, pending)
        for feed in topic.known_feeds:  # `publish` has looked for them
            if feed.refuses:
                feed.expect(count)
                self.expected.append((offset, count, feed))
        pending.receipt = Receipt(
            topic.base, offset, count, topic.partition, dropped, False, proposer.durability
        )
        if batch is not None:
            measure = self.seconds or self._begin_measuring()
            proposer.propose(Append(topic.id, batch), (pending,), None, measure)
        elif gathered.row_count >= CHUNK_ROWS or gathered.byte_count >= CHUNK_BYTES:
            self.propose_gathered()
        return pending

    def _begin_gathering(self, offset: int) -> BatchBuilder:
        gathered = self._view.gathered = BatchBuilder(offset)
        self._proposer.at_end_of_turn(self.propose_gathered)
        return gathered

    def propose_gathered(self) -> None:
        gathered, self._view.gathered = self._view.gathered, None
        if gathered is None:
            return
        pending, self._gatherers = self._gatherers, []
        batch = gathered.seal()
        self._view.is_proposed(batch.size(0, batch.row_count))
        measure = self.seconds or self._begin_measuring()
        try:
            self._proposer.propose(Append(self._topic.id, batch), pending, None, measure)
        except FlintError as error:  # the journal has stopped; this never went in
            for publish in pending:
                publish.failed(error)

    def _begin_measuring(self) -> Histogram:
        self.seconds = Histogram(PUBLISH_SECONDS)
        return self.seconds

    def place(self, batches: Sequence[RecordBatch], now_ms: int) -> tuple[int, int]:
        """Decide where these go: offset and time."""
        self.propose_gathered()  # it has its place before these
        self._view.is_proposed(sum(batch.size(0, batch.row_count) for batch in batches))
        return self._view.place(sum(batch.row_count for batch in batches), now_ms)

    def have_come(self, before: int) -> None:
        """What was expected before an offset is in the queues of the live feeds, or never will."""
        while self.expected and self.expected[0][0] < before:
            _, count, feed = self.expected.popleft()
            feed.have_come(count)

    def give_up(self, error: FlintError) -> None:
        """What was gathered and not proposed never will be: whoever waits for it hears so."""
        self._view.gathered = None
        pending, self._gatherers = self._gatherers, []
        for publish in pending:
            publish.failed(again(error))
        self.have_come(self._view.next_offset)
