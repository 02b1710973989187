"""A table of the current state: change events in, one row for each key out, as plain Parquet.

For `foreach` of a sink: `foreach = "flintmq.spark.pipeline.tables:keep_current"`. Rows are spread
over files by their key, `rows-000.parquet` and so on; a micro-batch writes anew those that it
changes, and each is exchanged in one step. So a reader sees a file as it was or as it is.

The latest change of a key wins, by a column that orders them, whenever it comes: events that come
twice, late or in another order, or micro-batches that are run again, change nothing. For that, what
was deleted is remembered beside the table (`.<name>.flintmq/`), by key and order.
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
    """Bring a table up to date by the changes of a micro-batch.

    Each row of `frame` is a whole row of the table as it was after a change. `key` are the columns
    that tell rows apart; `order` those by which the later change of a key is known (a log position,
    a time); where two are the same, one of them is kept. `deleted` is a boolean column: the row is
    gone. It is no column of the table. `buckets` is how many files a new table has.
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
        # Files were spread by this number, and a key has to be found where it lies.
        self._buckets = int(facts.get("buckets", buckets))
        if facts and list(facts["keys"]) != self._keys:
            raise InvalidRequest(
                f"the table {directory} is kept by {', '.join(facts['keys'])}, not by "
                f"{', '.join(self._keys)}: name another directory, or delete this one and "
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
        # One task for each file, and so one file.
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
        """The rows with the number of their file."""
        from pyspark.sql import functions

        # What a row hashes to depends on the types of its key; text does not change with them.
        text = [functions.col(name).cast("string") for name in self._keys]
        bucket = functions.pmod(functions.xxhash64(*text), functions.lit(self._buckets))
        return frame.withColumn(BUCKET, bucket.cast("int"))

    def _latest(self, frame: DataFrame) -> DataFrame:
        """One row for each key: that of the greatest order."""
        from pyspark.sql import Window, functions

        latest_first = [functions.col(name).desc_nulls_last() for name in self._orders]
        # Where the order is the same, the result has to be the same whichever comes first.
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
    """A file without rows, so that the table keeps its columns where all rows are gone."""
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
                    f"{what} names the column {name!r}, which is not there; there are "
                    f"{', '.join(frame.columns)}"
                )
    if not keys or not orders:
        raise InvalidRequest("a table of the current state needs a key and an order")
