"""Rules for rows: those for which one does not hold are counted, dropped, or fail the query.

Counts are Spark's observed metrics, so they come with the progress of the micro-batch that has read
the rows. What a rule of a source sends to dead letters is written by the flow of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..define.definition import Expectation, Source, Step

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BROKEN = "flintmq_broken."
"""The beginning of the names of Spark's metrics that count rows for which a rule does not hold."""


def drops(rule: Expectation) -> bool:
    """Whether rows are left out where it does not hold."""
    return rule.otherwise in ("drop", "dead-letter")


def expected(frame: DataFrame, thing: Source | Step) -> DataFrame:
    """The rows of a table for which its rules hold, with a count of the others."""
    from pyspark.sql import functions

    if not thing.expect:
        return frame
    counts = [functions.count_if(~_holds(rule)).alias(rule.name) for rule in thing.expect]
    frame = frame.observe(f"{BROKEN}{thing.name}", *counts)
    for rule in thing.expect:
        if rule.otherwise == "fail":
            text = f"{thing.name}: a row breaks the rule {rule.name!r} ({rule.that}): "
            row = functions.to_json(functions.struct("*"))
            refused = functions.raise_error(functions.concat(functions.lit(text), row))
            frame = frame.where(
                functions.when(_holds(rule), True).otherwise(refused.cast("boolean"))
            )
        elif drops(rule):
            frame = frame.where(_holds(rule))
    return frame


def with_broken_rules(
    frame: DataFrame, source: Source, data: str, why: str, own: Mapping[str, Any]
) -> DataFrame:
    """Messages, with a reason also where they decode and a rule sends them to dead letters."""
    from pyspark.sql import functions

    rules = [rule for rule in source.expect if rule.otherwise == "dead-letter"]
    if not rules:
        return frame
    message = "_flintmq_message"
    whole = frame.select(
        functions.struct(*frame.columns).alias(message),
        f"{data}.*",
        *(column.alias(name) for name, column in own.items()),
    )
    said = [
        functions.when(~_holds(rule), functions.lit(f"breaks the rule {rule.name!r}: {rule.that}"))
        for rule in rules
    ]
    reason = functions.coalesce(functions.col(f"{message}.{why}"), *said).alias(why)
    kept = [functions.col(f"{message}.{name}") for name in frame.columns if name != why]
    return whole.select(*kept, reason)


def _holds(rule: Expectation) -> Column:
    from pyspark.sql import functions

    return functions.coalesce(functions.expr(rule.that), functions.lit(False))
