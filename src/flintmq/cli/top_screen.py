"""What `flintmq top` shows: two tables that fit the terminal. Pure; the time is an argument."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..group_model import GroupStats
from ..model import TopicStats
from .showing import age, many, size

BOLD, DIM, INVERSE, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[7m", "\x1b[0m"
WIDTH_MIN = 60


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A broker at one moment."""

    at: float
    """Seconds, on any clock that only goes forward."""
    topics: Sequence[TopicStats]
    groups: Sequence[GroupStats]
    topic_count: int
    """Of all that match: of very many, only those of `topics` were looked at so far."""
    seen_at: Mapping[str, float] = field(default_factory=dict)
    """Of topics that were looked at earlier than `at`: when."""

    def seconds_since(self, before: Snapshot | None, topic: str) -> float:
        """Between the looks at this topic in both; 0 where there was but one."""
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


def topic_lines(now: Snapshot, before: Snapshot | None) -> list[TopicLine]:
    """The busiest first. Rates are between two snapshots; of the first, the broker's own."""
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


def group_lines(now: Snapshot, before: Snapshot | None) -> list[GroupLine]:
    """Those that are furthest behind first."""
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


def short(count: float) -> str:
    """`999`, `12.3k`, `4.56M`: six letters at most."""
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if count >= least:
            scaled = count / (1e3 if unit == "k" else least)
            return f"{scaled:.3g}{unit}" if scaled < 999.5 else f"{scaled:.0f}{unit}"
    return f"{count:,.0f}"


def fitted(name: str, width: int) -> str:
    """A name in so many columns: the end of a dotted name tells more than its middle."""
    if len(name) <= width:
        return name.ljust(width)
    head = (width - 1) // 2
    return f"{name[:head]}~{name[len(name) - (width - 1 - head) :]}"


def screen(
    server: str,
    now: Snapshot,
    before: Snapshot | None,
    *,
    width: int,
    height: int | None,
    colour: bool,
    note: str = "",
) -> list[str]:
    """The lines of the screen, none longer than it; without a height, all there are."""
    room, width = width, max(WIDTH_MIN, width)
    topics, groups = topic_lines(now, before), group_lines(now, before)
    bold, dim, inverse, plain = (BOLD, DIM, INVERSE, PLAIN) if colour else ("", "", "", "")
    total = sum(line.message_count for line in topics)
    stored = size(sum(line.byte_count for line in topics))
    seen = f"{len(topics):,} of " if len(topics) < now.topic_count else ""
    facts = (
        f"{seen}{many(now.topic_count, 'topic')}  {short(total)} messages  {stored}  "
        f"in {short(sum(line.in_rate for line in topics))}/s  "
        f"out {short(sum(line.out_rate for line in topics))}/s  "
        f"lag {short(sum(line.lag for line in groups))}"
    )
    lines = [f"{bold}{f'flintmq top  {server}'[:width]}{plain}", facts[:width], ""]
    room_topics, room_groups = _shares(height, len(topics), len(groups))

    first = width - 44
    heading = f"{'TOPIC':{first}}{'MESSAGES':>9}{'SIZE':>11}{'IN/S':>8}{'OUT/S':>8}{'READERS':>8}"
    lines.append(f"{inverse}{heading}{plain}")
    for topic in topics[:room_topics]:
        lines.append(
            f"{fitted(topic.name, first)}{short(topic.message_count):>9}"
            f"{size(topic.byte_count):>11}{short(topic.in_rate):>8}{short(topic.out_rate):>8}"
            f"{topic.readers:>8,}"
        )
    lines += _more(len(topics) - room_topics, "topic", dim, plain)
    lines.append("")

    first = width - 50
    heading = f"{'TOPIC GROUP'[:first]:{first}}{'LAG':>8}{'FLIGHT':>8}{'DELAYED':>8}{'DEAD':>8}"
    lines.append(f"{inverse}{heading}{'DONE/S':>8}{'OLDEST':>10}{plain}")
    for group in groups[:room_groups]:
        oldest = "paused" if group.paused else age(group.oldest_age)
        lines.append(
            f"{fitted(f'{group.topic} {group.name}', first)}{short(group.lag):>8}"
            f"{short(group.in_flight):>8}{short(group.delayed):>8}{short(group.dead):>8}"
            f"{short(group.rate):>8}{oldest:>10}"
        )
    lines += _more(len(groups) - room_groups, "group", dim, plain)
    if note:
        lines += ["", f"{dim}{note[:width]}{plain}"]
    lines = [cut(line, room) for line in lines]
    return lines if height is None else lines[:height]


def cut(line: str, width: int) -> str:
    """At most so many columns of it; what switches bold and dim on and off takes none."""
    left = width
    parts: list[str] = []
    for code, text in re.findall(r"(\x1b\[\d+m)|([^\x1b]+)", line):
        parts.append(code or text[:left])
        left -= len(text[:left])
    return "".join(parts)


def _shares(height: int | None, topics: int, groups: int) -> tuple[int, int]:
    """How many rows each table gets; what one does not need is the other's."""
    if height is None:
        return topics, groups
    room = max(2, height - 10)  # headings, empty lines, two lines that say how many more, the note
    ours = min(topics, max(room - groups, room // 2))
    return ours, min(groups, room - ours)


def _more(count: int, what: str, dim: str, plain: str) -> list[str]:
    return [f"{dim}and {many(count, f'more {what}')}{plain}"] if count > 0 else []
