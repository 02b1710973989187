"""A node whose state differs from that of most is found, and gets it anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flintmq.broker_api import Joining
from flintmq.cluster import checking
from flintmq.cluster.checking import StateChecks
from flintmq.cluster.node import ClusterNode

from ..engine.test_replicas import digest as digest_of_broker
from .nodes import Cluster, publish, values

pytestmark = pytest.mark.slow


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(checking, "ASK_TICKS", 2)
    async with Cluster(tmp_path, check_ticks=1 << 40) as cluster:
        yield cluster


def checks_of(node: ClusterNode) -> StateChecks:
    assert node.care is not None
    return node.care.checks


async def check(cluster: Cluster) -> None:
    """Have all nodes compare what they have."""
    before = {id: checks_of(node).checked for id, node in cluster.nodes.items()}
    checks_of(await cluster.led()).propose()
    await cluster.until(
        lambda: all(checks_of(cluster.nodes[id]).checked > n for id, n in before.items()),
        "all have worked it out",
    )


async def same(cluster: Cluster) -> None:
    await cluster.agreed()
    digests = {repr(digest_of_broker(node.local)) for node in cluster.nodes.values()}
    assert len(digests) == 1


async def some_story(cluster: Cluster) -> ClusterNode:
    """Who leads, after some messages, a group, and a checkpoint in the middle."""
    leader = await cluster.led()
    await publish(leader.broker, b"one", b"two", b"three")
    member = await leader.broker.join_group(Joining("orders", "g", "holder"))
    grant = await member.take(2, 30.0, 0)
    assert grant is not None
    await member.ack([(grant.token, [(0, 1)])])
    for node in cluster.nodes.values():
        await node.local.host.checkpoint()
    await publish(leader.broker, b"four", topic="bills")
    await publish(leader.broker, b"five")
    await cluster.agreed()
    return leader


def change_secretly(node: ClusterNode) -> None:
    """As a flipped bit in its memory does: a message counts as done that nobody has settled."""
    state = node.local.shard.state.topics["orders"]
    state.groups["g"].queue.apply_settle([(2, 3)])


def another(cluster: Cluster, leader: ClusterNode) -> ClusterNode:
    return next(node for node in cluster.nodes.values() if node is not leader)


async def test_where_all_have_the_same_nothing_is_done(cluster: Cluster) -> None:
    await some_story(cluster)
    for _ in range(3):
        await check(cluster)
        await publish((await cluster.led()).broker, b"more")

    await cluster.agreed()
    assert [checks_of(node).found for node in cluster.nodes.values()] == [0, 0, 0]
    assert all(node.may_lead for node in cluster.nodes.values())


async def test_the_leader_checks_by_itself(tmp_path: Path) -> None:
    async with Cluster(tmp_path, check_ticks=5) as cluster:
        await cluster.until(
            lambda: all(checks_of(node).checked > 2 for node in cluster.nodes.values()), "checks"
        )


async def test_a_follower_that_differs_is_found_and_gets_the_state_of_the_others(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    leader = await some_story(cluster)
    wrong = another(cluster, leader)
    change_secretly(wrong)

    await check(cluster)
    await cluster.until(lambda: checks_of(wrong).found == 1, "it is found")
    assert [node.differs for node in cluster.nodes.values() if node is not wrong] == [False] * 2
    await publish(leader.broker, b"meanwhile")
    await cluster.until(lambda: checks_of(wrong).rebuilt == 1, "it has been rebuilt")

    await same(cluster)
    assert "differs from that of the majority" in caplog.text
    await check(cluster)
    assert not wrong.differs
    leader.hand_over(wrong.id)
    await cluster.until(wrong.is_leading, "it may lead again")
    assert await values(wrong.local) == [b"one", b"two", b"three", b"five", b"meanwhile"]


async def test_a_leader_that_differs_hands_over_first(cluster: Cluster) -> None:
    leader = await some_story(cluster)
    change_secretly(leader)

    await check(cluster)
    await cluster.until(lambda: checks_of(leader).rebuilt == 1, "it has been rebuilt")

    assert not leader.is_leading()
    await publish((await cluster.led()).broker, b"goes on")
    await same(cluster)


async def test_what_was_rebuilt_is_there_after_a_kill(cluster: Cluster) -> None:
    leader = await some_story(cluster)
    wrong = another(cluster, leader)
    change_secretly(wrong)
    await check(cluster)
    await cluster.until(lambda: checks_of(wrong).rebuilt == 1, "it has been rebuilt")

    await cluster.kill(wrong.id)
    await publish(leader.broker, b"meanwhile")
    await cluster.start(wrong.id)

    await same(cluster)
    await check(cluster)
    assert not cluster.nodes[wrong.id].differs


async def test_a_checkpoint_of_the_leader_that_is_too_old_is_followed_by_a_later_one(
    cluster: Cluster,
) -> None:
    leader = await some_story(cluster)
    wrong = another(cluster, leader)
    large = bytes(100_000)
    wrong.host.storage._keep_bytes = wrong.host.storage._mark_bytes = 100_000
    for _ in range(8):
        await publish(leader.broker, large)
    await cluster.agreed()
    await wrong.local.host.checkpoint()
    assert (
        wrong.host.storage.first_index() - 1
        > leader.local.host.kept[0].checkpoints.manifest.head.checkpoint
    )
    change_secretly(wrong)

    await check(cluster)
    await cluster.until(lambda: checks_of(wrong).rebuilt == 1, "it has been rebuilt")
    await same(cluster)


async def test_where_no_majority_agrees_nobody_is_changed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    leader = await some_story(cluster)
    change_secretly(leader)
    another(cluster, leader).local.shard.state.topics["orders"].names["r"] = (0, 1)

    await check(cluster)
    await cluster.until(lambda: "no majority agrees" in caplog.text, "it is told")

    assert [checks_of(node).found for node in cluster.nodes.values()] == [0, 0, 0]
    assert leader.is_leading()


async def test_a_topic_that_has_not_changed_since_the_last_check_is_looked_at_too(
    cluster: Cluster,
) -> None:
    leader = await some_story(cluster)
    await check(cluster)
    wrong = another(cluster, leader)
    change_secretly(wrong)

    await check(cluster)

    await cluster.until(lambda: checks_of(wrong).found == 1, "it is found")
