"""What is done with a store, whatever it is: the jobs that FlintMQ, Kafka and Parquet all do.

Needs PySpark and the standard library alone, for it runs in the environments of peers, too.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEY_BYTES, VALUE_BYTES = 8, 100
FILES = 10
"""The rows as Parquet are in so many files; a stream takes two of them at a time, or more."""
TRIGGER_ROWS = 1_000_000
COLUMNS = ("key", "value", "offset", "timestamp")
SCHEMA = "key binary, value binary, offset bigint, timestamp timestamp"


@dataclass
class Table:
    """Something Spark reads."""

    format: str
    options: dict[str, str] = field(default_factory=dict)
    schema: str | None = None
    """What to ask for, where the source leaves out the rest. Else columns are selected."""
    path: str | None = None


class Jobs:
    """Jobs of one session. Each returns how many rows it was and fails where some are missing."""

    def __init__(self, spark: Any, folder: Path, rows: int) -> None:
        self.spark, self.folder, self.rows = spark, folder, rows
        self.parquet = folder / "rows.parquet"
        self._numbers = itertools.count()

    def make_parquet(self) -> None:
        """The rows as files, for reading and as what is written elsewhere."""
        rows = self.spark.range(0, self.rows, 1, FILES).selectExpr(
            f"cast(lpad(cast(id % 100000000 as string), {KEY_BYTES}, '0') as binary) as key",
            "cast(concat(lpad(cast(id as string), 12, '0'), "
            f"repeat('x', {VALUE_BYTES - 12})) as binary) as value",
            "id as offset",
            "timestamp_millis(1700000000000 + id div 1000) as timestamp",
        )
        rows.write.mode("overwrite").parquet(str(self.parquet))

    def parquet_table(self) -> Table:
        return Table("parquet", schema=SCHEMA, path=str(self.parquet))

    def new_folder(self) -> str:
        return str(self.folder / f"work-{next(self._numbers)}")

    # --- reading

    def read(self, table: Table) -> int:
        """Four columns of every row, to a sink that looks at nothing."""
        self._reader(self.spark.read, table).select(*COLUMNS).write.format("noop").mode(
            "overwrite"
        ).save()
        return self.rows

    def count(self, table: Table) -> int:
        """How many rows, and how long their values are together."""
        frame = self._reader(self.spark.read, table)
        count, size = frame.selectExpr("count(*)", "sum(length(value))").first()
        self._check(count)
        if size != count * VALUE_BYTES:
            raise AssertionError(f"values of {size} bytes, expected {count * VALUE_BYTES}")
        return int(count)

    def stream(self, table: Table) -> int:
        """Everything there is, a million rows in a micro-batch."""
        frame = self._reader(self.spark.readStream, table).select(*COLUMNS)
        self._run(frame.writeStream.format("noop"))
        return self.rows

    # --- writing

    def write(self, format: str, options: dict[str, str], path: str | None = None) -> int:
        frame = self.spark.read.schema(SCHEMA).parquet(str(self.parquet)).select("key", "value")
        frame.write.format(format).options(**options).mode("append").save(path)
        return self.rows

    def stream_write(self, format: str, options: dict[str, str], path: str | None = None) -> int:
        files_at_once = max(1, FILES * TRIGGER_ROWS // self.rows)
        frame = (
            self.spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", min(FILES, files_at_once))
            .parquet(str(self.parquet))
            .select("key", "value")
        )
        writer = frame.writeStream.format(format).options(**options)
        self._run(writer if path is None else writer.option("path", path))
        return self.rows

    # --- parts

    def _reader(self, reader: Any, table: Table) -> Any:
        reader = reader.format(table.format).options(**table.options)
        if table.schema is not None:
            reader = reader.schema(table.schema)
        return reader.load(table.path) if table.path else reader.load()

    def _run(self, writer: Any) -> None:
        checkpoint = self.new_folder()
        try:
            query = (
                writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            )
            query.awaitTermination()
            taken = sum(progress["numInputRows"] for progress in query.recentProgress)
            self._check(taken)
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _check(self, count: int) -> None:
        if count != self.rows:
            raise AssertionError(
                f"{count:,} rows, expected {self.rows:,}: rows are lost or doubled"
            )


Job = Callable[[], int]


def reason(error: Exception) -> str:
    """One line that says why. Spark's errors hold the text of others, of which the last counts."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [
        line for line in lines if re.match(r"[\w.]+(Error|Exception|Request|Lost|Full): ", line)
    ]
    return f"{type(error).__name__}: {(causes or lines or [''])[-1 if causes else 0]}"
