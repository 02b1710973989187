"""flintmq.spark.register(): makes `format("flintmq")` known to one session.

If FlintMQ is installed beside PySpark, Spark finds it (`pyspark_flintmq`). This is for sessions
where it cannot: a notebook with its own path, a second session of a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .session import checked_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("flintmq")` known to this session. Calling it again changes nothing."""
    checked_pyspark()
    from .source import FlintDataSource

    spark.dataSource.register(FlintDataSource)
