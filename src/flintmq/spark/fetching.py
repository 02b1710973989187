"""Fetches ranges of offsets from the broker: several requests in flight, rows in order.

The broker sends stored batches unchanged. While one reply is converted to columns, the next ones
are in flight. The size of the messages so far decides how many rows a request asks for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..batch import RecordBatch
from ..broker_api import Fetch, Fetched, Filter
from ..errors import Disconnected, InvalidRequest, MessagesLost, OutcomeUnknown
from ..serde.filters import compile_filter
from .columns import Columns
from .connecting import BrokerLine
from .ranges import Range

if TYPE_CHECKING:
    import pyarrow

UNDER_WAY = 3
"""Requests of one task in flight."""

SLACK_SECONDS = 5.0
"""How much longer than `brokerTimeout` to wait for an answer before asking again."""

REPLY_BYTES = 2 * 1024 * 1024
FIRST_ROWS = 8192
TOGETHER = 256
"""Small ranges that are fetched by one request."""
ROWS_LEAST, ROWS_MOST = 64, 1 << 18
REMEDY = (
    "To continue with what is left, set failOnDataLoss=false. To avoid this, keep messages longer "
    "(retention_age, retention_bytes)."
)


Asked = tuple[list[Range], "Future[list[Fetched]]"]
"""The ranges of a request, and its answer."""


class Fetches:
    """The rows of ranges, in order."""

    def __init__(
        self,
        line: BrokerLine,
        ranges: Sequence[Range],
        *,
        filter: str | None = None,
        with_expired: bool = False,
        fail_on_loss: bool = True,
    ) -> None:
        self._line = line
        self._ranges = deque(ranges)
        self._filter: Filter | None = None if filter is None else compile_filter(filter)
        self._with_expired = with_expired
        self._fail_on_loss = fail_on_loss
        self._rows = FIRST_ROWS
        self._asked: deque[Asked] = deque()

    def __iter__(self) -> Iterator[tuple[Range, Fetched]]:
        try:
            while True:
                self._ask()
                if not self._asked:
                    return
                pieces, future = self._asked.popleft()
                answered = self._answer(pieces, future)
                if rest := pieces[len(answered) :]:
                    self._asked.appendleft(self._fetch(rest))
                for piece, fetched in zip(pieces, answered, strict=False):
                    if fetched.position < piece.end:
                        self._go_on(piece, fetched)
                    self._learn(fetched)
                    yield piece, fetched
        finally:
            for _, future in self._asked:
                future.cancel()

    def _ask(self) -> None:
        while self._ranges and len(self._asked) < UNDER_WAY:
            self._asked.append(self._fetch(self._next_pieces()))

    def _next_pieces(self) -> list[Range]:
        """A piece of a large range, or several small ones."""
        pieces: list[Range] = []
        left = self._rows
        while self._ranges and left > 0 and len(pieces) < TOGETHER:
            whole = self._ranges.popleft()
            if pieces and whole.rows > left:
                self._ranges.appendleft(whole)
                break
            border = min(whole.end, whole.start + left)
            if border < whole.end:
                self._ranges.appendleft(replace(whole, start=border))
            pieces.append(replace(whole, end=border))
            left -= pieces[-1].rows
        return pieces

    def _fetch(self, pieces: list[Range]) -> Asked:
        wanted = [
            Fetch(
                piece.plain,
                piece.start,
                piece.end,
                piece.rows,
                2 * REPLY_BYTES,
                self._filter,
                self._with_expired,
                piece.id,
            )
            for piece in pieces
        ]
        return pieces, self._line.begin(self._fetched(wanted))

    async def _fetched(self, wanted: list[Fetch]) -> list[Fetched]:
        if len(wanted) == 1:
            return [await self._line.broker.fetch(wanted[0])]
        return await self._line.broker.fetch_many(wanted, 2 * REPLY_BYTES)

    def _answer(self, pieces: list[Range], future: Future[list[Fetched]]) -> list[Fetched]:
        """The reply. If the broker goes away meanwhile, ask again, for a while."""
        patience = self._line.settings.patience
        give_up_at = time.monotonic() + 2 * patience
        while True:
            try:
                answered = future.result(patience + SLACK_SECONDS)
                break
            except TimeoutError:
                future.cancel()
                if time.monotonic() >= give_up_at:
                    name = self._line.broker.link.name
                    raise Disconnected(
                        name, f"no reply to a fetch of {pieces[0].plain!r}"
                    ) from None
            except (Disconnected, OutcomeUnknown):
                if time.monotonic() >= give_up_at:
                    raise
            _, future = self._fetch(pieces)
        for piece, fetched in zip(pieces, answered, strict=False):
            gap = fetched.rows.gap
            if gap is not None and self._fail_on_loss:
                raise MessagesLost(piece.plain, gap.first, gap.next, gap.count, REMEDY)
        return answered

    def _go_on(self, piece: Range, fetched: Fetched) -> None:
        """The reply ends before the requested range does: fetch the rest next."""
        rest = replace(piece, start=fetched.position)
        is_missing = fetched.position == piece.start and fetched.next_offset <= piece.start
        if is_missing and not self._comes_back(piece):
            return
        self._asked.appendleft(self._fetch([rest]))

    def _comes_back(self, piece: Range) -> bool:
        """Whether missing messages appear after all: a broker that just restarted may be late."""
        broker, patience = self._line.broker, self._line.settings.patience
        if self._line.run(broker.wait_beyond({piece.plain: piece.start}, patience)):
            return True
        if self._fail_on_loss:
            raise MessagesLost(
                piece.plain,
                piece.start,
                piece.start,
                piece.rows,
                "They existed when the read was planned. The broker has lost its newest messages, "
                "which can happen in a crash with fsync=never. To continue, set "
                "failOnDataLoss=false.",
            )
        return False

    def _learn(self, fetched: Fetched) -> None:
        runs = fetched.rows.runs
        rows = sum(run.row_count for run in runs)
        if rows:
            size = sum(_size(run.source) for run in runs)
            self._rows = max(ROWS_LEAST, min(ROWS_MOST, REPLY_BYTES * rows // max(1, size)))


def _size(source: Any) -> int:
    return source.byte_length if isinstance(source, RecordBatch) else 0


def arrow_batches(
    fetches: Iterable[tuple[Range, Fetched]], schema: pyarrow.Schema
) -> Iterator[pyarrow.RecordBatch]:
    """What was fetched, as Arrow batches that are large enough for Spark."""
    columns = Columns(schema)
    for piece, fetched in fetches:
        for run in fetched.rows.runs:
            if not isinstance(run.source, RecordBatch):
                raise InvalidRequest(
                    "the topic holds Python objects, not bytes; Spark cannot read them"
                )
            columns.add(run.source, run.start, run.stop, run.picks, piece.topic, piece.partition)
            if columns.is_enough:
                yield columns.take()
    if columns.rows:
        yield columns.take()
