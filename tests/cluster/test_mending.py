"""Messages that the disk of a node has damaged are got from another node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from flintmq.broker_api import Joining
from flintmq.cluster import mending
from flintmq.cluster.node import ClusterNode

from .nodes import Cluster, publish, values

pytestmark = pytest.mark.slow

COUNT = 300


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(mending, "LOOK_TICKS", 2)
    async with Cluster(tmp_path, check_ticks=1 << 40, scrub_bytes_per_second=0) as cluster:
        yield cluster


def value(number: int) -> bytes:
    return f"value {number} ".encode() * 5


async def filled(cluster: Cluster) -> ClusterNode:
    """Who leads, after messages that are in segments on every node, and some that are not."""
    leader = await cluster.led()
    for number in range(0, COUNT, 100):
        await publish(leader.broker, *[value(one) for one in range(number, number + 100)])
        await cluster.agreed()
        for node in cluster.nodes.values():
            await node.local.host.checkpoint()
    await publish(leader.broker, b"not in a segment")
    await cluster.agreed()
    return leader


def segments(node: ClusterNode) -> list[Path]:
    named = node.local.host.kept[0].checkpoints.manifest.files()
    directory = node.filesystem.describe("")
    return [Path(directory) / name for name in sorted(named)]


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


async def look(node: ClusterNode) -> None:
    """As the thread does that looks for damage."""
    node.local.host.damages.scrubber.run_pass()
    await asyncio.sleep(0)  # it is told to the loop


def damaged(node: ClusterNode) -> int:
    return node.local.host.damages.messages()


def mended(node: ClusterNode) -> int:
    assert node.care is not None
    return node.care.mender.mended


def follower(cluster: Cluster, leader: ClusterNode) -> ClusterNode:
    return next(node for node in cluster.nodes.values() if node is not leader)


async def has_all(cluster: Cluster, node: ClusterNode) -> None:
    """What it has itself: it is made the leader, and read from."""
    leader = await cluster.led()
    if leader is not node:
        leader.hand_over(node.id)
        await cluster.until(node.is_leading, "it leads")
    found: list[bytes] = [*await values(node.local)]
    assert found == [*map(value, range(COUNT)), b"not in a segment"]


async def test_a_follower_gets_what_is_damaged_from_the_leader(cluster: Cluster) -> None:
    leader = await filled(cluster)
    wrong = follower(cluster, leader)
    flip(segments(wrong)[1], 200)
    await look(wrong)

    assert damaged(wrong) > 0
    count = damaged(wrong)
    await cluster.until(lambda: mended(wrong) == count, "it is mended")

    assert damaged(wrong) == 0
    await has_all(cluster, wrong)
    await cluster.kill(wrong.id)
    again = await cluster.start(wrong.id)
    await cluster.agreed()
    await look(again)
    assert damaged(again) == 0, "and it stays mended"
    await has_all(cluster, again)


async def test_a_leader_has_another_lead_and_gets_it_from_there(cluster: Cluster) -> None:
    leader = await filled(cluster)
    flip(segments(leader)[0], 200)
    await look(leader)

    await cluster.until(lambda: mended(leader) > 0, "it is mended")

    assert damaged(leader) == 0
    await has_all(cluster, leader)


@pytest.mark.parametrize("seed", range(6))
async def test_wherever_a_bit_flips_or_a_file_is_cut_nothing_is_lost(
    cluster: Cluster, seed: int
) -> None:
    chance = Random(seed)
    leader = await filled(cluster)
    wrong = follower(cluster, leader)
    path = chance.choice(segments(wrong))
    await cluster.kill(wrong.id)
    size = path.stat().st_size
    if seed % 2:
        path.write_bytes(path.read_bytes()[: chance.randrange(size)])
    else:
        flip(path, chance.randrange(size))

    again = await cluster.start(wrong.id)
    await cluster.agreed()
    await look(again)
    await cluster.until(lambda: damaged(again) == 0, "nothing is damaged any more")

    await has_all(cluster, again)


async def test_groups_go_on_over_what_was_mended(cluster: Cluster) -> None:
    leader = await filled(cluster)
    wrong = follower(cluster, leader)
    flip(segments(wrong)[0], 100)
    await look(wrong)
    await cluster.until(lambda: damaged(wrong) == 0, "it is mended")

    leader.hand_over(wrong.id)
    await cluster.until(wrong.is_leading, "it leads")
    member = await wrong.broker.join_group(Joining("orders", "g", "holder", start="earliest"))
    taken: list[bytes] = []
    while (grant := await member.take(100, 30.0, 0)) is not None:
        taken += grant.rows.values
        await member.ack([(grant.token, [(o, o + 1) for o in grant.rows.offsets if o is not None])])
    assert taken == [*map(value, range(COUNT)), b"not in a segment"]


async def test_what_no_other_node_has_whole_stays_as_it_is_and_nobody_stops(
    cluster: Cluster,
) -> None:
    leader = await filled(cluster)
    for node in cluster.nodes.values():
        flip(segments(node)[0], 150)
        await look(node)
    count = damaged(follower(cluster, leader))

    for _ in range(30):
        await publish((await cluster.led()).broker, b"goes on")

    assert count > 0
    assert all(node.may_lead for node in cluster.nodes.values())
    assert sum(mended(node) for node in cluster.nodes.values()) == 0
