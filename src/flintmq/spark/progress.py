"""A query as the broker sees it: a cursor group with a position and a lag, and its pinned start.

    <group>               the position of the query; `groups()` and `group_stats()` show it
    <group>.pinned-start  its start, kept until the first batch is done

A query without a group has readers without a name, which end with its process: they show as `*1`,
`*2` ... in the lag of `topic_stats()`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from ..broker_api import ReaderOpening
from ..errors import FlintError, GroupNotFound, PermissionDenied, TopicNotFound
from ..model import Extent
from ..net.remote.reader import RemoteReader
from .connecting import BrokerLine
from .offsets import Positions, TopicPosition
from .planning import Offsets, TopicExtents

PINNED = ".pinned-start"


class QueryProgress:
    """One reader for each topic, of all its partitions: what it says is one request."""

    def __init__(self, line: BrokerLine, group: str | None) -> None:
        self._line, self._group = line, group
        self._readers: dict[str, RemoteReader] = {}
        self._rows: set[str] = set()
        """The topics with partitions."""
        self._shown: dict[str, frozenset[int]] = {}
        """The partitions of a topic whose position its reader shows."""
        self._may_be_pinned = group is not None

    # --- the start

    def pinned(self, known: TopicExtents, starts: Offsets) -> Offsets:
        """The start as it was first resolved; the given one if there was none before."""
        assert self._group is not None
        name = self._group + PINNED
        before = {topic for topic in known if name in self._groups(topic)}
        pinned: Offsets = {}
        for topic, parts in known.items():
            # A topic created after the start was pinned is read from its beginning.
            is_new = bool(before) and topic not in before
            at = {
                part.partition: part.first_offset if is_new else starts[topic, part.partition]
                for part in parts
            }
            found = self._line.run(self._pin(topic, name, at, is_row=_is_row(topic, parts)))
            pinned |= {(topic, number): found.get(number, at[number]) for number in at}
        return pinned

    def _groups(self, topic: str) -> set[str]:
        return {group.name for group in self._line.run(self._line.broker.groups(topic))}

    async def _pin(
        self, topic: str, name: str, at: Mapping[int, int], *, is_row: bool
    ) -> dict[int, int]:
        reader = await self._reader(topic, name, at, is_row=is_row)
        try:
            return await reader.positions()
        finally:
            await reader.close()

    async def _reader(
        self, topic: str, name: str | None, at: Mapping[int, int], *, is_row: bool
    ) -> RemoteReader:
        broker = self._line.broker
        if is_row:
            return await broker.open_row(
                ReaderOpening(topic, name=name, starts=at, auto_create=False, partitions=list(at))
            )
        [start] = at.values()
        return await broker.open_reader(
            ReaderOpening(topic, name=name, start=start, auto_create=False)
        )

    # --- the position

    def began(self, known: TopicExtents, begun: Positions) -> None:
        """Open the readers that show the position of the query. Those of a topic that has more
        partitions than before are opened again."""
        for topic, parts in known.items():
            position = begun.get(topic)
            if position is None:
                continue
            at = {
                part.partition: position.next[part.partition]
                for part in parts
                if part.partition in position.next
            }
            shown = self._shown.get(topic)
            if not at or (shown is not None and at.keys() <= shown):
                continue
            if topic in self._readers:
                self._line.run(self._readers.pop(topic).close())
            is_row = _is_row(topic, parts)
            self._readers[topic] = self._line.run(self._open(topic, at, is_row=is_row))
            self._shown[topic] = frozenset(at)
            if is_row:
                self._rows.add(topic)

    async def _open(self, topic: str, at: Mapping[int, int], *, is_row: bool) -> RemoteReader:
        reader = await self._reader(topic, self._group, at, is_row=is_row)
        await reader.seek(at)
        return reader

    def done(self, ended: Positions) -> None:
        """A batch is done: move the position, and delete the pinned start."""
        self._line.run(self._done(ended))
        if self._may_be_pinned:
            self._unpin(ended)

    async def _done(self, ended: Positions) -> None:
        for topic, reader in list(self._readers.items()):
            position = ended.get(topic)
            if position is None:
                continue
            shown = self._shown[topic]
            at = {number: offset for number, offset in position.next.items() if number in shown}
            try:
                await reader.seek(at)
                if self._group is not None:
                    await _commit(reader, at, is_row=topic in self._rows)
            except TopicNotFound:
                del self._readers[topic], self._shown[topic]

    def _unpin(self, ended: Positions) -> None:
        """Delete the pinned start. If the API key may not delete groups, move it along instead: a
        new query of that group then continues where this one was."""
        assert self._group is not None
        name = self._group + PINNED
        is_left = False
        for topic in ended:
            try:
                self._line.run(self._line.broker.delete_group(topic, name))
            except (GroupNotFound, TopicNotFound):
                continue
            except PermissionDenied:
                is_left = name in self._groups(topic)
                if is_left and topic in self._readers:
                    self._line.run(self._move_pin(topic, name, ended[topic]))
        self._may_be_pinned = is_left

    async def _move_pin(self, topic: str, name: str, position: TopicPosition) -> None:
        is_row = topic in self._rows
        at = {n: offset for n, offset in position.next.items() if n in self._shown[topic]}
        pin = await self._reader(topic, name, at, is_row=is_row)
        try:
            await _commit(pin, at, is_row=is_row)
        finally:
            await pin.close()

    def close(self) -> None:
        """Close the readers; the group keeps its position."""
        while self._readers:
            with suppress(FlintError):
                self._line.run(self._readers.popitem()[1].close())


def _is_row(topic: str, parts: Sequence[Extent]) -> bool:
    """Whether a topic has partitions: each is a plain topic with a name of its own."""
    return parts[0].topic != topic


async def _commit(reader: RemoteReader, at: Mapping[int, int], *, is_row: bool) -> None:
    if is_row:
        await reader.commit_each(at)
    else:
        [offset] = at.values()
        await reader.commit(offset)
