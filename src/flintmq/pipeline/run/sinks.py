"""Writes the rows of a flow.

    topic, append             by the data source: exactly once
    topic, update, complete   every micro-batch is a transaction in the broker: exactly once
    topic with rate or pace   from the driver, numbered, so that the broker drops duplicates
    parquet, json             plain files, exactly once (`archiving`)
    delta, iceberg            a commit for every micro-batch, exactly once (`lake`)
    console                   a line for each row
    foreach                   a function of the user, which may get a micro-batch twice

Columns of messages (`_key`, `_headers` ...) become that of the new message, or are left out; they
never go into the value. Rows of a topic that were not decoded are written unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import InvalidRequest
from ...spark.decoding import value_of
from ...spark.write_columns import COLUMNS
from ..define import loading as named
from ..define.definition import Pipeline, Sink
from ..define.durations import seconds_of
from ..define.flows import Flow
from ..lake.delta import DeltaTarget
from ..lake.iceberg import IcebergTarget
from .archiving import ArchiveFormat, into_directory
from .frames import AccessOptions, broker_options, path_of
from .pacing import into_topic_paced
from .stopping import BatchGate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SENT = ("key", "headers", "priority", "ttl", "expires_at", "delay", "deliver_at")
"""Parts of a message that a row can set, as `_key` and so on."""
LEFT_OUT = frozenset({"_topic", "_partition", "_offset", "_timestamp", "_content_type", "_file"})
OF_RAW = frozenset({*COLUMNS, "offset", "timestamp"})
NOT_PASSED_ON = frozenset({"topic", "partition", "offset", "timestamp"})
SHOWN_MAX = 1000

Print = Callable[[str, str], None]
"""Takes the name of the flow and a row as JSON."""


class Writing:
    """Makes the writer of a flow's query."""

    def __init__(
        self,
        pipeline: Pipeline,
        flow: Flow,
        *,
        gate: BatchGate,
        transaction: str,
        checkpoint: str,
        access: AccessOptions,
        show: Print,
    ) -> None:
        self._pipeline, self._flow, self._sink = pipeline, flow, flow.sink
        self._transaction, self._checkpoint = transaction, checkpoint
        self._access, self._show, self._gate = access, show, gate

    def writer(self, frame: DataFrame) -> Any:
        """A DataStreamWriter without trigger, name and checkpoint."""
        sink = self._sink
        if sink.topic is not None:
            return self._to_topic(frame)
        if sink.parquet is not None or sink.json is not None:
            return self._to_files(frame)
        if sink.delta is not None or sink.iceberg is not None:
            return self._to_table(frame)
        if sink.console:
            return self._each_batch(frame, self._print)
        assert sink.foreach is not None, "checked before"
        function = named.load(sink.foreach, sink.place)
        return self._each_batch(frame, partial(function, **sink.arguments))

    # --- topics

    def _to_topic(self, frame: DataFrame) -> Any:
        sink, options = self._sink, self._options()
        if sink.rate is not None or sink.pace is not None:
            messages_of(frame, sink)  # fail before the first batch
            paced = into_topic_paced(
                lambda rows, beside: messages_of(rows, sink, beside),
                options,
                f"{self._checkpoint}/paced",
                rate=sink.rate,
                pace=sink.pace,
                speed=sink.speed,
            )
            return self._each_batch(frame, paced)
        messages = messages_of(frame, sink)
        if sink.mode == "append":
            return messages.writeStream.format("flintmq").outputMode("append").options(**options)
        transaction = self._transaction

        def write(rows: DataFrame, number: int) -> None:
            once = {**options, "transaction": transaction, "transactionVersion": str(number)}
            rows.write.format("flintmq").mode("append").options(**once).save()

        return self._each_batch(messages, write)

    def _options(self) -> dict[str, str]:
        assert self._sink.topic is not None
        to_broker = broker_options(self._pipeline, self._sink, self._access)
        return {"topic": self._sink.topic, **to_broker}

    # --- files

    def _to_files(self, frame: DataFrame) -> Any:
        sink = self._sink
        kind: ArchiveFormat = "json" if sink.parquet is None else "parquet"
        path = sink.json if sink.parquet is None else sink.parquet
        assert path is not None
        assert sink.mode == "append", "checked before"
        write = into_directory(
            path,
            format=kind,
            partition_by=sink.partition_by,
            compact=sink.compact,
            options=sink.options,
        )
        return self._each_batch(frame, write)

    # --- tables

    def _to_table(self, frame: DataFrame) -> Any:
        target = table_of(self._sink, self._transaction)
        try:
            target.check(frame)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"{self._sink.place}: sink {self._sink.name!r}: {error}"
            ) from error
        return self._each_batch(frame, target.write)

    # --- everything else

    def _each_batch(self, frame: DataFrame, function: Callable[[DataFrame, int], None]) -> Any:
        gate = self._gate

        def passed(rows: DataFrame, number: int) -> None:
            with gate.passed():
                function(rows, number)

        return frame.writeStream.outputMode(self._sink.mode).foreachBatch(passed)

    def _print(self, rows: DataFrame, number: int) -> None:
        from pyspark.sql import functions

        lines = rows.select(functions.to_json(functions.struct("*"))).take(SHOWN_MAX + 1)
        for (line,) in lines[:SHOWN_MAX]:
            self._show(self._flow.name, line)
        if len(lines) > SHOWN_MAX:
            self._show(self._flow.name, f'"... more than {SHOWN_MAX} rows in batch {number}"')


class LakeTable(Protocol):
    """A table that takes each micro-batch once."""

    def check(self, frame: DataFrame) -> None: ...
    def write(self, frame: DataFrame, number: int) -> None: ...


def table_of(sink: Sink, application: str) -> LakeTable:
    keep_seconds = None if sink.keep_versions is None else seconds_of(sink.keep_versions)
    if sink.delta is not None:
        return DeltaTarget(
            path_of(sink.delta),
            application=application,
            partition_by=sink.partition_by,
            compact=sink.compact,
            keep_seconds=keep_seconds,
            options=sink.options,
        )
    assert sink.iceberg is not None, "one of them"
    return IcebergTarget(
        sink.iceberg,
        application=application,
        partition_by=sink.partition_by,
        compact=sink.compact,
        keep_seconds=keep_seconds,
        options=sink.options,
    )


def messages_of(
    frame: DataFrame, sink: Sink, beside: Mapping[str, Column] | None = None
) -> DataFrame:
    """Rows as messages: the value, and the other parts of a message."""
    from pyspark.sql import functions

    def column(name: str) -> Any:
        return functions.col(f"`{name.replace('`', '``')}`")

    if sink.key is not None and sink.key not in frame.columns:
        raise InvalidRequest(
            f"{sink.place}: sink {sink.name!r}: no column {sink.key!r} for the key; there are "
            f"{', '.join(frame.columns)}"
        )
    if is_raw(frame):
        kept = {
            name: column(name)
            for name in frame.columns
            if name not in NOT_PASSED_ON and name != "value"
        }
        kept["value"] = column("value")
    else:
        kept = {name: column(f"_{name}") for name in SENT if f"_{name}" in frame.columns}
        inside = [
            name
            for name in frame.columns
            if name not in LEFT_OUT and not (name.startswith("_") and name[1:] in kept)
        ]
        given = {name.lower(): value for name, value in sink.options.items()}
        value, media = value_of(inside, format=sink.format, avro_schema=given.get("avro_schema"))
        kept |= {"value": value, "content_type": functions.lit(media)}
    if sink.key is not None:
        kept["key"] = column(sink.key).cast("string")
    kept |= beside or {}
    return frame.select(*(one.alias(name) for name, one in kept.items()))


def is_raw(frame: DataFrame) -> bool:
    """Whether rows are messages as they were read, with a value of bytes or text."""
    kinds: Mapping[str, str] = dict(frame.dtypes)
    return kinds.get("value") in ("binary", "string") and OF_RAW.issuperset(kinds)
