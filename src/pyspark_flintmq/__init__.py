"""Found by PySpark by its name: makes `format("flintmq")` known in every session.

PySpark imports every module whose name begins with `pyspark_`, in a process of its own, and takes
its `DefaultSource`; were one of them to raise, it would skip them all. So nothing happens here
before that name is asked for, and where it cannot be had, there is none.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        try:
            from flintmq.spark.source import FlintDataSource
        except Exception as error:
            raise AttributeError(f"flintmq.spark does not work here: {error}") from error
        return FlintDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
