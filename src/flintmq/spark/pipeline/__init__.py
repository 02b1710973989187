"""Names of pipelines that files and programs may say: they stand for those of `flintmq.pipeline`.

    flintmq.spark.pipeline("totals")                 begins one, in Python
    flintmq.spark.pipeline.reading.read_pipeline     reads a file
    flintmq.spark.pipeline.running.run               runs it
    flintmq.spark.pipeline.tables:keep_current       a sink's function

Forwards only: nothing else of this package knows of pipelines.
"""

from __future__ import annotations

from ...pipeline.builder import pipeline

__all__ = ["pipeline"]
