"""The output of a run: a line for each flow, updated in place on a terminal, else line by line.

    totals  batch 12  1,024 rows in 0.25 s (4,096/s)  lag 0  6 out  state 120 rows, 45.0 KiB

Rows of console sinks go to stdout, everything else to stderr; as JSON, everything is a line on
stdout.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Protocol, TextIO

from ...amounts import size
from .running import Outcome
from .watching import FlowProgress

EVERY_SECONDS = 5.0
"""Minimum time between two lines of a flow, if they are not updated in place."""
TICK_SECONDS = 1.0


def progress_line(progress: FlowProgress, name_width: int = 0) -> str:
    """The state of a flow after a micro-batch."""
    per_second = progress.rows_per_second
    rate = f"{per_second:,.{1 if 0 < per_second < 10 else 0}f}/s"
    parts = [
        progress.flow.ljust(name_width),
        f"batch {progress.batch}",
        f"{progress.rows_in:,} rows in {progress.seconds:.2f} s ({rate})",
    ]
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    parts.append(f"{progress.rows_out:,} out")
    if progress.state_rows is not None:
        held = "" if progress.state_bytes is None else f", {size(progress.state_bytes)}"
        parts.append(f"state {progress.state_rows:,} rows{held}")
    parts += [f"{rule} broken {count:,}" for rule, count in progress.broken.items() if count]
    return "  ".join(parts)


def summary_lines(outcome: Outcome) -> list[str]:
    """A table of the flows, for the end of a run."""
    rows = [("FLOW", "ROWS IN", "ROWS OUT", "BATCHES", "SECONDS")]
    rows += [
        (
            flow.name,
            f"{flow.rows_in:,}",
            f"{flow.rows_out:,}",
            f"{flow.batches:,}",
            f"{flow.seconds:.1f}",
        )
        for flow in outcome.flows.values()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"{outcome.pipeline}: {outcome.ended} after {outcome.seconds:.1f} s"]
    for name, *numbers in rows:
        cells = [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *cells]))
    lines += [
        f"{flow.name}: {rule} did not hold for {count:,} rows"
        for flow in outcome.flows.values()
        for rule, count in flow.broken.items()
        if count
    ]
    return lines


class Reporter(Protocol):
    """Prints the progress of a run. Called from several threads."""

    def starting(self, master: str) -> Callable[[], None]:
        """Spark is starting; call the returned function when it is ready."""
        ...

    def progress(self, progress: FlowProgress) -> None: ...
    def row(self, flow: str, row: str) -> None: ...
    def note(self, text: str) -> None: ...
    def done(self, outcome: Outcome) -> None: ...


class LineReport:
    """For pipes and files: line by line, not too often."""

    def __init__(self, out: TextIO, err: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._out, self._err, self._now = out, err, now
        self._told_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def starting(self, master: str) -> Callable[[], None]:
        began = self._now()
        self.note(f"starting Spark ({master}) ...")
        return lambda: self.note(f"Spark is ready after {self._now() - began:.1f} s")

    def progress(self, progress: FlowProgress) -> None:
        now = self._now()
        if now - self._told_at.get(progress.flow, float("-inf")) >= EVERY_SECONDS:
            self._told_at[progress.flow] = now
            self.note(progress_line(progress))

    def row(self, flow: str, row: str) -> None:
        self._print(self._out, row)

    def note(self, text: str) -> None:
        self._print(self._err, text)

    def done(self, outcome: Outcome) -> None:
        for line in summary_lines(outcome):
            self.note(line)

    def _print(self, stream: TextIO, text: str) -> None:
        with self._lock:
            stream.write(f"{text}\n")
            stream.flush()


class JsonLines:
    """For programs: a JSON object per line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def starting(self, master: str) -> Callable[[], None]:
        began = time.monotonic()
        self._print({"event": "starting", "master": master})
        return lambda: self._print(
            {"event": "ready", "seconds": round(time.monotonic() - began, 3)}
        )

    def progress(self, progress: FlowProgress) -> None:
        self._print({"event": "batch", **asdict(progress)})

    def row(self, flow: str, row: str) -> None:
        self._print({"event": "row", "flow": flow, "row": json.loads(row)})

    def note(self, text: str) -> None:
        self._print({"event": "note", "text": text})

    def done(self, outcome: Outcome) -> None:
        flows = [asdict(flow) for flow in outcome.flows.values()]
        self._print(
            {
                "event": outcome.ended,
                "pipeline": outcome.pipeline,
                "seconds": outcome.seconds,
                "flows": flows,
            }
        )

    def _print(self, what: dict[str, object]) -> None:
        with self._lock:
            self._out.write(json.dumps(what) + "\n")
            self._out.flush()


class Screen:
    """For a terminal: the last line of every flow, updated in place."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err
        self._lines: dict[str, str] = {}
        self._last: dict[str, FlowProgress] = {}
        self._drawn = 0
        self._lock = threading.Lock()

    def starting(self, master: str) -> Callable[[], None]:
        is_there = threading.Event()
        began = time.monotonic()

        def tick() -> None:
            while True:
                self._draw({"": f"starting Spark ({master}) ... {time.monotonic() - began:.0f} s"})
                if is_there.wait(TICK_SECONDS):
                    return

        thread = threading.Thread(target=tick, name="flintmq-starting", daemon=True)
        thread.start()

        def ready() -> None:
            is_there.set()
            thread.join()
            self._draw({})

        return ready

    def progress(self, progress: FlowProgress) -> None:
        self._last[progress.flow] = progress
        width = max(map(len, self._last))
        self._draw({name: progress_line(last, width) for name, last in self._last.items()})

    def row(self, flow: str, row: str) -> None:
        self._above(self._out, row)

    def note(self, text: str) -> None:
        self._above(self._err, text)

    def done(self, outcome: Outcome) -> None:
        self._draw({})
        for line in summary_lines(outcome):
            self._err.write(f"{line}\n")
        self._err.flush()

    def _draw(self, lines: dict[str, str]) -> None:
        with self._lock:
            self._wipe()
            self._lines = lines
            self._put()

    def _above(self, stream: TextIO, text: str) -> None:
        """A line that stays, above those that are updated."""
        with self._lock:
            self._wipe()
            stream.write(f"{text}\n")
            stream.flush()
            self._put()

    def _wipe(self) -> None:
        if self._drawn:
            self._err.write(f"\x1b[{self._drawn}A\r\x1b[J")
            self._drawn = 0

    def _put(self) -> None:
        width = shutil.get_terminal_size().columns - 1
        for line in self._lines.values():
            self._err.write(line[:width] + "\n")
        self._drawn = len(self._lines)
        self._err.flush()


def reporter(output: str, out: TextIO, err: TextIO) -> Reporter:
    if output == "json":
        return JsonLines(out)
    return Screen(out, err) if err.isatty() else LineReport(out, err)
