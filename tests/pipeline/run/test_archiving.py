"""Small files become one: which of them, and that nothing of them changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.pipeline.run.merging import ALIKE_BYTES, files_to_merge, merge

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def test_files_become_one_when_there_are_enough_of_about_one_size() -> None:
    seven = {f"batch-{number}": 100_000 for number in range(7)}

    assert files_to_merge(seven, files_max=8, bytes_max=10**9) == []
    eight = {**seven, "batch-7": 90_000}
    assert files_to_merge(eight, files_max=8, bytes_max=10**9) == sorted(eight)


def test_a_file_that_is_much_larger_is_not_copied_for_a_few_rows() -> None:
    sizes = {"merged-1": 50_000_000, "batch-8": 1000, "batch-9": 2000}

    assert files_to_merge(sizes, files_max=2, bytes_max=10**9) == ["batch-8", "batch-9"]
    assert (
        files_to_merge({"merged-1": 50_000_000, "batch-8": 1}, files_max=2, bytes_max=10**9) == []
    )


def test_what_was_merged_before_comes_first_and_tiny_files_are_all_alike() -> None:
    sizes = {"batch-9": 10, "merged-1": ALIKE_BYTES - 1}

    assert files_to_merge(sizes, files_max=2, bytes_max=10**9) == ["merged-1", "batch-9"]


def test_no_file_grows_beyond_the_limit() -> None:
    sizes = {f"batch-{number}": 400 for number in range(5)}

    assert files_to_merge(sizes, files_max=2, bytes_max=1000) == ["batch-0", "batch-1"]
    assert files_to_merge({"a": 1000, "b": 1001}, files_max=2, bytes_max=1000) == []


@pytest.mark.slow
def test_merging_keeps_rows_order_types_and_compression(tmp_path: Path) -> None:
    tables = [
        pa.table({"id": [1, 2], "name": ["a", None]}),
        pa.table({"id": [3], "name": ["c"]}),
    ]
    files = [tmp_path / f"{number}.parquet" for number in range(2)]
    for table, file in zip(tables, files, strict=True):
        parquet.write_table(table, file, compression="zstd")

    assert merge(files, tmp_path / "new" / "one.parquet")

    assert parquet.read_table(tmp_path / "new" / "one.parquet").equals(pa.concat_tables(tables))
    with parquet.ParquetFile(tmp_path / "new" / "one.parquet") as merged:
        assert merged.metadata.row_group(0).column(0).compression == "ZSTD"


def test_files_of_different_types_stay_apart(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"id": ["1"]}), tmp_path / "b.parquet")

    assert not merge([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "c.parquet")
