"""A slice of scripts/worker-kills: workers are killed while tasks are sent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "scripts" / "worker-kills"


def test_no_task_is_lost_and_no_tick_is_stored_twice_while_workers_are_killed() -> None:
    said = ["--seconds", "3", "--rate", "60", "--processes", "2", "--worker-every", "1"]

    done = subprocess.run(
        [sys.executable, str(SCRIPT), *said, "--broker-every", "2"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["plain_acknowledged"] > 0
    assert figures["broker_kills"] > 0
    assert figures["wrong"] == 0
