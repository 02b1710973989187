"""A real broker, a real driver, a query through a shuffle, and everything that can be killed.

Once each here; scripts/spark-kills does it as often as wanted.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .kill_rounds import run_rounds


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_what_goes_in_comes_out_exactly_once_whatever_is_killed(
    tmp_path: Path, environment_without_java: dict[str, str]
) -> None:
    outcome = run_rounds(
        tmp_path,
        delivery="exactly_once",
        messages=600,
        per_trigger=150,
        kills=1,
        broker_kills=1,
        seed=int(os.environ.get("FLINTMQ_KILL_SEED", "1")),
        environment=environment_without_java,
    )

    assert (outcome.came, outcome.lost, outcome.doubled) == (600, 0, 0), outcome
    assert (outcome.driver_kills, outcome.broker_kills) == (1, 1), outcome
