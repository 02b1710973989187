"""Merges small Parquet files into larger ones: which of them, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FILES_MAX = 8
BYTES_MAX = 128 * 1024 * 1024
"""Files of this size are not merged."""
ALIKE = 8
"""A file that is this many times larger than all smaller ones together is not merged with them:
copying it for a few rows would cost more than it gains."""
ALIKE_BYTES = 64 * 1024
ROWS_AT_ONCE = 65_536


def files_to_merge(sizes: Mapping[str, int], *, files_max: int, bytes_max: int) -> list[str]:
    """Which files of a partition to merge, in the order of writing; none if there are too few.

    The smallest first, as long as the next one is not much larger than all before it together.
    """
    chosen: list[str] = []
    total = 0
    for name, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        if size >= bytes_max or total + size > bytes_max:
            break
        if chosen and size > max(ALIKE * total, ALIKE_BYTES):
            break
        chosen.append(name)
        total += size
    if len(chosen) < max(2, files_max):
        return []
    # Merged files are older than others.
    return sorted(chosen, key=lambda name: (name.startswith("batch-"), name))


def merge(files: Iterable[Path | str], into: Path | str, filesystem: Any = None) -> bool:
    """Merge files into one. Returns False, and must not be used, if their types differ."""
    import pyarrow.parquet as parquet

    opened = [parquet.ParquetFile(path, filesystem=filesystem) for path in files]
    try:
        schema = opened[0].schema
        if any(not file.schema.equals(schema) for file in opened):
            return False
        if isinstance(into, Path):
            into.parent.mkdir(parents=True, exist_ok=True)
        with parquet.ParquetWriter(
            into, opened[0].schema_arrow, filesystem=filesystem, **_like(opened[0])
        ) as writer:
            for file in opened:
                for batch in file.iter_batches(ROWS_AT_ONCE):
                    writer.write_batch(batch)
    finally:
        for file in opened:
            file.close()
    with parquet.ParquetFile(into, filesystem=filesystem) as merged:
        return bool(merged.schema.equals(schema))


def _like(file: Any) -> dict[str, Any]:
    """Options to write as the first file was written."""
    metadata = file.metadata
    if not metadata.num_row_groups or not metadata.num_columns:
        return {}
    compression = metadata.row_group(0).column(0).compression.lower()
    return {"compression": compression.replace("uncompressed", "none")}
