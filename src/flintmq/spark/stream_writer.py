"""A stream's write: `df.writeStream.format("flintmq").start()`.

Spark makes a writer for every micro-batch, and another one to commit it. What tells one micro-batch
from all others is its query's id, which is in the checkpoint, and its number: tasks find both in
their context, and tell the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from ..errors import InvalidRequest
from .connecting import line_to
from .telling import told_plainly
from .write_columns import check_columns
from .write_options import WriteOptions, write_options
from .writer import TaskDone, abort_all, commit_all, fields_of
from .writing import WriteJob, write_rows

if TYPE_CHECKING:
    import pyarrow


def stream_writer(given: Mapping[str, str], schema: Any, overwrite: bool) -> StreamWriter:
    if overwrite:
        raise InvalidRequest(
            "a topic is only ever appended to: outputMode('append'); what changes is written with "
            "foreachBatch"
        )
    options = write_options(given, streams=True)
    names = check_columns(fields_of(schema), options.topic)
    line_to(options.settings, patient=True)
    return StreamWriter(options, names)


def job_of(context: TaskContext) -> WriteJob:
    query = context.getLocalProperty("sql.streaming.queryId")
    number = context.getLocalProperty("streaming.sql.batchId")
    if query is None or number is None:
        raise InvalidRequest("this task belongs to no micro-batch of a streaming query")
    return WriteJob(f"spark/{query}", int(number))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, names: list[str]) -> None:
        self._options, self._names = options, names

    @told_plainly
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> TaskDone:
        context = TaskContext.get()
        job, partition = job_of(context), context.partitionId()
        return TaskDone(write_rows(self._options, self._names, job, partition, iterator))

    @told_plainly
    def commit(self, messages: Sequence[TaskDone | None], batchId: int) -> None:
        commit_all(self._options, messages)

    @told_plainly
    def abort(self, messages: Sequence[TaskDone | None], batchId: int) -> None:
        jobs = [message.written.job for message in messages if message is not None]
        # Of tasks that all failed there is nothing to tell whose they were; what they laid ready
        # goes when the micro-batch is written again, or when its time is up.
        if jobs:
            abort_all(self._options, jobs[0])
