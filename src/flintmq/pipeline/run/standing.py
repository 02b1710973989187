"""Where a flow stands: how far it is behind, and what the broker is told of it at its end.

What Spark says of the lag is as old as the beginning of the micro-batch, which may be a minute; so
the broker is asked when one is done. While a flow runs, its sources tell the broker of each
micro-batch when they are asked for the next one. One that was stopped is not asked again, and would
stand a micro-batch behind until it runs again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ...errors import FlintError
from ...spark.connecting import BrokerLine
from ...spark.offsets import Positions, TopicPosition
from ...spark.options import ReadOptions
from ...spark.planning import extents
from ...spark.progress import QueryProgress
from ..define.definition import Pipeline
from ..define.flows import Flow
from .frames import AccessOptions, streams_of

PATIENCE_SECONDS = 1.0
"""Longer than that nobody waits to learn a figure; the micro-batches go on meanwhile."""


class Lag:
    """Of one flow. Its connections are made when it is first asked."""

    def __init__(self, pipeline: Pipeline, flow: Flow, access: AccessOptions) -> None:
        self._options = [options for _, options in streams_of(pipeline, flow, access)]
        self._lines: dict[int, BrokerLine] = {}

    def behind(self, standing: Sequence[Positions]) -> int | None:
        """Messages that are there right now and not read; None where the broker does not say."""
        if not self._options:
            return None
        try:
            return sum(
                self._after(number, options, standing)
                for number, options in enumerate(self._options)
            )
        except FlintError:
            self.close()
            return None

    def _after(self, number: int, options: ReadOptions, standing: Sequence[Positions]) -> int:
        if number not in self._lines:
            self._lines[number] = BrokerLine(replace(options.settings, patience=PATIENCE_SECONDS))
        behind = 0
        for topic, parts in extents(self._lines[number], options, may_be_gone=True).items():
            at = next((one[topic] for one in standing if topic in one), None)
            read = at.next if at is not None and at.id == parts[0].id else {}
            for part in parts:
                start = max(part.first_offset, read.get(part.partition, 0))
                behind += max(0, part.next_offset - start)
        return behind

    def close(self) -> None:
        while self._lines:
            _, line = self._lines.popitem()
            with suppress(FlintError):  # the broker is away, and so is the connection
                line.close()


def tell_the_broker(
    pipeline: Pipeline, flow: Flow, access: AccessOptions, standing: Sequence[Positions]
) -> None:
    """`standing` is where each of its streams of topics is, in no order that anybody knows."""
    for name, options in streams_of(pipeline, flow, access):
        ended = {
            topic: position
            for positions in standing
            for topic, position in positions.items()
            if options.wants(topic)
        }
        if ended:
            _tell(options, flow.group(name), ended)


def _tell(options: ReadOptions, group: str, ended: dict[str, TopicPosition]) -> None:
    line = BrokerLine(options.settings)
    try:
        known = {
            topic: parts
            for topic, parts in extents(line, options, may_be_gone=True).items()
            if topic in ended and parts[0].id == ended[topic].id
        }
        progress = QueryProgress(line, group)
        progress.began(known, ended)
        progress.done({topic: ended[topic] for topic in known})
        progress.close()
    finally:
        line.close()
