"""What a topic counts, for scrapers and for people."""

from __future__ import annotations

from ...group_model import Ranges
from ...groups.ranges import count_in
from ...model import TopicStats
from ..figures import GroupFigures, TopicFigures
from ..state.topic import TopicState
from .group_figures import figures_of as figures_of_group
from .topic import LeadingTopic


def damaged_ranges(topic: LeadingTopic) -> Ranges:
    """What is known to be damaged on the disk."""
    first = topic.log.first_offset
    return [(max(first, damage.first), damage.next) for damage in topic.log.damaged]


def figures_of(topic: LeadingTopic) -> TopicFigures:
    """What is counted here, without working anything out: for many topics, many times."""
    log = topic.log
    return TopicFigures(
        name=topic.base,
        messages=log.next_offset - log.first_offset,
        bytes=log.byte_count,
        first_offset=log.first_offset,
        next_offset=log.next_offset,
        readers=len(topic.cursors.readers),
        publishers_waiting=len(topic.publishers),
        published=topic.published.total,
        published_bytes=topic.published.size,
        delivered=topic.delivered.total,
        drops=topic.drops,
        waits=topic.line.waits,
        publish_seconds=topic.intake.seconds,
        groups=topic.cursors.figures() + [figures_of_group(one) for one in topic.queues.values()],
        damaged=count_in(damaged_ranges(topic)) if log.damaged else 0,
    )


def figures_of_state(topic: TopicState) -> TopicFigures:
    """Of a topic that another node leads: what is applied here."""
    log = topic.log
    return TopicFigures(
        name=topic.name.partition("/")[0],
        messages=log.next_offset - log.first_offset,
        bytes=log.byte_count,
        first_offset=log.first_offset,
        next_offset=log.next_offset,
        groups=[
            GroupFigures(
                name,
                "queue",
                max(0, log.next_offset - group.floor - len(group.queue.settled)),
                paused=int(group.paused),
            )
            for name, group in topic.groups.items()
        ]
        + [
            GroupFigures(name, "cursor", _lag(topic, began if committed is None else committed))
            for name, (began, committed) in topic.names.items()
        ],
        is_led=False,
    )


def _lag(topic: TopicState, position: int) -> int:
    log = topic.log
    return log.next_offset - min(log.next_offset, max(log.first_offset, position))


def stats_of(topic: LeadingTopic) -> TopicStats:
    log, now_ms = topic.log, topic.clock.now_ms()
    cursors = topic.cursors.all
    topic.delivered.add(0, now_ms)
    damaged = damaged_ranges(topic)
    return TopicStats(
        name=topic.name,
        id=topic.id,
        message_count=log.next_offset - log.first_offset,
        byte_count=log.byte_count,
        first_offset=log.first_offset,
        next_offset=log.next_offset,
        subscribers=len(topic.cursors.readers)
        + len(topic.feeds)
        + sum(len(group.members) for group in topic.queues.values()),
        lag={
            **{label: topic.cursors.lag(cursor) for label, cursor in cursors.items()},
            **{name: group.unsettled() for name, group in topic.queues.items()},
        },
        missed={label: topic.cursors.missed(cursor) for label, cursor in cursors.items()},
        drops={reason: count for reason, count in topic.drops.items() if count},
        waits={reason: count for reason, count in topic.line.waits.items() if count},
        filters=_filter_counts(topic),
        publishers_waiting=len(topic.publishers),
        published=topic.published.total,
        delivered=topic.delivered.total,
        rates={
            "published": topic.published.per_second(now_ms),
            "published_bytes": topic.published.size_per_second(now_ms),
            "delivered": topic.delivered.per_second(now_ms),
        },
        damaged=count_in(damaged),
        damaged_ranges=damaged,
    )


def _filter_counts(topic: LeadingTopic) -> dict[str, dict[str, int]]:
    counted = {
        cursor.label: (cursor.matched, cursor.rejected)
        for cursor in topic.cursors.all.values()
        if cursor.matched or cursor.rejected
    }
    for feed in topic.feeds:
        if feed.filter is not None:
            counted[f"live {feed.pattern}"] = (feed.matched, feed.rejected)
    return {
        label: {"matched": matched, "rejected": rejected}
        for label, (matched, rejected) in counted.items()
    }
