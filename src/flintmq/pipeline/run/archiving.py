"""An archive: the rows of a stream as plain files in directories, each row once.

Every reader of Parquet (or JSON lines) can read it: there is no log that says which files count. A
micro-batch is added as a whole, and only once. So after a run was killed, every row is there once
as soon as the next run has started (see `landing`).

With `compact`, small files of a partition are merged: when the partition gets no more rows, or when
it has `FILES_MAX` files of similar size. While files are replaced, a listing of the directory may
show rows twice for a moment; rows are never missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..define.definition import BatchFunction
from ..define.partitions import partitions_of
from ..lake.fitting import with_parts
from ..lake.storage import is_object_url
from .landing import FileChanges, Landing, files_below, local_directory
from .merging import BYTES_MAX, FILES_MAX, files_to_merge, merge
from .object_archive import for_each_query, into_objects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


ArchiveFormat = Literal["parquet", "json"]

OPEN_FILES = 8
"""How many files a task writes at once: with fewer partitions its rows need not be sorted."""


def into_directory(
    directory: str,
    *,
    format: ArchiveFormat = "parquet",
    partition_by: Sequence[str] = (),
    compact: bool = False,
    options: Mapping[str, str] | None = None,
) -> BatchFunction:
    """For foreachBatch: write every micro-batch to the directory, once.

    Its files are marked with the id of the query, which is in its checkpoint. `options` are those
    of Spark's writer, such as `compression`.
    """
    if is_object_url(directory):
        return into_objects(
            directory, format=format, partition_by=partition_by, compact=compact, options=options
        )
    return for_each_query(
        lambda query: Archive(
            local_directory(directory),
            owner=query,
            format=format,
            partition_by=partition_by,
            compact=compact,
            options=options,
        )
    )


class Archive:
    def __init__(
        self,
        directory: Path,
        *,
        owner: str,
        format: ArchiveFormat = "parquet",
        partition_by: Sequence[str] = (),
        compact: bool = False,
        options: Mapping[str, str] | None = None,
        files_max: int = FILES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._landing = Landing(directory, owner)
        self._mark = re.sub(r"[^0-9A-Za-z]", "", owner)[:8]
        self._format, self._suffix = format, f".{format}"
        self._partitions, self._options = partitions_of(partition_by), dict(options or {})
        self._is_compacted = compact and format == "parquet"
        self._files_max, self._bytes_max = files_max, bytes_max

    def write(self, frame: DataFrame, number: int) -> None:
        self._landing.finish()
        touched: set[str] = set()
        if number > self._landing.facts.get("batch", -1):
            touched = self._land(frame, number)
        if self._is_compacted:
            self._compact(touched)

    def _land(self, frame: DataFrame, number: int) -> set[str]:
        """Write the rows and add their files; returns the partitions that got rows."""
        staged = self._landing.ready(f"batch-{number}")
        # Spark's default is a type of its own, which other readers misread.
        settings = frame.sparkSession.conf
        settings.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        settings.set("spark.sql.maxConcurrentOutputFileWriters", OPEN_FILES)
        frame = with_parts(frame, self._partitions)
        writer = frame.write.format(self._format).mode("overwrite").options(**self._options)
        if self._partitions:
            writer = writer.partitionBy(*(one.name for one in self._partitions))
        writer.save(f"file://{staged}")
        moves = []
        touched = set()
        for count, path in enumerate(p for p in files_below(staged, self._suffix) if _has_rows(p)):
            partition = path.parent.relative_to(staged).as_posix()
            name = f"batch-{number:08d}-{count:03d}-{self._mark}{self._suffix}"
            moves.append((self._landing.own(path), f"{partition}/{name}"))
            touched.add(partition)
        facts = self._landing.facts
        still_open = sorted({*facts.get("open", ()), *touched}) if self._is_compacted else []
        self._landing.land(
            FileChanges(tuple(moves), facts={**facts, "batch": number, "open": still_open})
        )
        self._landing.ready(f"batch-{number}")
        return touched

    def _compact(self, touched: set[str]) -> None:
        for partition in self._landing.facts.get("open", ()):
            sizes = self._own_files(partition)
            chosen = files_to_merge(
                sizes,
                files_max=2 if partition not in touched else self._files_max,
                bytes_max=self._bytes_max,
            )
            facts = dict(self._landing.facts)
            if partition not in touched:
                facts["open"] = [other for other in facts["open"] if other != partition]
            facts["merges"] = facts.get("merges", 0) + 1
            merged = self._landing.ready("merged") / "rows.parquet"
            at = self._landing.directory / partition
            if chosen and merge([at / name for name in chosen], merged):
                name = f"merged-{facts['merges']:08d}-{self._mark}.parquet"
                self._landing.land(
                    FileChanges(
                        ((self._landing.own(merged), f"{partition}/{name}"),),
                        tuple(f"{partition}/{name}" for name in chosen),
                        facts,
                    )
                )
            elif facts["open"] != self._landing.facts["open"]:
                self._landing.land(FileChanges(facts=facts))

    def _own_files(self, partition: str) -> dict[str, int]:
        at = self._landing.directory / partition
        if not at.is_dir():
            return {}
        mine = f"-{self._mark}.parquet"
        return {path.name: path.stat().st_size for path in at.iterdir() if path.name.endswith(mine)}


def _has_rows(path: Path) -> bool:
    if path.suffix != ".parquet":
        return path.stat().st_size > 0
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        return bool(file.metadata.num_rows)
