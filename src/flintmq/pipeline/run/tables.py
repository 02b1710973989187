"""A table of the current state, from change events: one row per key, as plain Parquet.

For `foreach` of a sink: `foreach = "flintmq.spark.pipeline.tables:keep_current"`. Rows are spread
over files by their key, `rows-000.parquet` and so on. A micro-batch rewrites the files that it
changes and replaces each atomically, so a reader sees the old or the new file.

The latest change of a key wins, by a column that orders them: events that come twice, late or out
of order, and repeated micro-batches, change nothing. For this, the keys and orders of deleted rows
are kept beside the table (`.<name>.flintmq/`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InvalidRequest
from .landing import FileChanges, Landing, files_below, local_directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS = 16
OWNER = "table"
BUCKET, IS_GONE, PLACE = "_bucket", "_is_gone", "_place"


def keep_current(
    frame: DataFrame,
    number: int,
    *,
    path: str,
    key: str | Sequence[str],
    order: str | Sequence[str],
    deleted: str | None = None,
    buckets: int = BUCKETS,
) -> None:
    """Apply the changes of a micro-batch to a table.

    Each row of `frame` is a complete row of the table after a change. `key` are the columns that
    identify a row; `order` those that order the changes of a key (a log position, a time); of equal
    ones, one is kept. `deleted` is a boolean column for deleted rows; it is not a column of the
    table. `buckets` is the number of files of a new table.
    """
    keys, orders = _names(key), _names(order)
    _check(frame, keys, orders, deleted)
    table = CurrentTable(local_directory(path), keys, orders, buckets)
    table.change(frame, number, deleted)


class CurrentTable:
    def __init__(
        self, directory: Path, keys: Sequence[str], orders: Sequence[str], buckets: int
    ) -> None:
        self._landing = Landing(directory, OWNER)
        self._landing.finish()
        self._keys, self._orders = list(keys), list(orders)
        facts = self._landing.facts
        # The number of files cannot change: it decides in which file a key is.
        self._buckets = int(facts.get("buckets", buckets))
        if facts and list(facts["keys"]) != self._keys:
            raise InvalidRequest(
                f"the key of table {directory} is {', '.join(facts['keys'])}, not "
                f"{', '.join(self._keys)}: use another directory, or delete this one and "
                f"{directory.parent / f'.{directory.name}.flintmq'}"
            )

    def change(self, frame: DataFrame, number: int, deleted: str | None) -> None:
        from pyspark.sql import functions

        is_gone = functions.lit(False)
        if deleted is not None:
            is_gone = functions.coalesce(functions.col(deleted), functions.lit(False))
        changes = frame.withColumn(IS_GONE, is_gone)
        if deleted is not None:
            changes = changes.drop(deleted)
        changes = self._latest(self._spread(changes)).cache()
        try:
            touched = sorted(row[0] for row in changes.select(BUCKET).distinct().collect())
            if touched:
                self._rewrite(changes, touched, number)
        finally:
            changes.unpersist()

    def _rewrite(self, changes: DataFrame, touched: Sequence[int], number: int) -> None:
        from pyspark.sql import functions

        spark = changes.sparkSession
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        every = changes
        for is_gone in (False, True):
            places = [self._place(bucket, is_gone=is_gone) for bucket in touched]
            if there := [f"file://{place}" for place in places if place.exists()]:
                before = spark.read.parquet(*there).withColumn(IS_GONE, functions.lit(is_gone))
                every = every.unionByName(self._spread(before), allowMissingColumns=True)
        known = {*self._keys, *self._orders, IS_GONE, BUCKET}
        latest = self._latest(every).select(
            *(
                functions.col(name)
                if name in known
                else functions.when(~functions.col(IS_GONE), functions.col(name)).alias(name)
                for name in every.columns
            )
        )
        # One task per bucket, so that each becomes one file.
        latest = latest.repartition(len(touched), BUCKET)
        facts = {"buckets": self._buckets, "keys": self._keys, "batch": number}
        moves: list[tuple[str, str]] = []
        staged = self._landing.ready(f"batch-{number}")
        latest.write.partitionBy(IS_GONE, BUCKET).parquet(f"file://{staged}")
        for is_gone in (False, True):
            within = staged / f"{IS_GONE}={str(is_gone).lower()}"
            made = {
                int(path.parent.name.partition("=")[2]): path
                for path in files_below(within, ".parquet")
            }
            for bucket in touched:
                place = self._place(bucket, is_gone=is_gone)
                if bucket not in made and place.exists():
                    made[bucket] = _emptied(place, within / f"{bucket}.parquet")
                if bucket in made:
                    target = os.path.relpath(place, self._landing.directory)
                    moves.append((self._landing.own(made[bucket]), target))
        self._landing.land(FileChanges(tuple(moves), facts=facts))
        self._landing.ready(f"batch-{number}")

    def _spread(self, frame: DataFrame) -> DataFrame:
        """Add the number of each row's file."""
        from pyspark.sql import functions

        # The hash depends on the types of the key; that of their text does not.
        text = [functions.col(name).cast("string") for name in self._keys]
        bucket = functions.pmod(functions.xxhash64(*text), functions.lit(self._buckets))
        return frame.withColumn(BUCKET, bucket.cast("int"))

    def _latest(self, frame: DataFrame) -> DataFrame:
        """The row with the highest order of each key."""
        from pyspark.sql import Window, functions

        latest_first = [functions.col(name).desc_nulls_last() for name in self._orders]
        # With equal orders, the result must not depend on which row comes first.
        ties = [functions.col(IS_GONE).desc(), functions.to_json(functions.struct("*")).desc()]
        place = functions.row_number().over(
            Window.partitionBy(*self._keys).orderBy(*latest_first, *ties)
        )
        return frame.withColumn(PLACE, place).where(functions.col(PLACE) == 1).drop(PLACE)

    def _place(self, bucket: int, *, is_gone: bool) -> Path:
        directory = self._landing.directory
        if is_gone:
            return directory.parent / f".{directory.name}.flintmq" / f"gone-{bucket:03d}.parquet"
        return directory / f"rows-{bucket:03d}.parquet"


def _emptied(file: Path, into: Path) -> Path:
    """A file without rows, so that the table keeps its columns if all rows are deleted."""
    import pyarrow.parquet as parquet

    into.parent.mkdir(parents=True, exist_ok=True)
    with parquet.ParquetFile(file) as before:
        parquet.write_table(before.schema_arrow.empty_table(), into)
    return into


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _check(
    frame: DataFrame, keys: Sequence[str], orders: Sequence[str], deleted: str | None
) -> None:
    wanted = {"key": keys, "order": orders, "deleted": [] if deleted is None else [deleted]}
    for what, names in wanted.items():
        for name in names:
            if name not in frame.columns:
                raise InvalidRequest(
                    f"{what}: no column {name!r}; there are {', '.join(frame.columns)}"
                )
    if not keys or not orders:
        raise InvalidRequest("a table of the current state needs a key and an order")
