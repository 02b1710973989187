"""What queue groups decide in one turn of the event loop, of all topics of a shard: one command.

What they hand out is counted, what they are done with is settled. It is proposed when the groups
that were woken have been served, at the end of the turn, when it has grown, or before any other
command: what was decided earlier is earlier in the log.
"""

from __future__ import annotations

from ..broker_api import Waiter
from ..group_model import Ranges
from .commands import Attempts, GroupChanges, Settle

CHANGES_MAX = 256
"""What makes a command of its own."""


class GroupTurn:
    __slots__ = ("_changes", "_settles", "waiters", "writers")

    def __init__(self) -> None:
        self._changes: list[Settle | Attempts] = []
        self._settles: dict[tuple[int, str, str], Ranges] = {}
        self.waiters: list[Waiter] = []
        """Who hears once it is applied."""
        self.writers: list[Waiter] = []
        """Who hears once it is written."""

    @property
    def is_due(self) -> bool:
        return len(self._changes) >= CHANGES_MAX

    def settle(self, topic: int, group: str, ranges: Ranges, reason: str) -> None:
        known = self._settles.get((topic, group, reason))
        if known is None:
            known = self._settles[topic, group, reason] = list(ranges)
            self._changes.append(Settle(topic, group, known, reason))
        else:
            known += ranges

    def count(self, attempts: Attempts) -> None:
        self._changes.append(attempts)

    def command(self) -> GroupChanges | Settle | Attempts:
        return self._changes[0] if len(self._changes) == 1 else GroupChanges(self._changes)

    def was_written(self) -> None:
        for waiter in self.writers:
            waiter.applied()

    def failed(self, error: BaseException) -> None:
        for waiter in (*self.waiters, *self.writers):
            waiter.failed(error)
