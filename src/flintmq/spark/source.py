"""The data source itself: what Spark asks for by `format("flintmq")`.

Nothing but the way in. Each of the readers and writers has a module of its own, imported when it is
asked for: every kind of worker process of Spark imports this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


class FlintDataSource(DataSource):
    """Topics of a FlintMQ broker as tables."""

    @classmethod
    def name(cls) -> str:
        return "flintmq"

    # Spark passes `schema` and `overwrite` by name.

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        raise NotImplementedError

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        raise NotImplementedError
