"""kill -9 of a running pipeline: what comes out in the end is what an undisturbed run makes.

Once here, with `archive`; a pipeline with windows is killed in test_run_command.py.
scripts/pipeline-kills does it with `rollup`, too, and as often as wanted.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from ..ready import Ready
from .kill_rounds import APART, Place, publish_orders, run_and_kill
from .test_ready_made import some_orders

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


def test_a_pipeline_that_is_killed_gives_what_one_that_is_not_does(
    spark: Any,
    ready: Ready,
    topic: str,
    tmp_path: Path,
    environment_without_java: dict[str, str],
) -> None:
    name, seed = "archive", random.randrange(1_000_000)
    chance = random.Random(seed)
    publish_orders(ready.mq, topic, some_orders(160, apart=APART[name], seed=seed))
    undisturbed = Place(name, ready.servers, topic, tmp_path / "undisturbed", batch=40)
    killed = Place(name, ready.servers, topic, tmp_path / "killed", batch=40)

    ready.run(name, **undisturbed.settings)
    killed_in = run_and_kill(killed, chance.randrange(3), chance, environment_without_java)
    ready.run(name, **killed.settings)

    assert killed_in is not None, f"it had ended; seed {seed}"
    expected = undisturbed.rows(ready.mq)
    assert expected
    assert killed.rows(ready.mq) == expected, f"killed in {killed_in}; seed {seed}"
