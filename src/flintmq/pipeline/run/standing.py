"""The lag of a flow, and its final position in the broker.

Spark's lag is from the start of the micro-batch, which may be a minute ago; so the broker is asked
at its end. While a flow runs, its sources report each micro-batch to the broker when Spark asks for
the next one. After a stop, Spark does not ask, and the group would stay a micro-batch behind.
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
"""How long to wait for the lag; the micro-batches go on meanwhile."""


class Lag:
    """The lag of one flow. It connects at the first call."""

    def __init__(self, pipeline: Pipeline, flow: Flow, access: AccessOptions) -> None:
        self._options = [options for _, options in streams_of(pipeline, flow, access)]
        self._lines: dict[int, BrokerLine] = {}

    def behind(self, standing: Sequence[Positions]) -> int | None:
        """Messages that exist now and are not read yet; None if the broker does not answer."""
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
            with suppress(FlintError):  # the broker is gone, and so is the connection
                line.close()


def report_positions(
    pipeline: Pipeline, flow: Flow, access: AccessOptions, standing: Sequence[Positions]
) -> None:
    """Report the final positions. `standing` has those of its streams, in no particular order."""
    for name, options in streams_of(pipeline, flow, access):
        ended = {
            topic: position
            for positions in standing
            for topic, position in positions.items()
            if options.wants(topic)
        }
        if ended:
            _report(options, flow.group(name), ended)


def _report(options: ReadOptions, group: str, ended: dict[str, TopicPosition]) -> None:
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
