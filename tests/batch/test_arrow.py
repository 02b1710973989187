"""The Arrow view: the same rows as columns, over the same memory, whatever the bytes say."""

from __future__ import annotations

import gc
import re
import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.arrow import arrow_schema, to_arrow
from flintmq.batch import UNSTAMPED, BatchBuilder, RecordBatch
from flintmq.batch.arrow_checksums import pyarrow_modules
from flintmq.batch.format import HEADER_BYTES
from flintmq.errors import Corrupt, FlintError, MissingExtra
from flintmq.installing import remedy
from tests.batch.samples import (
    EVERY_COLUMN,
    NOW,
    Row,
    built,
    every_column,
    resealed,
    rows_of,
    times_of,
    with_byte,
    with_i32,
)

COMPRESSIONS = ["none", "lz4", "zstd"]


def expected(batch: RecordBatch) -> list[dict[str, Any]]:
    """What the columns must hold, row by row, by way of the batch's own accessors."""
    return [
        {
            "offset": batch.base_offset + index if batch.base_offset >= 0 else None,
            "value": row.value,
            "key": utf8(row.key),
            "headers": [(name, utf8(value)) for name, value in row.headers.items()],
            "priority": row.priority,
            "expires_at": moment(row.expiry) if row.expiry else None,
            "deliver_at": moment(row.deliver_at) if row.deliver_at else None,
            "content_type": row.content_type,
            "timestamp": moment(time),
        }
        for index, (row, time) in enumerate(zip(rows_of(batch), times_of(batch), strict=True))
    ]


def utf8(item: str | bytes | None) -> bytes | None:
    return item.encode() if isinstance(item, str) else item


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_column_is_there_as_arrow(compression: str) -> None:
    batch = RecordBatch.decode(every_column(compression).encode())

    table = to_arrow(batch)

    assert table.schema == arrow_schema()
    assert table.to_pylist() == expected(batch)
    table.validate(full=True)


@pytest.mark.parametrize(
    "rows",
    [
        [Row(b"")],
        [Row(b"a"), Row(b"bc")],
        [Row(b"a", key="k"), Row(b"b", key="")],
        [Row(b"a", headers={"h": "v"})],
        [Row(b"a", content_type="text/plain")] * 3,
        [Row(b"a", content_type="text/plain"), Row(b"b")],
        [Row(b"a", priority=1), Row(b"b")],
        [Row(b"a"), Row(b"b", expiry=NOW)],
        [Row(b"a"), Row(b"b", deliver_at=NOW)],
        EVERY_COLUMN * 30,
    ],
)
def test_a_batch_of_any_columns_has_the_same_schema(rows: list[Row]) -> None:
    batch = built(rows).seal()

    table = to_arrow(batch)

    assert table.schema == arrow_schema()
    assert table.to_pylist() == expected(batch)
    table.validate(full=True)


def test_the_offset_is_null_until_a_broker_has_stamped_the_batch() -> None:
    batch = BatchBuilder.of([b"a", b"b"]).seal()

    assert to_arrow(batch)["offset"].to_pylist() == [None, None]
    batch.stamp(41, NOW)
    assert to_arrow(batch)["offset"].to_pylist() == [41, 42]


def test_tables_of_different_batches_fit_together() -> None:
    batches = [every_column(), BatchBuilder.of([b"plain"]).seal(), every_column("zstd")]

    table = pa.Table.from_batches([to_arrow(batch) for batch in batches])

    assert table.num_rows == 11
    assert table["value"].to_pylist()[5] == b"plain"


# --- the same memory


def buffers_of(column: Any) -> list[Any]:
    return [buffer for buffer in column.buffers() if buffer is not None and buffer.size]


def test_the_columns_lie_in_the_memory_of_the_batch() -> None:
    data = every_column().encode()
    batch = RecordBatch.decode(data)
    body = pa.py_buffer(batch.body)
    begin, end = body.address, body.address + body.size
    assert begin == pa.py_buffer(data).address + HEADER_BYTES

    table = to_arrow(batch)

    def inside(column: Any) -> list[bool]:
        return [
            begin <= buffer.address and buffer.address + buffer.size <= end
            for buffer in buffers_of(column)
        ]

    # Offsets and data; behind a bitmap of our own where rows can be null.
    assert inside(table["value"]) == [True, True]
    assert inside(table["key"]) == [False, True, True]
    assert inside(table["headers"]) == [True] * 5
    assert inside(table["priority"]) == [True]
    assert inside(table["expires_at"]) == [False, True]
    assert inside(table["deliver_at"]) == [False, True]
    assert inside(table["content_type"].indices) == [False, True]
    assert inside(table["content_type"].dictionary) == [True, True]
    assert inside(table["timestamp"]) == [True]


def test_durations_are_times_that_count_from_the_append() -> None:
    rows = [
        Row(b"never"),
        Row(b"soon", expiry=-30_000, deliver_at=-1),
        Row(b"at a time", expiry=NOW + 5, deliver_at=NOW + 6),
    ]
    batch = built(rows).seal()
    batch.stamp(3, NOW)

    assert to_arrow(batch).to_pylist() == expected(batch)
    batch.stamp(UNSTAMPED, 0)
    table = to_arrow(batch)
    assert table["expires_at"].to_pylist() == [None, None, moment(NOW + 5)]
    assert table["deliver_at"].to_pylist() == [None, None, moment(NOW + 6)]


def test_a_sealed_batch_is_not_copied_either() -> None:
    batch = BatchBuilder.of([b"x" * 1_000] * 1_000).seal()
    before = pa.total_allocated_bytes()

    table = to_arrow(batch)

    _, _, data = table["value"].buffers()
    assert data.address == pa.py_buffer(batch.body).address + 4_008
    assert pa.total_allocated_bytes() - before < 100_000


def test_the_view_outlives_the_batch() -> None:
    table = to_arrow(RecordBatch.decode(every_column("lz4").encode()))
    gc.collect()

    assert table["value"].to_pylist() == [row.value for row in EVERY_COLUMN]


def test_a_body_off_its_boundary_is_copied_and_reads_the_same() -> None:
    batch, _ = RecordBatch.decode_from(b"odd" + every_column().encode(), 3)

    table = to_arrow(batch)

    assert table.to_pylist() == expected(batch)
    assert all(buffer.address % 8 == 0 for buffer in buffers_of(table["value"]))


# --- forged bytes with valid checksums


@pytest.mark.parametrize("nonsense", [-1, -(2**31), 2**31 - 1, 1_000, 0])
def test_offsets_out_of_order_are_corrupt(nonsense: int) -> None:
    batch = built(
        [Row(b"aaaa", key="kk", headers={"nn": "vv"}), Row(b"bb", key="k", headers={"n": "v"})] * 2
    ).seal()
    _, layout = batch.payload()
    data = batch.encode()

    for column in (layout.values, layout.keys, layout.header_names, layout.header_values):
        with pytest.raises(Corrupt):
            to_arrow(RecordBatch.decode(with_i32(data, column.offsets + 8, nonsense)))
    with pytest.raises(Corrupt):
        to_arrow(RecordBatch.decode(with_i32(data, layout.header_rows + 8, nonsense)))


@pytest.mark.parametrize("entry", [-1, 3, 2**31 - 1, -(2**31)])
def test_content_types_out_of_range_are_corrupt(entry: int) -> None:
    batch = built([Row(b"1", content_type="a"), Row(b"2", content_type="b")]).seal()
    _, layout = batch.payload()

    with pytest.raises(Corrupt):
        to_arrow(RecordBatch.decode(with_i32(batch.encode(), layout.type_rows, entry)))


def test_names_that_are_not_utf8_are_corrupt() -> None:
    data = built([Row(b"1", headers={"nn": "vv"}, content_type="tt")]).seal().encode()

    for word in (b"nn", b"tt"):
        with pytest.raises(Corrupt):
            to_arrow(RecordBatch.decode(resealed(data.replace(word, b"\xff\xfe"))))


def test_kinds_that_nobody_knows_are_corrupt() -> None:
    batch = built([Row(b"1", key=b"a", headers={"h": b"v"}), Row(b"2")]).seal()
    _, layout = batch.payload()
    data = batch.encode()

    for at, kind in ((layout.key_kinds, 3), (layout.header_kinds, 3), (layout.header_kinds, 0)):
        with pytest.raises(Corrupt):
            to_arrow(RecordBatch.decode(with_byte(data, at, kind)))


@pytest.mark.slow
def test_any_byte_forged_raises_only_our_own_errors_and_never_ends_the_process() -> None:
    data = every_column().encode()

    for at in range(len(data) - HEADER_BYTES):
        for byte in (0, 0xFF, data[HEADER_BYTES + at] ^ 0x80):
            view_or_refused(with_byte(data, at, byte))


@given(st.data())
def test_any_numbers_forged_raise_only_our_own_errors(data: st.DataObject) -> None:
    forged = every_column().encode()
    words = (len(forged) - HEADER_BYTES) // 4
    numbers = st.integers(-8, 64) | st.integers(-(2**31), 2**31 - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        at = 4 * data.draw(st.integers(0, words - 1))
        forged = with_i32(forged, at, data.draw(numbers))
    view_or_refused(forged)


def view_or_refused(data: bytes) -> None:
    try:
        table = to_arrow(RecordBatch.decode(data))
    except FlintError:
        return
    table.validate(full=True)
    # Times beyond the year 9999 are no error of the batch, but Python has no datetime for them.
    table.drop_columns(["expires_at", "deliver_at", "timestamp"]).to_pylist()


# --- without pyarrow


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    pyarrow_modules.cache_clear()
    try:
        with pytest.raises(MissingExtra, match=re.escape(remedy("arrow"))):
            to_arrow(every_column())
    finally:
        pyarrow_modules.cache_clear()
