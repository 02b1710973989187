"""A query as the broker sees it: a cursor group with a position and a lag, and its pinned start.

    <group>               the position of the query; `groups()` and `group_stats()` show it
    <group>.pinned-start  its start, kept until the first batch is done

A query without a group has readers without a name, which end with its process: they show as `*1`,
`*2` ... in the lag of `topic_stats()`.
"""

from __future__ import annotations

from contextlib import suppress

from ..broker_api import ReaderOpening
from ..errors import FlintError, GroupNotFound, PermissionDenied, TopicNotFound
from ..net.remote.reader import RemoteReader
from .connecting import BrokerLine
from .offsets import Positions, TopicPosition
from .planning import Offsets, TopicExtents, each

PINNED = ".pinned-start"


class QueryProgress:
    def __init__(self, line: BrokerLine, group: str | None) -> None:
        self._line, self._group = line, group
        self._readers: dict[tuple[str, int], RemoteReader] = {}
        self._plain: dict[tuple[str, int], str] = {}
        self._may_be_pinned = group is not None

    # --- the start

    def pinned(self, known: TopicExtents, starts: Offsets) -> Offsets:
        """The start as it was first resolved; the given one if there was none before."""
        assert self._group is not None
        name = self._group + PINNED
        before = {topic for topic in known if name in self._groups(topic)}
        pinned: Offsets = {}
        for topic, part in each(known):
            place = (topic, part.partition)
            # A topic created after the start was pinned is read from its beginning.
            is_new = bool(before) and topic not in before
            start = part.first_offset if is_new else starts[place]
            pinned[place] = self._line.run(self._pin(part.topic, name, start))
        return pinned

    def _groups(self, topic: str) -> set[str]:
        return {group.name for group in self._line.run(self._line.broker.groups(topic))}

    async def _pin(self, plain: str, name: str, start: int) -> int:
        reader = await self._reader(plain, name, start)
        try:
            return await reader.position()
        finally:
            await reader.close()

    async def _reader(self, plain: str, name: str | None, at: int) -> RemoteReader:
        return await self._line.broker.open_reader(
            ReaderOpening(plain, name=name, start=at, filter=None, auto_create=False)
        )

    # --- the position

    def began(self, known: TopicExtents, begun: Positions) -> None:
        """Open a reader that shows the position of the query, once for every partition."""
        for topic, part in each(known):
            place, position = (topic, part.partition), begun.get(topic)
            if place in self._readers or position is None:
                continue
            if (at := position.next.get(part.partition)) is not None:
                self._readers[place] = self._line.run(self._open(part.topic, at))
                self._plain[place] = part.topic

    async def _open(self, plain: str, at: int) -> RemoteReader:
        reader = await self._reader(plain, self._group, at)
        await reader.seek(at)
        return reader

    def done(self, ended: Positions) -> None:
        """A batch is done: move the position, and delete the pinned start."""
        self._line.run(self._done(ended))
        if self._may_be_pinned:
            self._unpin(ended)

    async def _done(self, ended: Positions) -> None:
        for (topic, partition), reader in list(self._readers.items()):
            position = ended.get(topic)
            if position is None or partition not in position.next:
                continue
            at = position.next[partition]
            try:
                await reader.seek(at)
                if self._group is not None:
                    await reader.commit(at)
            except TopicNotFound:
                del self._readers[topic, partition]

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
                if is_left:
                    self._line.run(self._move_pin(topic, name, ended[topic]))
        self._may_be_pinned = is_left

    async def _move_pin(self, topic: str, name: str, position: TopicPosition) -> None:
        for partition, at in position.next.items():
            if (plain := self._plain.get((topic, partition))) is None:
                continue
            pin = await self._reader(plain, name, at)
            try:
                await pin.commit(at)
            finally:
                await pin.close()

    def close(self) -> None:
        """Close the readers; the group keeps its position."""
        while self._readers:
            with suppress(FlintError):
                self._line.run(self._readers.popitem()[1].close())
