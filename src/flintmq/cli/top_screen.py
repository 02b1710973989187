"""The screen of `flintmq top`: two tables, as many rows as fit. Pure; the time is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..amounts import age, many, short, size
from ..group_model import GroupStats
from ..model import TopicStats
from .look import FAINT, HEADING, new_table

if TYPE_CHECKING:
    from rich.console import Group, RenderableType


@dataclass(frozen=True, slots=True)
class TopSnapshot:
    """A broker at one moment."""

    at: float
    """Seconds, on any clock that only goes forward."""
    topics: Sequence[TopicStats]
    groups: Sequence[GroupStats]
    topic_count: int
    """Number of topics that match; of very many, only `topics` were read so far."""
    seen_at: Mapping[str, float] = field(default_factory=dict)
    """Topics that were read before `at`: when."""

    def seconds_since(self, before: TopSnapshot | None, topic: str) -> float:
        """Seconds between the two readings of this topic; 0 if there was only one."""
        if before is None:
            return 0.0
        return self.seen_at.get(topic, self.at) - before.seen_at.get(topic, before.at)


@dataclass(frozen=True, slots=True)
class TopicLine:
    name: str
    message_count: int
    byte_count: int
    in_rate: float
    out_rate: float
    readers: int


@dataclass(frozen=True, slots=True)
class GroupLine:
    topic: str
    name: str
    lag: int
    in_flight: int
    delayed: int
    dead: int
    rate: float
    oldest_age: float | None
    paused: bool


def topic_lines(now: TopSnapshot, before: TopSnapshot | None) -> list[TopicLine]:
    """The busiest first. Rates are between two snapshots; the first one has the broker's own."""
    known = {} if before is None else {one.id: one for one in before.topics}
    lines = []
    for one in now.topics:
        old, seconds = known.get(one.id), now.seconds_since(before, one.name)
        if old is not None and seconds > 0:
            rates = [one.published - old.published, one.delivered - old.delivered]
            incoming, outgoing = (max(0.0, count / seconds) for count in rates)
        else:
            incoming, outgoing = one.rates.get("published", 0.0), one.rates.get("delivered", 0.0)
        lines.append(
            TopicLine(
                one.name, one.message_count, one.byte_count, incoming, outgoing, one.subscribers
            )
        )
    return sorted(lines, key=lambda line: (-line.in_rate - line.out_rate, line.name))


def group_lines(now: TopSnapshot, before: TopSnapshot | None) -> list[GroupLine]:
    """The largest lag first."""
    known = {} if before is None else {(one.topic, one.name): one for one in before.groups}
    lines = []
    for one in now.groups:
        old, seconds = known.get((one.topic, one.name)), now.seconds_since(before, one.topic)
        settled = 0 if old is None else max(0, one.settled - old.settled)
        rate = settled / seconds if seconds > 0 else 0.0
        lines.append(
            GroupLine(
                one.topic,
                one.name,
                one.lag,
                one.in_flight,
                one.delayed,
                one.dead_letters,
                rate,
                one.oldest_age,
                one.paused,
            )
        )
    return sorted(lines, key=lambda line: (-line.lag, line.topic, line.name))


def screen(
    server: str, now: TopSnapshot, before: TopSnapshot | None, *, height: int | None, note: str = ""
) -> Group:
    """The screen; with a height, as many rows of both tables as fit."""
    from rich.console import Group
    from rich.text import Text

    topics, groups = topic_lines(now, before), group_lines(now, before)
    total = sum(line.message_count for line in topics)
    stored = size(sum(line.byte_count for line in topics))
    seen = f"{len(topics):,} of " if len(topics) < now.topic_count else ""
    facts = (
        f"{seen}{many(now.topic_count, 'topic')}  {short(total)} messages  {stored}  "
        f"in {short(sum(line.in_rate for line in topics))}/s  "
        f"out {short(sum(line.out_rate for line in topics))}/s  "
        f"lag {short(sum(line.lag for line in groups))}"
    )
    room_topics, room_groups = _shares(height, len(topics), len(groups))
    parts: list[RenderableType] = [Text(f"flintmq top  {server}", style=HEADING), Text(facts)]
    if note:
        parts.append(Text(note, style=FAINT))
    parts += ["", new_table(TOPIC_HEADINGS, [_topic_row(one) for one in topics[:room_topics]])]
    parts += _more(len(topics) - room_topics, "topic")
    parts += ["", new_table(GROUP_HEADINGS, [_group_row(one) for one in groups[:room_groups]])]
    parts += _more(len(groups) - room_groups, "group")
    return Group(*parts)


TOPIC_HEADINGS = ("TOPIC", "MESSAGES", "SIZE", "IN/S", "OUT/S", "READERS")
GROUP_HEADINGS = ("TOPIC", "GROUP", "LAG", "LEASED", "DELAYED", "DEAD", "RATE", "OLDEST")


def _topic_row(one: TopicLine) -> tuple[str, ...]:
    figures = (short(one.message_count), size(one.byte_count), short(one.in_rate))
    return (one.name, *figures, short(one.out_rate), f"{one.readers:,}")


def _group_row(one: GroupLine) -> tuple[str, ...]:
    figures = map(short, (one.lag, one.in_flight, one.delayed, one.dead, one.rate))
    return (one.topic, one.name, *figures, "paused" if one.paused else age(one.oldest_age))


def _shares(height: int | None, topics: int, groups: int) -> tuple[int, int]:
    """How many rows each table gets; rows that one does not need go to the other."""
    if height is None:
        return topics, groups
    room = max(2, height - 10)  # headings, empty lines, two lines that say how many more, the note
    ours = min(topics, max(room - groups, room // 2))
    return ours, min(groups, room - ours)


def _more(count: int, what: str) -> list[RenderableType]:
    from rich.text import Text

    return [Text(f"and {many(count, f'more {what}')}", style=FAINT)] if count > 0 else []
