"""What `make run` tells the reader to type works while it stays up."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

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
    (counted,) = re.findall(r"each of their ([\d,]+) orders counted once", done.stdout)
    assert int(counted.replace(",", "")) > 0
    assert "serve --data-dir" in done.stdout
