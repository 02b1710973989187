"""Commits of staged writes: what a topic that is led takes in all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from ...batch import DELIVER_AT, EXPIRY, RecordBatch, RestingRows
from ...errors import Corrupt
from ..deciding import check_sizes, has_room, refuse_too_large

if TYPE_CHECKING:
    from .topic import LeadingTopic

Staged = Sequence[RecordBatch | RestingRows]


class StagedCommits:
    def __init__(self, topic: LeadingTopic) -> None:
        self._topic = topic

    def check_fits(self, batches: Staged) -> None:
        """Raise unless all of these can be taken in right now. A commit never waits or drops."""
        topic, is_resting = self._topic, False
        for batch in batches:
            if isinstance(batch, RestingRows):
                is_resting = True  # it was checked when it was staged
            else:
                check_sizes(topic.state, batch)
        count = sum(batch.row_count for batch in batches)
        size = sum(batch.size(0, batch.row_count) for batch in batches)
        for feed in topic.feeds:
            if feed.refuses and (count > feed.capacity if is_resting else not feed.has_room(count)):
                raise feed.full()
        if topic.state.drops_oldest:
            last = batches[-1].row_count - 1
            refuse_too_large(topic.state, batches[-1].size(last, last + 1))
        elif not has_room(topic.state, topic.view, count, size):
            topic.drop_what_all_passed()
            if not has_room(topic.state, topic.view, count, size):
                raise topic.full(count)

    def place(self, batches: Staged, now_ms: int) -> tuple[int, int]:
        """Decide where these go: offset and time."""
        topic = self._topic
        if topic.proposer.is_instant:
            return topic.log.next_offset, max(now_ms, topic.log.last_time)
        return topic.intake.place(batches, now_ms)

    def appended(self, batches: Staged, count: int, size: int) -> None:
        """A part of a large commit was applied."""
        topic = self._topic
        topic.published.add(count, topic.log.last_time, size)
        topic.view.applied(None, 0, size)
        columns = reduce(or_, (rows.columns for rows in batches))
        if columns & EXPIRY and not topic.expiry_seen:
            topic.saw_expiry()
            topic.sweeping.rearm()
        if columns & DELIVER_AT or topic.known_feeds or topic.board.version != topic.feeds_version:
            for rows in self._in_memory(batches):
                topic.hand_on(rows, rows.append_time, rows.base_offset)
        if not topic.sweeping.is_armed and (topic.may_expire or topic.age_ms is not None):
            topic.sweeping.arm()
        if topic.compacting.is_on:
            topic.compacting.appended()
        topic.bell.ring()

    def _in_memory(self, batches: Staged) -> Iterator[RecordBatch]:
        """What is for feeds, and to be handed out when it is due. What is not in memory only those
        feeds get that refuse what they have no room for; for others it is more than they hold."""
        topic = self._topic
        for rows in batches:
            if isinstance(rows, RecordBatch):
                yield rows
            elif rows.columns & DELIVER_AT or any(feed.refuses for feed in topic.feeds):
                offset, end = rows.base_offset, rows.base_offset + rows.row_count
                try:
                    while offset < end:
                        batch = topic.log.locate(offset)[0]
                        assert isinstance(batch, RecordBatch), "it was committed as one"
                        yield batch
                        offset += batch.row_count
                except Corrupt:
                    topic.drops["damaged"] += (end - offset) * len(topic.feeds)
            else:
                topic.drops["feed"] += rows.row_count * len(topic.feeds)
