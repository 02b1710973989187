"""An Iceberg table as a sink, by the `pyiceberg` package: no jar, no Spark of a certain version.

Tasks write Parquet files; the driver adds them with a snapshot, and in the same commit sets the
table's property `flintmq.batch.<flow>` to the number of the micro-batch. A micro-batch whose number
is there was committed, and is not written again: so each row is there once, whoever is killed,
whatever else writes to the table, and whichever snapshots have expired.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...errors import InvalidRequest, extra_module
from ..define.partitions import Partition, partitions_of
from .data_files import write_files
from .fitting import Fit, fit, nullable, part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

COMMITS_MAX = 8
FILES_MAX = 32
"""So many small files are merged into larger ones."""
SMALL_BYTES = 64 * 1024 * 1024
MERGED_BYTES = 256 * 1024 * 1024
"""At most so much of a partition is merged at once, in memory."""
SWEEP_SECONDS = 3600.0
WHAT = "a sink that is an Iceberg table"
MARK = "flintmq-"
BATCH = "flintmq.batch."
OF_TABLE = ("write.", "commit.", "history.", "read.")
RETRIES = "commit.retry.num-retries"
PART = "part_"
"""Before the names of columns that only make directories: the columns themselves stay in the
files."""


@dataclass(frozen=True, slots=True)
class IcebergPlaces:
    """Below the table, by the file systems of its catalog."""

    location: str
    properties: Mapping[str, str]

    @property
    def directory(self) -> str:
        from pyiceberg.io.pyarrow import PyArrowFileIO

        _, _, path = PyArrowFileIO.parse_location(self.location, dict(self.properties))
        return str(path)

    def filesystem(self) -> Any:
        from pyiceberg.io.pyarrow import PyArrowFileIO

        io = PyArrowFileIO(dict(self.properties))
        scheme, netloc, _ = PyArrowFileIO.parse_location(self.location, dict(self.properties))
        return io.fs_by_scheme(scheme, netloc)


class IcebergTarget:
    """A table that one flow appends to."""

    def __init__(
        self,
        name: str,
        *,
        application: str,
        partition_by: Sequence[str] = (),
        compact: bool = False,
        keep_seconds: float | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        extra_module(WHAT, "iceberg", "pyiceberg.catalog")
        given = dict(options or {})
        self._name, self._batch = name, f"{BATCH}{application}"
        self._catalog_name = given.pop("catalog", None)
        self._location = given.pop("location", None)
        self._format = given.pop("format-version", "2")
        self._properties = {k: v for k, v in given.items() if k.startswith(OF_TABLE)}
        self._of_catalog = {k: v for k, v in given.items() if k not in self._properties}
        self._partitions = partitions_of(partition_by)
        self._is_compacted, self._keep_seconds = compact, keep_seconds
        self._table: Any = None
        self._small: int | None = None
        self._swept_at: float | None = None

    def check(self, frame: DataFrame) -> None:
        """Find out before the first micro-batch what would not work. Nothing is written."""
        if (table := self._opened()) is not None:
            self._check_partitions(table)
            self._fitted(frame, table)

    def write(self, frame: DataFrame, number: int) -> None:
        table = self._opened() or self._created(frame)
        if self._is_written(table, number):
            return
        self._check_partitions(table)
        fitted = self._fitted(frame, table)
        rows = fitted.rows(frame)
        for one in self._partitions:
            rows = rows.withColumn(f"{PART}{one.name}", part(one))
        places = IcebergPlaces(f"{table.location()}/data", dict(table.io.properties))
        names = [f"{PART}{one.name}" for one in self._partitions]
        files = write_files(rows, places, names, f"{MARK}{number:08d}")
        if files:
            paths = [f"{places.location}/{one.path}" for one in files]
            self._commit(table, fitted, paths, number)
        self._maintain(sum(one.size < SMALL_BYTES for one in files))

    # --- the table

    def _opened(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        if self._table is not None:
            return self._table.refresh()
        try:
            self._table = self._catalog().load_table(self._name)
        except NoSuchTableError:
            return None
        except Exception as error:  # each catalog has its own
            raise InvalidRequest(f"the table {self._name} cannot be opened: {error}") from error
        return self._table

    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        try:
            return load_catalog(self._catalog_name, **self._of_catalog)
        except Exception as error:  # each catalog has its own
            raise InvalidRequest(
                f"the catalog of {self._name} cannot be loaded: {error}. Set type, uri and "
                "warehouse in options, or catalog = 'NAME' of the configuration of pyiceberg"
            ) from error

    def _created(self, frame: DataFrame) -> Any:
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyspark.sql.pandas.types import to_arrow_schema

        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        schema = to_arrow_schema(nullable(frame.schema), timezone="UTC")
        # The partition of a file is read off the bounds of these columns, however many there are.
        bounds = {f"write.metadata.metrics.column.{one.column}": "full" for one in self._partitions}
        properties = {**bounds, **self._properties, "format-version": self._format}
        try:
            with (
                catalog.create_table_transaction(
                    self._name,
                    schema,
                    location=self._location,
                    properties=properties,
                ) as made,
                made.update_spec() as spec,
            ):
                for one in self._partitions:
                    spec.add_field(one.column, one.unit or "identity", _field_name(one))
        except TableAlreadyExistsError:  # another flow was faster
            pass
        return self._opened()

    def _check_partitions(self, table: Any) -> None:
        schema = table.schema()
        there = [
            _said(schema.find_column_name(field.source_id), str(field.transform))
            for field in table.spec().fields
        ]
        ours = [_said(one.column, one.unit or "identity") for one in self._partitions]
        if [one.lower() for one in there] != [one.lower() for one in ours]:
            raise InvalidRequest(
                f"the table {self._name} is partitioned by {', '.join(there) or 'nothing'}, and "
                f"the sink by {', '.join(ours) or 'nothing'}: set partition_by to the same, or "
                "write to another table"
            )

    def _fitted(self, frame: DataFrame, table: Any) -> Fit:
        from pyspark.sql.pandas.types import from_arrow_schema

        there = from_arrow_schema(_plain(table.schema().as_arrow()))
        return fit(frame.schema, there, f"the table {self._name}")

    def _is_written(self, table: Any, number: int) -> bool:
        return int(table.properties.get(self._batch, -1)) >= number

    def _commit(self, table: Any, fitted: Fit, paths: list[str], number: int) -> None:
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(COMMITS_MAX):
            # Not by pyiceberg: it would repeat a commit that another driver of this flow has made.
            table.metadata.properties[RETRIES] = "0"
            try:
                with table.transaction() as change:
                    if fitted.added.fields:
                        self._add_columns(change, fitted)
                    change.set_properties({self._batch: str(number)})
                    change.add_files(
                        paths,
                        snapshot_properties={self._batch: str(number)},
                        check_duplicate_files=False,
                    )
                return
            except CommitFailedException:
                table.refresh()
                if self._is_written(table, number):
                    return
                if attempt == COMMITS_MAX - 1:
                    raise
                time.sleep(0.05 * 2**attempt)

    def _add_columns(self, change: Any, fitted: Fit) -> None:
        from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
        from pyspark.sql.pandas.types import to_arrow_schema

        new = to_arrow_schema(nullable(fitted.added), timezone="UTC")
        with change.update_schema() as columns:
            columns.union_by_name(_pyarrow_to_schema_without_ids(new))

    # --- what is done now and then

    def _maintain(self, small: int) -> None:
        """Merge small files, and delete those that nothing refers to any more. The rows are
        committed: what fails here is tried again later."""
        from pyiceberg.exceptions import CommitFailedException

        try:
            if self._is_compacted:
                self._compact(small)
            if self._keep_seconds is not None and self._is_sweep_due():
                self._sweep(self._keep_seconds)
        except (CommitFailedException, OSError) as error:
            _log.warning("the table %s was not tidied up: %s", self._name, error)

    def _compact(self, small: int) -> None:
        self._small = None if self._small is None else self._small + small
        if self._small is not None and self._small < FILES_MAX:
            return
        table = self._opened()
        by_partition: dict[str, list[Any]] = {}
        for task in table.scan().plan_files():
            if task.file.file_size_in_bytes < SMALL_BYTES and not task.delete_files:
                key = f"{task.file.spec_id} {task.file.partition}"
                by_partition.setdefault(key, []).append(task)
        self._small = sum(map(len, by_partition.values()))
        if self._small >= FILES_MAX:
            chosen = [tasks for tasks in map(_first_of, by_partition.values()) if len(tasks) > 1]
            self._merge(table, chosen)
            self._small -= sum(len(tasks) - 1 for tasks in chosen)

    def _merge(self, table: Any, groups: Iterable[Sequence[Any]]) -> None:
        from uuid import uuid4

        import pyarrow.parquet as parquet
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, parquet_file_to_data_file

        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        table.metadata.properties[RETRIES] = "0"
        with (
            table.transaction() as change,
            change.update_snapshot().overwrite() as replaced,
        ):
            for tasks in groups:
                rows = scan.to_table(tasks)
                path = f"{table.location()}/data/{MARK}merged-{uuid4().hex}.parquet"
                with table.io.new_output(path).create() as output:
                    parquet.write_table(rows, output, compression="zstd")
                replaced.append_data_file(parquet_file_to_data_file(table.io, table.metadata, path))
                for task in tasks:
                    replaced.delete_data_file(task.file)

    def _sweep(self, keep_seconds: float) -> None:
        """Forget old snapshots, then delete files of ours that no snapshot has."""
        from pyarrow import fs

        until = datetime.now(UTC) - timedelta(seconds=keep_seconds)
        table = self._opened()
        table.maintenance.expire_snapshots().older_than(until.replace(tzinfo=None)).commit()
        table.refresh()
        known = {
            _below(path, table.location())
            for path in table.inspect.all_files()["file_path"].to_pylist()
        }
        places = IcebergPlaces(f"{table.location()}/data", dict(table.io.properties))
        files = places.filesystem()
        there = files.get_file_info(
            fs.FileSelector(places.directory, recursive=True, allow_not_found=True)
        )
        for one in there:
            is_ours = one.base_name.startswith(MARK) and one.type == fs.FileType.File
            below = f"data{one.path.removeprefix(places.directory)}"
            if is_ours and below not in known and one.mtime < until:
                files.delete_file(one.path)

    def _is_sweep_due(self) -> bool:
        now = time.monotonic()
        if self._swept_at is not None and now - self._swept_at < SWEEP_SECONDS:
            return False
        self._swept_at = now
        return True


def _first_of(tasks: Sequence[Any]) -> list[Any]:
    """As many of the smallest files of a partition as are merged at once."""
    chosen: list[Any] = []
    total = 0
    for task in sorted(tasks, key=lambda one: one.file.file_size_in_bytes):
        total += task.file.file_size_in_bytes
        if total > MERGED_BYTES:
            break
        chosen.append(task)
    return chosen


def _below(path: str, location: str) -> str:
    """A path relative to the table, whether its schemes are written or not."""
    return urlsplit(path).path.removeprefix(urlsplit(location).path).lstrip("/")


def _field_name(one: Partition) -> str:
    return one.column if one.unit is None else one.name


def _said(column: str, transform: str) -> str:
    return column if transform == "identity" else f"{transform}({column})"


def _plain(schema: Any) -> Any:
    """An Arrow schema with the types that Spark writes: pyiceberg says large text and bytes."""
    import pyarrow as pa

    def plain(kind: Any) -> Any:
        if pa.types.is_large_string(kind):
            return pa.string()
        if pa.types.is_large_binary(kind):
            return pa.binary()
        if pa.types.is_large_list(kind) or pa.types.is_list(kind):
            return pa.list_(plain_field(kind.value_field))
        if pa.types.is_map(kind):
            return pa.map_(plain_field(kind.key_field), plain_field(kind.item_field))
        if pa.types.is_struct(kind):
            return pa.struct([plain_field(kind.field(n)) for n in range(kind.num_fields)])
        return kind

    def plain_field(field: Any) -> Any:
        return pa.field(field.name, plain(field.type), field.nullable)

    return pa.schema([plain_field(field) for field in schema])
