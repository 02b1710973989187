"""Plans a read: which topics, where they begin and end, and which offsets to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from ..errors import FlintError, InvalidRequest, PermissionDenied, TopicNotFound
from ..model import Extent
from .connecting import BrokerLine
from .offsets import EARLIEST, LATEST
from .options import ReadOptions, StartOrEnd
from .ranges import Range

TopicExtents = dict[str, list[Extent]]
Offsets = dict[tuple[str, int], int]
"""By topic and partition."""


def extents(
    line: BrokerLine, options: ReadOptions, at: datetime | None = None, *, may_be_gone: bool = False
) -> TopicExtents:
    """Where the topics of a read begin and end right now. A topic given by name must exist, unless
    it `may_be_gone`; a pattern means the topics that exist."""
    names: Sequence[str] = options.topics
    if options.pattern is not None:
        names = line.ask(line.broker.topics(options.pattern))
    found: TopicExtents = {}
    for name, extent in _extents_or_errors(
        line, names, at, one_by_one=options.pattern is not None
    ).items():
        if isinstance(extent, TopicNotFound | PermissionDenied) and options.pattern is not None:
            continue  # deleted since it was listed, or this key may not read it
        if isinstance(extent, TopicNotFound) and may_be_gone:
            continue
        if isinstance(extent, FlintError):
            raise extent
        found[name] = extent
    return found


def _extents_or_errors(
    line: BrokerLine, names: Sequence[str], at: datetime | None, *, one_by_one: bool
) -> dict[str, list[Extent] | FlintError]:
    try:
        return line.ask(line.broker.extents_of(names, at))
    except PermissionDenied as error:
        if not one_by_one:
            raise
        if len(names) == 1:
            return {names[0]: error}
        found: dict[str, list[Extent] | FlintError] = {}
        for name in names:
            found.update(_extents_or_errors(line, [name], at, one_by_one=True))
        return found


def offsets_at(
    place: StartOrEnd, known: TopicExtents, what: str, at_time: Callable[[datetime], TopicExtents]
) -> Offsets:
    """The offset of a start or end, for every partition."""
    if isinstance(place, datetime):
        timed = at_time(place)
        known = {name: timed.get(name, parts) for name, parts in known.items()}
        return {(name, part.partition): part.at for name, part in each(known)}
    if isinstance(place, dict):
        _check_named(place, known, what)
        return {
            (name, part.partition): _offset(place[name][part.partition], part, what)
            for name, part in each(known)
        }
    ends = place == "latest"
    return {
        (name, part.partition): part.next_offset if ends else part.first_offset
        for name, part in each(known)
    }


def each(known: TopicExtents) -> list[tuple[str, Extent]]:
    return [(name, part) for name, parts in known.items() for part in parts]


def _check_named(place: Mapping[str, Mapping[int, int]], known: TopicExtents, what: str) -> None:
    there = {(name, part.partition) for name, part in each(known)}
    named = {(name, number) for name, numbers in place.items() for number in numbers}
    if missing := sorted(there - named):
        topic, number = missing[0]
        raise InvalidRequest(
            f"{what}: partition {number} of {topic!r} is missing; give an offset for every "
            "partition that is read (-2 is the earliest, -1 the latest)"
        )
    if unknown := sorted(named - there):
        topic, number = unknown[0]
        raise InvalidRequest(f"{what}: {topic!r} has no partition {number}, or it is not read")


def _offset(wanted: int, part: Extent, what: str) -> int:
    if wanted == EARLIEST:
        return part.first_offset
    if wanted == LATEST:
        return part.next_offset
    if wanted > part.next_offset:
        raise InvalidRequest(
            f"{what}: offset {wanted} of {part.topic!r} is beyond its end, {part.next_offset}"
        )
    return wanted


def ranges(known: TopicExtents, starts: Offsets, ends: Offsets) -> list[Range]:
    """What lies between starts and ends."""
    found = [
        Range(name, part.partition, part.topic, part.id, starts[place], ends[place], part.far_end)
        for name, part in each(known)
        if (place := (name, part.partition))
    ]
    return [one for one in found if one.rows]
