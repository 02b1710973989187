"""A topic's messages in memory: chunks of rows, addressed by offset.

Small publishes gather in an open tail, which is laid out as a record batch when it has grown, so
that a topic filled by single publishes is as compact as one filled by batches. Large values are
kept as the objects they are: copying them would gain nothing.

Always true: chunks follow each other without a gap; times never go back, so that who looks for one
may search (retention, `offset_at_time`); a chunk that is closed never changes, and the open tail
grows at its end alone, so that readers keep what they have found; `byte_count` is what the rows
from `first_offset` on count for, and limits go by it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from ...batch import (
    NOT_PLAIN,
    OBJECTS,
    BatchBuilder,
    DecodeCache,
    HoleBatch,
    RecordBatch,
    RestingRows,
    RowSource,
    hole,
)
from ...groups.offset_set import OffsetSet
from ...loop.disposal import let_go
from .thinning import thinned

if TYPE_CHECKING:
    from ...storage.loading import Load
    from ...storage.segments import Section
    from ...storage.topic_log import Damage

JOIN_ROWS_MAX = 64
"""Publishes of fewer rows than this join the open tail; larger ones are chunks of their own."""

CHUNK_ROWS = 1024
CHUNK_BYTES = 256 * 1024
"""What closes the open tail."""

COLUMNAR_BYTES_MAX = 512
"""Rows that are larger than this on average stay single objects."""

_COMPACT_AT = 512
_DROPPED = BatchBuilder()


class TopicLogApi(Protocol):
    """A topic's messages, wherever they are."""

    first_offset: int
    next_offset: int
    byte_count: int
    last_time: int

    @property
    def damaged(self) -> Sequence[Damage]:
        """What is known to be damaged on the disk."""
        ...

    def append(self, rows: BatchBuilder | RecordBatch, now_ms: int) -> int: ...
    def append_evenly(self, batches: Sequence[RecordBatch | RestingRows]) -> None: ...
    def append_value(self, value: bytes, now_ms: int) -> int: ...
    def append_values(self, values: list[bytes], now_ms: int, content_type: str | None) -> None: ...
    def locate(self, offset: int) -> tuple[RowSource, int, int]: ...
    def locate_nowait(self, offset: int, ahead: int = 0) -> tuple[RowSource, int, int]: ...
    def load(self, offset: int, *, is_further: bool = True) -> Load | None: ...
    def at_once(self) -> AbstractContextManager[None]: ...
    def control_at(
        self, offset: int, *, waits: bool = True
    ) -> tuple[RowSource | None, int, int]: ...
    def outline(self, offset: int, *, waits: bool = True) -> tuple[RowSource, int, int]: ...
    def time_of(self, offset: int) -> int: ...
    def delayed(self, now_ms: int) -> Iterator[tuple[int, int, int]]: ...
    def has_expiry(self) -> bool: ...
    def offset_at_time(self, time_ms: int, *, waits: bool = True) -> int: ...
    def drop_to(self, offset: int) -> int: ...
    def size_between(self, start: int, stop: int) -> int: ...
    def offset_freeing(self, bytes_wanted: int, end: int) -> int: ...
    def note_damage(self, first: int, next: int, file: str, cause: str) -> object: ...
    def compacted(self, gone: OffsetSet, start: int, stop: int) -> None:
        """Some between these offsets were dropped where they are; `gone` has all that were."""
        ...

    def add_object(self, section: Section, due_ms: int) -> None: ...
    def drop_objects(self, up_to: int) -> list[str]: ...
    def let_go(self) -> None:
        """Free the memory: nobody asks for anything any more."""
        ...


class MemoryLog:
    """The rows from `first_offset` up to `next_offset`, and how to find one."""

    def __init__(self, cache: DecodeCache) -> None:
        self.first_offset = 0
        self.next_offset = 0
        self.byte_count = 0
        self.last_time = 0
        self.damaged: Sequence[Damage] = ()
        self._cache = cache
        self._chunks: list[RowSource] = []
        self._bases: list[int] = []
        self._head = 0  # chunks before it are dropped, and cut off now and then
        self._tail: BatchBuilder | None = None

    # --- appending

    def append(self, rows: BatchBuilder | RecordBatch, now_ms: int) -> int:
        """Add rows at the end; the offset of the first. The rows get their place and time."""
        base = self.next_offset
        time = self.last_time
        if now_ms > time:
            time = self.last_time = now_ms
        rows.base_offset = base
        rows.append_time = time
        if isinstance(rows, RecordBatch):
            self._close_tail()
            self.byte_count += rows.size(0, rows.row_count)
            self._add(rows, base)
            rows.cache = self._cache
            self.next_offset = base + rows.row_count
            return base
        count = rows.row_count
        if count < JOIN_ROWS_MAX and rows.byte_count < CHUNK_BYTES:
            self._join(rows, base, time)
        else:
            self._close_tail()
            self._add_pieces(rows, base)
        self.byte_count += rows.byte_count
        self.next_offset = base + count
        return base

    def append_evenly(self, batches: Sequence[RecordBatch | RestingRows]) -> None:
        raise AssertionError("a large commit is one of a broker on the disk")

    def append_values(self, values: list[bytes], now_ms: int, content_type: str | None) -> None:
        """Add a few messages that are nothing but their values and one content type."""
        self.append(BatchBuilder.of(values, content_type), now_ms)

    def append_value(self, value: bytes, now_ms: int) -> int:
        """Add one message that is nothing but its value; its offset."""
        offset = self.next_offset
        time = self.last_time
        if now_ms > time:
            time = self.last_time = now_ms
        tail = self._tail
        if tail is None:
            rows = BatchBuilder()
            rows.append(value)
            return self.append(rows, now_ms)
        tail.append_at(value, time, None)
        self.byte_count += len(value)
        self.next_offset = offset + 1
        if offset + 1 - tail.base_offset >= CHUNK_ROWS or tail.byte_count >= CHUNK_BYTES:
            self._close_tail()
        return offset

    def _join(self, rows: BatchBuilder, base: int, time: int) -> None:
        tail = self._tail
        if tail is None:
            tail = self._tail = BatchBuilder(base, objects=bool(rows.columns & OBJECTS))
            self._add(tail, base)
        tail.extend_at(rows, time)
        if tail.row_count >= CHUNK_ROWS or tail.byte_count >= CHUNK_BYTES:
            self._close_tail()

    def _add_pieces(self, rows: BatchBuilder, base: int) -> None:
        """Add rows as one chunk, or as several: a chunk is freed when its last row is dropped."""
        count = rows.row_count
        if count <= 2 * CHUNK_ROWS and rows.byte_count <= 4 * CHUNK_BYTES:
            self._add(self._laid_out(rows), base)
            return
        at_most = max(1, min(CHUNK_ROWS, count * CHUNK_BYTES // max(1, rows.byte_count)))
        for start in range(0, count, at_most):
            piece = rows.empty_like()
            piece.base_offset = base + start
            piece.append_time = rows.append_time
            piece.extend(rows, start, min(count, start + at_most))
            self._add(self._laid_out(piece), base + start)

    def _close_tail(self) -> None:
        tail, self._tail = self._tail, None
        if tail is not None:
            self._chunks[-1] = self._laid_out(tail)

    def _laid_out(self, rows: BatchBuilder) -> RowSource:
        if rows.columns & OBJECTS or rows.byte_count > rows.row_count * COLUMNAR_BYTES_MAX:
            return rows
        batch = rows.seal()
        batch.cache = self._cache
        # Readers that keep up get the publisher's own objects back: nothing to decode.
        self._cache.keep(batch, tuple(rows.values()))
        return batch

    def _add(self, chunk: RowSource, base: int) -> None:
        self._chunks.append(chunk)
        self._bases.append(base)

    # --- finding

    def locate(self, offset: int) -> tuple[RowSource, int, int]:
        """The chunk that holds `offset`, the row there, and the row behind the chunk's last."""
        bases = self._bases
        chunk = len(bases) - 1
        if offset < bases[chunk]:
            chunk = bisect_right(bases, offset, self._head) - 1
            return self._chunks[chunk], offset - bases[chunk], bases[chunk + 1] - bases[chunk]
        return self._chunks[chunk], offset - bases[chunk], self.next_offset - bases[chunk]

    def locate_nowait(self, offset: int, ahead: int = 0) -> tuple[RowSource, int, int]:
        return self.locate(offset)

    def load(self, offset: int, *, is_further: bool = True) -> Load | None:
        return None

    def at_once(self) -> AbstractContextManager[None]:
        return nullcontext()

    def control_at(self, offset: int, *, waits: bool = True) -> tuple[RowSource | None, int, int]:
        """As `locate`, with None where the rows are plain."""
        source, row, stop = self.locate(offset)
        return source if source.columns & NOT_PLAIN else None, row, stop

    def outline(self, offset: int, *, waits: bool = True) -> tuple[RowSource, int, int]:
        """As `locate`, for who asks for times and control columns alone."""
        return self.locate_first() if offset == self.first_offset else self.locate(offset)

    def time_of(self, offset: int) -> int:
        source, row, _ = self.locate(offset)
        return source.time(row)

    def offset_at_time(self, time_ms: int, *, waits: bool = True) -> int:
        """The first offset that was appended at `time_ms` or later."""
        low, high = self._head, len(self._chunks)
        if low == high or self.last_time < time_ms:
            return self.next_offset
        chunk = bisect_left(self._chunks, time_ms, low, high, key=lambda source: source.time(0))
        # The chunk before begins earlier, but its later rows may already be late enough.
        for candidate in (chunk - 1, chunk):
            if low <= candidate < high:
                source = self._chunks[candidate]
                rows = range(source.row_count)
                row = bisect_left(rows, time_ms, key=source.time)
                if row < len(rows):
                    return max(self._bases[candidate] + row, self.first_offset)
        return self.next_offset

    def delayed(self, now_ms: int) -> Iterator[tuple[int, int, int]]:
        """Nothing: who begins to lead finds a memory topic empty."""
        return iter(())

    def has_expiry(self) -> bool:
        return False

    def note_damage(self, first: int, next: int, file: str, cause: str) -> object:
        raise AssertionError("what is in memory is not damaged")

    # --- dropping

    def drop_to(self, offset: int) -> int:
        """Forget everything before `offset`; how many messages that were."""
        dropped = offset - self.first_offset
        if dropped <= 0:
            return 0
        assert offset <= self.next_offset, "what is not there yet is not dropped"
        if offset == self.next_offset:
            self.let_go()
            return dropped
        gone: list[RowSource] = []
        while True:
            source, row, stop = self.locate_first()
            end = min(stop, row + offset - self.first_offset)
            self.byte_count -= source.size(row, end)
            self.first_offset += end - row
            if end == stop:
                gone.append(self._chunks[self._head])
                self._chunks[self._head] = _DROPPED
                self._head += 1
            if self.first_offset == offset:
                break
        source = _DROPPED
        let_go(gone)
        if self._head >= _COMPACT_AT and self._head * 2 >= len(self._bases):
            del self._chunks[: self._head], self._bases[: self._head]
            self._head = 0
        return dropped

    def compacted(self, gone: OffsetSet, start: int, stop: int) -> None:
        """Free the memory of dropped rows, a chunk at a time, where it is worth it."""
        head, closed = self._head, len(self._bases) - (self._tail is not None)
        low = max(head, bisect_right(self._bases, start, head) - 1)
        high = min(closed, bisect_left(self._bases, stop, head))
        pieces: list[RowSource] = []
        for at in range(head, len(self._chunks)):
            chunk = self._chunks[at]
            made = thinned(chunk, gone) if low <= at < high else None
            first = max(0, self.first_offset - chunk.base_offset)
            for piece in (chunk,) if made is None else made:
                if isinstance(piece, HoleBatch) and pieces and isinstance(pieces[-1], HoleBatch):
                    before = pieces.pop()
                    rows = before.row_count + piece.row_count
                    piece = hole(before.base_offset, rows, before.time(0))
                pieces.append(piece)
            if made is not None:
                self.byte_count -= chunk.size(first, chunk.row_count)
                self.byte_count += sum(
                    piece.size(max(0, self.first_offset - piece.base_offset), piece.row_count)
                    for piece in made
                    if piece.base_offset + piece.row_count > self.first_offset
                )
        self._chunks, self._head = pieces, 0
        self._bases = [piece.base_offset for piece in pieces]

    def add_object(self, section: Section, due_ms: int) -> None:
        raise AssertionError("what is in memory has no segments")

    def drop_objects(self, up_to: int) -> list[str]:
        return []

    def let_go(self) -> None:
        """Forget everything. The memory is free a few turns later."""
        chunks, self._chunks = self._chunks, []
        self._bases = []
        self._head = 0
        self._tail = None
        self.byte_count = 0
        self.first_offset = self.next_offset
        let_go(chunks)

    def locate_first(self) -> tuple[RowSource, int, int]:
        """The same as `locate(first_offset)`, without a search."""
        head, bases = self._head, self._bases
        end = bases[head + 1] if head + 1 < len(bases) else self.next_offset
        return self._chunks[head], self.first_offset - bases[head], end - bases[head]

    def size_between(self, start: int, stop: int) -> int:
        """The bytes that the messages from `start` to before `stop` count for."""
        size = 0
        while start < stop:
            source, row, rows = self.locate(start)
            end = min(rows, row + stop - start)
            size += source.size(row, end)
            start += end - row
        return size

    def offset_freeing(self, bytes_wanted: int, end: int) -> int:
        """The lowest offset before which at least `bytes_wanted` bytes are stored, up to `end`."""
        offset, freed = self.first_offset, 0
        while freed < bytes_wanted and offset < end:
            source, row, stop = self.locate(offset)
            size = source.size(row, stop)
            if freed + size < bytes_wanted:
                freed += size
                offset += stop - row
                continue
            rows = range(row + 1, stop + 1)
            missing = bytes_wanted - freed
            count = rows[bisect_left(rows, missing, key=lambda stop: source.size(row, stop))] - row
            return min(end, offset + count)
        return min(end, offset)
