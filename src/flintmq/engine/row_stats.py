"""The figures of a partitioned topic, put together from its partitions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ..model import TopicStats
from .leading.topic import LeadingTopic
from .leading.topic_figures import stats_of


def merged_stats(name: str, row: list[LeadingTopic]) -> TopicStats:
    """Sums over the partitions, offsets included; each one's own figures are in `partitions`."""
    parts = [stats_of(topic) for topic in row]
    feeds = len(row[0].feeds)  # a feed listens to all partitions, and counts once
    readers = [part.subscribers - feeds for part in parts]
    filters: dict[str, dict[str, int]] = {}
    for part in parts:
        for label, counts in part.filters.items():
            if label.startswith("live "):
                filters[label] = counts
            else:
                filters[label] = _sum([filters.get(label, {}), counts])
    return TopicStats(
        name=name,
        id=parts[0].id,
        message_count=sum(part.message_count for part in parts),
        byte_count=sum(part.byte_count for part in parts),
        first_offset=sum(part.first_offset for part in parts),
        next_offset=sum(part.next_offset for part in parts),
        subscribers=max(readers) + feeds,
        lag=_sum(part.lag for part in parts),
        missed=_sum(part.missed for part in parts),
        drops=_sum(part.drops for part in parts),
        waits=_sum(part.waits for part in parts),
        filters=filters,
        publishers_waiting=sum(part.publishers_waiting for part in parts),
        published=sum(part.published for part in parts),
        delivered=sum(part.delivered for part in parts),
        rates={rate: sum(part.rates[rate] for part in parts) for rate in parts[0].rates},
        damaged=sum(part.damaged for part in parts),
        partitions=parts,
    )


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in counts:
        total.update(part)
    return dict(total)
