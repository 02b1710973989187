"""What a table's log says of a file: least and greatest values, as readers trust them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from flintmq.pipeline.lake.data_files import TEXT_MAX, TableFile, column_bounds, stats_text

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

AT = datetime(2026, 11, 18, 12, 0, 0, 123456, tzinfo=UTC)


def test_bounds_are_those_of_all_groups_of_rows(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([5, None, 2, 9], pa.int64()),
            "at": pa.array([AT, AT, None, AT], pa.timestamp("us", tz="UTC")),
            "day": pa.array([date(2026, 1, 2), None, None, None]),
            "name": ["b", "a", "c", None],
            "nothing": pa.array([None] * 4, pa.int32()),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2)

    least, greatest, nulls = column_bounds(parquet.read_metadata(tmp_path / "a.parquet"))

    at = "2026-11-18T12:00:00.123456Z"
    assert least == {"id": 2, "at": at, "day": "2026-01-02", "name": "a"}
    assert greatest == {"id": 9, "at": at, "day": "2026-01-02", "name": "c"}
    assert nulls == {"id": 1, "at": 1, "day": 3, "name": 1, "nothing": 4}


def test_what_is_of_no_use_or_not_exact_has_no_bounds(tmp_path: Path) -> None:
    table = pa.table(
        {
            "long": ["x" * (TEXT_MAX + 1), "a"],
            "inner": [{"n": 1}, {"n": 2}],
            "bytes": [b"a", b"b"],
            "yes": [True, False],
            "far": [float("inf"), 1.0],
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")

    least, greatest, nulls = column_bounds(parquet.read_metadata(tmp_path / "a.parquet"))

    assert (least, greatest) == ({}, {})
    assert nulls == {"long": 0, "bytes": 0, "yes": 0, "far": 0}


def test_statistics_are_json_as_delta_has_them() -> None:
    file = TableFile("a.parquet", 10, 3, {"region": None}, {"id": 1}, {"id": 3}, {"id": 0})

    assert json.loads(stats_text(file)) == {
        "numRecords": 3,
        "minValues": {"id": 1},
        "maxValues": {"id": 3},
        "nullCount": {"id": 0},
    }
