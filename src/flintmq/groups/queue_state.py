"""What lasts of a queue, as a checkpoint has it."""

from __future__ import annotations

import msgspec

from ..group_model import Ranges
from .offset_set import Chunks


class QueueState(msgspec.Struct, array_like=True):
    floor: int
    settled: Chunks = []
    """Behind the floor."""
    attempts: list[tuple[int, int, int]] = []
    """Delivery counts, (start, stop, count)."""
    delays: list[tuple[int, int]] = []
    """Nack delays, (offset, due_ms)."""
    tokens: list[tuple[int, Ranges]] = []
    """What was granted and not given back, by token."""
    given_back: Chunks = []
    """What was granted and given back, and has no delivery that counts."""
    since_term: int = 0
    """In which term the group was made or reset."""
