"""What `make run` tells the reader to type works while it stays up."""

from __future__ import annotations

import importlib
import io
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from .mini_shell import run_line

SCRIPT = Path(__file__).parents[2] / "scripts/try_it.py"


@pytest.mark.slow
def test_the_commands_it_names_work_and_ctrl_c_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, str(SCRIPT), "--stay", "--no-spark", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=SCRIPT.parents[1],
    ) as process:
        assert process.stdout is not None
        told: list[str] = []
        while not told or not told[-1].startswith("Ctrl-C"):
            told.append(process.stdout.readline())
            assert told[-1], "it ended early"
        try:
            text = "".join(told)
            (url,) = re.findall(r"export FLINTMQ_SERVER=(\S+)", text)
            monkeypatch.setenv("FLINTMQ_SERVER", url)
            lines = [line.strip() for line in told if "flintmq " in line]
            assert len(lines) == 8
            for line in lines:
                typed = re.sub(r"\S+/flintmq", "flintmq", line)
                done = run_line(typed, ("--once",) if typed.endswith(" top") else ())
                assert done.code == 0, f"{typed}: {done.err}"
            assert re.search(r"curl http://127\.0\.0\.1:\d+/metrics", text)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        assert process.returncode == 0


@pytest.mark.slow
def test_where_nobody_looks_it_says_what_to_type_and_ends() -> None:
    command = [sys.executable, str(SCRIPT), "--no-spark"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "serve --data-dir" in done.stdout


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_orders_become_totals_and_everything_ends_by_itself() -> None:
    command = [sys.executable, str(SCRIPT), "--seconds", "1", "--listen", "127.0.0.1:0"]
    done = subprocess.run(
        [*command, "--http", "127.0.0.1:0"], capture_output=True, text=True, timeout=580
    )
    assert done.returncode == 0, done.stderr
    assert "Spark starts" in done.stdout
    rows = re.findall(r"^  (\d\d:\d\d:\d\d)   (\w+) +[\d,]+ +[\d,.]+ +[\d,.]+$", done.stdout, re.M)
    assert {region for _, region in rows} == {"africa", "america", "asia", "europe"}
    (counted,) = re.findall(r"([\d,]+) orders in .*, each of them counted once", done.stdout)
    assert int(counted.replace(",", "")) > 0
    assert "serve --data-dir" in done.stdout


@pytest.mark.slow
def test_a_cluster_goes_on_without_its_leader() -> None:
    command = [sys.executable, str(SCRIPT.with_name("fail_over.py")), "--cluster"]
    done = subprocess.run([*command, "--seconds", "6"], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 stored twice, in order, 0 not processed" in done.stdout


@pytest.fixture
def rollup(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("live_rollup")


def totals_of(rollup: ModuleType, windows: int) -> object:
    totals = rollup.Totals()
    for window in range(windows):
        for region in rollup.REGIONS:
            since = f"2026-01-05T12:{window:02}:00+00:00"
            row = {"since": since, "region": region, "orders": 9999}
            totals.take({**row, "amount": 9_999_999.5, "median": 99_999.5})
    return totals


@pytest.mark.parametrize("windows", [1, 50])
def test_the_table_fits_80_columns_and_counts_windows_in_english(
    rollup: ModuleType, windows: int
) -> None:
    progress = {"rows_in_total": 1_999_999, "batch": 9999, "lag": 1_999_999, "seconds": 999.9}
    pipeline = SimpleNamespace(progress=progress, is_up=True)
    lines = rollup.table(totals_of(rollup, windows), 9_999_999, pipeline, 500)
    lines.append("  stopped: " + rollup.verdict(Counter({0: 9_999_999}), Counter({0: 9_999_999})))

    assert max(map(len, lines)) <= 80
    assert f"in {windows} window{'s' * (windows > 1)} of 5 s" in lines[2]
    assert "9,999,999 orders in 1 window, each of them counted once" in lines[-1]


def test_a_count_that_is_wrong_is_not_passed_over(rollup: ModuleType) -> None:
    counted, published = Counter({0: 5, 5: 7}), Counter({0: 5, 5: 8})

    assert rollup.wrong(counted, published) == [5]
    assert rollup.verdict(counted, published) == "WRONG in 1 window of 2"


def test_a_first_result_that_is_late_is_no_longer_promised_soon(rollup: ModuleType) -> None:
    pipeline = SimpleNamespace(progress={}, is_up=True)

    assert "within 30 s" in rollup.table(rollup.Totals(), 1, pipeline, 30)[2]
    assert "busy" in rollup.table(rollup.Totals(), 1, pipeline, 31)[2]


def test_without_a_terminal_the_windows_that_are_left_out_are_counted(rollup: ModuleType) -> None:
    out = io.StringIO()
    rollup.Screen(out).show([], totals_of(rollup, 4))

    assert "(1 earlier window, not shown here)" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80
