"""Where a reader, or all readers of a name, stand in a topic; and which offset a `start` means."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ...broker_api import Filter
from ...errors import InvalidRequest
from ...group_model import Ranges
from ...groups.offset_set import OffsetSet
from ...model import Start
from ...storage.loading import when_loaded

if TYPE_CHECKING:
    from .readers import LeadingReader
    from .topic import LeadingTopic


class Cursor:
    """A position in a topic. A named one outlives its readers and goes back to what was committed.

    `position` is the next offset to read. `began` is where the name first started.
    """

    __slots__ = (
        "began", "committed", "filter", "label", "matched", "members", "missed", "name", "position",
        "readers", "rejected", "returned",
    )  # fmt: skip

    def __init__(self, label: str, name: str | None, position: int, filter: Filter | None) -> None:
        self.label, self.name = label, name
        self.position = self.began = position
        self.committed: int | None = None
        self.members = 0
        self.missed = self.matched = self.rejected = 0
        self.filter = filter
        self.readers: list[LeadingReader] = []
        """Of a name: who holds what."""
        self.returned = OffsetSet()
        """Of a name: what a reader held that has ended. It is read next."""

    def unread_from(self) -> int:
        """The first offset that is still to be read."""
        returned = self.returned.first() if self.returned else None
        return self.position if returned is None else min(self.position, returned)

    def lost_before(self, offset: int) -> Ranges:
        """What lies before an offset of what a reader left and nobody has come to."""
        first = self.returned.first()
        return [] if first is None else self.returned.present(first, offset)

    def done_before(self) -> int:
        """Everything before this may go: it was read and, by a name that commits, is in nobody's
        hands any more."""
        floor = self.unread_from()
        if self.committed is not None:
            held = (reader.held().first() for reader in self.readers)
            floor = min([floor, *(first for first in held if first is not None)])
        return floor

    def forget_before(self, offset: int) -> None:
        """All that was handed out before an offset is done, or passed over."""
        self.returned.discard_before(offset)
        for reader in self.readers:
            reader.held().discard_before(offset)

    def commits(self, by: LeadingReader, offset: int, mine: Ranges, first_offset: int) -> int:
        """What a name has committed once one of its readers is done with `mine`: everything before
        the first that somebody still holds, or is to get."""
        done = self.position if mine else offset
        others = [reader.held().first() for reader in self.readers if reader is not by]
        rest = by.held().present(offset, self.position)
        # What is gone is told to the next that takes, and is not come back to.
        rest += self.returned.present(first_offset, self.position)
        held = [*others, *(first for first, _ in rest)]
        return min([done, *(first for first in held if first is not None)])

    def rest(self, first_offset: int) -> None:
        """The last reader has closed: what was read but not committed will be read again.

        Of what is gone, nothing that was read or counted as missed before is come back to.
        """
        back_to = self.began if self.committed is None else self.committed
        self.position = max(back_to, min(self.position, first_offset))
        self.filter = None
        self.returned.clear()


async def start_is_loaded(topic: LeadingTopic, start: object) -> None:
    """Have at hand what `resolve_start` needs for a time: else it waits for the network."""
    if isinstance(start, datetime):
        await when_loaded(lambda: resolve_start(topic, start, waits=False), topic.log.at_once)


def resolve_start(
    topic: LeadingTopic, start: Start, cursor: Cursor | None = None, *, waits: bool = True
) -> int:
    """The offset that `start` means right now."""
    log = topic.log
    if isinstance(start, bool) or not isinstance(start, int | str | datetime):
        raise InvalidRequest(_bad_start(start))
    if isinstance(start, int):
        if not 0 <= start < 2**62:
            raise InvalidRequest(_bad_start(start))
        return start
    if isinstance(start, datetime):
        try:
            time_ms = -int(-start.timestamp() * 1000 // 1)
        except (ValueError, OverflowError, OSError):
            raise InvalidRequest(f"{start!r} is out of range for a time on this machine") from None
        return log.offset_at_time(time_ms, waits=waits)
    if start == "earliest":
        return log.first_offset
    if start == "latest":
        return log.next_offset
    if start == "committed":
        if cursor is None or cursor.committed is None:
            return log.first_offset
        return cursor.committed
    if start == "last_per_key":
        raise InvalidRequest("'last_per_key' is a start of readers without a name")
    raise InvalidRequest(_bad_start(start))


def _bad_start(start: object) -> str:
    return (
        "start is 'earliest', 'latest', 'committed', 'last_per_key', an offset or a datetime, "
        f"not {start!r}"
    )
