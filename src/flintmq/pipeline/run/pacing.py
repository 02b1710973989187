"""Writes to a topic at a rate, or with the original pauses between rows: for replays.

A micro-batch is written to disk, in order and in chunks ("cuts"), before its first row is sent;
each cut has a number for the broker. So an interrupted batch continues with the same cuts: those
that the broker has are skipped without waiting, and every row is stored once.

The driver sends the cuts, one after the other, and rows are visible at once. A batch takes as long
as its rows: `max_per_batch` of the source keeps it short, and with it the wait for a clean stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InvalidRequest
from ...spark.connecting import BrokerLine, line_to
from ...spark.deliveries import Numbered
from ...spark.spreading import Spreader
from ...spark.write_columns import check_columns, rows_of
from ...spark.write_options import WriteOptions, write_options
from ...spark.writing import TopicsWritten
from ..define.definition import BatchFunction
from .landing import local_directory, replacing
from .object_archive import query_of

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

CUT_SECONDS = 0.05
"""Rows that are due within this time are sent together."""
CUT_ROWS_MAX = 1000
CUT, AT = "_flintmq_cut", "_flintmq_at"
ROW = "_flintmq_row"
TIME_MIN = -(2**63)
WAIT_SECONDS = 0.25


EncodeRows = Callable[["DataFrame", Mapping[str, "Column"]], "DataFrame"]
"""Makes messages of rows, and keeps the given columns beside them."""


class PaceSchedule:
    """When the next cut is due. Pure: the current time is an argument, in seconds on any clock."""

    def __init__(
        self, *, rate: float | None = None, paced: bool = False, speed: float = 1.0
    ) -> None:
        for name, value in (("rate", rate), ("speed", speed)):
            if value is not None and not value > 0:
                raise InvalidRequest(f"{name} must be greater than 0, not {value:g}")
        self._rate, self._is_paced, self._speed = rate, paced, speed
        self._free_at = float("-inf")
        self._anchor: tuple[float, float] | None = None

    def due(self, at: float | None, now: float) -> float:
        """When to send rows with the time `at` (in seconds; None if unknown)."""
        due = max(now, self._free_at)
        if self._is_paced and at is not None:
            if self._anchor is None:
                self._anchor = (at, now)
            then, began = self._anchor
            due = max(due, began + (at - then) / self._speed)
        return due

    def went(self, rows: int, when: float) -> None:
        if self._rate is not None:
            self._free_at = max(self._free_at, when) + rows / self._rate

    def cut_rows(self) -> int:
        """Maximum rows per cut."""
        if self._rate is None:
            return CUT_ROWS_MAX
        return max(1, min(CUT_ROWS_MAX, int(self._rate * CUT_SECONDS)))

    def cuts(self, times_ms: list[int | None]) -> list[int]:
        """The number of each row's cut, for rows in the order of sending."""
        most, span_ms = self.cut_rows(), CUT_SECONDS * 1000 * self._speed
        numbers: list[int] = []
        cut = count = 0
        began: int | None = None
        for at in times_ms:
            is_later = self._is_paced and at is not None and at - (began or 0) > span_ms
            if numbers and (count >= most or is_later):
                cut, count = cut + 1, 0
            if count == 0 or began is None:
                began = at
            numbers.append(cut)
            count += 1
        return numbers


def into_topic_paced(
    encode: EncodeRows,
    options: Mapping[str, str],
    journal: str,
    *,
    rate: float | None = None,
    pace: str | None = None,
    speed: float = 1.0,
    now: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> BatchFunction:
    """For foreachBatch: write rows to a topic, no faster than allowed.

    `encode` makes messages of rows. `options` are those of a write: servers, topic and so on.
    `journal` is a directory that lasts as long as the checkpoint. `pace` is a timestamp column; a
    row without a time is sent with the one before it.
    """
    schedule = PaceSchedule(rate=rate, paced=pace is not None, speed=speed)
    checked = write_options(options, streams=False)
    directory = local_directory(journal)

    def write(frame: DataFrame, number: int) -> None:
        query = query_of(frame)
        path = directory / f"{query}-{number}.arrow"
        is_repeated = path.exists()
        if not is_repeated:
            _store(_in_order(frame, encode, pace), schedule, path)
        sender = PacedSender(line_to(checked.settings, patient=True), checked, query, number)
        for cut, at in _cuts_of(path):
            if not is_repeated:
                due = schedule.due(at, now())
                while (left := due - now()) > 0:
                    wait(min(left, WAIT_SECONDS))
            # How far an interrupted batch came, only the broker knows.
            is_repeated = sender.send(cut) and is_repeated
            if not is_repeated:
                schedule.went(cut.num_rows, schedule.due(at, now()))
        for old in directory.glob(f"{query}-*.arrow"):
            if old != path:
                old.unlink(missing_ok=True)

    return write


class PacedSender:
    """Sends the cuts of one micro-batch, in order, each with its sequences."""

    def __init__(self, line: BrokerLine, options: WriteOptions, query: str, number: int) -> None:
        self._line = line
        topics = TopicsWritten(line, auto_create=options.auto_create)
        self._spreader = Spreader(options.topic, topics.partitions_of)
        self._numbered = Numbered(line, options, f"spark/{query}/paced", number)

    def send(self, cut: pyarrow.RecordBatch) -> bool:
        """Send a cut; returns whether the broker had all of it already."""
        receipts = [
            self._line.run(self._numbered.publish(topic, some))
            for topic, some in self._spreader.spread(rows_of(cut, cut.schema.names))
        ]
        return all(receipt.duplicate for receipt in receipts)


def _in_order(frame: DataFrame, encode: EncodeRows, pace: str | None) -> pyarrow.Table:
    """The messages of the batch in order, with their times in milliseconds."""
    import pyarrow as pa
    from pyspark.sql import functions

    from ...spark.compute import compute

    at = functions.lit(None).cast("bigint")
    if pace is not None:
        if pace not in frame.columns:
            raise InvalidRequest(f"pace: no column {pace!r}; there are {', '.join(frame.columns)}")
        at = functions.unix_millis(functions.col(pace).cast("timestamp"))
    messages = encode(frame, {AT: at})
    fields = [(field.name, field.dataType.simpleString()) for field in messages.schema.fields]
    check_columns([field for field in fields if field[0] != AT], "any")
    table: pyarrow.Table = messages.toArrow()
    if pace is None:
        return table
    # Rows with the same time keep their order; those without a time come first.
    places = pa.table(
        {
            AT: compute.fill_null(table.column(AT), TIME_MIN),
            ROW: pa.array(range(table.num_rows), pa.int64()),
        }
    )
    return table.take(compute.sort_indices(places, [(AT, "ascending"), (ROW, "ascending")]))


def _store(table: pyarrow.Table, schedule: PaceSchedule, path: Path) -> None:
    import pyarrow as pa

    cuts = schedule.cuts(table.column(AT).to_pylist())
    table = table.append_column(CUT, pa.array(cuts, pa.int64()))
    with replacing(path) as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def _cuts_of(path: Path) -> Iterator[tuple[pyarrow.RecordBatch, float | None]]:
    """The stored cuts, each with its time in seconds."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        table = file.read_all()
        numbers, times = table.column(CUT).to_pylist(), table.column(AT).to_pylist()
        rows = table.drop_columns([CUT, AT])
        start = 0
        while start < len(numbers):
            end = start + 1
            while end < len(numbers) and numbers[end] == numbers[start]:
                end += 1
            (cut,) = rows.slice(start, end - start).combine_chunks().to_batches()
            yield cut, None if times[start] is None else times[start] / 1000
            start = end
