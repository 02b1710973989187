"""Rows on the wire: raw record batches, and which rows of each are meant. Pure.

A whole batch goes out as the bytes it is. Part of one goes out whole too where that costs little,
and is cut out where it does not; rows that lie scattered, as one batch in which the others are
empty. What was cut for one subscriber is at hand for the next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from operator import eq, sub

from ...batch import (
    OBJECTS,
    BatchBuilder,
    RecordBatch,
    RowSource,
    absolute,
    slice_batch,
    thin_batch,
)
from ...errors import InvalidRequest, MalformedFrame
from ...rows import Origin, Run
from .frames import Buffer
from .operations import RunInfo

WHOLE_BYTES_MAX = 4096
"""A batch of no more than this is never worth cutting."""

KEPT_BYTES_MAX = 4 * 1024 * 1024
"""How much of what was sent last is kept for subscribers that get the same rows."""

FAR = 256
"""Rows this far from one another go in batches of their own: the empty ones between them cost some
bytes each."""

Key = tuple[int, int, int, bool, tuple[int, ...]]


class RunEncoder:
    """Turns runs into batches. One for all connections of a server: fan-out cuts only once."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept: OrderedDict[Key, tuple[RowSource, list[Buffer]]] = OrderedDict()
        self._kept_bytes = 0
        self._kept_bytes_max = kept_bytes_max

    def encode(
        self, runs: Sequence[Run], *, keep: bool = True, durations: bool = True
    ) -> tuple[list[RunInfo], list[Buffer]]:
        """Without `keep`, nothing is kept for others: who reads in bulk reads for itself. Without
        `durations`, they go out as times, for clients that do not know of them."""
        infos: list[RunInfo] = []
        batches: list[Buffer] = []
        for run in runs:
            for source, start, stop, picks in _pieces(run):
                shift, cut = start, (start, stop)
                rows: tuple[int, ...] = ()
                if isinstance(source, RecordBatch) and _goes_whole(source, start, stop, picks):
                    shift, cut = 0, (0, source.row_count)
                elif picks is not None and not _is_dense(picks, start, stop):
                    rows = tuple(sorted(picks))
                batches += self._bytes_of((id(source), *cut, durations, rows), source, keep)
                infos.append(
                    RunInfo(
                        run.origin.topic,
                        run.origin.partition,
                        start - shift,
                        stop - shift,
                        None if picks is None else [row - shift for row in picks],
                    )
                )
        return infos, batches

    def _bytes_of(self, key: Key, source: RowSource, keep: bool) -> list[Buffer]:
        kept = self._kept.get(key)
        # A builder grows, but a range of its rows never changes.
        if kept is not None and kept[0] is source:
            return kept[1]
        _, start, stop, durations, rows = key
        batch = _cut(source, start, stop, rows)
        if not durations:
            batch = absolute(batch, batch.append_time)
        parts: list[Buffer] = [batch.header(), batch.body]
        if keep:
            self._keep(key, source, parts)
        return parts

    def _keep(self, key: Key, source: RowSource, parts: list[Buffer]) -> None:
        before = self._kept.pop(key, None)
        if before is not None:
            self._kept_bytes -= sum(map(len, before[1]))
        self._kept[key] = (source, parts)
        self._kept_bytes += sum(map(len, parts))
        while self._kept_bytes > self._kept_bytes_max:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._kept_bytes -= sum(map(len, oldest))


def _goes_whole(batch: RecordBatch, start: int, stop: int, picks: Sequence[int] | None) -> bool:
    if batch.byte_length <= WHOLE_BYTES_MAX:
        return True
    return 2 * (stop - start) >= batch.row_count and _is_dense(picks, start, stop)


def _is_dense(picks: Sequence[int] | None, start: int, stop: int) -> bool:
    return picks is None or 4 * len(picks) >= stop - start


def _pieces(run: Run) -> Iterator[tuple[RowSource, int, int, Sequence[int] | None]]:
    """A run as ranges to send, each with the rows that are meant, in the order of the run; those
    that lie far from the one before begin another."""
    source, start, stop, _, picks, _ = run
    if picks is None:
        yield source, start, stop, None
        return
    if not picks:
        return
    start, stop = min(picks), max(picks) + 1  # a queue picks in the order of its own
    if stop - start <= FAR or _is_dense(picks, start, stop):
        yield source, *_piece(picks)
        return
    steps = list(map(abs, map(sub, picks[1:], picks)))
    first = 0
    if max(steps) >= FAR:
        for place, step in enumerate(steps, 1):
            if step >= FAR:
                yield source, *_piece(picks[first:place])
                first = place
    yield source, *_piece(picks[first:])


def _piece(picks: Sequence[int]) -> tuple[int, int, Sequence[int] | None]:
    start, stop = min(picks), max(picks) + 1
    is_range = len(picks) == stop - start and all(map(eq, picks, range(start, stop)))
    return start, stop, None if is_range else picks


def _cut(source: RowSource, start: int, stop: int, rows: Sequence[int]) -> RecordBatch:
    if source.columns & OBJECTS:
        raise InvalidRequest("objects are passed by reference and cannot be sent over a network")
    if rows:
        return thin_batch(source, rows)
    if isinstance(source, RecordBatch):
        return slice_batch(source, start, stop)
    assert isinstance(source, BatchBuilder)
    return source.cut(start, stop)


def decode_runs(
    infos: Sequence[RunInfo], batches: memoryview, origin_of: Callable[[str, int], Origin]
) -> list[Run]:
    """The runs that were sent, over the very bytes they came in."""
    runs: list[Run] = []
    position = 0
    for info in infos:
        batch, position = RecordBatch.decode_from(batches, position)
        last = batch.row_count
        if not 0 <= info.start <= info.stop <= last:
            raise MalformedFrame(f"rows {info.start} to {info.stop} of a batch of {last}")
        if info.picks is not None and not all(0 <= row < last for row in info.picks):
            raise MalformedFrame(f"rows that are not in a batch of {last}")
        origin = origin_of(info.topic, info.partition)
        runs.append(Run(batch, info.start, info.stop, origin, info.picks))
    if position != len(batches):
        raise MalformedFrame(f"{len(batches) - position:,} bytes behind the last record batch")
    return runs
