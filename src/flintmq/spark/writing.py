"""What one task writes, from the rows that Spark hands over to the broker's receipts.

Runs in a Python worker of an executor; nothing here knows whether it is a batch or a stream.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..client.sending import partitions_of
from ..errors import MessageTooLarge, TopicNotFound
from ..model import TopicOptions
from .connecting import BrokerLine, line_to
from .deliveries import Numbered, Staged, TaskDelivery
from .gathering import RowGatherer
from .spreading import Spreader
from .worker import calm_the_collector
from .write_columns import rows_of
from .write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class WriteJob:
    """What a write belongs to: the name of a job or query, and the number of its step."""

    name: str
    number: int


@dataclass(frozen=True)
class TaskWritten:
    """What a task tells the driver."""

    job: WriteJob
    pieces: list[str]
    """The names under which it was laid ready; none where it is published already."""
    rows: int


def write_rows(
    options: WriteOptions,
    names: list[str],
    job: WriteJob,
    partition: int,
    batches: Iterable[pyarrow.RecordBatch],
) -> TaskWritten:
    """Send the rows of one task attempt; returns when the broker has them."""
    calm_the_collector()
    line = line_to(options.settings, patient=True)
    topics = TopicsWritten(line, auto_create=options.auto_create)
    spreader = Spreader(options.topic, topics.partitions_of, turn=partition)
    gatherer = RowGatherer()
    delivery = _delivery(line, options, job, partition)
    rows = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows += batch.num_rows
            for topic, some in spreader.spread(rows_of(batch, names)):
                for cut_topic, cut in gatherer.add(topic, some):
                    _send(delivery, topics, options, cut_topic, cut)
        for topic, cut in gatherer.rest():
            _send(delivery, topics, options, topic, cut)
        return TaskWritten(job, delivery.finish(), rows)
    except BaseException:
        delivery.give_up()
        raise


def attempt_name(partition: int) -> str:
    """A name for one attempt at a task. Spark counts attempts anew with every driver."""
    return f"{partition}-{os.getpid()}-{uuid.uuid4().hex}"


def _delivery(
    line: BrokerLine, options: WriteOptions, job: WriteJob, partition: int
) -> TaskDelivery:
    if options.delivery == "exactly_once":
        return Staged(
            line,
            job.name,
            job.number,
            attempt_name(partition),
            compression=options.compression,
            auto_create=options.auto_create,
        )
    is_same = options.delivery == "idempotent"
    return Numbered(
        line,
        f"{job.name}/{partition if is_same else attempt_name(partition)}",
        job.number,
        compression=options.compression,
        auto_create=options.auto_create,
    )


def _send(
    delivery: TaskDelivery, topics: TopicsWritten, options: WriteOptions, topic: str, rows: Any
) -> None:
    if options.compression != "none":
        topics.check_sizes(topic, rows)
    delivery.send(topic, rows)


class TopicsWritten:
    """What a task has to know of the topics it writes to, asked once for each."""

    def __init__(self, line: BrokerLine, *, auto_create: bool) -> None:
        self._line, self._auto_create = line, auto_create
        self._known: dict[str, TopicOptions | None] = {}

    def partitions_of(self, topic: str) -> int | None:
        return partitions_of(topic, self._options(topic))

    def _options(self, topic: str) -> TopicOptions | None:
        if topic not in self._known:
            try:
                info = self._line.run(self._line.broker.topic_info(topic))
            except TopicNotFound:
                if not self._auto_create:
                    raise
                self._known[topic] = None
            else:
                self._known[topic] = info.options
        return self._known[topic]

    def check_sizes(self, topic: str, rows: pyarrow.RecordBatch) -> None:
        """The broker does not open what is compressed: the largest message is looked for here."""
        import pyarrow.compute as compute

        options = self._options(topic.partition("/")[0])
        limit = None if options is None else options.max_message_bytes
        if limit is None:
            return
        sizes = compute.binary_length(rows.column("value"))
        if "key" in rows.schema.names:
            keys = compute.fill_null(compute.binary_length(rows.column("key")), 0)
            sizes = compute.add(sizes, keys)
        largest = compute.max(sizes).as_py()
        if largest > limit:
            raise MessageTooLarge(
                f"a message for topic {topic!r}", largest, limit, "max_message_bytes"
            )
