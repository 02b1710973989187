"""When a disk is taken for one that hangs, and when it is well again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from flintmq.cluster.disk_health import IS_FULL, IS_STALLED, DiskHealth
from flintmq.cluster.node import ClusterNode
from flintmq.cluster.transport import LocalNetwork
from flintmq.errors import OutcomeUnknown, StorageFull
from flintmq.storage.filesystem import LocalFile, LocalFileSystem

from ..patience import until
from .nodes import TICK_SECONDS, Cluster, publish, values


def looked(disk: DiskHealth, submitted: int, durable: int) -> bool:
    return disk.look(submitted, durable, is_full=False)


def test_a_write_that_does_not_come_back_makes_the_disk_one_that_hangs() -> None:
    disk = DiskHealth(stalled_looks=3)
    looked(disk, 1, 0)

    assert [(looked(disk, 1 + more, 0), disk.is_fit)[1] for more in range(3)] == [True, True, False]
    assert disk.flags == IS_STALLED


def test_a_queue_in_which_every_write_waits_too_long_is_one_that_hangs_too() -> None:
    disk = DiskHealth(stalled_looks=3)

    for number in range(5):
        looked(disk, 10 + number, number)

    assert not disk.is_fit


def test_writes_that_come_soon_never_make_it_unfit() -> None:
    disk = DiskHealth(stalled_looks=3)

    for number in range(100):
        looked(disk, number + 2, number)

    assert disk.is_fit


def test_it_is_well_again_behind_ten_quick_writes_and_is_tried_for_that() -> None:
    disk = DiskHealth(stalled_looks=1)
    looked(disk, 1, 0)
    looked(disk, 1, 0)
    assert not disk.is_fit

    tries = [looked(disk, ticket, ticket) for ticket in range(1, 11)]

    assert tries == [True] * 9 + [False]
    assert disk.is_fit


def test_a_slow_write_begins_the_ten_anew() -> None:
    disk = DiskHealth(stalled_looks=10)
    for _ in range(11):
        looked(disk, 1, 0)
    for ticket in range(1, 10):
        looked(disk, ticket, ticket)
    looked(disk, 10, 9)
    for _ in range(6):
        looked(disk, 10, 9)
    looked(disk, 10, 10)

    for ticket in range(11, 20):
        looked(disk, ticket, ticket)
        assert not disk.is_fit
    looked(disk, 20, 20)
    assert disk.is_fit


def test_tickets_that_begin_anew_are_no_disk_that_hangs() -> None:
    disk = DiskHealth(stalled_looks=1)
    looked(disk, 100, 90)

    for _ in range(5):
        looked(disk, 0, 0)

    assert disk.is_fit


def test_zero_looks_turn_it_off() -> None:
    disk = DiskHealth(stalled_looks=0)

    for _ in range(100):
        looked(disk, 1, 0)

    assert disk.is_fit


def test_a_full_disk_is_unfit_as_long_as_it_is_full() -> None:
    disk = DiskHealth()

    disk.look(0, 0, is_full=True)
    assert (disk.is_fit, disk.flags) == (False, IS_FULL)
    disk.look(0, 0, is_full=False)
    assert disk.is_fit


@contextmanager
def hanging(cluster: Cluster, node: ClusterNode, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Syncs of one node do not come back."""
    sync, directory = LocalFile.sync, str(cluster.directory / str(node.id))
    goes_on = threading.Event()

    def hang(file: LocalFile) -> None:
        if directory in file.name:
            goes_on.wait()
        sync(file)

    patch.setattr(LocalFile, "sync", hang)
    try:
        yield
    finally:
        goes_on.set()


@pytest.mark.slow
async def test_a_leader_whose_disk_hangs_hands_over_and_may_lead_again_when_it_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(tmp_path, stalled_ticks=40) as cluster:
        leader = await cluster.led()
        await publish(leader.broker, b"one")
        other = next(node for node in cluster.nodes.values() if node is not leader)
        with hanging(cluster, leader, monkeypatch):
            publishing = asyncio.ensure_future(publish(leader.local, b"two"))
            await cluster.until(lambda: not leader.is_leading(), "it hands over")
            assert not leader.disk.is_fit
            assert await values(other.broker) == [b"one", b"two"]
            second = await cluster.led()
            leader.peer_is_fit(second.id, True)
            second.hand_over(leader.id)
            await publish(second.broker, b"three")
            assert not leader.is_leading()

        with suppress(OutcomeUnknown):  # where its own disk did not say so in time
            await publishing
        await cluster.until(lambda: leader.disk.is_fit, "ten quick writes, though nobody publishes")
        (await cluster.led()).hand_over(leader.id)
        await cluster.until(leader.is_leading, "it leads again")
        assert await values(leader.broker) == [b"one", b"two", b"three"]


@pytest.mark.slow
async def test_a_leader_whose_disk_is_full_hands_over_to_one_that_has_room(
    cluster: Cluster,
) -> None:
    leader = await cluster.led()
    full, well = (node for node in cluster.nodes.values() if node is not leader)
    for node in (leader, well):
        node.peer_is_fit(full.id, False)

    leader.local.host._ran_full(StorageFull("as the test wants it", ""))

    await cluster.until(well.is_leading, "the one with room leads")
    await publish(leader.broker, b"one")
    leader.local.host._has_room()
    await cluster.until(lambda: leader.disk.is_fit, "it has room again")


@pytest.mark.slow
async def test_where_every_disk_is_full_the_leader_stays(cluster: Cluster) -> None:
    leader = await cluster.led()
    for node in cluster.nodes.values():
        if node is not leader:
            leader.peer_is_fit(node.id, False)
    term = leader.host.term

    leader.local.host._ran_full(StorageFull("as the test wants it", ""))
    await cluster.until(lambda: not leader.disk.is_fit, "it knows")
    for _ in range(30):
        await asyncio.sleep(TICK_SECONDS)

    assert leader.is_leading()
    assert leader.host.term == term
    with pytest.raises(StorageFull):
        await publish(leader.local, b"one")


async def test_timers_that_come_too_early_are_no_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop whose timers have milliseconds rounds what is left of a tick to nothing."""
    network = LocalNetwork()
    path = tmp_path / "1"
    path.mkdir()
    node = ClusterNode(LocalFileSystem(path), network.transport(1), node=1, founders=(1,))
    await node.open()
    looks: list[float] = []
    try:
        await until(node.is_leading, "it leads")
        monkeypatch.setattr(node, "_look_at_disk", lambda: looks.append(0.0))
        monkeypatch.setattr(node, "_arm", lambda: None)
        monkeypatch.setattr(node._ticking, "monotonic", lambda: 1000.0)
        for _ in range(50):
            node._tick()
    finally:
        monkeypatch.undo()
        await node.close()

    assert len(looks) == 1


async def test_a_node_that_was_held_up_says_so_and_makes_its_ticks_good_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network = LocalNetwork()
    path = tmp_path / "1"
    path.mkdir()
    node = ClusterNode(LocalFileSystem(path), network.transport(1), node=1, founders=(1,))
    await node.open()
    ticks: list[float] = []
    now = [1000.0]
    try:
        await until(node.is_leading, "it leads")
        monkeypatch.setattr(node, "_arm", lambda: None)
        monkeypatch.setattr(node._ticking, "monotonic", lambda: now[0])
        node._ticked_at, late = now[0], node.counts.late_ticks
        monkeypatch.setattr(node.host, "tick", lambda: ticks.append(now[0]))
        for now[0] in (1000.15, 1000.45, 1001.25):
            node._tick()
    finally:
        monkeypatch.undo()
        await node.close()

    assert ticks == [1000.15] + [1000.45] * 3 + [1001.25] * 8
    assert node.counts.late_ticks - late == 0 + 2 + 7
    said = [one.getMessage() for one in caplog.records if "held up" in one.getMessage()]
    assert [text.split(":")[0] for text in said] == ["this node was held up for 0.7 s"]
