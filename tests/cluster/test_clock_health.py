"""A node whose clock is off says so, and leaves the lead to others."""

from __future__ import annotations

import logging

import pytest

from flintmq.cluster.clock_health import ClockHealth

from .nodes import Cluster


@pytest.mark.parametrize(
    ("others", "skew", "is_skewed", "is_off"),
    [
        ([], 0, False, False),
        ([3, -2], 0, False, False),
        ([600, 700], -600, True, False),
        ([-600, -700], 600, True, False),
        ([11_000, 12_000], -11_000, True, True),
        ([0, 40_000], 0, False, False),  # that one is wrong, not this
        ([40_000], 0, False, False),  # of two nobody knows
        ([-40_000], 40_000, True, False),
    ],
)
def test_a_clock_is_compared_with_the_median_of_all(
    others: list[int], skew: int, is_skewed: bool, is_off: bool
) -> None:
    clock = ClockHealth()
    clock.look(others, 1)
    assert (clock.skew_ms, clock.is_skewed, clock.is_off) == (skew, is_skewed, is_off)


def test_it_is_told_once_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ClockHealth()
    for ms in (600, 610, 490, 480, 300, 0):
        clock.look([ms, ms], 1)
    said = [record.getMessage() for record in caplog.records]
    assert [text.split(";")[0].split(" (")[0] for text in said] == [
        "the clock is 0.6 s behind that of most nodes",
        "the clock agrees with the other nodes again",
    ]


async def test_a_leader_whose_clock_is_far_off_hands_over_and_does_not_come_back(
    cluster: Cluster,
) -> None:
    leader = await cluster.led()
    leader.clocks_of_peers = lambda: [-20_000, -20_000]

    await cluster.until(
        lambda: cluster.leader() not in (None, leader), "another leads in its place"
    )
    assert not leader.may_lead
    assert leader.flags
    assert leader.counts.transfers >= 1  # asked again where the next leader takes its time
    assert leader.counts.lost == 1

    leader.clocks_of_peers = lambda: [0, 0]
    await cluster.until(lambda: leader.may_lead, "it may lead again")
