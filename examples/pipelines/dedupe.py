"""The step of dedupe.toml, which SQL cannot express."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def first_of_each(frame: DataFrame, columns: list[str]) -> DataFrame:
    """The first row of those that agree in `columns`, as long as the watermark remembers it."""
    return frame.dropDuplicatesWithinWatermark(columns)
