"""Into a topic at a rate, or as far apart as rows were: what a replay needs.

A micro-batch is written down, in the order and the cuts it goes out in, before its first row does;
each cut carries a number that the broker knows it by. So a batch that was interrupted goes on with
the same cuts: what the broker has is passed over without waiting, and every row is there once.

Rows go out from the driver, one cut after the other, and are seen at once. A batch lasts as long as
its rows take: `max_per_batch` of the source keeps it short, and with it the wait for a clean stop.
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
from .archiving import QUERY
from .landing import local_directory, replacing

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

CUT_SECONDS = 0.05
"""What is due within so much time goes out together."""
CUT_ROWS_MAX = 1000
CUT, AT = "_flintmq_cut", "_flintmq_at"
ROW = "_flintmq_row"
TIME_MIN = -(2**63)
WAIT_SECONDS = 0.25


EncodeRows = Callable[["DataFrame", Mapping[str, "Column"]], "DataFrame"]
"""Makes messages of rows, and keeps beside them the columns it is given."""


class Schedule:
    """When the next cut is due. Pure: the time now is an argument, in seconds on any clock."""

    def __init__(
        self, *, rate: float | None = None, paced: bool = False, speed: float = 1.0
    ) -> None:
        for name, value in (("rate", rate), ("speed", speed)):
            if value is not None and not value > 0:
                raise InvalidRequest(f"{name} is greater than 0, not {value:g}")
        self._rate, self._is_paced, self._speed = rate, paced, speed
        self._free_at = float("-inf")
        self._anchor: tuple[float, float] | None = None

    def due(self, at: float | None, now: float) -> float:
        """When rows that happened `at` (in seconds, None: not known) go out."""
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
        """How many rows go out together at most."""
        if self._rate is None:
            return CUT_ROWS_MAX
        return max(1, min(CUT_ROWS_MAX, int(self._rate * CUT_SECONDS)))

    def cuts(self, times_ms: list[int | None]) -> list[int]:
        """The number of each row's cut, for rows in the order they go out in."""
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
    """For foreachBatch: rows into a topic, not faster than they may go.

    `encode` makes messages of rows. `options` are those of a write: servers, topic and so on.
    `journal` is a directory that lasts as long as the checkpoint. `pace` names a timestamp column;
    a row without a time goes out with the one before it.
    """
    schedule = Schedule(rate=rate, paced=pace is not None, speed=speed)
    checked = write_options(options, streams=False)
    directory = local_directory(journal)

    def write(frame: DataFrame, number: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY) or "batch"
        path = directory / f"{query}-{number}.arrow"
        is_repeated = path.exists()
        if not is_repeated:
            _write_down(_in_order(frame, encode, pace), schedule, path)
        sender = PacedSender(line_to(checked.settings, patient=True), checked, query, number)
        for cut, at in _cuts_of(path):
            if not is_repeated:
                due = schedule.due(at, now())
                while (left := due - now()) > 0:
                    wait(min(left, WAIT_SECONDS))
            # Of a batch that was interrupted, nobody knows how far it came: the broker says.
            is_repeated = sender.send(cut) and is_repeated
            if not is_repeated:
                schedule.went(cut.num_rows, schedule.due(at, now()))
        for old in directory.glob(f"{query}-*.arrow"):
            if old != path:
                old.unlink(missing_ok=True)

    return write


class PacedSender:
    """Sends the cuts of one micro-batch, in order, each under its numbers."""

    def __init__(self, line: BrokerLine, options: WriteOptions, query: str, number: int) -> None:
        self._line = line
        topics = TopicsWritten(line, auto_create=options.auto_create)
        self._spreader = Spreader(options.topic, topics.partitions_of)
        self._numbered = Numbered(line, options, f"spark/{query}/paced", number)

    def send(self, cut: pyarrow.RecordBatch) -> bool:
        """Whether the broker had all of it already."""
        receipts = [
            self._line.run(self._numbered.publish(topic, some))
            for topic, some in self._spreader.spread(rows_of(cut, cut.schema.names))
        ]
        return all(receipt.duplicate for receipt in receipts)


def _in_order(frame: DataFrame, encode: EncodeRows, pace: str | None) -> pyarrow.Table:
    """The messages of the batch, with their times in milliseconds beside them."""
    import pyarrow as pa
    from pyspark.sql import functions

    from ...spark.compute import compute

    at = functions.lit(None).cast("bigint")
    if pace is not None:
        if pace not in frame.columns:
            raise InvalidRequest(
                f"pace names the column {pace!r}, which is not there; there are "
                f"{', '.join(frame.columns)}"
            )
        at = functions.unix_millis(functions.col(pace).cast("timestamp"))
    messages = encode(frame, {AT: at})
    fields = [(field.name, field.dataType.simpleString()) for field in messages.schema.fields]
    check_columns([field for field in fields if field[0] != AT], "any")
    table: pyarrow.Table = messages.toArrow()
    if pace is None:
        return table
    # Rows of one time stay in their order, and those without a time go first.
    places = pa.table(
        {
            AT: compute.fill_null(table.column(AT), TIME_MIN),
            ROW: pa.array(range(table.num_rows), pa.int64()),
        }
    )
    return table.take(compute.sort_indices(places, [(AT, "ascending"), (ROW, "ascending")]))


def _write_down(table: pyarrow.Table, schedule: Schedule, path: Path) -> None:
    import pyarrow as pa

    cuts = schedule.cuts(table.column(AT).to_pylist())
    table = table.append_column(CUT, pa.array(cuts, pa.int64()))
    with replacing(path) as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def _cuts_of(path: Path) -> Iterator[tuple[pyarrow.RecordBatch, float | None]]:
    """The cuts that were written down, each with its time in seconds."""
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
