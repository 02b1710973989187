"""A batch write: `df.write.format("flintmq").mode("append").save()`.

The writer is made on the driver, then travels to every task, and once more to where the job is
committed or given up. So what tells one job from another is decided when it is made.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..errors import InvalidRequest
from .connecting import line_to
from .telling import told_plainly
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
    if overwrite:
        raise InvalidRequest(
            "a topic is only ever appended to: use mode('append'); to begin anew, delete the topic"
        )
    options = write_options(given, streams=False)
    names = check_columns(fields_of(schema), options.topic)
    line_to(options.settings)  # a broker that is not there is said before any task begins
    job = WriteJob(f"spark/{options.transaction or uuid.uuid4()}", options.version)
    return BatchWriter(options, names, job)


def fields_of(schema: Any) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, names: list[str], job: WriteJob) -> None:
        self._options, self._names, self._job = options, names, job

    @told_plainly
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> TaskDone:
        partition = TaskContext.get().partitionId()
        return TaskDone(write_rows(self._options, self._names, self._job, partition, iterator))

    @told_plainly
    def commit(self, messages: Sequence[TaskDone | None]) -> None:
        commit_all(self._options, messages)

    @told_plainly
    def abort(self, messages: Sequence[TaskDone | None]) -> None:
        abort_all(self._options, self._job)


def commit_all(options: WriteOptions, messages: Sequence[TaskDone | None]) -> None:
    """Make what the tasks laid ready visible, in one step, in the order of the tasks.

    The broker has a number once, and remembers the last one. Spark repeats the last one, and there
    is nothing to do then. Whatever else was there before is no repetition: to pass over it would
    lose its rows without a word.
    """
    written = [message.written for message in messages if message is not None]
    if options.delivery != "exactly_once" or not written:
        return
    job = written[0].job
    pieces = [piece for task in written for piece in task.pieces]
    if not pieces:
        return
    line = line_to(options.settings, patient=True)
    receipts = line.run(line.broker.commit(job.name, job.number, pieces))
    if not receipts:
        raise InvalidRequest(_too_old(options, job))
    topics = sorted({receipt.topic.partition("/")[0] for receipt in receipts})
    if options.topic is not None and options.topic.partition("/")[0] not in topics:
        raise InvalidRequest(
            f"number {job.number} of {job.name.removeprefix('spark/')!r} was written before, to "
            f"{', '.join(topics)}: what goes to {options.topic!r} needs a transaction (or a "
            "checkpoint) of its own, or it would be taken for a repetition"
        )


def _too_old(options: WriteOptions, job: WriteJob) -> str:
    name = job.name.removeprefix("spark/")
    if options.transaction is not None:
        return (
            f"transactionVersion {job.number} of {name!r} comes after a greater one: versions have "
            "to grow, and what is older may or may not have been written. Nothing was written now; "
            "for a new query or job, name another transaction"
        )
    return (
        f"micro-batch {job.number} of query {name} comes after a later one: the checkpoint was set "
        "back, or is used by two queries. Nothing was written now; begin with a new checkpoint"
    )


def abort_all(options: WriteOptions, job: WriteJob) -> None:
    """Drop what was laid ready. What was committed stays: Spark gives up jobs, too, whose commit
    it only could not hear of."""
    if options.delivery == "exactly_once":
        line = line_to(options.settings, patient=True)
        line.run(line.broker.abort(job.name, job.number))
