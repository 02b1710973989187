"""How much of a turn of the event loop may go to work whose size users choose, such as filters.

One allowance for each turn, shared by all who ask on that loop. It is time on the processor: other
processes that hold us up do not count, and so a result never depends on them. Whoever finds the
allowance used up stands in line for the next turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import thread_time
from weakref import WeakKeyDictionary

TURN_SECONDS = 0.005
"""What such work may take of one turn: with what else there is to do, well within 20 ms."""

LEAST_SECONDS = 0.0005
"""What whoever comes late in a turn may take all the same, where it cannot wait for the next."""


class Pace:
    """The allowance of the turn that is under way."""

    __slots__ = ("_asked", "_begin_next", "_line", "_until", "is_open")

    def __init__(self, begin_next: Callable[[Callable[[], None]], object] | None) -> None:
        self._begin_next = begin_next
        self._line: dict[object, None] = {}  # those who were refused, in the order they came
        self._asked: set[object] = set()
        self._until = 0.0
        self.is_open = False
        """Whether somebody has asked in this turn."""

    def may(self, who: object) -> bool:
        """Whether `who` may work in this turn; if not, it asks again in the next one."""
        is_fresh = not self.is_open
        self._open()
        self._asked.add(who)
        first = next(iter(self._line), who)
        if first is who and (is_fresh or thread_time() < self._until):
            self._line.pop(who, None)
            return True
        self._line.setdefault(who)
        return False

    def is_over(self) -> bool:
        """Whether the allowance of this turn is used up."""
        return self.is_open and thread_time() >= self._until

    def begin(self) -> Allowance:
        """Begin some work that cannot wait for the next turn, or that was let in."""
        self._open()
        return Allowance(max(self._until, thread_time() + LEAST_SECONDS))

    def _open(self) -> None:
        if not self.is_open:
            self._until = thread_time() + TURN_SECONDS
            if self._begin_next is not None:
                self.is_open = True
                # uvloop runs what was called soon before it waits for the sockets, whose callbacks
                # were first: the next turn begins one step later.
                self._begin_next(self._turn_ends)

    def _turn_ends(self) -> None:
        assert self._begin_next is not None
        self._begin_next(self._next_turn)

    def _next_turn(self) -> None:
        self.is_open = False
        self._line = {who: None for who in self._line if who in self._asked}  # others have left
        self._asked.clear()


class Allowance:
    """What is left for one piece of work."""

    __slots__ = ("_until",)

    def __init__(self, until: float) -> None:
        self._until = until

    def is_over(self) -> bool:
        return thread_time() >= self._until


_paces: WeakKeyDictionary[asyncio.AbstractEventLoop, Pace] = WeakKeyDictionary()


def pace() -> Pace:
    """That of the running loop; outside of any, one that is always fresh."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return Pace(None)
    found = _paces.get(loop)
    if found is None:
        found = _paces[loop] = Pace(loop.call_soon)
    return found
