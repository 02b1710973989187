"""The quick ways to publish where nothing stands between a decision and its effect: in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...model import Receipt
from ..pending import Pending
from ..state.memory_log import JOIN_ROWS_MAX

if TYPE_CHECKING:
    from .topic import LeadingTopic


class PublishAtOnce:
    """What `PublishIntake` has for a topic over a log that takes time. None: `publish` decides."""

    def __init__(self, topic: LeadingTopic) -> None:
        self._topic = topic

    def publish_value(self, value: bytes) -> Receipt | None:
        """What `TopicState.append` and `LeadingTopic.appended` do, for one value."""
        topic = self._topic
        state = topic.state
        if (
            topic.is_involved
            or topic.publishers
            or topic.known_feeds
            or (topic.feeds_version != topic.board.version and topic.feeds)
            or len(value) > state.bytes_max
        ):
            return None
        log, now_ms = topic.log, topic.clock.now_ms()
        offset = log.append_value(value, now_ms)
        topic.published.add(1, now_ms, len(value))
        if log.next_offset - log.first_offset > state.count_max or log.byte_count > state.bytes_max:
            state.keep_limits()
        topic.bell.ring()
        return Receipt(topic.base, offset, 1, topic.partition)

    def publish_rows(
        self, values: list[bytes], content_type: str | None, producer: str, sequence: int
    ) -> Receipt | Pending | None:
        topic, count = self._topic, len(values)
        state = topic.state
        if (
            topic.may_refuse
            or topic.publishers
            or topic.known_feeds
            or (topic.feeds_version != topic.board.version and topic.feeds)
            or count >= JOIN_ROWS_MAX
            or sum(map(len, values)) > state.bytes_max
        ):
            return None
        if producer:
            known = topic.view.known(producer, sequence, count)
            if known is not None:
                return topic.intake.repeated(known, count)
        offset, now_ms = topic.log.next_offset, topic.clock.now_ms()
        state.append_rows(offset, values, content_type, now_ms, producer or None, sequence)
        return Receipt(topic.base, offset, count, topic.partition)
