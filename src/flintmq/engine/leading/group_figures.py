"""What there is to see of a queue group: what it would hand out, what is out, what it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...group_model import GroupStats, InFlight
from ...groups.ranges import count_in, offsets_in
from ...rows import Run
from ...storage.loading import when_loaded
from ..expiry import end_of_life
from ..figures import GroupFigures
from .picking import LOOKED_AT_MAX
from .queue_group import QueueGroup
from .rows_of_groups import cut, rows_of_loaded


async def looked(group: QueueGroup) -> bool:
    """Have a group look at what has come, without holding up the loop; whether at all of it."""

    def look() -> bool:
        group.check_open()
        return group.look()

    return await when_loaded(look, group.topic.log.at_once)


async def peek(group: QueueGroup, max_rows: int) -> list[Run]:
    is_all = False
    while not is_all:
        is_all = await looked(group)
        await asyncio.sleep(0)
    wanted = max_rows
    while True:
        ranges = group.queue.peek(wanted)
        runs = await _alive(group, await rows_of_loaded(group.topic, ranges))
        found = sum(run.row_count for run in runs)
        if found >= max_rows or count_in(ranges) < wanted or wanted >= LOOKED_AT_MAX:
            break
        wanted = min(4 * wanted, LOOKED_AT_MAX)
    cut(runs, max_rows)
    return runs


async def _alive(group: QueueGroup, found: list[Run]) -> list[Run]:
    """What of these would be handed out; nothing is settled."""
    now_ms = group.topic.clock.now_ms()
    runs: list[Run] = []
    for run in found:
        rows: Sequence[int] = run.rows()
        if group.topic.may_expire:
            ttl = group.topic.ttl_ms
            rows = [row for row in rows if end_of_life(run.source, row, ttl) > now_ms]
        if group.filter is not None and rows:
            rows = await group.topic.sieve.look_through_all(group.filter, run.source, rows)
        if rows:
            runs.append(run._replace(picks=rows))
    return runs


def in_flight(group: QueueGroup, max_rows: int) -> list[InFlight]:
    origin, now = group.topic.origin, group.topic.clock.monotonic()
    found: list[InFlight] = []
    for token, holder, granted_at, deadline, ranges in group.queue.leases():
        for offset in offsets_in(ranges):
            if len(found) == max_rows:
                return found
            found.append(
                InFlight(
                    topic=origin.topic,
                    partition=origin.partition,
                    offset=offset,
                    holder=holder,
                    token=token,
                    delivery_count=group.queue.count_of(offset),
                    age=now - granted_at,
                    expires_in=deadline - now,
                )
            )
    return found


def figures_of(group: QueueGroup) -> GroupFigures:
    topic, places, count = group.topic, group.queue.places, group.counter.get
    lag = group.unsettled()
    floor, leased = places.floor, len(places.leased)
    delayed = len(places.delayed) + topic.delaying.delays.count_from(floor)
    oldest = 0.0
    if lag and floor >= topic.log.first_offset:
        if group.oldest[0] != floor:  # it may have to be read from the disk
            group.oldest = (floor, topic.log.time_of(floor))
        oldest = max(0.0, (topic.clock.now_ms() - group.oldest[1]) / 1000)
    return GroupFigures(
        name=group.name,
        kind="queue",
        lag=lag,
        members=len(group.members),
        ready=max(0, lag - leased - delayed),
        in_flight=leased,
        in_doubt=len(group.queue.in_doubt),
        delayed=delayed,
        waiting=len(group.takers),
        paused=int(group.state.paused),
        oldest_age=oldest,
        delivered=count("delivered", 0),
        redelivered=count("redelivered", 0),
        acked=count("acked", 0),
        nacked=count("nacked", 0),
        reclaimed=count("reclaimed", 0),
        leases_expired=count("leases_expired", 0),
        dead_lettered=count("dead_lettered", 0),
        drops=group.drops,
    )


_ALSO_STATS = (
    "name", "kind", "lag", "members", "ready", "in_flight", "delayed", "waiting", "delivered",
    "redelivered", "leases_expired", "dead_lettered",
)  # fmt: skip


def stats_of(group: QueueGroup) -> GroupStats:
    """Of what a group has `looked` at before."""
    figures = figures_of(group)
    return GroupStats(
        **{name: getattr(figures, name) for name in _ALSO_STATS},
        topic=group.topic.origin.topic,
        position=group.queue.floor,
        paused=group.state.paused,
        oldest_age=figures.oldest_age if figures.lag else None,
        settled=group.counter["settled"],
        drops={reason: count for reason, count in group.drops.items() if count},
    )
