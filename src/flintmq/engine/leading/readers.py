"""Readers: positions in a topic, shared by name or one's own.

Reading moves the position in the same step that hands the rows out, so members of a name split a
topic without duplicates or gaps, and a cancelled read has taken nothing.

A reader of a name holds what it was handed until it commits. What it holds when it ends goes to the
others, and nobody commits what another holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...batch import RowSource
from ...broker_api import RowFilter
from ...errors import Closed, Corrupt, FilterFailed, FlintError, InvalidRequest
from ...groups.offset_set import OffsetSet
from ...loop.pace import Allowance, pace
from ...model import Missed, Start
from ...rows import Message, Rows, Run
from ...storage.loading import Load, NotLoaded
from ..waiting import again
from .cursor import Cursor, resolve_start, start_is_loaded
from .state_rows import StateRows

if TYPE_CHECKING:
    from .topic import LeadingTopic

_LOADS_MAX = 32
"""How often it is waited for the disk to have a little more than the next batch: others may drive
it out of memory meanwhile."""

_FILTER_ROWS_MAX = 4096
"""How many rows one take looks at with a filter, so that a rare match does not hold up the loop."""


class NextLoad:
    """What comes next for a reader, and is being read from the disk."""

    __slots__ = ("_failure", "_load", "_topic", "loads")

    def __init__(self, topic: LeadingTopic) -> None:
        self._topic = topic
        self._load: Load | None = None
        self._failure: FlintError | None = None
        """Why it could not be read, which may pass: whoever takes hears it, once."""
        self.loads = 0
        """How many it took since something was handed out."""

    def at_hand(self, offset: int) -> bool:
        """Whether there is nothing to wait for; else the bell is rung once it is there."""
        if self._load is not None:
            if not self._load.is_done:
                return False
            self.loads += 1
        self._load = None
        if self._failure is None:
            try:
                self._load = self._topic.log.load(offset, is_further=self.loads < _LOADS_MAX)
            except FlintError as error:
                self._failure = error
        if self._load is None:
            return True
        self._load.then(self._topic.bell.ring)
        return False

    def raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


class LeadingReader:
    """One open reader. Implements ReaderApi."""

    def __init__(self, topic: LeadingTopic, cursor: Cursor) -> None:
        self._topic = topic
        self._cursor = cursor
        self._ended: FlintError | None = None
        self._callbacks: list[Callable[[], None]] = []
        # the chunk read last: reading on in it needs no search
        self._chunk: RowSource | None = None
        self._chunk_base = self._chunk_stop = 0
        self._reading = 0
        self._next = NextLoad(topic)
        self._damage: tuple[int, int] | None = None
        """What we could not read last: damage of the disk, and what lies behind it."""
        self.state_rows: StateRows | None = None
        self._held = OffsetSet()
        self._held_first = self._held_end = -1  # what was taken last, not in the set yet
        cursor.members += 1
        if cursor.name is not None:
            cursor.readers.append(self)

    @property
    def missed(self) -> int:
        return self._cursor.missed

    @property
    def state_ends(self) -> dict[int, int]:
        return {self._topic.partition: self.state_rows.end} if self.state_rows else {}

    def end(self, error: FlintError) -> None:
        if self._ended is None:
            self._ended = error

    def take(self, max_rows: int, *, waits: bool = True) -> Rows:
        if self._ended is not None:
            raise again(self._ended)
        if not waits and not self.at_hand():
            return Rows([])
        self._next.raise_failure()
        topic, cursor = self._topic, self._cursor
        log = topic.log
        gap = None
        if cursor.returned:
            gap = self.miss_returned()
            rows = self._take_returned(max_rows, gap, waits)
            if rows.runs or cursor.returned:
                return rows
        if cursor.position < log.first_offset:
            gap = _joined(gap, self._fall_behind())
        first = self._reading = cursor.position
        try:
            runs, has_looked = self._read(log.next_offset, max_rows, waits)
        except Corrupt:
            if gap is None:
                raise
            runs, has_looked = [], False  # the gap is told first; the next take hears it
        finally:
            cursor.position = self._reading
            self._hold(first, self._reading)
        if runs or gap is not None or has_looked:
            self._next.loads = 0
            topic.was_read(sum(run.row_count for run in runs))
        return Rows(runs, gap)

    def miss_returned(self) -> Missed | None:
        """Retention took what a reader held that had ended, before another came to it."""
        cursor, topic = self._cursor, self._topic
        behind = topic.log.first_offset
        lost = cursor.lost_before(behind)
        if not lost:
            return None
        cursor.returned.discard_before(behind)
        count = sum(topic.sweeping.missed_between(start, stop) for start, stop in lost)
        cursor.missed += count
        return Missed(topic.name, lost[0][0], behind, count) if count else None

    def _take_returned(self, max_rows: int, gap: Missed | None, waits: bool) -> Rows:
        """Rows that another reader of the name held when it ended."""
        returned, topic = self._cursor.returned, self._topic
        first = returned.first()
        if first is None:
            return Rows([])
        self._reading, behind = first, returned.first_missing(first)
        try:
            runs, _ = self._read(behind, max_rows, waits)
        except Corrupt as error:
            # It is told once: the position of the name is elsewhere, and seeking does not help.
            self._reading = min(behind, error.next_offset or first)
            if gap is None:
                raise
            runs, self._reading = [], first  # the gap is told first
        finally:
            returned.remove_range(first, self._reading)
            self._hold(first, self._reading)
        topic.was_read(sum(run.row_count for run in runs))
        return Rows(runs, gap)

    def _read(self, behind: int, max_rows: int, waits: bool) -> tuple[list[Run], bool]:
        """Rows from where we are reading up to an offset; whether a filter has looked at any."""
        cursor, topic = self._cursor, self._topic
        runs: list[Run] = []
        wanted = max_rows
        budget = _FILTER_ROWS_MAX
        allowance = None if cursor.filter is None else pace().begin()
        while wanted and self._reading < behind and budget:
            if self.state_rows is not None:
                self._reading = self.state_rows.next(self._reading)
                if self._reading >= behind:
                    break
            try:
                source, row, stop = self._locate(self._reading, waits)
            except NotLoaded:
                break
            except FlintError:
                if runs:
                    break  # the next take hears it
                raise
            stop = min(stop, row + behind - self._reading)
            if allowance is None:
                end = min(stop, row + wanted)
                run = _living(topic, self.state_rows, source, row, end)
            else:
                end = min(stop, row + min(budget, max(64, 2 * wanted)))
                budget -= end - row
                run, end, is_enough = self._filtered(
                    source, row, end, wanted, bool(runs), allowance
                )
                if is_enough:
                    budget = 0
            self._reading += end - row
            if run is not None:
                wanted -= run.row_count
                runs.append(run)
        return runs, budget != _FILTER_ROWS_MAX

    def take_one(self) -> Message | None:
        cursor, topic = self._cursor, self._topic
        log = topic.log
        position = cursor.position
        if (
            self._ended is None
            and cursor.filter is None
            and not topic.may_expire
            and topic.state.discarded is None
            and self.state_rows is None
            and not cursor.returned
            and log.first_offset <= position < log.next_offset
        ):
            if not self._chunk_base <= position < self._chunk_stop:
                if not self.at_hand():
                    return None
                self._next.raise_failure()
                self._chunk, row, stop = self._locate(position, waits=True)
                self._chunk_base, self._chunk_stop = position - row, position - row + stop
            assert self._chunk is not None
            cursor.position = position + 1
            if cursor.name is not None:
                self._hold(position, position + 1)
            topic.was_read(1)
            return Message(self._chunk, position - self._chunk_base, topic.origin)
        rows = self.take(1, waits=False)
        return rows[0] if rows else None

    def _locate(self, offset: int, waits: bool) -> tuple[RowSource, int, int]:
        log = self._topic.log
        try:
            found = log.locate(offset) if waits else log.locate_nowait(offset)
        except Corrupt as error:
            self._damage = offset, error.next_offset or offset
            raise
        self._damage = None
        return found

    def _fall_behind(self) -> Missed | None:
        """Retention has overtaken this reader: go to what is left, and say what is gone."""
        cursor, topic = self._cursor, self._topic
        first, cursor.position = cursor.position, topic.log.first_offset
        count = topic.sweeping.missed_between(first, cursor.position)
        if not count:
            return None
        cursor.missed += count
        return Missed(topic.name, first, cursor.position, count)

    def _filtered(
        self,
        source: RowSource,
        start: int,
        stop: int,
        wanted: int,
        has_rows: bool,
        allowance: Allowance,
    ) -> tuple[Run | None, int, bool]:
        """The rows that pass, up to `wanted` of them, and the row behind the last one looked at.

        The third value is True where this take ends with them: as the time is up, or as the filter
        raised. It is heard of that at once, or by the next take if there are rows to hand out.
        """
        cursor, topic = self._cursor, self._topic
        wants = cursor.filter
        assert wants is not None
        rows = _living(topic, self.state_rows, source, start, stop)
        if not callable(wants):
            return _expressed(topic, cursor, wants, source, start, stop, wanted, rows, allowance)
        picks: list[int] = []
        end = stop
        is_over = False
        for row in rows.rows() if rows else ():
            is_over = row > start and allowance.is_over()
            if is_over:
                end = row
                break
            message = Message(source, row, topic.origin)
            try:
                passed = wants(message)
            except Exception as error:
                if picks or has_rows:
                    run = Run(source, start, row, topic.origin, picks) if picks else None
                    return run, row, True
                self._reading += row + 1 - start
                raise FilterFailed(topic.name, message.offset, error) from error
            if passed:
                picks.append(row)
                if len(picks) == wanted:
                    end = row + 1
                    break
        cursor.matched += len(picks)
        cursor.rejected += end - start - len(picks)
        return (Run(source, start, end, topic.origin, picks) if picks else None), end, is_over

    def is_ready(self) -> bool:
        cursor = self._cursor
        return (
            self._ended is not None
            or cursor.position < self._topic.log.next_offset
            or bool(cursor.returned)
        )

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        self._topic.bell.listeners.add(callback)

    def at_hand(self) -> bool:
        # Who takes hears of an end.
        return self._ended is not None or self._next.at_hand(self._cursor.unread_from())

    async def look(self) -> None:
        """What is there is in this process, or on its disk."""
        while self._ended is None and not self.at_hand():
            await self._topic.bell.wait(self._topic.clock, None)

    async def wait(self, timeout: float | None) -> bool:
        self._check_open()
        topic = self._topic
        if not self.is_ready():
            rung = await topic.bell.wait(topic.clock, timeout)
            self._check_open()
            if not rung:
                return False
        await self.look()
        self._check_open()
        return True

    async def begin(self) -> None:
        """Make it last that this name has begun here."""
        await self._topic.cursors.commit(self._cursor, self._cursor.committed)

    async def seek(self, to: Start | Mapping[int, int]) -> None:
        self._check_open()
        if isinstance(to, Mapping):
            to = _offset_of(to, self._topic.origin.partition)
        cursor = self._cursor
        await start_is_loaded(self._topic, to)
        self._check_open()
        offset = resolve_start(self._topic, to, cursor)
        self.state_rows = None
        if cursor.name is not None and self._is_behind_damage(offset):
            cursor.position = max(cursor.position, offset)  # another may be further already
        else:
            cursor.position = offset
            cursor.forget_before(2**63)  # the name moves as a whole: nobody holds what was before
        self._topic.was_read(0)
        self._topic.bell.ring()

    def _is_behind_damage(self, offset: int) -> bool:
        """Whether a seek there goes on behind the damage that we were told of, and no further:
        then nothing else is passed over, and what others of the name hold stays theirs."""
        if self._damage is None:
            return False
        first, behind = self._damage
        return first <= self._cursor.position and offset == behind

    # --- what a reader of a name holds

    def held(self) -> OffsetSet:
        """What this reader was handed and has not committed."""
        if self._held_end > self._held_first:
            self._held.add_range(self._held_first, self._held_end)
            self._held_first = self._held_end = -1
        return self._held

    def _hold(self, first: int, end: int) -> None:
        if first == end or self._cursor.name is None:
            return
        if first != self._held_end:
            self.held()
            self._held_first = first
        self._held_end = end

    def put_back(self, first: int, end: int) -> None:
        """Nobody has looked at these: the next of the name gets them, or we ourselves. What we do
        not hold stays where it is: it was committed or passed over since, or was never ours."""
        cursor = self._cursor
        mine = self.held().present(first, end)
        self.held().remove_ranges(mine)
        for start, stop in reversed(mine):
            if cursor.position == stop:
                cursor.position = start
            else:
                cursor.returned.add_range(start, stop)
        self._topic.bell.ring()

    def claim(self, first: int, end: int) -> None:
        """These were handed to us before the name went back to what was committed, or before we
        were given up. What nobody else has got or committed since is ours again, and the name goes
        on behind it; what lies before and nobody claims is read again."""
        cursor, log = self._cursor, self._topic.log
        done = cursor.began if cursor.committed is None else cursor.committed
        first, end = max(first, done, log.first_offset), min(end, log.next_offset)
        if first >= end:
            return
        self.held().add_ranges(cursor.returned.take_ranges([(first, end)]))
        if end > cursor.position:
            start = max(first, cursor.position)
            cursor.returned.add_range(max(cursor.position, log.first_offset), start)
            self.held().add_range(start, end)
            cursor.position = end

    def let_go(self) -> None:
        """This reader has ended: what it holds goes to the others."""
        cursor = self._cursor
        if cursor.name is not None:
            cursor.readers.remove(self)
            cursor.returned.add_ranges(self.held().ranges())

    async def commit(
        self, offset: int | None, partition: int | None = None, *, is_own: bool = False
    ) -> int:
        self._check_open()
        cursor = self._cursor
        if cursor.name is None:
            raise InvalidRequest(
                "commit needs a name to come back to: reader(topic, name=...); "
                "an unnamed reader keeps its position only while it is open"
            )
        if offset is None:
            offset, is_own = cursor.position, True
        if type(offset) is not int:
            raise InvalidRequest(f"commit takes an offset or a message, not {offset!r}")
        next_offset = self._topic.log.next_offset
        if not 0 <= offset <= max(next_offset, cursor.position):
            raise InvalidRequest(
                f"commit({offset}): the next offset to read is 0 to {next_offset} in this topic"
            )
        if not is_own:
            await self._topic.cursors.commit(cursor, offset)
            cursor.forget_before(offset)
            self._topic.was_read(0)
            return offset
        mine = self.held().present(0, offset)
        committed = cursor.commits(self, offset, mine, self._topic.log.first_offset)
        await self._topic.cursors.commit(cursor, committed)
        self.held().remove_ranges(mine)
        self._topic.was_read(0)  # whoever waits for room looks again
        return committed

    async def position(self) -> int:
        self._check_open()
        return self._cursor.position

    async def positions(self) -> dict[int, int]:
        return {self._topic.origin.partition: await self.position()}

    async def lag(self) -> int:
        self._check_open()
        return self._topic.cursors.lag(self._cursor)

    async def close(self) -> None:
        cursor, topic = self._cursor, self._topic
        if self._ended is None:
            self._ended = Closed(f"the reader of {topic.name!r}")
        topic.bell.listeners.difference_update(self._callbacks)
        topic.cursors.close(self, cursor)

    def _check_open(self) -> None:
        if self._ended is not None:
            raise again(self._ended)


def _living(
    topic: LeadingTopic, state: StateRows | None, source: RowSource, start: int, stop: int
) -> Run | None:
    """What of a range of rows may be handed out."""
    picks: Sequence[int] | None = None
    if topic.may_expire or topic.state.discarded is not None:
        picks = topic.living(source, start, stop)
    if state is not None:
        picks = state.picks(source, start, stop, picks)
    if picks is None:
        return Run(source, start, stop, topic.origin)
    return Run(source, start, stop, topic.origin, picks) if picks else None


def _joined(one: Missed | None, other: Missed | None) -> Missed | None:
    if one is None or other is None:
        return one or other
    first, behind = min(one.first, other.first), max(one.next, other.next)
    return Missed(one.topic, first, behind, one.count + other.count)


def _expressed(
    topic: LeadingTopic,
    cursor: Cursor,
    wants: RowFilter,
    source: RowSource,
    start: int,
    stop: int,
    wanted: int,
    rows: Run | None,
    allowance: Allowance,
) -> tuple[Run | None, int, bool]:
    picks: list[int] = []
    if rows:
        asked = rows.rows()
        picks, looked = topic.sieve.look_through(wants, source, asked, wanted, allowance)
        if len(picks) == wanted:
            stop = picks[-1] + 1
        elif looked < len(asked):
            stop = asked[looked]
    cursor.matched += len(picks)
    cursor.rejected += stop - start - len(picks)
    run = Run(source, start, stop, topic.origin, picks) if picks else None
    return run, stop, allowance.is_over()


def _offset_of(offsets: Mapping[int, int], partition: int) -> int:
    if set(offsets) != {partition}:
        raise InvalidRequest(
            f"seek({dict(offsets)}): this reader reads partition {partition} alone"
        )
    return offsets[partition]
