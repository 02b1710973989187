"""Ranges of offsets: how they are split over tasks, and how a limit is shared. Pure.

A task costs about ten milliseconds whatever it reads, so small topics share one. A large topic is
split, so that several tasks can read one partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

ROWS_PER_TASK = 100_000
"""Fewer rows do not get a task of their own."""
ROWS_PER_TASK_MAX = 2_000_000
"""With more, there are more tasks than run at a time."""
ROWS_PER_TASK_UNKNOWN = 250_000
"""Where nobody knows how many tasks run at a time: small enough for a large cluster."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one partition, from `start` up to before `end`.

    `plain` is its name in the broker: a partition is a plain topic of its own. A topic that is
    created again under a name has another `id`.
    """

    topic: str
    partition: int
    plain: str
    id: int
    start: int
    end: int
    far_end: int = 0
    """What lies before this offset may be read in object storage."""

    @property
    def rows(self) -> int:
        return max(0, self.end - self.start)


def tasks_wanted(
    rows: int, parallelism: int | None, min_tasks: int | None, rows_max: int | None
) -> int:
    """How many tasks to use for a number of rows. `parallelism` is how many run at a time."""
    if rows <= 0:
        return 0
    if parallelism is None:
        tasks = -(-rows // ROWS_PER_TASK_UNKNOWN)
    else:
        tasks = min(-(-rows // ROWS_PER_TASK), max(parallelism, -(-rows // ROWS_PER_TASK_MAX)))
    if min_tasks is not None:
        tasks = max(tasks, min_tasks)
    if rows_max is not None:
        tasks = max(tasks, -(-rows // rows_max))
    return min(tasks, rows)


def spread(ranges: Sequence[Range], tasks: int) -> list[list[Range]]:
    """Split the ranges into lists with nearly the same number of rows each, in order."""
    ranges = [one for one in ranges if one.rows]
    total = sum(one.rows for one in ranges)
    if not total:
        return []
    tasks = min(max(1, tasks), total)
    borders = [total * number // tasks for number in range(1, tasks + 1)]
    spread_out: list[list[Range]] = [[]]
    passed = 0
    for one in ranges:
        while one.rows:
            room = borders[len(spread_out) - 1] - passed
            if not room:
                spread_out.append([])
                continue
            taken = min(room, one.rows)
            spread_out[-1].append(replace(one, end=one.start + taken))
            one = replace(one, start=one.start + taken)
            passed += taken
    return spread_out


def shares(backlogs: Sequence[int], limit: int, turn: int = 0) -> list[int]:
    """How much to take of each backlog, `limit` in all, in proportion to their sizes.

    A small backlog does not starve beside a large one: each gets at least one. If the limit is
    smaller than that, they take turns; `turn` says who is next.
    """
    total = sum(backlogs)
    if total <= limit:
        return list(backlogs)
    waiting = [number for number, backlog in enumerate(backlogs) if backlog > 0]
    taken = [0] * len(backlogs)
    if limit < len(waiting):
        at = turn % len(waiting)
        for number in [*waiting[at:], *waiting[:at]][:limit]:
            taken[number] = 1
        return taken
    for number in waiting:
        taken[number] = max(1, limit * backlogs[number] // total)
    over = limit - sum(taken)
    with_more = [number for number in waiting if taken[number] < backlogs[number]]
    by_fraction = sorted(with_more, key=lambda number: -(limit * backlogs[number] % total))
    for number in by_fraction[: max(0, over)]:
        taken[number] += 1
    for number in sorted(waiting, key=lambda number: -taken[number]):
        if over >= 0:
            break
        given_up = min(-over, taken[number] - 1)
        taken[number] -= given_up
        over += given_up
    return taken
