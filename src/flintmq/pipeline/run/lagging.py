"""How far a flow is behind, asked of the broker when a micro-batch is done.

What Spark says of it is as old as the beginning of the micro-batch, which may be a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ...errors import FlintError
from ...spark.connecting import BrokerLine
from ...spark.offsets import Positions
from ...spark.options import ReadOptions
from ...spark.planning import extents
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
