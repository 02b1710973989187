"""Which rows pass a filter: so many per turn of the loop, by time on the processor."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence

from ...batch import RowSource
from ...broker_api import Filter, OutOfTime, RowFilter
from ...errors import FilterFailed, FlintError
from ...loop.pace import Allowance, pace
from ...observe.logs import limited
from ...rows import Message, Origin, ValueTooLarge

_PIECE_ROWS = 256
"""How many rows a filter looks at between two looks at the time, where it decodes no values."""

_log = logging.getLogger(__name__)


class Sieve:
    """Looks through the rows of one topic."""

    def __init__(self, name: str, origin: Origin) -> None:
        self._name, self.origin = name, origin
        self.too_large = 0
        """How many values filters did not look into."""

    def _passes(self, wants: Callable[[Message], bool], message: Message) -> bool:
        try:
            return wants(message)
        except Exception as error:
            raise FilterFailed(self.origin.topic, message.offset, error) from error

    def pick(
        self, wants: Filter, source: RowSource, rows: Sequence[int], limit: int | None = None
    ) -> list[int]:
        """The rows that pass a filter; of an expression no more than `limit`."""
        return self.look_through(wants, source, rows, limit, None)[0]

    def look_through(
        self,
        wants: Filter,
        source: RowSource,
        rows: Sequence[int],
        limit: int | None,
        allowance: Allowance | None,
    ) -> tuple[list[int], int]:
        """The rows that pass a filter, and how many of `rows` were looked at: at least one, and
        fewer than all if the allowance is over before. No more than `limit` pass."""
        if callable(wants):
            return self._look_by_function(wants, source, rows, limit, allowance)
        if not wants.uses_value and len(rows) <= _PIECE_ROWS:
            return self._picked(wants, source, rows, None, limit), len(rows)
        look = _Look(self, wants.fields, allowance)
        picks: list[int] = []
        looked = 0
        was_enabled = gc.isenabled()
        gc.disable()  # what is decoded is let go of at once; collecting meanwhile is for nothing
        try:
            while looked < len(rows) and (limit is None or len(picks) < limit):
                if looked and allowance is not None and allowance.is_over():
                    break
                piece = rows[looked : looked + _PIECE_ROWS]
                left = None if limit is None else limit - len(picks)
                picks += self._picked(wants, source, piece, look.decode, left)
                if look.stopped_at is not None:
                    looked += piece.index(look.stopped_at)
                    break
                looked += len(piece)
        finally:
            if was_enabled:
                gc.enable()
        return picks, looked

    def _picked(
        self,
        wants: RowFilter,
        source: RowSource,
        rows: Sequence[int],
        decode: Callable[[RowSource, int], object] | None,
        limit: int | None,
    ) -> list[int]:
        try:
            return wants.pick(source, rows, self.origin, decode, limit)
        except FlintError:
            raise  # of the disk
        except Exception as error:
            raise FilterFailed(self.origin.topic, None, error) from error

    async def look_through_all(
        self, wants: Filter, source: RowSource, rows: Sequence[int]
    ) -> list[int]:
        """The rows that pass a filter, in as many turns as it takes."""
        picks: list[int] = []
        while rows:
            some, looked = self.look_through(wants, source, rows, None, pace().begin())
            picks += some
            rows = rows[looked:]
            if rows:
                await asyncio.sleep(0)
        return picks

    def _look_by_function(
        self,
        wants: Callable[[Message], bool],
        source: RowSource,
        rows: Sequence[int],
        limit: int | None,
        allowance: Allowance | None,
    ) -> tuple[list[int], int]:
        picks: list[int] = []
        for looked, row in enumerate(rows):
            if len(picks) == limit or (looked and allowance is not None and allowance.is_over()):
                return picks, looked
            if self._passes(wants, Message(source, row, self.origin)):
                picks.append(row)
        return picks, len(rows)

    def value_too_large(self, offset: int, error: ValueTooLarge) -> None:
        """A filter came to a value that it may not look into: it is missing for the filter."""
        self.too_large += 1
        limited(
            _log,
            logging.WARNING,
            "filter_value_too_large",
            self._name,
            f"a filter skips the value of a message of {self._name!r}: {error}; it is treated as "
            "having no value. Raise max_decoded_bytes, or filter by key, headers or priority",
            topic=self._name,
            offset=offset,
            limit=error.bytes_max,
        )


class _Look:
    """Decodes values for a filter, until the time is up."""

    __slots__ = ("_allowance", "_fields", "_is_first", "_sieve", "decode", "stopped_at")

    def __init__(
        self, sieve: Sieve, fields: tuple[str, ...] | None, allowance: Allowance | None
    ) -> None:
        self._sieve, self._fields, self._allowance = sieve, fields, allowance
        self._is_first = True
        self.stopped_at: int | None = None
        """The row at which the time was up."""
        self.decode = None if sieve.origin.decoder is None else self._decode

    def _decode(self, source: RowSource, row: int) -> object:
        if self._allowance is not None:
            if not self._is_first and self._allowance.is_over():
                self.stopped_at = row
                raise OutOfTime
            self._is_first = False
        origin = self._sieve.origin
        assert origin.decoder is not None
        try:
            return origin.decoder.value_for_filter(source, row, origin, self._fields)
        except ValueTooLarge as error:
            self._sieve.value_too_large(source.base_offset + row, error)
            raise
