"""What is said of a cluster that is not well, and in which order its nodes are restarted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flintmq.cluster_advice import (
    RestartStep,
    examine,
    restart_steps,
    skews,
    spare,
    why_not_restart,
)
from flintmq.cluster_model import ClusterStatus, GroupStatus, NodeStatus


def node(name: str, role: Any = "follower", **more: Any) -> NodeStatus:
    facts = {"peer": f"{name}:7602", "version": "1.0", "level": 2, "clock_ms": 0, "behind": 0}
    return NodeStatus(id=ord(name), name=name, role=role, address=name, **{**facts, **more})


def cluster(*nodes: NodeStatus, level: int = 2) -> ClusterStatus:
    leader = next((one.name for one in nodes if one.role == "leader"), None)
    group = GroupStatus(id=0, leader=leader, term=3, members=[one.name for one in nodes])
    return ClusterStatus(
        cluster="ab" * 16,
        leader=leader,
        has_quorum=True,
        nodes=list(nodes),
        groups=[group],
        level=level,
    )


WELL = cluster(node("a", "leader"), node("b"), node("c"))


def test_of_a_cluster_that_is_well_only_the_majority_is_told() -> None:
    found = examine(WELL)

    assert found.is_well
    assert [one.text for one in found.findings] == ["3 of 3 voters are up; 1 more node may fail"]


@pytest.mark.parametrize(
    ("nodes", "level", "about", "says"),
    [
        (
            (node("b", "down"), node("c")),
            "warning",
            "spare",
            "2 of 3 voters are up: if one more fails",
        ),
        ((node("b", "down", why="no answer"), node("c")), "error", "nodes", "b is down: no answer"),
        ((node("b", "down"), node("c", "down")), "error", "quorum", "nothing can be published"),
        ((node("b", disk="full"), node("c")), "error", "disks", "the disk of node b is full"),
        ((node("b", disk="stalled"), node("c")), "error", "disks", "b hangs while writing"),
        ((node("b", copy="differs"), node("c")), "error", "copies", "b differs from that of most"),
        ((node("b", clock_ms=-700), node("c")), "warning", "clocks", "b is 0.7 s behind"),
        ((node("b", clock_ms=11_000), node("c")), "error", "clocks", "11.0 s ahead of the others;"),
        ((node("b", behind=20_000), node("c")), "warning", "lag", "b is 20,000 entries behind"),
        ((node("b", "learner", behind=5), node("c")), "warning", "lag", "does not vote yet"),
        ((node("b", version="0.9"), node("c")), "warning", "versions", "a 1.0, b 0.9, c 1.0"),
        ((node("b"),), "warning", "spare", "2 of 2 voters are up: if one more fails"),
        (
            (node("b"), node("c"), node("d")),
            "warning",
            "spare",
            "may fail than with 3",
        ),
    ],
)
def test_what_is_wrong_is_found_and_has_a_remedy(
    nodes: tuple[NodeStatus, ...], level: str, about: str, says: str
) -> None:
    found = examine(cluster(node("a", "leader"), *nodes))

    told = [one for one in found.findings if one.about == about and one.level == level]
    assert any(says in one.text for one in told), found.findings
    assert found.is_well == all(one.level != "error" for one in found.findings)


def test_a_cluster_without_a_leader_is_not_well() -> None:
    found = examine(cluster(node("a"), node("b"), node("c")))

    assert not found.is_well
    assert "there is no leader" in found.findings[0].text


def test_what_can_be_finalized_is_told() -> None:
    found = examine(msgspec.structs.replace(WELL, level=1))

    assert "flintmq cluster finalize" in found.findings[-1].remedy


def test_a_clock_is_compared_with_the_median() -> None:
    nodes = [node("a", "leader"), node("b", clock_ms=900), node("c", clock_ms=1000)]

    assert skews(nodes) == {"a": -900, "b": 0, "c": 100}


def test_how_many_voters_may_fail() -> None:
    assert spare(WELL) == 1
    assert spare(cluster(node("a", "leader"), node("b"), node("c", "down"))) == 0
    assert spare(cluster(node("a"), node("b", "down"), node("c", "down"))) == -1


def test_the_leader_is_restarted_last_and_hands_over_to_one_that_was_restarted() -> None:
    status = cluster(node("a", "leader"), node("b", behind=9), node("c"), node("d", "learner"))

    assert restart_steps(status) == [
        RestartStep("restart", "d"),
        RestartStep("restart", "c"),
        RestartStep("restart", "b"),
        RestartStep("transfer", "a", "c"),
        RestartStep("restart", "a"),
    ]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (WELL, ""),
        (cluster(node("a"), node("b"), node("c")), "the cluster has no leader"),
        (cluster(node("a", "leader"), node("b", "down"), node("c")), "node b is down"),
        (cluster(node("a", "leader"), node("b")), "with 2 voters"),
        (cluster(node("a", "leader"), node("b", behind=99_999), node("c")), "99,999 entries"),
    ],
)
def test_a_node_is_stopped_only_while_the_others_can_go_on(status: ClusterStatus, why: str) -> None:
    assert why in why_not_restart(status)
    assert bool(why) == bool(why_not_restart(status))
