"""What a client holds open at the server: a reader, a live feed, a membership of a group."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...batch import size_of_rows
from ...broker_api import FeedApi, MemberApi, ReaderApi, StreamApi
from ...clock import Timer
from ...errors import FlintError, InvalidRequest
from ...loop.pace import pace
from ...model import Missed
from ...rows import Rows, Run
from ..wire.operations import Op, TakenReply, encode
from ..wire.rules import Need
from ..wire.values import gap_fields

if TYPE_CHECKING:
    from .session import Session

ROW_BYTES = 256
"""How large rows are taken to be until some were seen."""


class OpenStream:
    """A reader or a feed, and the take that waits for it. One take waits at a time.

    Taking moves the position of the name in the same step that writes the reply.
    """

    def __init__(
        self,
        session: Session,
        need: Need,
        *,
        reader: ReaderApi | None = None,
        feed: FeedApi | None = None,
        can_listen: bool = True,
        name: str | None = None,
        sifts: bool = False,
    ) -> None:
        """`sifts`: taking runs a filter, which may have a lot to look at."""
        api: StreamApi | None = reader if reader is not None else feed
        assert api is not None, "it is a reader or a feed"
        self._api, self._feed = api, feed
        self._sifts = sifts
        self.reader = reader
        self.name = name
        """Of a reader that shares its position with others of that name."""
        self.need = need
        self.denied: FlintError | None = None
        self._can_listen = can_listen
        self._session = session
        self._waiting: tuple[int, int] | None = None  # request, rows
        self._timer: Timer | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_due = False
        self._at_once = False
        self._closed = False
        self._left: deque[Rows] = deque()
        self._failed: FlintError | None = None
        self._row_bytes = ROW_BYTES
        self._was_cut = False
        if can_listen:
            api.on_ready(self._rung)

    def take(self, request: int, max_rows: int, timeout: float | None) -> None:
        if self._waiting is not None:
            raise InvalidRequest("only one take at a time can wait on a stream; cancel the first")
        if max_rows < 1:
            raise InvalidRequest(f"max_rows must be at least 1, not {max_rows}")
        self._waiting = (request, max_rows)
        self._at_once = timeout is not None and timeout <= 0
        self._serve()
        if self._waiting is None or (self._at_once and self._can_listen):
            return
        if timeout is not None and not self._at_once:
            clock = self._session.server.broker.clock
            self._timer = clock.call_later(timeout, lambda: self.cancel(request))
        self._watch()

    def cancel(self, request: int) -> bool:
        """End a take that waits, with nothing; whether there was one."""
        if self._waiting is None or self._waiting[0] != request:
            return False
        self._answer(Rows())
        return True

    def has_room(self) -> None:
        self._rung()

    def _rung(self) -> None:
        """There may be something: look at the end of this turn, once."""
        if self._waiting is not None and not self._is_due:
            self._is_due = True
            self._session.look_later(self)

    def look(self) -> None:
        self._is_due = False
        if self._waiting is not None:
            self._serve()
            self._watch()

    def _serve(self) -> None:
        """Answer the take that waits if there is anything for it."""
        assert self._waiting is not None
        if self._session.is_full():
            return  # has_room comes back to it
        if not self._is_at_hand():
            return  # once it has been read from the disk
        if self._sifts and not pace().may(self):
            self._rung()  # in the next turn
            return
        request, max_rows = self._waiting
        try:
            rows = self._taken(max_rows)
        except Exception as error:  # also for an internal error: the client must not wait for ever
            self._ended(request)
            self._session.fail(request, error)
            return
        if rows.runs or rows.gap is not None:
            self._answer(rows)
        elif self.reader is not None and self.is_ready():
            self._rung()  # a filter looks at some rows at a time, and lets others run
        elif self._at_once:
            self._answer(rows)

    def _taken(self, max_rows: int) -> Rows:
        """Up to `max_rows`, and no more than what one reply may carry; but one, however large."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        room = self._session.server.limits.delivery_bytes
        runs: list[Run] = []
        gap: Missed | None = None
        wanted = max_rows
        while wanted and room > 0:
            try:
                rows = self._next_rows(min(wanted, max(1, room // self._row_bytes)), bool(runs))
            except FlintError as error:
                if not runs and gap is None:
                    raise
                self._failed = error  # the next take raises it
                break
            if rows is None:
                break
            if rows.gap is not None:
                if runs:
                    self._left.appendleft(rows)  # a gap is reported just before the rows behind it
                    break
                gap = rows.gap
            head, rest, size = cut(rows.runs, wanted, room)
            if rest:
                self._left.appendleft(Rows(rest))
            count = sum(run.row_count for run in head)
            if count:
                self._row_bytes = max(1, size // count)
            runs += head
            wanted -= count
            room -= size
            if rest or (self._sifts and pace().is_over()):
                break
        next_gap = self._left[0].gap if self._left else None
        self._was_cut = wanted > 0 and next_gap is None and (room <= 0 or bool(self._left))
        return Rows(_joined(runs), gap)

    def _next_rows(self, count: int, has_rows: bool) -> Rows | None:
        """What was too much for the last reply, or what the broker has; None if nothing."""
        if self._left:
            return self._left.popleft()
        if has_rows and not (self._api.is_ready() and self._is_at_hand()):
            return None
        reader = self.reader
        rows = self._api.take(count) if reader is None else reader.take(count, waits=False)
        return rows if rows.runs or rows.gap is not None else None

    def _is_at_hand(self) -> bool:
        """Whether there is no need to wait for the disk; else we are rung once there is none."""
        return bool(self._left) or self.reader is None or self.reader.at_hand()

    def left(self) -> list[tuple[int, int, int]]:
        """What was taken and not sent yet: partition, first offset and behind the last."""
        ranges: list[tuple[int, int, int]] = []
        for rows in self._left:
            for run in rows.runs:
                base, at = run.source.base_offset, run.rows()
                ranges.append((run.origin.partition, base + at[0], base + at[-1] + 1))
        return ranges

    def left_count(self) -> int:
        return sum(map(len, self._left))

    def drop_left(self) -> None:
        self._left.clear()
        self._failed = None

    def is_ready(self) -> bool:
        return bool(self._left) or self._failed is not None or self._api.is_ready()

    def _answer(self, rows: Rows) -> None:
        assert self._waiting is not None
        request = self._waiting[0]
        self._ended(request)
        session = self._session
        try:
            infos, batches = session.encode_runs(rows.runs)
        except Exception as error:
            session.fail(request, error)
            return
        lost = 0 if self._feed is None else self._feed.dropped
        if self.reader is not None:
            lost = self.reader.missed
        more = self._was_cut and self.is_ready()
        taken = TakenReply(infos, gap_fields(rows.gap), lost, None, more)
        session.send(Op.REPLY, request, encode(taken), batches)

    def _ended(self, request: int) -> None:
        self._waiting = None
        self._session.answered(request)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- rows of partitions have no bell to listen to: a task waits for them

    def _watch(self) -> None:
        if not self._can_listen and self._waiting is not None and self._watching is None:
            self._watching = self._session.loop.create_task(self._wait())

    async def _wait(self) -> None:
        try:
            while self._waiting is not None and not self._closed:
                if not self._left:
                    await self._api.wait(None)
                if self._session.is_full():
                    break  # has_room looks
                self.look()
                await asyncio.sleep(0)  # a filter may have found nothing, and looks on
        except Exception as error:  # this task is not awaited, but its stream is
            if self._waiting is not None:
                request = self._waiting[0]
                self._ended(request)
                self._session.fail(request, error)
        finally:
            self._watching = None

    def deny(self, error: FlintError) -> None:
        """The key does not allow it any more: a waiting take fails, and nothing is sent."""
        self.denied = error
        self._left.clear()
        if self._waiting is not None:
            request = self._waiting[0]
            self._ended(request)
            self._session.fail(request, error)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._waiting is not None:
            self._answer(Rows())
        if self._watching is not None:
            self._watching.cancel()
        await self._api.close()


def cut(runs: Sequence[Run], rows_max: int, bytes_max: int) -> tuple[list[Run], list[Run], int]:
    """What of these fits, at least one row; the rest; and how many bytes fit."""
    head: list[Run] = []
    size = 0
    for number, run in enumerate(runs):
        count = run.row_count
        fits = min(count, rows_max)
        run_size = _size(run, fits) if fits else 0
        if run_size > bytes_max - size:
            least = 0 if head else 1
            room = bytes_max - size
            fits = max(least, bisect_right(range(fits + 1), room, key=lambda n: _size(run, n)) - 1)
            run_size = _size(run, fits)
        if not fits:
            return head, list(runs[number:]), size
        size += run_size
        rows_max -= fits
        if fits < count:
            head.append(_rows_of(run, 0, fits))
            return head, [_rows_of(run, fits, count), *runs[number + 1 :]], size
        head.append(run)
    return head, [], size


def _size(run: Run, count: int) -> int:
    """The bytes of the first `count` rows of a run."""
    if run.picks is None:
        return run.source.size(run.start, run.start + count)
    return size_of_rows(run.source, run.picks[:count])


def _rows_of(run: Run, start: int, stop: int) -> Run:
    if run.picks is not None:
        return run._replace(picks=run.picks[start:stop])
    return run._replace(start=run.start + start, stop=run.start + stop)


def _joined(runs: list[Run]) -> list[Run]:
    """Runs that follow each other in one batch, as one: the batch is sent once."""
    joined: list[Run] = []
    for run in runs:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.source is run.source
            and last.picks is None
            and run.picks is None
            and last.stop == run.start
        ):
            joined[-1] = last._replace(stop=run.stop)
        else:
            joined.append(run)
    return joined


class OpenMembership:
    """A membership of a queue group. Takes are served in their order by the broker."""

    def __init__(self, api: MemberApi, need: Need) -> None:
        self.api = api
        self.need = need
        self.denied: FlintError | None = None

    def deny(self, error: FlintError) -> None:
        self.denied = error

    async def close(self) -> None:
        await self.api.close()
