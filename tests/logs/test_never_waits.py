"""Whoever logs never waits for whoever reads."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flintmq.observe.logs import configure, event

log = logging.getLogger("flintmq.tests.waiting")


class Stuck(io.StringIO):
    """A reader that takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self.is_stuck = threading.Event()

    def write(self, text: str) -> int:
        self.is_stuck.set()
        self.goes_on.wait(60)
        return super().write(text)


def test_lines_that_a_slow_reader_has_no_room_for_are_dropped_and_counted() -> None:
    stream = Stuck()
    logs = configure(format="json", stream=stream, lines_max=10)
    try:
        event(log, logging.INFO, "first", "the reader is stuck over this one")
        assert stream.is_stuck.wait(60)
        for _ in range(100):
            event(log, logging.INFO, "more", "nobody waits here")
    finally:
        stream.goes_on.set()
        logs.close()

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["first", *["more"] * 10, "log_lines_dropped"]
    assert lines[-1]["count"] == 90


def test_a_full_pipe_that_does_not_block_gets_every_line_in_the_end() -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with os.fdopen(reads, "rb") as reader, os.fdopen(writes, "w") as writer:
        logs = configure(format="json", stream=writer)
        for number in range(1_000):
            event(log, logging.INFO, "line", "x" * 100, number=number)
        found: list[int] = []
        while len(found) < 1_000:
            found.append(json.loads(reader.readline())["number"])
        logs.close()

    assert found == list(range(1_000))


def test_a_reader_that_is_gone_harms_nobody() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as writer:
        logs = configure(format="json", stream=writer)
        event(log, logging.INFO, "line", "into nothing")
        logs.flush()
        event(log, logging.INFO, "line", "again")
        logs.close()


def test_closing_writes_everything_that_waits(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        logs = configure(format="json", stream=stream)
        for number in range(500):
            event(log, logging.INFO, "line", "text", number=number)
        logs.close()

    assert len((tmp_path / "log").read_text().splitlines()) == 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "event"),
    [
        ("raise ValueError('x')", "crashed"),
        ("logs.flush(); os._exit(1)", "line"),
        ("threading.Thread(target=lambda: 1 / 0).start()", "thread_crashed"),
        ("pass", "line"),
    ],
)
def test_whatever_way_a_process_ends_its_lines_are_written(end: str, event: str) -> None:
    script = (
        "import logging, os, threading\n"
        "from flintmq.observe.logs import configure, event\n"
        "logs = configure(format='json')\n"
        "for n in range(300):\n"
        "    event(logging.getLogger('x'), logging.INFO, 'line', 'text', n=n)\n"
        f"{end}\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["n"] for line in lines[:300]] == list(range(300))
    assert lines[-1]["event"] == event
