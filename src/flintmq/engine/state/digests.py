"""What a state comes to, as a number: replicas that applied the same have the same one. Pure.

It is worked out at the place of a `CheckState` among the commands, in steps, while others are
applied: a topic that is about to change is taken as it is first. Only topics that changed since the
last time are looked at, and each time some of the others, so that what went wrong in memory alone
is found as well.

Sizes, places and counts go in, contents do not: what lies on the disk has checksums of its own. So
do delivery counts and delays: there who leads may be ahead of what is applied. What goes in is part
of `FORM`: only numbers of the same form are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from .group import GroupState
    from .shard import ShardState
    from .topic import TopicState

FORM = 1
UNCHANGED_MAX = 1000
"""How many topics that have not changed are looked at each time."""
_ALL = (1 << 64) - 1


class StateDigests:
    """Always true: `_sum` is the sum of `_known`, and a topic that is in neither `_known` nor
    `_stale` is not there."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self.on_done: Callable[[int, int], object] = lambda number, digest: None
        """Told the number of a check and what the state came to there."""
        self.clear()

    def clear(self) -> None:
        """The state is another one."""
        self._known: dict[int, int] = {}
        self._stale: set[int] = set()
        self._due: set[int] = set()
        self._sum = self._rest = self._number = 0
        self._knows_all = False

    @property
    def is_working(self) -> bool:
        return self._number != 0

    def begin(self, number: int) -> None:
        """The state is to be taken as it is now. One that was not finished is given up."""
        state = self._state
        self._due |= self._stale
        self._stale = set()
        if not self._knows_all:
            self._due, self._knows_all = set(state.by_id), True
        else:
            unchanged = list(islice(self._known, UNCHANGED_MAX))
            for id in unchanged:  # to the end: others come next time
                self._known[id] = self._known.pop(id)
            self._due.update(unchanged)
        self._number, self._rest = number, digest_of_rest(state)

    def changing(self, id: int) -> None:
        """A topic is about to change."""
        if self._knows_all:
            if id in self._due:
                self._take(id)
            self._stale.add(id)

    def step(self) -> None:
        """Take one more topic, or say that all are taken."""
        if self._due:
            self._take(next(iter(self._due)))
        elif self._number:
            number, self._number = self._number, 0
            self.on_done(number, (self._sum + self._rest) & _ALL)

    def _take(self, id: int) -> None:
        self._due.discard(id)
        topic = self._state.by_id.get(id)
        self._sum -= self._known.pop(id, 0)
        if topic is not None:
            digest = self._known[id] = digest_of(topic)
            self._sum += digest


def digest_of_rest(state: ShardState) -> int:
    """Of what belongs to no topic. Sums, where the order is nobody's business."""
    definitions, staging = state.definitions, state.staging
    writers = (
        _digest("writer", name, writer.last, writer.size, sorted(writer.parts))
        for name, writer in staging.writers.items()
    )
    nodes = (
        _digest("node", one.id, one.name, one.address, one.incarnation, one.standing, one.replaces)
        for one in state.nodes.values()
    )
    defined = (
        _digest("definition", one.kind, one.topic, one.name, one.version, one.value)
        for one in definitions.all()
    )
    counts = _digest("shard", state.last_topic_id, definitions.last_version, staging.size)
    return counts + _sum(writers) + _sum(nodes) + _sum(defined)


def digest_of(topic: TopicState) -> int:
    if not topic.is_durable:  # what is in it, only who leads has
        return _digest("topic", topic.id, topic.name)
    log, gone = topic.log, topic.discarded
    names = (_digest("name", name, *places) for name, places in topic.names.items())
    return _digest(
        "topic",
        topic.id,
        topic.name,
        log.first_offset,
        log.next_offset,
        log.byte_count,
        log.last_time,
        len(topic.producers),
        topic.producers.front_ms(),
        0 if gone is None else gone.count - gone.count_before(log.first_offset),
        _sum(names),
        _sum(digest_of_group(group) for group in topic.groups.values()),
    )


def digest_of_group(group: GroupState) -> int:
    settled, floor = group.queue.settled, group.floor
    count = settled.count - settled.count_before(floor)
    return _digest("group", group.name, group.order, group.filter_text, group.paused, floor, count)


def _sum(digests: Iterable[int]) -> int:
    return sum(digests) & _ALL


def _digest(*facts: object) -> int:
    return int.from_bytes(blake2b(msgspec.msgpack.encode(facts), digest_size=8).digest(), "little")
