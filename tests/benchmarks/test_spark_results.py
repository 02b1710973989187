"""What the benchmark of Spark makes of its figures."""

from __future__ import annotations

import json
import os

import pytest

pytest.importorskip("pyarrow")

from benchmarks.meters import Parties, measured
from benchmarks.report import machine
from benchmarks.spark.jobs import reason
from benchmarks.spark.results import Results


def take(rate: float, **more: float) -> dict[str, float]:
    return {"rows": 1000.0, "seconds": 1000 / rate, "rows/s": rate, "stolen": 0.0} | more


def results() -> Results:
    found = Results(1000, 3, machine())
    for rate in (100.0, 1000.0, 3000.0):
        found.add("flintmq", "batch write, exactly once", take(rate, **{"jvm s": 0.5}))
        found.add("kafka", "batch write, synced", take(rate / 2))
    return found


def test_the_first_round_is_told_apart_and_the_others_have_a_median() -> None:
    found = results()

    line = next(line for line in found.table().splitlines() if line.startswith("flintmq"))

    assert found.warm("flintmq", "batch write, exactly once") == 2000.0
    assert line.split()[5:7] == ["100", "2,000"]


def test_a_write_is_compared_with_a_write_that_is_synced() -> None:
    assert "2.00" in next(one for one in results().table().splitlines() if "exactly once" in one)


def test_a_job_that_failed_says_why_and_fails_the_run() -> None:
    found = results()
    assert not found.has_failed()
    found.add("flintmq", "stream read", {"error": "AssertionError: 3 rows, expected 4"})

    assert found.has_failed()
    assert "failed: flintmq, stream read: AssertionError: 3 rows" in found.table()
    assert json.loads(found.json_line())["rows"][-1]["rounds"][0]["error"]


def test_what_a_piece_of_work_cost_is_told_by_party() -> None:
    figures = measured(Parties(os.getpid(), os.getpid()), lambda: sum(1 for _ in range(10**6)))

    assert figures["rows"] == 10**6
    assert figures["rows/s"] == pytest.approx(10**6 / figures["seconds"])
    assert {"jvm s", "python s", "broker s"} <= set(figures)


def test_of_errors_within_errors_the_innermost_is_told() -> None:
    error = RuntimeError(
        "query failed\n  at line\n  flintmq.errors.InvalidRequest: say where\n  at"
    )

    assert reason(error) == "RuntimeError: flintmq.errors.InvalidRequest: say where"
    assert reason(RuntimeError("plain")) == "RuntimeError: plain"
