"""Small sums on ranges of offsets. Where order matters, a list keeps the one it was given."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import chain, starmap

from ..group_model import Ranges
from ..rows import Run


def count_in(ranges: Ranges) -> int:
    """How many offsets there are."""
    if len(ranges) == 1:
        start, stop = ranges[0]
        return stop - start
    return sum([stop - start for start, stop in ranges])


def offsets_in(ranges: Ranges) -> Iterable[int]:
    return chain.from_iterable(starmap(range, ranges))


def append_offsets(ranges: Ranges, offsets: Iterable[int]) -> None:
    """Put offsets behind, one by one; those that follow on another become one range."""
    start, stop = ranges.pop() if ranges else (-1, -1)
    append = ranges.append
    for offset in offsets:
        if offset == stop:
            stop += 1
        else:
            if stop > start:
                append((start, stop))
            start, stop = offset, offset + 1
    if stop > start:
        append((start, stop))


def append_range(ranges: Ranges, start: int, stop: int) -> None:
    if ranges and ranges[-1][1] == start:
        ranges[-1] = (ranges[-1][0], stop)
    else:
        ranges.append((start, stop))


def extend_ranges(ranges: Ranges, others: Ranges) -> None:
    """Put ranges behind, in the order given; where they meet they become one."""
    if ranges and others and ranges[-1][1] == others[0][0]:
        ranges[-1] = (ranges[-1][0], others[0][1])
        ranges.extend(others[1:])
    else:
        ranges.extend(others)


def joined(parts: Iterable[Ranges]) -> Ranges:
    """One list, in the order given; neighbours merged."""
    whole: Ranges = []
    for part in parts:
        extend_ranges(whole, part)
    return whole


def ranges_of(offsets: Iterable[int]) -> Ranges:
    ranges: Ranges = []
    append_offsets(ranges, offsets)
    return ranges


def sorted_ranges(offsets: Iterable[int]) -> Ranges:
    """Offsets in any order, as ascending ranges."""
    return ranges_of(sorted(offsets))


def ranges_of_runs(runs: Iterable[Run]) -> Ranges:
    """The offsets of messages, in their order."""
    ranges: Ranges = []
    for run in runs:
        base = run.source.base_offset
        if run.picks is None:
            append_range(ranges, base + run.start, base + run.stop)
        else:
            append_offsets(ranges, [base + row for row in run.picks])
    return ranges


def ascending(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same offsets in ascending order; neighbours merged."""
    merged: Ranges = []
    first = last = -1
    for start, stop in sorted(ranges):
        if start == last:
            last = stop
        else:
            if last > first:
                merged.append((first, last))
            first, last = start, stop
    if last > first:
        merged.append((first, last))
    return merged


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    """What is left of `ranges`, in their order, when the ascending `taken` are left out."""
    if not taken:
        return list(ranges)
    left: Ranges = []
    for start, stop in ranges:
        at = max(0, bisect_right(taken, (start, start)) - 1)
        while at < len(taken) and taken[at][0] < stop:
            first, last = taken[at]
            at += 1
            if last <= start:
                continue
            if first > start:
                left.append((start, first))
            start = last
        if start < stop:
            left.append((start, stop))
    return left


def both(some: Ranges, others: Ranges) -> Ranges:
    """Ascending ranges together."""
    if not others:
        return some
    return sorted(some + others) if some else others


def first_of(ranges: Ranges, count: int) -> tuple[Ranges, Ranges]:
    """The first so many offsets, and the rest."""
    for at, (start, stop) in enumerate(ranges):
        if stop - start > count:
            first = [(start, start + count)] if count else []
            return ranges[:at] + first, [(start + count, stop), *ranges[at + 1 :]]
        count -= stop - start
    return list(ranges), []


def near(ranges: Ranges, rows_between: int) -> list[Ranges]:
    """Ranges that ascend, those together that have no more than so many offsets between them."""
    groups: list[Ranges] = []
    for one in ranges:
        if groups and one[0] - groups[-1][-1][1] <= rows_between:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups
