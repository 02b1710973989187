"""Three nodes in one process: they elect, replicate, and survive the loss of one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flintmq.batch import BatchBuilder
from flintmq.engine.broker import Broker
from flintmq.engine.host import Host
from flintmq.errors import FlintError, InvalidRequest, NotLeader, OutcomeUnknown, StorageFailed
from flintmq.storage.filesystem import LocalFile, LocalFileSystem

from ..engine.test_replicas import digest as digest_of_broker
from .nodes import Cluster, publish, values

pytestmark = pytest.mark.slow


async def test_a_receipt_says_that_it_is_replicated(cluster: Cluster) -> None:
    leader = await cluster.led()

    receipt = await publish(leader.broker, b"one", b"two")

    assert (receipt.offset, receipt.count, receipt.durability) == (0, 2, "replicated")


async def test_every_verb_works_on_every_node(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        await publish(node.broker, b"from %d" % node.id)

    for node in cluster.nodes.values():
        assert await values(node.broker) == [b"from 1", b"from 2", b"from 3"]


async def test_the_verbs_of_a_node_that_follows_say_who_leads(cluster: Cluster) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"one")
    other = next(node for node in cluster.nodes.values() if node is not leader)

    with pytest.raises(NotLeader, match=f"node {other.id} does not lead; node {leader.id} leads"):
        await publish(other.local, b"two")


async def test_what_was_acknowledged_survives_the_loss_of_who_led(cluster: Cluster) -> None:
    leader = await cluster.led()
    for number in range(20):
        await publish(leader.broker, b"%d" % number)

    await cluster.kill(leader.id)

    second = await cluster.led()
    assert second is not leader
    assert await values(second.broker) == [b"%d" % number for number in range(20)]
    assert (await publish(second.broker, b"20")).offset == 20


async def test_a_topic_in_memory_is_there_and_empty_whoever_leads_next(cluster: Cluster) -> None:
    leader = await cluster.led()
    await leader.broker.create_topic("orders", {"storage": "memory"})
    other = next(node for node in cluster.nodes.values() if node is not leader)
    assert (await publish(other.broker, b"0", b"1")).durability == "memory"
    assert await values(other.broker) == [b"0", b"1"]

    cluster.network.cut_off(leader.id)
    await cluster.until(lambda: not leader.is_leading(), "it has given up")
    cluster.network.heal()
    second = await cluster.led()

    for node in cluster.nodes.values():
        assert await values(node.broker) == []
    assert (await publish(second.broker, b"2")).offset == 0
    third = next(node for node in cluster.nodes.values() if node is not second)
    second.hand_over(third.id)
    await cluster.until(third.is_leading, "it leads next")
    assert await values(second.broker) == []


async def test_a_node_that_was_killed_catches_up_and_holds_the_same(cluster: Cluster) -> None:
    await publish((await cluster.led()).broker, b"before")
    gone = await cluster.kill_leader()
    second = await cluster.led()
    for number in range(50):
        await publish(second.broker, b"%d" % number)

    await cluster.start(gone)
    await cluster.agreed()

    assert digest(cluster, gone) == digest(cluster, second.id)


async def test_all_nodes_begin_again_with_what_they_had(cluster: Cluster, tmp_path: Path) -> None:
    for number in range(20):
        await publish((await cluster.led()).broker, b"%d" % number)
    for id in cluster.ids:
        await cluster.kill(id)

    for id in cluster.ids:
        await cluster.start(id)

    leader = await cluster.led()
    assert await values(leader.broker) == [b"%d" % number for number in range(20)]
    await cluster.agreed()
    assert len({digest(cluster, id) for id in cluster.ids}) == 1


async def test_nodes_that_were_closed_begin_again_behind_their_checkpoints(
    cluster: Cluster, tmp_path: Path
) -> None:
    await publish((await cluster.led()).broker, b"one")
    for id in cluster.ids:
        await cluster.nodes.pop(id).close()

    for id in cluster.ids:
        await cluster.start(id)

    leader = await cluster.led()
    assert await values(leader.broker) == [b"one"]
    assert (await publish(leader.broker, b"two")).offset == 1


async def test_a_leader_without_a_majority_does_not_acknowledge(cluster: Cluster) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"one")
    cluster.network.cut_off(leader.id)

    lost = asyncio.ensure_future(publish(leader.local, b"two"))
    await cluster.until(lambda: not leader.is_leading(), "it gives up")
    second = await cluster.led()
    assert await values(second.broker) == [b"one"]
    await publish(second.broker, b"three")
    cluster.network.heal()

    with pytest.raises(NotLeader):
        await lost
    await cluster.agreed()
    assert await values(leader.broker) == [b"one", b"three"]


async def test_the_lead_is_handed_over_without_a_loss(cluster: Cluster) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"one")
    publishing = [
        asyncio.ensure_future(publish(leader.broker, b"%d" % number)) for number in range(30)
    ]

    leader.hand_over()
    await cluster.until(lambda: not leader.is_leading(), "it is handed over")

    receipts = await asyncio.gather(*publishing)
    assert sorted(receipt.offset or 0 for receipt in receipts) == list(range(1, 31))


async def test_publishing_goes_on_through_three_kills(cluster: Cluster) -> None:
    acknowledged: list[bytes] = []
    unknown: list[bytes] = []
    is_over = False

    async def keep_publishing(name: int) -> None:
        number = 0
        while not is_over:
            value = b"%d-%d" % (name, number)
            number += 1
            node = next(iter(cluster.nodes.values()))
            try:
                await publish(node.broker, value)
                acknowledged.append(value)
            except OutcomeUnknown:
                unknown.append(value)
            except FlintError:
                await asyncio.sleep(0.01)

    tasks = [asyncio.ensure_future(keep_publishing(name)) for name in range(4)]
    for _ in range(3):
        await asyncio.sleep(0.1)
        gone = await cluster.kill_leader()
        await cluster.led()
        await asyncio.sleep(0.1)
        await cluster.start(gone)
    is_over = True
    await asyncio.gather(*tasks)
    await cluster.agreed()

    held = await values((await cluster.led()).broker)
    assert len(held) == len(set(held))
    assert set(acknowledged) <= set(held) <= {*acknowledged, *unknown}
    assert len({digest(cluster, id) for id in cluster.ids}) == 1


async def test_a_disk_that_fails_ends_its_node_and_the_others_go_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"one")
    sync, directory = LocalFile.sync, str(cluster.directory / str(leader.id))

    def fail(file: LocalFile) -> None:
        if directory in file.name:
            raise StorageFailed("sync", file.name, "as the test wants it")
        sync(file)

    monkeypatch.setattr(LocalFile, "sync", fail)
    with pytest.raises(OutcomeUnknown, match="as the test wants it"):
        await publish(leader.local, b"two")

    others = [node for node in cluster.nodes.values() if node is not leader]
    await cluster.until(lambda: any(node.is_leading() for node in others), "another leads")
    await publish(others[0].broker, b"three")
    assert [value for value in await values(others[1].broker) if value != b"two"] == [
        b"one",
        b"three",
    ]


async def test_a_node_that_closes_hands_over_what_it_leads(cluster: Cluster) -> None:
    leader = await cluster.led()
    await leader.broker.create_topic("orders", {})
    publishing = [asyncio.ensure_future(publish(leader.local, b"%d" % n)) for n in range(10)]
    await asyncio.sleep(0)

    await cluster.nodes.pop(leader.id).close()

    assert all([await receipt for receipt in publishing])
    await cluster.until(lambda: cluster.leader() is not None, "another leads")


async def test_clients_are_sent_away_before_they_hear_that_what_they_asked_was_not_done(
    cluster: Cluster,
) -> None:
    """Else a client would take that for the answer to its publish, and not ask who leads then."""
    leader = await cluster.led()
    await publish(leader.broker, b"one")
    leader.hand_over()
    rows = BatchBuilder.of([b"two"])
    publishing = leader.local.publish_nowait("orders", rows, qos=1, auto_create=True)
    assert isinstance(publishing, asyncio.Future)
    was_refused: list[bool] = []
    leader.on_leader_changed(lambda *_: was_refused.append(publishing.done()))
    await asyncio.wait([publishing])

    assert isinstance(publishing.exception(), NotLeader)
    assert was_refused[0] is False


async def test_a_directory_of_a_cluster_is_not_opened_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.kill(3)

    alone = Broker(host=Host(LocalFileSystem(tmp_path / "3")))
    with pytest.raises(InvalidRequest, match="node of a cluster"):
        await alone.open()


def digest(cluster: Cluster, id: int) -> str:
    """What a node has applied."""
    return repr(digest_of_broker(cluster.nodes[id].local))
