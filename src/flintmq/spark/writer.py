"""Writers: `df.write.format("flintmq").mode("append").save()`, and `df.writeStream`.

Spark makes the writer of a batch on the driver and sends it to every task, and again to where the
job is committed or aborted. So its job is named when it is made.

For a stream, Spark makes a writer for every micro-batch, and another one to commit it. What
identifies a micro-batch is the id of its query, which is in the checkpoint, and its number: tasks
find both in their context, and report them to the driver.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ..errors import InvalidRequest
from .connecting import line_to
from .tracebacks import without_traceback
from .write_columns import check_columns
from .write_options import WriteOptions, write_options
from .writing import TaskWritten, WriteJob, write_rows

if TYPE_CHECKING:
    import pyarrow


class TaskDone(WriterCommitMessage):
    """What a task did, on its way to the driver."""

    def __init__(self, written: TaskWritten) -> None:
        self.written = written


def batch_writer(given: Mapping[str, str], schema: Any, overwrite: bool) -> BatchWriter:
    _check_appends(overwrite, "use mode('append'). To start over, delete the topic first")
    options = write_options(given, streams=False)
    names = _checked_columns(schema, options)
    line_to(options.settings)  # fail before any task starts if there is no broker
    name = options.transaction or uuid.uuid4()
    job = WriteJob(f"spark/{name}", options.version, ends=options.transaction is None)
    return BatchWriter(options, names, job)


def stream_writer(given: Mapping[str, str], schema: Any, overwrite: bool) -> StreamWriter:
    _check_appends(
        overwrite, "use outputMode('append'). Write results that change with foreachBatch"
    )
    options = write_options(given, streams=True)
    names = _checked_columns(schema, options)
    line_to(options.settings, patient=True)
    return StreamWriter(options, names)


def _check_appends(overwrite: bool, remedy: str) -> None:
    if overwrite:
        raise InvalidRequest(f"rows can only be appended to a topic: {remedy}")


def _checked_columns(schema: Any, options: WriteOptions) -> list[str]:
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return check_columns(fields, options.topic)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls write() in a task"
    return context


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, names: list[str], job: WriteJob) -> None:
        self._options, self._names, self._job = options, names, job

    @without_traceback
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> TaskDone:
        partition = _context().partitionId()
        return TaskDone(write_rows(self._options, self._names, self._job, partition, iterator))

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_all(self._options, messages)

    @without_traceback
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort_all(self._options, self._job)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, names: list[str]) -> None:
        self._options, self._names = options, names

    @without_traceback
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> TaskDone:
        context = _context()
        query = context.getLocalProperty("sql.streaming.queryId")
        number = context.getLocalProperty("streaming.sql.batchId")
        if query is None or number is None:
            raise InvalidRequest("this task does not belong to a micro-batch of a streaming query")
        job, partition = WriteJob(f"spark/{query}", int(number)), context.partitionId()
        return TaskDone(write_rows(self._options, self._names, job, partition, iterator))

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit_all(self._options, messages)

    @without_traceback
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # If every task failed, the query is not known here. What they staged is dropped when the
        # micro-batch is written again, or when it times out.
        if written := _written(messages):
            abort_all(self._options, written[0].job)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[TaskWritten]:
    return [message.written for message in messages if isinstance(message, TaskDone)]


def commit_all(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Make the rows that the tasks staged visible, in one step, in the order of the tasks.

    The broker accepts a number once, and remembers the last one. When Spark repeats the last one,
    there is nothing to do. Any other number from before is an error: to ignore it would lose rows.
    """
    written = _written(messages)
    if options.delivery != "exactly_once" or not written:
        return
    job = written[0].job
    pieces = [piece for task in written for piece in task.pieces]
    if not pieces:
        return
    line = line_to(options.settings, patient=True)
    receipts = line.run(line.broker.commit(job.name, job.number, pieces, ends=job.ends))
    if not receipts:
        raise InvalidRequest(_too_old(options, job))
    topics = sorted({receipt.topic.partition("/")[0] for receipt in receipts})
    if options.topic is not None and options.topic.partition("/")[0] not in topics:
        raise InvalidRequest(
            f"number {job.number} of {job.name.removeprefix('spark/')!r} was already written, to "
            f"{', '.join(topics)}. Use a separate transaction (or checkpoint) for writes to "
            f"{options.topic!r}, or they count as repeats"
        )


def _too_old(options: WriteOptions, job: WriteJob) -> str:
    name = job.name.removeprefix("spark/")
    if options.transaction is not None:
        return (
            f"transactionVersion {job.number} of {name!r} comes after a higher one: versions must "
            "grow. Nothing was written now, and this version may have been written before. For a "
            "new query or job, use another transaction"
        )
    return (
        f"micro-batch {job.number} of query {name} comes after a later one: the checkpoint was "
        "restored from an old copy, or two queries use it. Nothing was written now; start with a "
        "new checkpoint"
    )


def abort_all(options: WriteOptions, job: WriteJob) -> None:
    """Drop what was staged. What was committed stays: Spark also aborts a job if it only lost the
    answer to the commit."""
    if options.delivery == "exactly_once":
        line = line_to(options.settings, patient=True)
        line.run(line.broker.abort(job.name, job.number))
