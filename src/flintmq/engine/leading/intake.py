"""What was let into a topic and is on its way through the log.

Publishes of one turn of the event loop share a command, and those to one topic a batch, unless they
came as one. Their places are decided at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...batch import BatchBuilder, RecordBatch, RestingRows
from ...broker_api import Placed
from ...errors import FlintError
from ...model import Receipt
from ...observe.metrics import PUBLISH_SECONDS, Histogram
from ..pending import Pending
from ..state.memory_log import CHUNK_BYTES, CHUNK_ROWS, JOIN_ROWS_MAX
from ..waiting import again
from .feeds import LiveFeed

if TYPE_CHECKING:
    from .topic import LeadingTopic


ROWS_BYTES_MAX = 16 * 1024
"""Larger values are batches of their own: joined with others they would be copied."""


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
            or len(value) > ROWS_BYTES_MAX
            or len(value) > topic.state.bytes_max
            or proposer.failure is not None
            or proposer.full is not None
            or proposer.is_full
        ):
            return None
        if self._view.gathered is not None:
            self.propose_gathered()
        turn = proposer.turn or proposer.begin_turn(topic.clock.now_ms())
        offset = self._view.place_rows(1, len(value), turn.time_ms)
        pending = Pending(loop=proposer.loop)
        pending.receipt = Receipt(
            topic.base, offset, 1, topic.partition, durability=proposer.durability
        )
        turn.waiters.append(pending)
        if turn.add_value(topic.id, offset, value):
            turn.measures.append(self.seconds or self._begin_measuring())
        if turn.is_due():
            proposer.propose_turn()
        return pending

    def publish_rows(
        self, values: list[bytes], content_type: str | None, producer: str, sequence: int
    ) -> Placed | Receipt | Pending | None:
        """The quick way for a few values of a producer. They stay rows, beside those of others."""
        topic, proposer, view = self._topic, self._proposer, self._view
        count = len(values)
        size = len(values[0]) if count == 1 else sum(map(len, values))
        if (
            topic.may_refuse
            or topic.publishers
            or topic.known_feeds
            or (topic.feeds_version != topic.board.version and topic.feeds)
            or count >= JOIN_ROWS_MAX
            or size > ROWS_BYTES_MAX
            or size > topic.state.bytes_max
            or proposer.failure is not None
            or proposer.full is not None
            or proposer.is_full
        ):
            return None
        if producer:
            known = view.known(producer, sequence, count)
            if known is not None:
                return self.repeated(known, count)
        if view.gathered is not None:
            self.propose_gathered()
        turn = proposer.turn or proposer.begin_turn(topic.clock.now_ms())
        offset = view.place_rows(count, size, turn.time_ms)
        placed = Placed(offset, turn, proposer.durability)
        if producer:
            view.expect(producer, sequence, count, placed)
        turn.measures.append(self.seconds or self._begin_measuring())
        turn.add_rows(topic.id, offset, values, size, content_type, producer, sequence)
        if turn.is_due():
            proposer.propose_turn()
        return placed

    def repeat_of(self, rows: RecordBatch, count: int) -> Receipt | Pending | None:
        """The receipt of what was published before; None if it is new. Where the end of it was
        dropped then, it is now as well."""
        producer, sequence, length = rows.producer or "", rows.base_sequence, count
        if self._topic.options.overflow == "drop_new":
            known, length = self._view.known_head(producer, sequence, count)
        else:
            known = self._view.known(producer, sequence, count)
        return None if known is None else self.repeated(known, length, count - length)

    def repeated(
        self, known: Pending | Placed | int, count: int, dropped: int = 0
    ) -> Receipt | Pending:
        """The receipt of what was published before: it is on its way, or has its offset."""
        if isinstance(known, Pending):
            return known.repeated()
        offset = known if isinstance(known, int) else known.offset
        topic, durability = self._topic, self._proposer.durability
        receipt = Receipt(topic.base, offset, count, topic.partition, dropped, True, durability)
        if isinstance(known, int):
            return receipt
        pending = Pending(loop=asyncio.get_running_loop())
        pending.receipt = receipt
        known.shared.waiters.append(pending)
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
            gathered = None
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
        if gathered is None:
            assert batch is not None
            self._propose(batch, (pending,))
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
        self._propose(batch, pending)

    def _propose(self, batch: RecordBatch, pending: Sequence[Pending]) -> None:
        """It has its place; it goes with what else is published in this turn."""
        topic, proposer = self._topic, self._proposer
        turn = proposer.turn or proposer.begin_turn(topic.clock.now_ms())
        turn.waiters += pending
        turn.measures.append(self.seconds or self._begin_measuring())
        turn.add_batch(topic.id, batch)
        if turn.is_due():
            proposer.propose_turn()

    def _begin_measuring(self) -> Histogram:
        self.seconds = Histogram(PUBLISH_SECONDS)
        return self.seconds

    def place(self, batches: Sequence[RecordBatch | RestingRows], now_ms: int) -> tuple[int, int]:
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
