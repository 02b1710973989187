"""Readers of a broker behind a socket: what they hold, where they go on."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from ...errors import Corrupt, FlintError, TopicDeleted
from ...model import Start
from ...rows import Run
from ..wire.frames import Frame
from ..wire.operations import (
    CloseStreamRequest,
    CommitRequest,
    Control,
    Op,
    OpenReaderRequest,
    SeekRequest,
    StreamOpenedReply,
)
from ..wire.operations import StreamRequest as StreamName
from ..wire.values import start_fields
from .link import SessionLost
from .requests import RemoteRequests
from .stream import RemoteStream

HELD_MAX = 10_000
"""How many ranges of rows that are not committed a reader of a name remembers for a new session;
of what it forgets, rows may come again."""


class RemoteReader(RemoteStream):
    """One reader, of a topic or of a row of partitions. Implements ReaderApi."""

    def __init__(
        self, requests: RemoteRequests, opening: OpenReaderRequest, registry: set[RemoteStream]
    ) -> None:
        what = f"reader of {opening.topic!r}"
        super().__init__(requests, what, opening, Op.OPEN_READER, registry)
        self._name, self._is_whole = opening.name, opening.whole
        self._is_state = opening.start == "last_per_key"
        self._topic = str(opening.topic)
        self._topic_id = 0
        self._next: dict[int, int] = {}
        self.state_ends: Mapping[int, int] = {}
        self._since: list[dict[int, int]] = []
        self._held: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
        """Of a name: what came and is not known to be committed, by partition."""
        self._damage: Corrupt | None = None

    def _begins_at(self, opened: StreamOpenedReply) -> None:
        super()._begins_at(opened)
        self._next = opened.positions
        self.state_ends = opened.state_ends
        self._topic_id = opened.topic_id

    def _ahead(self) -> int:
        return 1 if self._is_whole else super()._ahead()

    def _opening_again(self) -> Control:
        if self._name is not None:
            held = [(number, *one) for number, ranges in self._held.items() for one in ranges]
            return msgspec.structs.replace(self._opening, held=held[-HELD_MAX:])
        if self._is_state:
            resume = {
                number: (position, self.state_ends.get(number, position))
                for number, position in self._next.items()
            }
            return msgspec.structs.replace(self._opening, resume=resume)
        if self._is_whole:
            return self._opening
        return msgspec.structs.replace(self._opening, start=next(iter(self._next.values())))

    async def _go_on_from(self, opened: StreamOpenedReply) -> None:
        if opened.topic_id != self._topic_id:
            await self._requests.ask(Op.CLOSE_STREAM, CloseStreamRequest(opened.stream))
            raise TopicDeleted(self._topic.partition("/")[0])
        # A name goes on behind what its readers claim: where we are, or others of it.
        wrong = {
            partition: position
            for partition, position in self._next.items()
            if opened.positions.get(partition, 0) != position
        }
        if wrong and self._name is None and not self._is_state:
            await self._requests.ask(Op.SEEK, SeekRequest(opened.stream, wrong))

    def _came(self, runs: list[Run]) -> None:
        unread = self._first_unread()
        for run in runs:
            rows, partition = run.rows(), run.origin.partition
            if run.source.base_offset + rows[0] <= unread.get(partition, -1):
                self._drop_again(run)
            self._next[partition] = run.source.base_offset + rows[-1] + 1
            if self._name is not None:
                self._hold(partition, run.source.base_offset + rows[0], self._next[partition])
            for since in self._since:
                since.setdefault(partition, run.source.base_offset + rows[0])

    def _hold(self, partition: int, first: int, end: int) -> None:
        held = self._held[partition]
        if held and held[-1][1] == first:
            first = held.pop()[0]
        held.append((first, end))
        if len(held) > HELD_MAX:
            held.popleft()

    def _was_put_back(self, partition: int, first: int, end: int) -> None:
        held = self._held[partition]
        self._held[partition] = deque()
        for start, stop in held:
            for part in ((start, min(stop, first)), (max(start, end), stop)):
                if part[0] < part[1]:
                    self._hold(partition, *part)

    def _was_committed(self, partition: int, offset: int) -> None:
        held = self._held[partition]
        while held and held[0][1] <= offset:
            held.popleft()

    def _drop_again(self, come: Run) -> None:
        """The name was taken back: what comes again is not held twice."""
        first, last = (
            come.source.base_offset + come.rows()[0],
            come.source.base_offset + come.rows()[-1],
        )
        kept: deque[Run] = deque()
        head, self._head = self._head, 0
        for run in self._runs:
            rows, head = run.rows()[head:], 0
            if run.origin.partition == come.origin.partition:
                base = run.source.base_offset
                rows = [row for row in rows if not first <= base + row <= last]
            if rows:
                kept.append(run._replace(start=rows[0], stop=rows[-1] + 1, picks=rows))
        self._runs = kept

    def _first_unread(self) -> dict[int, int]:
        """The first that has come and was not taken, by partition."""
        first: dict[int, int] = {}
        head = self._head
        for run in (*self._runs, *(run for _, runs in self._behind for run in runs)):
            offset = run.source.base_offset + run.rows()[head]
            first[run.origin.partition] = min(offset, first.get(run.origin.partition, offset))
            head = 0
        return first

    def _raise_failed(self) -> None:
        try:
            super()._raise_failed()
        except Corrupt as error:
            self._damage = error
            raise

    def _unread(self) -> list[tuple[int, int, int]]:
        """Of a name, what has come and was not taken: ranges that can be put back as they are."""
        if self._name is None:
            return []
        unread = [
            (partition, first, self._next[partition])
            for partition, first in self._first_unread().items()
        ]
        if sum(behind - first for _, first, behind in unread) != self._unread_count():
            return []  # others have what lies between
        return unread

    def _unread_count(self) -> int:
        behind = sum(run.row_count for _, runs in self._behind for run in runs)
        return behind + sum(run.row_count for run in self._runs) - self._head

    def _put_back(self) -> None:
        if self._name is None or self._number is None or self._returning or self._behind:
            return  # no other reader would get it, or it is more than one request can say
        unread = self._unread()
        if not unread:
            return
        held, self._runs = self._runs, deque()
        head, self._head = self._head, 0
        control = CloseStreamRequest(self._number, unread)
        for partition, first, behind in unread:
            self._was_put_back(partition, first, behind)

        def answered(frame: Frame) -> None:
            is_back = frame.op != Op.ERROR and msgspec.msgpack.decode(frame.control)
            if is_back:
                self._next.update({partition: first for partition, first, _ in unread})
            else:
                for partition, first, behind in unread:
                    self._hold(partition, first, behind)
                self._runs.extendleft(reversed(held))
                self._head = head

        self._returning = self._link.loop.create_task(self._return(control, answered))

    async def _return(self, control: CloseStreamRequest, answered: Callable[[Frame], None]) -> None:
        try:
            await self._requests.ask(Op.PUT_BACK, control, on_answer=answered)
        except (SessionLost, FlintError):
            pass  # in a new session they are not ours
        finally:
            self._returning = None
            if self._runs:
                self._heard(True)
            elif self._parked:
                self._ask(None)

    @property
    def missed(self) -> int:
        return self._count_before + self._count

    async def seek(self, to: Start | Mapping[int, int]) -> None:
        fields = start_fields(to)
        damage, self._damage = self._damage, None
        passes_damage = damage is not None and to in (
            damage.next_offset,
            {damage.partition: damage.next_offset},
        )
        moved = partial(self._moved, passes_damage)
        await self._on_stream(lambda number: SeekRequest(number, fields), Op.SEEK, moved)

    def _moved(self, passes_damage: bool, frame: Frame) -> None:
        """What came before this is behind us."""
        if frame.op == Op.ERROR:
            return
        positions = msgspec.msgpack.decode(frame.control, type=dict[int, int])
        self._next.update(positions)
        if self._name is not None and not passes_damage:
            self._held.clear()
            for partition, position in positions.items():
                self._hold(partition, 0, position)  # what was before is not read again
        self._runs.clear()
        self._behind.clear()
        self._head = 0
        self._gap = self._error = None

    async def commit(
        self, offset: int | None, partition: int | None = None, *, is_own: bool = False
    ) -> int:
        # The broker counts as read what it has sent, and what it sends while we ask.
        if offset is None and (self._runs or self._behind or self._asking):
            until = self._requests.until()
            positions = await self.positions(until)
            return sum(
                [await self._commit(at, number, True, until) for number, at in positions.items()]
            )
        return await self._commit(offset, partition, is_own)

    async def commit_each(self, offsets: Mapping[int, int]) -> int:
        """Of a row of partitions: commit an offset of each that is named, in one request."""
        committed: int = await self._on_stream(
            lambda number: CommitRequest(number, dict(offsets)), Op.COMMIT
        )
        for partition, offset in offsets.items():
            self._was_committed(partition, offset)
        return committed

    async def _commit(
        self, offset: int | None, partition: int | None, is_own: bool, until: float | None = None
    ) -> int:
        committed: int = await self._on_stream(
            lambda number: CommitRequest(number, offset, partition, is_own), Op.COMMIT, until=until
        )
        if partition is None and not self._is_whole:
            partition = next(iter(self._next))
        if partition is not None:
            self._was_committed(partition, committed)
        return committed

    async def position(self) -> int:
        return sum((await self.positions()).values())

    async def positions(self, until: float | None = None) -> dict[int, int]:
        unread = self._first_unread()
        self._since.append(unread)  # what comes while we ask was not read when we were asked
        try:
            positions: dict[int, int] = await self._on_stream(StreamName, Op.POSITION, until=until)
        finally:
            self._since = [since for since in self._since if since is not unread]
        return {**positions, **unread}

    async def lag(self) -> int:
        lag: int = await self._on_stream(StreamName, Op.LAG)
        return lag + self._unread_count()
