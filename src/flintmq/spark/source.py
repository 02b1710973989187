"""The data source `flintmq`: gives Spark its readers and writers."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql.datasource import DataSource

from ..errors import FlintError
from .columns import HEADERS, SCHEMA
from .tracebacks import without_traceback
from .worker import calm_the_collector


class FlintDataSource(DataSource):
    """`spark.read.format("flintmq")` and `spark.readStream.format("flintmq")`.

    Spark calls these in a worker process for planning; for a stream, once per micro-batch.
    """

    @classmethod
    def name(cls) -> str:
        return "flintmq"

    def schema(self) -> str:
        with_headers = str(self.options.get("includeHeaders", "")).lower() == "true"
        return f"{SCHEMA}, {HEADERS}" if with_headers else SCHEMA

    @without_traceback
    def reader(self, schema: Any) -> Any:
        from .batch_reader import BatchReader, NarrowedBatchReader
        from .options import read_options

        calm_the_collector()
        options = read_options(self.options, streams=False)
        if options.path is not None:
            from .direct import DirectReader

            return DirectReader(options, schema)
        return (NarrowedBatchReader if _takes_filters() else BatchReader)(options, schema)

    def streamReader(self, schema: Any) -> Any:
        from .options import read_options
        from .stream_reader import RefusedStream, StreamReader

        calm_the_collector()
        try:
            return StreamReader(read_options(self.options, streams=True), schema)
        except FlintError as error:
            # If this raised, Spark would fail later, with an error that does not name the cause.
            return RefusedStream(error)

    # Spark passes `schema` and `overwrite` by name.

    @without_traceback
    def writer(self, schema: Any, overwrite: bool) -> Any:
        from .writer import batch_writer

        calm_the_collector()
        return batch_writer(self.options, schema, overwrite)

    @without_traceback
    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from .writer import stream_writer

        calm_the_collector()
        return stream_writer(self.options, schema, overwrite)


def _takes_filters() -> bool:
    """Whether Spark started this process to push filters down; else it refuses such readers."""
    return len(sys.argv) > 1 and sys.argv[1].endswith("data_source_pushdown_filters")
