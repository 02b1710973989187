"""The readers of a topic: who is open, and where each name stands.

A name that is applied is in here with its place, open or not. One that was opened and is on its way
through the log is in here, too; the state does not have it yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...broker_api import Filter
from ...errors import FlintError, GroupExists, InvalidRequest
from ...group_model import GroupInfo, GroupStats
from ...model import Start
from ..commands import SetCursor
from ..figures import GroupFigures
from ..proposer import wait_for
from .cursor import Cursor, resolve_start
from .readers import LeadingReader

if TYPE_CHECKING:
    from .topic import LeadingTopic


class ReaderCursors:
    def __init__(self, topic: LeadingTopic) -> None:
        self._topic = topic
        self._log = topic.log
        self.readers: set[LeadingReader] = set()
        self.all: dict[str, Cursor] = {}
        self._count = 0
        for name in topic.state.names:
            self.name_set(name)

    def open(self, name: str | None, start: Start | None, filter: Filter | None) -> LeadingReader:
        reader = LeadingReader(self._topic, self._cursor(name, start, filter))
        self.readers.add(reader)
        return reader

    def _cursor(self, name: str | None, start: Start | None, filter: Filter | None) -> Cursor:
        topic = self._topic
        if name is None:
            if start == "committed":
                raise InvalidRequest(
                    "start='committed' needs a name: an unnamed reader has committed nothing"
                )
            self._count += 1
            label = f"*{self._count}"  # no name may hold a *, so it is nobody's name
            position = resolve_start(topic, "earliest" if start is None else start)
            cursor = self.all[label] = Cursor(label, None, position, filter)
            return cursor
        if name in topic.queues or name in topic.claimed:
            raise GroupExists(topic.origin.topic, name, {"kind": ("queue", "cursor")})
        known = self.all.get(name)
        position = resolve_start(topic, "earliest" if start is None else start, known)
        if known is None:
            known = self.all[name] = Cursor(name, name, position, filter)
        elif not known.members:
            known.filter = filter
        elif filter is not None and filter != known.filter:
            raise InvalidRequest(
                f"reader name {name!r} is open with another filter, and the filter belongs to the "
                "name: leave it out, or use a name of your own"
            )
        return known

    def has_name(self, name: str) -> bool:
        """Whether readers go by this name, or have gone by it."""
        return name in self.all  # one of no name has a label that is no name

    def is_open(self, name: str) -> bool:
        """Whether a reader of this name is open."""
        cursor = self.all.get(name)
        return cursor is not None and cursor.members > 0

    def names(self) -> set[str]:
        return {cursor.name for cursor in self.all.values() if cursor.name is not None}

    async def commit(self, cursor: Cursor, offset: int | None) -> None:
        """Make it last where a name goes on; None: that it has begun."""
        topic = self._topic
        await wait_for(
            topic.proposer.change(SetCursor(topic.id, cursor.label, cursor.began, offset))
        )

    def name_set(self, name: str) -> None:
        """That is applied."""
        began, committed = self._topic.state.names[name]
        cursor = self.all.get(name)
        if cursor is None:
            cursor = self.all[name] = Cursor(name, name, began, None)
        cursor.began, cursor.committed = began, committed
        if not cursor.members:
            cursor.rest(self._log.first_offset)

    def name_gone(self, name: str) -> None:
        if not self.is_open(name) and self.all.pop(name, None) is not None:
            self._topic.wake_publisher()

    def close(self, reader: LeadingReader, cursor: Cursor) -> None:
        if reader not in self.readers:
            return
        self.readers.discard(reader)
        if cursor.members == 1:
            reader.miss_returned()  # what it has itself was read
        reader.let_go()
        cursor.members -= 1
        if not cursor.members:
            if cursor.name is None:
                del self.all[cursor.label]
            else:
                cursor.rest(self._log.first_offset)
        self._topic.bell.ring()  # its own pending reads end, others may get what it left
        self._topic.wake_publisher()

    def end(self, error: FlintError) -> None:
        for reader in self.readers:
            reader.end(error)

    # --- figures

    def lag(self, cursor: Cursor) -> int:
        log = self._log
        ahead = max(0, log.next_offset - max(cursor.position, log.first_offset))
        returned = cursor.returned
        return ahead + returned.count - returned.count_before(log.first_offset)

    def missed(self, cursor: Cursor) -> int:
        """How many messages were dropped before it came to them, told or not."""
        first = self._log.first_offset
        lost = cursor.lost_before(first)
        if cursor.position < first:
            lost.append((cursor.position, first))
        missed_between = self._topic.sweeping.missed_between
        return cursor.missed + sum(missed_between(start, stop) for start, stop in lost)

    def infos(self) -> list[GroupInfo]:
        base = self._topic.origin.topic
        return [GroupInfo(name=name, topic=base, kind="cursor") for name in self.names()]

    def stats(self, name: str) -> GroupStats | None:
        cursor = self.all.get(name)
        if cursor is None or cursor.name is None:
            return None
        log = self._log
        position = max(cursor.position, log.first_offset)
        lag = self.lag(cursor)
        age = (self._topic.clock.now_ms() - log.time_of(position)) / 1000 if lag else None
        return GroupStats(
            name=name,
            topic=self._topic.origin.topic,
            kind="cursor",
            position=cursor.position,
            lag=lag,
            members=cursor.members,
            ready=lag,
            oldest_age=None if age is None else max(0.0, age),
            drops={"retention": cursor.missed} if cursor.missed else {},
        )

    def figures(self) -> list[GroupFigures]:
        return [
            GroupFigures(
                name=cursor.label,
                kind="cursor",
                lag=self.lag(cursor),
                members=cursor.members,
                drops={"retention": cursor.missed} if cursor.missed else {},
            )
            for cursor in self.all.values()
            if cursor.name is not None
        ]
