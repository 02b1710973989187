"""What is told of a run, on a terminal, in a pipe and as JSON."""

from __future__ import annotations

import io
import json
from typing import Any

from flintmq.pipeline.run.reporting import (
    JsonLines,
    LineReport,
    Screen,
    progress_line,
    summary_lines,
)
from flintmq.pipeline.run.running import Outcome
from flintmq.pipeline.run.watching import FlowOutcome, FlowProgress


def progress(**changed: Any) -> FlowProgress:
    facts: dict[str, Any] = {
        "flow": "totals", "batch": 12, "rows_in": 1024, "rows_out": 6, "seconds": 0.25,
        "rows_per_second": 4096.0, "lag": 30, "state_rows": 120, "state_bytes": 46_080,
        "watermark": None, "rows_in_total": 5000, "rows_out_total": 60,
    }  # fmt: skip
    return FlowProgress(**(facts | changed))


OUTCOME = Outcome(
    pipeline="rollup",
    ended="stopped",
    seconds=61.24,
    flows={
        "totals": FlowOutcome(name="totals", rows_in=2000, rows_out=12, batches=8, seconds=59.1),
        "orders.dead-letters": FlowOutcome(
            name="orders.dead-letters", rows_in=2000, rows_out=2, batches=3, seconds=59.0
        ),
    },
)


def test_a_line_says_rate_lag_time_of_the_batch_and_state() -> None:
    assert progress_line(progress()) == (
        "totals  batch 12  1,024 rows in 0.25 s (4,096/s)  lag 30  6 out  state 120 rows, 45.0 KiB"
    )
    assert progress_line(progress(lag=None, state_rows=None), 8) == (
        "totals    batch 12  1,024 rows in 0.25 s (4,096/s)  6 out"
    )
    assert "(0.4/s)" in progress_line(progress(rows_per_second=0.37))
    assert "(0/s)" in progress_line(progress(rows_per_second=0.0))


def test_the_summary_is_a_table_of_flows() -> None:
    assert summary_lines(OUTCOME) == [
        "rollup: stopped after 61.2 s",
        "FLOW                 ROWS IN  ROWS OUT  BATCHES  SECONDS",
        "totals                 2,000        12        8     59.1",
        "orders.dead-letters    2,000         2        3     59.0",
    ]


def test_in_a_pipe_a_flow_is_told_of_now_and_then_and_rows_go_to_stdout() -> None:
    out, err, now = io.StringIO(), io.StringIO(), [0.0]
    lines = LineReport(out, err, lambda: now[0])

    ready = lines.starting("local[2]")
    now[0] = 3.0
    ready()
    for batch in range(100):
        now[0] = 3.0 + batch / 10
        lines.progress(progress(batch=batch))
    lines.row("shown", '{"a":1}')

    told = err.getvalue().splitlines()
    assert told[:2] == ["starting Spark (local[2]) ...", "Spark is ready after 3.0 s"]
    assert [line.split("  ")[1] for line in told[2:]] == ["batch 0", "batch 50"]
    assert out.getvalue() == '{"a":1}\n'


def test_as_json_everything_is_a_line() -> None:
    out = io.StringIO()
    lines = JsonLines(out)

    lines.starting("local[2]")()
    lines.progress(progress())
    lines.row("shown", '{"a":1}')
    lines.note("so")
    lines.done(OUTCOME)

    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [one["event"] for one in found] == [
        "starting", "ready", "batch", "row", "note", "stopped",
    ]  # fmt: skip
    assert found[2]["lag"] == 30
    assert found[3] == {"event": "row", "flow": "shown", "row": {"a": 1}}
    assert found[5]["flows"][1]["rows_out"] == 2


def test_on_a_terminal_lines_are_drawn_where_they_stand_and_rows_stay_above() -> None:
    screen = io.StringIO()
    drawn = Screen(screen, screen)

    drawn.progress(progress(batch=1))
    drawn.progress(progress(flow="b", batch=7))
    drawn.row("b", "a row")
    drawn.done(OUTCOME)

    text = shown(screen.getvalue())
    assert text[0] == "a row"
    assert text[1:] == summary_lines(OUTCOME)


def shown(text: str) -> list[str]:
    """What a terminal shows in the end."""
    lines: list[str] = []
    for part in text.split("\x1b["):
        if part[:1].isdigit() and part.partition("A")[1]:
            del lines[len(lines) - int(part.partition("A")[0]) :]
            part = part.partition("A")[2].lstrip("\r")
        elif part.startswith("J"):
            part = part[1:]
        lines += [line for line in part.split("\n") if line]
    return lines
