"""What an observer of the core hears."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class TraceEvent(msgspec.Struct, frozen=True):
    """Something an observer may want to check: a role taken, a commit moved, a log cut."""

    what: str
    node: int
    group: int
    term: int
    index: int


TraceHook = Callable[[TraceEvent], None]
