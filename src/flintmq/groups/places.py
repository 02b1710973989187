"""Where a message can be for one queue, and what moves it from where to where.

Always true: from `floor` on, every offset of the log is in exactly one place; below it, all are
settled. `Queue.check` asserts the first, the model test holds every step against `MOVES`.

Who relies on it: the floor moves by what is settled and nothing else, so retention and checkpoints
take it as "done with"; what is drawn is in no other place, so nobody gets what another has; figures
(`in_flight`, `delayed`, `lag`) are the sizes of places.

Two lie over these places, and are none themselves. An offset whose lease ran out is returned, and
can be settled under its token until it is granted again: it is *late* then (`late_leases.py`).
After a restart the cursors stand before offsets that are elsewhere: what they have yet to come to
is *ahead* only if it is nowhere else (`catching_up.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from ..group_model import Ranges
from .offset_set import OffsetSet

Place = Literal[
    "ahead", "returned", "parked", "selected", "leased", "limbo", "delayed", "scheduled", "settled"
]


class PlaceRow(NamedTuple):
    owner: Literal["state", "leading"]
    """What a follower has and restores, or what a leader builds from it and drops."""
    means: str


PLACES: dict[Place, PlaceRow] = {
    "scheduled": PlaceRow("state", "published with a delay and not due; the topic keeps it"),
    "ahead": PlaceRow("leading", "in the lanes, before this queue's cursors; costs nothing"),
    "returned": PlaceRow("leading", "ready again, or for the first time where it was delayed"),
    "parked": PlaceRow("leading", "behind another message of its key (order by key only)"),
    "selected": PlaceRow("leading", "picked, until it is granted or put back: within one step"),
    "leased": PlaceRow("leading", "granted"),
    "limbo": PlaceRow("leading", "finished, until it is known whether that is durable"),
    "delayed": PlaceRow("state", "nacked with a delay"),
    "settled": PlaceRow("state", "done with, or dropped by the log"),
}

_READY: tuple[Place, ...] = ("returned", "parked", "ahead")
"""Where what comes back may be: it waits for its key, or the cursors have yet to come to it."""

_NEXT: dict[Place, tuple[Place, ...]] = {"parked": ("returned",)}
"""When a key is free, the next of it has its turn."""
_DONE: dict[Place, tuple[Place, ...]] = {
    place: ("settled", *_NEXT.get(place, ())) for place in PLACES
}

MOVES: dict[str, dict[Place, tuple[Place, ...]]] = {
    # handing out
    "select": {
        "ahead": ("selected", "returned", "parked"),
        "returned": ("selected", "parked"),
        "parked": ("returned", "selected"),
    },
    "peek": {"ahead": ("returned",)},
    "put_back": {"selected": ("returned", "parked"), **_NEXT},
    "grant": {"selected": ("leased",)},
    # settling. What is ready can be settled too, where its lease ran out.
    "finish": {"leased": ("limbo",), "returned": ("limbo",), "ahead": ("limbo",)},
    "set_aside": {"selected": ("limbo",), "returned": ("limbo",), "ahead": ("limbo",)},
    "unfinish": {"limbo": _READY, "leased": ("parked",), **_NEXT},
    "apply_settle": _DONE,
    "drop_before": _DONE,
    # giving back. By key, what was granted behind goes back too.
    "nack": {
        "leased": (*_READY, "delayed"),
        "returned": ("delayed",),
        "ahead": ("delayed",),
        **_NEXT,
    },
    "release": {"leased": _READY, **_NEXT},
    "extend": {"returned": ("leased",), "ahead": ("leased",)},
    "release_holder": {"leased": _READY},
    "give_up": {"leased": _READY},
    "expire": {"leased": _READY},
    # time
    "take_due": {"delayed": _READY},  # parked: of a run after a restart, before the cursors come
    "add_due": {"scheduled": ("returned",)},
    # a new leader: what was granted before and not given back is leased on
    "take_up": {"ahead": ("leased", "parked"), "returned": ("leased", "parked")},
}
"""For each verb of `Queue`: what it may move, and where to. What is not named stays where it is.
`restore`, `apply_reset` and replay (`apply_attempts`, `apply_delays`) build places anew."""


class Places:
    """The places that are sets. Who is ahead, returned or parked, the order knows."""

    __slots__ = ("delayed", "floor", "leased", "limbo", "selected", "settled")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        """Below it everything is settled; at it there is something that is not."""
        self.settled = OffsetSet()
        self.selected = OffsetSet()
        self.leased = OffsetSet()
        self.limbo = OffsetSet()
        self.delayed = OffsetSet()

    def is_settled(self, offset: int) -> bool:
        """Whether the queue is done with it: also where it was dropped."""
        return offset < self.floor or offset in self.settled

    def is_out(self, offset: int) -> bool:
        """Whether somebody has it, or it is being settled."""
        return offset in self.leased or offset in self.limbo or offset in self.selected

    def is_in_limbo(self, ranges: Ranges) -> bool:
        """Whether any of these is being settled."""
        return bool(self.limbo) and any(self.limbo.present(*run) for run in ranges)

    def open_in(self, start: int, stop: int) -> Ranges:
        """What of a range is not settled."""
        return self.settled.missing(max(start, self.floor), stop)

    def floor_from(self, first: int) -> int:
        """What the floor is once everything before `first` is dropped; nothing changes."""
        if first <= self.floor:
            return self.floor
        return self.settled.first_missing(first) if self.settled else first

    def settle(self, ranges: Ranges) -> int:
        """Note these as settled, and move the floor; how many were not settled before."""
        floor, settled = self.floor, self.settled
        if len(ranges) == 1 and ranges[0][0] <= floor and not settled:
            stop = ranges[0][1]
            newly = max(0, stop - floor)
            floor = max(stop, floor)
        else:
            newly = settled.add_ranges(ranges)
            newly -= settled.discard_before(floor)
            if floor in settled:
                floor = settled.first_missing(floor)
                settled.discard_before(floor)
        self.floor = floor
        return newly

    def drop_before(self, offset: int) -> int:
        """The log has dropped these: move the floor; how many of them were not settled."""
        lost = offset - self.floor - self.settled.discard_before(offset)
        for place in (self.limbo, self.selected):
            place.discard_before(offset)
        self.floor = self.floor_from(offset)
        self.settled.discard_before(self.floor)
        return lost

    def restore(self, floor: int, settled: Iterable[tuple[int, bytes]] = ()) -> None:
        """Begin anew: so much is settled, and nothing is out."""
        for place in (self.selected, self.leased, self.limbo, self.delayed):
            place.clear()
        self.floor = floor
        self.settled = OffsetSet.from_chunks(settled)

    def found(self, offset: int) -> list[Place]:
        """Which of these sets have an offset: at most one."""
        sets: list[tuple[Place, bool]] = [
            ("selected", offset in self.selected),
            ("leased", offset in self.leased),
            ("limbo", offset in self.limbo),
            ("delayed", offset in self.delayed),
            ("settled", self.is_settled(offset)),
        ]
        return [place for place, is_in in sets if is_in]
