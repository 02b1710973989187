"""Live feeds of a topic: rows are handed to them at once, or when they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...batch import UNSTAMPED, BatchBuilder, RecordBatch
from ...errors import FilterFailed
from ...loop.pace import Allowance, pace
from ...rows import Run
from .feeds import LiveFeed, Unsifted

if TYPE_CHECKING:
    from .topic import LeadingTopic


class FanOut:
    def __init__(self, topic: LeadingTopic) -> None:
        self._topic = topic

    def holds_back(self, rows: BatchBuilder | RecordBatch) -> bool:
        """Whether a publisher has to wait for a feed. Raises where one rejects it."""
        for feed in self._topic.feeds:
            if feed.refuses and not feed.has_room(self._meant_for(feed, rows)):
                if feed.overflow == "reject":
                    raise feed.full()
                feed.on_room.add(self._topic.wake_publisher)
                return True
        return False

    def _meant_for(self, feed: LiveFeed, rows: BatchBuilder | RecordBatch) -> int:
        """How many of the rows a feed would get, were they published now."""
        topic, count = self._topic, rows.row_count
        if feed.filter is None:
            return count
        rows.base_offset, rows.append_time = topic.log.next_offset, topic.clock.now_ms()
        try:
            picks, looked = topic.sieve.look_through(
                feed.filter, rows, range(count), None, pace().begin()
            )
            return len(picks) + count - looked  # those that there was no time for may be for it
        except Exception:
            return 0  # publishing tells the feed
        finally:
            rows.base_offset, rows.append_time = UNSTAMPED, 0

    def offer(self, run: Run, *, was_let_in: bool = True) -> None:
        for feed in self._topic.feeds:
            if feed.filter is None:
                self._hand_to(feed, run, was_let_in)
            else:
                dropped = feed.sift(Unsifted(run, self._sift, was_let_in))
                self._topic.drops["feed"] += dropped

    def _hand_to(self, feed: LiveFeed, run: Run, was_let_in: bool) -> None:
        topic = self._topic
        dropped = feed.offer(run, topic.ttl_ms, was_let_in=was_let_in)
        topic.drops["feed"] += dropped
        topic.delivered.total += max(0, run.row_count - dropped)

    def _sift(self, feed: LiveFeed, waiting: Unsifted, allowance: Allowance) -> Run | None:
        """Hand a feed what of a run passes its filter; what is left when the time is up. A filter
        that raises ends its feed."""
        assert feed.filter is not None
        run, _, was_let_in = waiting
        source, rows = run.source, run.rows()
        sieve = self._topic.sieve
        try:
            picks, looked = sieve.look_through(feed.filter, source, rows, None, allowance)
        except Exception as error:  # never the publisher's trouble
            if not isinstance(error, FilterFailed):
                error = FilterFailed(sieve.origin.topic, None, error)
            feed.fail(error)
            return None
        feed.matched += len(picks)
        feed.rejected += looked - len(picks)
        if picks:
            self._hand_to(feed, run._replace(picks=picks), was_let_in)
        return run._replace(picks=rows[looked:]) if looked < len(rows) else None
