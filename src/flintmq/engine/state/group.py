"""A queue group as it is applied: what it was made with, and what of its topic it is done with.

Always true: `queue.floor` and `queue.settled` follow from applied commands alone. Retention relies
on that (`TopicState.keep_limits` drops up to the floor), so `floor` is worked out from the log's
first offset, whenever the queue itself was last told of it. Delivery counts, tokens and delays are
advice for who leads next: there they may run ahead of what is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...group_model import Order, Ranges
from ...groups.lanes import END
from ...groups.queue import Queue
from ..commands import Attempts, CreateGroup

if TYPE_CHECKING:
    from .topic import TopicState

DISCARDED = "discarded"
COMPACTED = "compacted"
"""Why a group is done with what nobody is to get any more, in whatever way."""


class GroupObserver(Protocol):
    """Who leads the group hears what was applied, in the same step."""

    def settled(self, ranges: Ranges, reason: str, count: int) -> None:
        """`count` of these were not settled before."""
        ...

    def was_reset(self, passed: int) -> None:
        """It begins anew, and passes over so many that it had not settled."""
        ...

    def wake(self) -> None:
        """Something else has changed: it may be able to go on."""
        ...


class GroupState:
    def __init__(self, topic: TopicState, made: CreateGroup) -> None:
        self.topic, self.name, self.start = topic, made.group, made.start
        self.order: Order = made.order
        self.filter_text = made.filter
        self.paused = False
        self.queue = Queue(topic.lanes.index_from(made.floor), order=made.order, floor=made.floor)
        self.queue.in_doubt.since_term = made.term
        self.observer: GroupObserver | None = None

    @property
    def floor(self) -> int:
        """The first offset that is there and not settled. The queue's own is behind it from when
        the log drops messages until somebody looks: who takes does, a follower never."""
        return self.queue.places.floor_from(self.topic.log.first_offset)

    def settle(self, ranges: Ranges, reason: str) -> None:
        count = self.queue.apply_settle(ranges)
        if self.observer is not None:
            self.observer.settled(ranges, reason, count)

    def attempts(self, command: Attempts) -> None:
        """Who leads has counted already, and may have counted on."""
        if self.observer is None:
            self.queue.apply_attempts(command.counts, command.token, command.ended)
            self.queue.apply_delays(command.delays)

    def reset(self, floor: int, term: int) -> None:
        lanes, queue = self.topic.lanes, self.queue
        old, index = queue.index, lanes.index_from(floor)
        passed = queue.settled.missing(queue.floor, floor)
        if self.observer is not None:
            self.observer.was_reset(sum(stop - start for start, stop in passed))
        queue.apply_reset(floor, index, term)
        if index is not old:
            self.topic.forget_index(old)
        self.pass_gone()

    def pause(self, paused: bool) -> None:
        self.paused = paused
        if self.observer is not None:
            self.observer.wake()

    def follow(self) -> None:
        """Nobody leads here any more: what was handed out is known by its token, as after a
        restart, until somebody leads again."""
        self.queue.restore(self.queue.snapshot())

    def pass_gone(self) -> None:
        """What was cancelled or discarded before this group came to it never comes."""
        topic, floor = self.topic, self.queue.floor
        if cancelled := topic.lanes.cancelled.present(floor, END):
            self.settle(cancelled, "cancelled")
        if topic.discarded is not None and (gone := topic.discarded.present(floor, END)):
            self.settle(gone, DISCARDED)
