"""What is left out on some ways of running is named by tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from .over_blocking import NOT_OF_THREADS
from .over_network import NOT_OF_NETWORKS
from .over_stops import NOT_WITH_STOPS

HERE = Path(__file__).parent


def test_whatever_is_left_out_somewhere_is_there() -> None:
    files = {path.name: path.read_text() for path in HERE.glob("test_*.py")}
    tests = {name for text in files.values() for name in re.findall(r"def (test_\w+)\(", text)}
    left_out = {
        name.partition("[")[0] for name in (*NOT_OF_THREADS, *NOT_OF_NETWORKS, *NOT_WITH_STOPS)
    }

    assert left_out <= tests | set(files)
