"""The step of anomalies.toml: how far each reading is from earlier readings of its sensor."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame

COLUMNS = "sensor string, at timestamp, reading double, mean double, deviation double, score double"
STATE = "readings binary"


def scored(frame: DataFrame, last: int, at_least: int) -> DataFrame:
    """Every reading with its score: by how many standard deviations it is off the mean of the
    `last` ones of its sensor before it. It has none where there are fewer than `at_least`.

    Within a micro-batch readings are taken in the order of their times; a late one is compared
    with what is known when it comes.
    """

    def score(
        key: tuple[Any, ...], chunks: Iterator[pandas.DataFrame], state: Any
    ) -> Iterator[pandas.DataFrame]:
        import pandas

        before = list(array("d", state.get[0])) if state.exists else []
        rows = pandas.concat(list(chunks)).sort_values(["at", "reading"], kind="stable")
        found = []
        for at, reading in zip(rows["at"], rows["reading"], strict=True):
            mean = deviation = off = math.nan  # which is null in Spark
            if len(before) >= at_least:
                mean = math.fsum(before) / len(before)
                deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in before) / len(before))
                off = (reading - mean) / deviation if deviation else math.nan
            found.append((key[0], at, reading, mean, deviation, off))
            before = [*before, reading][-last:]
        state.update((array("d", before).tobytes(),))
        yield pandas.DataFrame(
            found, columns=["sensor", "at", "reading", "mean", "deviation", "score"]
        )

    known = frame.where("sensor is not null and reading is not null")
    return (
        known.select("sensor", "at", "reading")
        .groupBy("sensor")
        .applyInPandasWithState(score, COLUMNS, STATE, "append", "NoTimeout")
    )
