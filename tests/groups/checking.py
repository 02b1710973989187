"""What is always true of a queue, looked at offset by offset."""

from __future__ import annotations

from collections.abc import Collection

from flintmq.groups import Queue
from flintmq.groups.by_key import ByKey
from flintmq.groups.offset_set import OffsetSet
from flintmq.groups.places import Place
from flintmq.groups.ranges import offsets_in


def check(queue: Queue, scheduled: Collection[int] = ()) -> None:
    """Assert that every offset from the floor on is in exactly one place, and that leases and
    delays are of what is there.

    `scheduled` are those that were published with a delay and are not due.
    """
    for offset, found in places_of(queue, scheduled).items():
        assert len(found) == 1, f"offset {offset} is in {found}"
    places, returned = queue.places, queue._ready.returned
    held = [offset for lease in queue._table for offset in offsets_in(lease.outstanding())]
    assert sorted(held) == list(offsets_in(places.leased.ranges())), "leases are of the leased"
    waiting = {offset for offset, _ in queue._delays.items()}
    assert waiting == set(offsets_in(places.delayed.ranges())), "a delay that never ends"
    for offset in queue._late.late:
        is_returned = any(offset in lane for lane in returned)
        assert is_returned or offset in queue._catching_up.doubted, f"{offset} is late"
    assert all(offset in places.selected for offset in queue._late.picked)


def places_of(queue: Queue, scheduled: Collection[int] = ()) -> dict[int, list[Place]]:
    """Where each offset is, from the floor to the end of the lanes."""
    order, until = queue._order, queue._catching_up.until
    is_by_key = isinstance(order, ByKey)
    parked = OffsetSet(order.parked() if isinstance(order, ByKey) else ())
    lanes, returned = order.lanes(), queue._ready.returned
    where: dict[int, list[Place]] = {}
    for offset in range(queue.floor, queue.index.end):
        found = queue.places.found(offset)
        # One that is delayed or being settled may stand in the line of its key as well, and one
        # that is settled leaves it when its turn comes.
        is_placed = is_by_key and found in (["delayed"], ["limbo"], ["settled"])
        if not is_placed:
            found += ["returned" for lane in lanes if offset in returned[lane]]
            if offset in parked:
                found.append("parked")
        # What lies before the cursors and is elsewhere is found out when they come to it.
        if not (found and offset < until):
            found += ["ahead" for lane in lanes if queue._ready.is_ahead(lane, offset)]
        if not found and offset in scheduled:
            found.append("scheduled")
        where[offset] = found
    return where
