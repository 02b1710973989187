"""Public names of pipelines, for files and programs; the code is in `flintmq.pipeline`.

    flintmq.spark.pipeline("totals")                 starts one, in Python
    flintmq.spark.pipeline.reading.read_pipeline     reads a file
    flintmq.spark.pipeline.running.run               runs it
    flintmq.spark.pipeline.tables:keep_current       a sink's function

Nothing else in `flintmq.spark` uses pipelines.
"""

from __future__ import annotations

from ...pipeline.builder import pipeline

__all__ = ["pipeline"]
