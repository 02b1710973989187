"""Writes rows as Parquet files: by the tasks of Spark, where they are, in Arrow columns.

Nothing refers to the files yet. What the driver commits makes them part of a table; those of tasks
that failed, or of a driver that was killed before it committed, stay unknown to every reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote
from uuid import uuid4

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ROWS_PER_GROUP = 1_048_576
ROWS_PER_GROUP_MIN = 65_536
PARTITIONS_MAX = 10_000
"""Of the rows of one task. More than these are a mistake."""
TEXT_MAX = 64
"""Longer texts are no use as a least or greatest value."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
FILE_COLUMN = "file"


class FilePlaces(Protocol):
    """Where the files of a table go. Sent to the tasks."""

    @property
    def directory(self) -> str:
        """As the file system names it."""
        ...

    def filesystem(self) -> Any:
        """A file system of pyarrow."""
        ...


class TableFile(msgspec.Struct, frozen=True):
    """A file that a task wrote."""

    path: str
    """Below the directory."""
    size: int
    rows: int
    partition: dict[str, str | None]
    least: dict[str, Any]
    greatest: dict[str, Any]
    nulls: dict[str, int]


def write_files(
    frame: DataFrame,
    places: FilePlaces,
    partition_by: Sequence[str],
    mark: str,
    compression: str = "zstd",
) -> list[TableFile]:
    """Write the rows; a file for each task and partition, with names that begin with `mark`.

    The columns of `partition_by` become directories, as text, and are not in the files.
    """
    from pyspark.sql import functions

    for name in partition_by:
        frame = frame.withColumn(name, functions.col(f"`{name}`").cast("string"))
    task = partial(
        _written,
        places=places,
        partition_by=list(partition_by),
        mark=mark,
        compression=compression,
    )
    rows = frame.mapInArrow(task, f"{FILE_COLUMN} string").collect()
    return [msgspec.json.decode(row[0], type=TableFile) for row in rows]


def _written(
    batches: Iterator[pa.RecordBatch],
    places: FilePlaces,
    partition_by: list[str],
    mark: str,
    compression: str,
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.dataset as dataset

    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    partitioning = None
    if partition_by:
        fields = [pa.field(name, pa.string()) for name in partition_by]
        partitioning = dataset.partitioning(pa.schema(fields), flavor="hive")
    files: list[Any] = []
    dataset.write_dataset(
        pa.RecordBatchReader.from_batches(first.schema, chain([first], batches)),
        base_dir=places.directory,
        filesystem=places.filesystem(),
        format="parquet",
        file_options=dataset.ParquetFileFormat().make_write_options(
            compression=compression, coerce_timestamps="us", allow_truncated_timestamps=True
        ),
        partitioning=partitioning,
        basename_template=f"{mark}-{uuid4().hex[:16]}-{{i}}.parquet",
        existing_data_behavior="overwrite_or_ignore",
        use_threads=False,
        max_partitions=PARTITIONS_MAX,
        max_rows_per_group=ROWS_PER_GROUP,
        min_rows_per_group=ROWS_PER_GROUP_MIN,
        file_visitor=files.append,
    )
    made = [_table_file(one, places.directory) for one in files]
    texts = [msgspec.json.encode(one).decode() for one in made]
    yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], [FILE_COLUMN])


def _table_file(written: Any, directory: str) -> TableFile:
    path = written.path.removeprefix(directory).lstrip("/")
    partition: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, _, value = part.partition("=")
        partition[unquote(name)] = None if value in ("", NO_VALUE) else unquote(value)
    least, greatest, nulls = column_bounds(written.metadata)
    return TableFile(
        path, written.size, written.metadata.num_rows, partition, least, greatest, nulls
    )


def column_bounds(metadata: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Least and greatest values and the number of nulls, of columns that are not nested."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for number in range(metadata.num_columns):
        of_groups = [group.column(number).statistics for group in groups]
        name = metadata.schema.column(number).path
        if "." in name or not of_groups or any(one is None for one in of_groups):
            continue
        if all(one.has_null_count for one in of_groups):
            nulls[name] = sum(one.null_count for one in of_groups)
        with_rows = [one for one in of_groups if one.num_values]
        if not with_rows or not all(one.has_min_max for one in with_rows):
            continue
        low = _as_json(min(one.min for one in with_rows))
        high = _as_json(max(one.max for one in with_rows))
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return least, greatest, nulls


def _as_json(value: Any) -> Any:
    """A bound as a table's log writes it; None if it is of no use there."""
    match value:
        case bool():
            return None
        case int():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else None
        case str():
            return value if len(value) <= TEXT_MAX else None
        case datetime():
            at = value if value.tzinfo is None else value.astimezone(UTC)
            return at.strftime("%Y-%m-%dT%H:%M:%S.%f") + ("" if value.tzinfo is None else "Z")
        case date():
            return value.isoformat()
    return None


def stats_text(file: TableFile) -> str:
    """The statistics of a file as Delta writes them."""
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": file.least,
            "maxValues": file.greatest,
            "nullCount": file.nulls,
        }
    )
