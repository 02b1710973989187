"""A running flow: its progress, its error, and how to stop it between two micro-batches."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import InvalidRequest
from ...spark.failures import query_error
from ...spark.offsets import Positions, read
from ..define.flows import Flow
from .expecting import BROKEN
from .standing import Lag
from .stopping import A_FLOW, BatchGate

COUNTED = "flintmq_rows"
"""The name of Spark's metric for rows that go to the sink."""

LATE = "Timed out while waiting for the Python worker"
TRIES_MAX = 10

BEGINNING = "Initializing"
IDLE = ("Waiting for", "Getting offsets", "Initializing")
"""The beginnings of Spark's status message while no micro-batch runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowProgress:
    """A finished micro-batch, and the state of the flow after it."""

    flow: str
    batch: int
    rows_in: int
    rows_out: int
    seconds: float
    rows_per_second: float
    lag: int | None
    """Messages left to read when it was done; None for files."""
    state_rows: int | None
    state_bytes: int | None
    watermark: str | None
    rows_in_total: int
    rows_out_total: int
    broken: Mapping[str, int] = field(default_factory=dict)
    """Rows for which a rule of `expect` did not hold, by table and rule: `orders.positive`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOutcome:
    """The result of a flow in one run."""

    name: str
    rows_in: int
    rows_out: int
    batches: int
    seconds: float
    error: str | None = None
    broken: Mapping[str, int] = field(default_factory=dict)


class Watched:
    """A running query."""

    def __init__(self, flow: Flow, start: Callable[[], Any], gate: BatchGate, lag: Lag) -> None:
        self.flow, self._start, self._gate, self._lag = flow, start, gate, lag
        self._tries = 0
        self._begin()
        self.rows_in = self.rows_out = self.batches = 0
        self.broken: Counter[str] = Counter()
        self.error: str | None = None
        self.positions: list[Positions] = []
        """The positions of its sources, of those that are topics."""
        self._began = self._ended_at = time.monotonic()
        self._has_ended = self._is_to_stop = self._was_stopped = False
        self._done_when_asked = 0

    def _begin(self) -> None:
        self._query = self._start()
        self._java = self._query._jsq
        self._last: tuple[int, str] = (-1, "")
        self._tries += 1

    # --- looking

    def is_beginning(self) -> bool:
        """Whether Spark still sets up its sources."""
        is_active: bool = self._java.isActive()
        return is_active and str(self._java.status().message()).startswith(BEGINNING)

    def news(self) -> Iterator[FlowProgress]:
        """The micro-batches finished since the last call."""
        is_over = not self._java.isActive()
        for said in self._said_since():
            if "addBatch" in said["durationMs"]:
                yield self._counted(said)
        if is_over and not self._has_ended:
            error = query_error(self._query)
            if self._is_worth_another_try(error):
                self._begin()
                return
            self._has_ended, self._ended_at = True, time.monotonic()
            # A failure because of the stop is not an error.
            is_ours = self._was_stopped or (error or "").startswith(A_FLOW)
            self.error = None if is_ours else error
            self._lag.close()

    def _is_worth_another_try(self, error: str | None) -> bool:
        """Whether it failed to start because the machine is busy: Spark waits ten seconds for a
        Python process, and has no setting for it."""
        is_late = error is not None and LATE in error
        return is_late and not self.batches and not self._is_to_stop and self._tries < TRIES_MAX

    def _said_since(self) -> list[Mapping[str, Any]]:
        last = self._java.lastProgress()
        if last is None or (last.batchId(), last.timestamp()) == self._last:
            return []
        # The timestamps are texts that sort in order of time.
        found = [json.loads(one.json()) for one in self._java.recentProgress()]
        new = [one for one in found if (one["batchId"], one["timestamp"]) > self._last]
        if new:
            self._last = (new[-1]["batchId"], new[-1]["timestamp"])
        return new

    def _counted(self, said: Mapping[str, Any]) -> FlowProgress:
        rows_in = int(said["numInputRows"])
        observed = said.get("observedMetrics", {})
        rows_out = int(observed.get(COUNTED, {}).get("rows", 0))
        broken = broken_of(observed)
        self.broken.update(broken)
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.batches += 1
        seconds = said["durationMs"].get("triggerExecution", 0) / 1000
        states = said.get("stateOperators", [])
        self.positions, lag_at_start = _standing(said["sources"])
        lag = self._lag.behind(self.positions)
        return FlowProgress(
            flow=self.flow.name,
            batch=said["batchId"],
            rows_in=rows_in,
            rows_out=rows_out,
            seconds=seconds,
            rows_per_second=rows_in / seconds if seconds else 0.0,
            lag=lag_at_start if lag is None else lag,
            state_rows=sum(one["numRowsTotal"] for one in states) if states else None,
            state_bytes=sum(one["memoryUsedBytes"] for one in states) if states else None,
            watermark=said.get("eventTime", {}).get("watermark"),
            rows_in_total=self.rows_in,
            rows_out_total=self.rows_out,
            broken=broken,
        )

    def has_ended(self) -> bool:
        return self._has_ended

    def outcome(self) -> FlowOutcome:
        return FlowOutcome(
            name=self.flow.name,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            batches=self.batches,
            seconds=(self._ended_at if self._has_ended else time.monotonic()) - self._began,
            error=self.error,
            broken=dict(self.broken),
        )

    # --- ending

    def stop_after_batch(self) -> None:
        """Ask it to stop; `stop_if_due` then does it."""
        if not self._is_to_stop and self._java.isActive():
            self._is_to_stop, self._done_when_asked = True, self.batches
            self._gate.close()

    def stop_if_due(self) -> None:
        """Stop it if it was asked to, and no micro-batch runs, or the one that ran is done.

        Spark cannot do this: its stop() aborts the running micro-batch. In a busy query the next
        micro-batch may have started; it is repeated at the next start.
        """
        if not self._is_to_stop or self._has_ended:
            return
        if self.batches > self._done_when_asked or self._is_idle():
            self.stop_now()

    def _is_idle(self) -> bool:
        status = self._java.status()
        return not status.isTriggerActive() or str(status.message()).startswith(IDLE)

    def stop_now(self) -> None:
        if self._java.isActive():
            self._was_stopped = True
        self._gate.close()
        self._query.stop()
        self._gate.wait_empty()
        self._gate.remove()
        self._lag.close()


def broken_of(observed: Mapping[str, Any]) -> dict[str, int]:
    """The counts of rules among Spark's observed metrics."""
    return {
        f"{name.removeprefix(BROKEN)}.{rule}": int(count or 0)
        for name, counts in observed.items()
        if name.startswith(BROKEN)
        for rule, count in counts.items()
    }


def _standing(sources: list[Mapping[str, Any]]) -> tuple[list[Positions], int | None]:
    """The positions of sources, and their lag at the start of the micro-batch."""
    standing: list[Positions] = []
    lag: int | None = None
    for source in sources:
        at = _positions(source.get("endOffset"))
        end = _positions(source.get("latestOffset"))
        if at is None:
            continue
        standing.append(at)
        if end is not None:
            lag = (lag or 0) + sum(
                max(0, offset - at[topic].next.get(partition, 0))
                for topic, position in end.items()
                if topic in at
                for partition, offset in position.next.items()
            )
    return standing, lag


def _positions(offset: Any) -> Positions | None:
    if not isinstance(offset, Mapping):
        return None
    try:
        return read(offset)
    except InvalidRequest:
        return None  # a source of files
