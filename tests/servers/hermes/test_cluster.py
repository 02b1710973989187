"""Three nodes of `flintmq hermesd`, driven by HermesMQ's protocol alone."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.patience import until

from .client import Refused
from .cluster import hermesd_nodes, leader_of, listed
from .cluster_kill_rounds import rounds

pytestmark = pytest.mark.slow


async def test_the_life_of_a_cluster_as_their_own_test_has_it(tmp_path: Path) -> None:
    """Blank, bootstrapped at one node, fail-over, and back; every request by its own connection."""
    async with hermesd_nodes(tmp_path) as nodes:
        for node in nodes:
            assert (await node.page("health"))[0] == 200
            assert (await node.page("ready"))[0] == 503
            with pytest.raises(Refused) as caught:
                await node.call("produce", topic="orders", payload=b"too early")
            assert (caught.value.code, caught.value.leader_addr) == ("not_leader", "")
            assert not (await node.call("stats")).is_leader

        await nodes[2].call("bootstrap", nodes=listed(nodes))
        for node in nodes:
            await until(node.is_ready, f"node {node.id} is ready")
        leader = await leader_of(nodes)
        for node in nodes:
            stats = await node.call("stats")
            assert (stats.current_leader, stats.is_leader) == (leader.id, node is leader)
            if node is not leader:
                for kind in ("produce", "poll", "ack", "nack", "commit", "create_topic"):
                    with pytest.raises(Refused) as caught:
                        await node.call(kind, topic="orders")
                    assert caught.value.code == "not_leader"
                    assert caught.value.leader_addr == leader.peer_addr

        await leader.call("create_topic", topic="orders")
        low = await leader.call("produce", topic="orders", payload=b"low", producer_id="p1", seq=1)
        high = await leader.call(
            "produce", topic="orders", payload=b"high", producer_id="p1", seq=2, priority=7
        )
        again = await leader.call(
            "produce", topic="orders", payload=b"again", producer_id="p1", seq=1
        )
        assert (low.offset, high.offset, again.offset) == (0, 1, 0)
        polled = await leader.call("poll", topic="orders", group="workers", wait_ms=5000)
        assert [item.payload for item in polled.items] == [b"high", b"low"]
        for item in polled.items:  # by another connection than the poll
            await leader.call("ack", topic="orders", group="workers", lease_id=item.lease_id)
        survivor = await leader.call("produce", topic="orders", payload=b"survivor")

        await leader.kill()
        second = await leader_of(nodes, but=leader)
        polled = await second.call("poll", topic="orders", group="workers", wait_ms=10_000)
        assert [(one.offset, one.payload) for one in polled.items] == [
            (survivor.offset, b"survivor")
        ]
        await second.call("ack", topic="orders", group="workers", lease_id=polled.items[0].lease_id)
        after = await second.call("produce", topic="orders", payload=b"after")
        assert after.offset > survivor.offset

        applied = (await second.call("stats")).last_applied
        await leader.start()

        async def has_caught_up() -> bool:
            return bool((await leader.call("stats")).last_applied >= applied)

        await until(has_caught_up, "the one that was killed catches up")
        await until(leader.is_ready, "the one that was killed is ready")
        for node in nodes:
            status, text = await node.page("metrics")
            assert status == 200
            assert "hermesmq_raft_is_leader" in text
            assert "hermesmq_messages" in text

        # A node whose disk was emptied might vote a second time: it does not come back.
        wiped = min(nodes, key=lambda node: node.peer_addr)
        await wiped.kill()
        shutil.rmtree(wiped.data)
        await wiped.start()
        with pytest.raises(Refused, match="belongs to a cluster already") as caught:
            await wiped.call("bootstrap", nodes=listed(nodes))
        assert caught.value.code == "bootstrap_failed"
        third = await leader_of(nodes, but=wiped)
        await third.call("produce", topic="orders", payload=b"the others go on")


async def test_w17_conflicting_bootstraps_never_make_two_clusters(tmp_path: Path) -> None:
    async with hermesd_nodes(tmp_path) as nodes:
        first, second, third = nodes
        both = [listed([first, second, third]), listed([second, third])]
        answers = await asyncio.gather(
            first.call("bootstrap", nodes=both[0]),
            third.call("bootstrap", nodes=both[1]),
            return_exceptions=True,
        )
        refused = [answer for answer in answers if isinstance(answer, Refused)]
        assert refused, "two clusters of the same nodes"
        assert {answer.code for answer in refused} == {"bootstrap_failed"}
        assert len([node for node in nodes if await node.leads()]) <= 1


async def test_w17_a_list_that_is_wrong_changes_nothing_and_one_that_is_right_does(
    tmp_path: Path,
) -> None:
    async with hermesd_nodes(tmp_path) as nodes:
        right = listed(nodes)
        others = right[:2]
        for wrong, why in (
            ([(7, "127.0.0.1:1"), *others[1:]], "this is node-1, which is not in the list"),
            ([*others, (3, right[0][1])], "is there twice"),
            ([*others, (3, "nowhere")], "not all nodes have agreed|not an address"),
            ([*others, (4, right[2][1])], "node 'node-3' is not in the list"),
        ):
            with pytest.raises(Refused, match=why) as caught:
                await nodes[0].call("bootstrap", nodes=wrong)
            assert caught.value.code == "bootstrap_failed"
        await nodes[1].call("bootstrap", nodes=[*reversed(right), right[0]])

        leader = await leader_of(nodes)
        for node in nodes:
            await node.call("bootstrap", nodes=right)  # as often as one likes
        with pytest.raises(Refused, match="node-1, node-2, node-3 already"):
            await leader.call("bootstrap", nodes=others)


async def test_nothing_that_was_answered_is_lost_when_the_leader_is_killed(tmp_path: Path) -> None:
    """One round of cluster_kill_rounds.py, which runs as many as one likes."""
    assert len(await rounds(tmp_path, 1, seed=1)) == 1
