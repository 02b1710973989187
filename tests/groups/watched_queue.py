"""A queue that holds whatever it does against the table of places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from flintmq.group_model import Order
from flintmq.groups import LaneIndex, Queue
from flintmq.groups.places import MOVES, Place
from tests.groups.checking import places_of

SEEN: set[tuple[str, Place, Place]] = set()
"""The moves that were made, so that a test can tell whether the table has more than there are."""


class WatchedQueue:
    """Looks at all offsets before and after a verb: at every one, or at one of so many calls.

    It holds its queue, which may be compiled: nothing interpreted inherits from that.
    """

    watch_each: ClassVar[int] = 1

    def __init__(self, index: LaneIndex, *, order: Order, floor: int, first_token: int = 1) -> None:
        self.queue = Queue(index, order=order, floor=floor, first_token=first_token)
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.queue, name)


def where(queue: Queue) -> dict[int, Place]:
    """What is in no place is scheduled, or else the queue's own check fails."""
    return {
        offset: found[0] if found else "scheduled" for offset, found in places_of(queue).items()
    }


def watched(verb: str) -> Callable[..., Any]:
    def call(watching: WatchedQueue, *arguments: Any, **keywords: Any) -> Any:
        queue = watching.queue
        method = getattr(queue, verb)
        watching.calls += 1
        if watching.calls % watching.watch_each:
            return method(*arguments, **keywords)
        before = where(queue)
        result = method(*arguments, **keywords)
        after = where(queue)
        for offset, place in before.items():
            there = after.get(offset, "settled")
            if there != place:
                assert there in MOVES[verb].get(place, ()), (
                    f"{verb} moved {offset} from {place} to {there}"
                )
                SEEN.add((verb, place, there))
        return result

    return call


for verb in MOVES:
    setattr(WatchedQueue, verb, watched(verb))
