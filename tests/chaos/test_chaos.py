"""Half a minute of chaos: a real broker, every verb, every fault that this machine allows."""

from __future__ import annotations

import pytest

from .cluster_run import run as run_cluster
from .crowd import Options
from .run import run

SECONDS = 20.0
"""What is around it (starting, draining, reading back, judging) takes another ten."""


@pytest.mark.slow
def test_a_cluster_whose_leader_is_killed_breaks_no_rule() -> None:
    report = run_cluster(1, seed=7)

    print(report)
    assert report.is_good, str(report)
    judged = {one.name: one.judged for one in report.verdict.checks}
    assert judged["what has a receipt is where the receipt says"] > 100
    assert report.faults == {"leader-kill": 1}


@pytest.mark.slow
def test_half_a_minute_of_chaos_breaks_no_rule() -> None:
    report = run(Options(SECONDS, seed=7))

    print(report)
    assert report.is_good, str(report)
    judged = {one.name: one.judged for one in report.verdict.checks}
    assert judged["what has a receipt is where the receipt says"] > 500
    assert judged["what is settled is never delivered again"] > 20
    assert sum(report.faults.values()) >= 3
