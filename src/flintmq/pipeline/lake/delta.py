"""A Delta table as a sink, by the `deltalake` package: no jar, and no Spark of a certain version.

Tasks write Parquet files; the driver commits them with the number of the micro-batch as a
transaction of the flow (`txn` in the table's log). A micro-batch whose number is in the log was
committed, and is not written again: so each row is there once, whoever is killed, and whatever
else writes to the table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...errors import InvalidRequest, extra_module
from ..define.partitions import partitions_of
from .data_files import TableFile, stats_text, write_files
from .fitting import Fit, fit, nullable, with_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

COMMITS_MAX = 8
FILES_MAX = 32
"""So many small files are merged into larger ones."""
SMALL_BYTES = 64 * 1024 * 1024
SWEEP_SECONDS = 3600.0
WHAT = "a sink that is a Delta table"
OF_TABLE = "delta."


@dataclass(frozen=True, slots=True)
class DeltaPlaces:
    """Below the table, by the file systems of `deltalake`: the same credentials as its log."""

    uri: str
    options: Mapping[str, str]

    @property
    def directory(self) -> str:
        return ""

    def filesystem(self) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow import fs

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))


class DeltaTarget:
    """A table that one flow appends to."""

    def __init__(
        self,
        uri: str,
        *,
        application: str,
        partition_by: Sequence[str] = (),
        compact: bool = False,
        keep_seconds: float | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        extra_module(WHAT, "delta", "deltalake")
        given = dict(options or {})
        self._uri, self._application = uri, application
        self._storage = {k: v for k, v in given.items() if not k.startswith(OF_TABLE)}
        self._properties = {k: v for k, v in given.items() if k.startswith(OF_TABLE)}
        self._partitions = partitions_of(partition_by)
        self._names = [one.name for one in self._partitions]
        self._is_compacted, self._keep_seconds = compact, keep_seconds
        self._table: Any = None
        self._small: int | None = None
        self._swept_at: float | None = None

    def check(self, frame: DataFrame) -> None:
        """Find out before the first micro-batch what would not work. Nothing is written."""
        rows = with_parts(frame, self._partitions)
        if (table := self._opened()) is not None:
            self._check_partitions(table)
            self._fitted(rows, table)

    def write(self, frame: DataFrame, number: int) -> None:
        rows = with_parts(frame, self._partitions)
        table = self._opened() or self._created(rows)
        if self._is_written(table, number):
            return
        self._check_partitions(table)
        fitted = self._fitted(rows, table)
        places = DeltaPlaces(self._uri, self._storage)
        files = write_files(fitted.rows(rows), places, self._names, f"part-{number:08d}")
        if files:
            self._commit(table, fitted, files, number)
        self._maintain(files)

    # --- the table

    def _opened(self) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self._table is not None:
            self._table.update_incremental()
            return self._table
        try:
            self._table = DeltaTable(self._uri, storage_options=self._storage or None)
        except TableNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"the table {self._uri} cannot be opened: {error}") from error
        return self._table

    def _created(self, rows: DataFrame) -> Any:
        from deltalake import DeltaTable

        DeltaTable.create(
            self._uri,
            schema=_delta_schema(nullable(rows.schema)),
            mode="ignore",  # another flow may be faster
            partition_by=self._names or None,
            configuration=self._properties or None,
            storage_options=self._storage or None,
        )
        return self._opened()

    def _check_partitions(self, table: Any) -> None:
        there = list(table.metadata().partition_columns)
        if there != self._names:
            raise InvalidRequest(
                f"the table {self._uri} is partitioned by {', '.join(there) or 'nothing'}, and the "
                f"sink by {', '.join(self._names) or 'nothing'}: set partition_by to the same, or "
                "write to another table"
            )

    def _fitted(self, rows: DataFrame, table: Any) -> Fit:
        return fit(rows.schema, _spark_schema(table.schema()), f"the table {self._uri}")

    def _is_written(self, table: Any, number: int) -> bool:
        last = table.transaction_version(self._application)
        return last is not None and last >= number

    def _commit(self, table: Any, fitted: Fit, files: Sequence[TableFile], number: int) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        actions = [
            AddAction(
                path=quote(one.path, safe="/="),
                size=one.size,
                partition_values=one.partition,
                modification_time=now,
                data_change=True,
                stats=stats_text(one),
            )
            for one in files
        ]
        for attempt in range(COMMITS_MAX):
            try:
                if fitted.added.fields:
                    self._add_columns(table, fitted)
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    self._names or None,
                    commit_properties=CommitProperties(
                        app_transactions=[Transaction(self._application, number, now)]
                    ),
                )
                return
            except CommitFailedError:
                table.update_incremental()
                if self._is_written(table, number):
                    return
                if attempt == COMMITS_MAX - 1:
                    raise

    def _add_columns(self, table: Any, fitted: Fit) -> None:
        known = {field.name.lower() for field in table.schema().fields}
        new = [one for one in fitted.added.fields if one.name.lower() not in known]
        if new:
            from pyspark.sql.types import StructType

            table.alter.add_columns(list(_delta_schema(nullable(StructType(new))).fields))
            table.update_incremental()

    # --- what is done now and then

    def _maintain(self, files: Sequence[TableFile]) -> None:
        """Merge small files, and delete those that nothing refers to any more. The rows are
        committed: what fails here is tried again later."""
        from deltalake.exceptions import DeltaError

        try:
            if self._is_compacted:
                self._compact(files)
            if self._keep_seconds is not None and self._is_sweep_due():
                self._opened().vacuum(
                    retention_hours=max(1, round(self._keep_seconds / 3600)),
                    dry_run=False,
                    enforce_retention_duration=False,
                    full=True,
                )
        except (DeltaError, OSError) as error:
            _log.warning("the table %s was not tidied up: %s", self._uri, error)

    def _compact(self, files: Sequence[TableFile]) -> None:
        if self._small is None:
            import pyarrow as pa

            sizes = pa.table(self._opened().get_add_actions())["size_bytes"].to_pylist()
            self._small = sum(size < SMALL_BYTES for size in sizes)
        else:
            self._small += sum(one.size < SMALL_BYTES for one in files)
        if self._small >= FILES_MAX:
            self._opened().optimize.compact()
            self._small = None  # counted anew: some are large now

    def _is_sweep_due(self) -> bool:
        now = time.monotonic()
        if self._swept_at is not None and now - self._swept_at < SWEEP_SECONDS:
            return False
        self._swept_at = now
        return True


def _delta_schema(schema: Any) -> Any:
    from deltalake import Schema
    from pyspark.sql.pandas.types import to_arrow_schema

    return Schema.from_arrow(to_arrow_schema(schema, timezone="UTC"))


def _spark_schema(schema: Any) -> Any:
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema(schema.to_arrow()))
