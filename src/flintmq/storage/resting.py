"""Reading rows that rest in a segment of the hidden log: they lie there as they were staged."""

from __future__ import annotations

from collections.abc import Iterator

from ..batch import NOT_PLAIN, RecordBatch, RestingRows, lost_rows, twin_of
from ..errors import Corrupt, FlintError, UnsupportedFormat
from .segment_store import SegmentStore
from .segments import HIDDEN_TOPIC, is_damage


def resting_batch(
    store: SegmentStore, rows: RestingRows, offset: int, *, waits: bool, ahead: int = 0
) -> RecordBatch:
    """The batch that holds an offset, at its place in the topic. Unless it `waits`, it raises
    NotLoaded where the disk has to be asked."""
    entry = store.segment(rows.file, waits).entry_at(
        HIDDEN_TOPIC, offset - rows.base_offset + rows.place
    )
    return _placed(rows, entry.base, store.read(rows.file, entry, waits, False, ahead))


def resting_outline(
    store: SegmentStore, rows: RestingRows, offset: int, *, waits: bool
) -> RecordBatch:
    """The control columns of the batch that holds an offset; where there are none, or they are
    damaged, what stands for all of the rows."""
    if rows.columns & NOT_PLAIN:
        try:
            place = offset - rows.base_offset + rows.place
            entry = store.segment(rows.file, waits).entry_at(HIDDEN_TOPIC, place)
            if entry.columns & NOT_PLAIN:
                return _placed(rows, entry.base, store.read(rows.file, entry, waits, True))
            plain = without_columns(rows.base_offset + entry.base - rows.place, entry.rows)
        except FlintError as error:
            if not is_damage(error):
                raise
            plain = without_columns(rows.base_offset, rows.row_count)
    else:
        plain = without_columns(rows.base_offset, rows.row_count)
    plain.append_time = rows.append_time
    return plain


def outlines(store: SegmentStore, rows: RestingRows) -> Iterator[RecordBatch]:
    offset, end = rows.base_offset, rows.base_offset + rows.row_count
    while offset < end:
        outline = resting_outline(store, rows, offset, waits=True)
        yield outline
        offset = outline.base_offset + outline.row_count


def without_columns(base: int, rows: int) -> RecordBatch:
    return RecordBatch(
        columns=0, row_count=rows, body=b"", control_length=0, payload_length=0, raw_length=0,
        base_offset=base,
    )  # fmt: skip


def batches_of(store: SegmentStore, rows: RestingRows) -> Iterator[RecordBatch]:
    """All of them, one by one. What the disk has damaged, by its checksum, is lost rows."""
    try:
        segment = store.segment(rows.file)
        entries = segment.between(HIDDEN_TOPIC, rows.place, rows.place + rows.row_count)
    except Corrupt as error:
        if isinstance(error, UnsupportedFormat):
            raise
        yield _placed(rows, rows.place, lost_rows(rows.row_count, rows.total))
        return
    for entry in entries:
        try:
            batch = store.read(rows.file, entry)
        except Corrupt as error:
            if isinstance(error, UnsupportedFormat):
                raise
            batch = lost_rows(entry.rows, entry.size)
        yield _placed(rows, entry.base, batch)


def _placed(rows: RestingRows, base: int, batch: RecordBatch) -> RecordBatch:
    placed = twin_of(batch)
    placed.stamp(rows.base_offset + base - rows.place, rows.append_time)
    return placed
