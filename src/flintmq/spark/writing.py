"""What one task writes: from Spark's rows to the broker's receipts.

Runs in a Python worker of an executor, for batch writes and for streams.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..client.sending import partitions_of
from ..errors import MessageTooLarge, TopicNotFound
from ..model import TopicOptions
from .connecting import BrokerLine, line_to
from .deliveries import Numbered, Staged, TaskDelivery, UnderWay
from .gathering import Cut, RowGatherer
from .spreading import Spreader
from .worker import calm_the_collector
from .write_columns import rows_of
from .write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class WriteJob:
    """What a write belongs to: the name of a job or query, and the number of its micro-batch."""

    name: str
    number: int
    ends: bool = False
    """Whether nothing comes after it under that name."""


@dataclass(frozen=True)
class TaskWritten:
    """What a task reports to the driver."""

    job: WriteJob
    pieces: list[str]
    """The names of its staged pieces; empty if the rows are published already."""
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

    def cuts() -> Iterator[Cut]:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            if batch.num_rows:
                for topic, some in spreader.spread(rows_of(batch, names)):
                    yield from gatherer.add(topic, some)
        yield from gatherer.rest()

    with UnderWay(line) as under_way:
        for topic, cut in cuts():
            if options.compression != "none":
                topics.check_sizes(topic, cut)
            under_way.begin(delivery.send(topic, cut))
        under_way.begin(delivery.rest())
        under_way.wait()
    return TaskWritten(job, delivery.names, rows)


def attempt_name(partition: int) -> str:
    """A name for one attempt of a task. Spark's attempt numbers start at 0 with every driver."""
    return f"{partition}-{os.getpid()}-{uuid.uuid4().hex}"


def _delivery(
    line: BrokerLine, options: WriteOptions, job: WriteJob, partition: int
) -> TaskDelivery:
    attempt = attempt_name(partition)
    if options.delivery == "exactly_once":
        return Staged(line, options, job.name, job.number, attempt)
    task = partition if options.delivery == "idempotent" else attempt
    return Numbered(line, options, f"{job.name}/{task}", job.number)


class TopicsWritten:
    """The options of the topics that a task writes to, asked for once each."""

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
        """Refuse messages that are too large. The broker does not open compressed batches."""
        from .compute import compute

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
