"""Snapshots: when they are sent, what installing one changes, how their bytes travel."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pytest

from flintmq.errors import InvalidRequest, LogUnavailable, SnapshotDamaged
from flintmq.raft import (
    Membership,
    RaftEntry,
    RaftMessage,
    RaftSnapshot,
    SnapshotChunk,
    SnapshotReceiver,
    add_learner,
    chunk_at,
    describe_bytes,
)
from flintmq.raft import MessageKind as Kind
from flintmq.raft.progress import ProgressState
from tests.raft.cluster import RaftCluster, elected_cluster, lone_leader

ELEVEN = RaftSnapshot(index=11, term=11, membership=Membership(voters=(1, 2, 3)))


def receive(cluster: RaftCluster, node: int, snapshot: RaftSnapshot, sender: int = 2) -> None:
    cluster.step(RaftMessage(Kind.SNAPSHOT, sender, node, term=11, snapshot=snapshot))


def compacted_leader(**options: Any) -> RaftCluster:
    """A lone leader of two that has forgotten all entries its follower needs."""
    cluster = lone_leader(2, **options)
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    for _ in range(10):
        cluster.propose(1, b"x")
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=11))
    cluster.take_snapshot(1)
    progress = cluster.leader_role(1).progress[2]
    progress.match, progress.next = 0, 1
    progress.state = ProgressState.PROBE
    cluster.take_sent()
    return cluster


def ask_for_what_is_gone(cluster: RaftCluster) -> None:
    progress = cluster.leader_role(1).progress[2]
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=progress.next - 1, reject=True))


# -- installing -------------------------------------------------------------------------------


def test_a_snapshot_sets_the_log_and_the_membership_and_an_older_one_is_refused() -> None:
    """Parity: TestRestore"""
    cluster = RaftCluster(2, only=(1,))

    receive(cluster, 1, ELEVEN)
    raft = cluster[1]
    assert (raft.log.last_id().index, raft.log.last_id().term) == (11, 11)
    assert raft.membership == ELEVEN.membership
    assert cluster.nodes[1].storage.snapshot() == ELEVEN
    assert raft.role.name.value == "follower"
    assert raft.core.restore(ELEVEN) is False

    for _ in range(raft.core.election_timeout - 1):  # no election right after
        raft.tick()
    assert raft.role.name.value == "follower"


@pytest.mark.parametrize(
    ("membership", "is_learner"),
    [
        (Membership(voters=(1, 2), learners=(3,)), True),
        (Membership(voters=(2, 3, 4), outgoing=(1, 2, 3)), False),
        (Membership(voters=(1, 2, 3)), False),
        (Membership(voters=(1, 2, 4), learners=(3,)), True),
    ],
)
def test_a_snapshot_makes_voters_learners_and_learners_voters(
    membership: Membership, is_learner: bool
) -> None:
    """Parity: TestRestoreWithLearner, TestRestoreWithVotersOutgoing, TestRestoreVoterToLearner,
    TestRestoreLearnerPromotion"""
    for learners in ((), (3,)):  # it was a voter before, or a learner
        cluster = RaftCluster(3, only=(3,), learners=learners)

        receive(cluster, 3, msgspec.structs.replace(ELEVEN, membership=membership))

        assert cluster[3].membership == membership
        assert cluster[3].status().is_learner is is_learner
        assert cluster[3].core.is_promotable() is not is_learner


def test_a_learner_catches_up_by_a_snapshot() -> None:
    """Parity: TestLearnerReceiveSnapshot"""
    cluster = elected_cluster(2, learners=(2,))
    cluster.isolate(2)
    for _ in range(5):
        cluster.propose(1, b"x")
    cluster.take_snapshot(1)
    cluster.heal()

    cluster.heartbeat(1)

    assert cluster.messages_sent(Kind.SNAPSHOT)
    assert cluster[2].log.committed == cluster[1].log.committed == 6


def test_a_snapshot_at_or_below_the_commit_is_ignored_and_a_matching_one_moves_it() -> None:
    """Parity: TestRestoreIgnoreSnapshot"""
    cluster = RaftCluster(2, only=(1,), logs={1: (1, 1, 1)})
    raft = cluster[1]
    raft.core.commit_to(1)
    cluster.settle()

    assert raft.core.restore(RaftSnapshot(index=1, term=1, membership=cluster.membership)) is False
    assert raft.log.committed == 1
    assert raft.core.restore(RaftSnapshot(index=2, term=1, membership=cluster.membership)) is False
    assert (raft.log.committed, raft.log.last_index()) == (2, 3)


def test_a_late_snapshot_does_not_take_a_node_back() -> None:
    cluster = RaftCluster(2, only=(1,))
    receive(cluster, 1, ELEVEN)

    receive(cluster, 1, RaftSnapshot(index=5, term=4, membership=Membership(voters=(1,))))

    assert (cluster[1].log.committed, cluster[1].log.last_index()) == (11, 11)
    assert cluster[1].membership == ELEVEN.membership
    assert cluster.take_sent()[-1].index == 11  # and the leader is told where we are


def test_who_joins_takes_a_snapshot_from_before_it_was_added() -> None:
    """The simulator's find: refused as not meant for it, the node never joined."""
    cluster = RaftCluster(3, only=(1,))
    cluster.add_node(4)

    receive(cluster, 4, ELEVEN)

    assert cluster[4].log.last_index() == 11
    assert not cluster[4].core.is_promotable()


def test_a_snapshot_message_tells_who_leads() -> None:
    """Parity: TestRestoreFromSnapMsg"""
    cluster = RaftCluster(2, only=(1,))

    receive(cluster, 1, ELEVEN)

    assert cluster[1].leader == 2


def test_a_node_far_behind_is_restored_by_a_snapshot_and_then_by_entries() -> None:
    """Parity: TestSlowNodeRestore"""
    cluster = elected_cluster(3)
    cluster.isolate(3)
    for _ in range(100):
        cluster.propose(1, b"x")
    cluster.take_snapshot(1)
    cluster.heal()

    cluster.heartbeat(1)
    cluster.propose(1, b"behind the snapshot")
    cluster.heartbeat(1)

    assert len(cluster.messages_sent(Kind.SNAPSHOT)) == 1
    assert cluster[3].log.committed == cluster[1].log.committed == 102
    assert cluster.nodes[3].data() == [b"behind the snapshot"]


def test_a_change_handed_out_before_a_snapshot_arrived_is_not_applied_after_it() -> None:
    """The simulator's find: the snapshot had set the membership already."""
    cluster = elected_cluster(3)
    cluster.nodes[3].apply_is_held = True
    cluster[1].propose_membership(add_learner(4))
    cluster.settle()
    cluster.heartbeat(1)
    entry = next(e for r in cluster.nodes[3].readies for e in r.committed if e.kind == 1)
    late = RaftSnapshot(index=50, term=1, membership=Membership(voters=(1, 2, 3), learners=(5,)))
    cluster.step(RaftMessage(Kind.SNAPSHOT, 1, 3, term=1, snapshot=late))

    assert cluster[3].apply_membership(entry) is None
    assert cluster[3].membership == late.membership


# -- sending ----------------------------------------------------------------------------------


def test_the_leader_sends_a_snapshot_when_the_entries_are_compacted() -> None:
    """Parity: TestProvideSnap, TestPendingSnapshotSet"""
    cluster = compacted_leader()

    ask_for_what_is_gone(cluster)

    (message,) = cluster.take_sent()
    assert (message.kind, message.snapshot) == (Kind.SNAPSHOT, cluster.nodes[1].storage.snapshot())
    progress = cluster.leader_role(1).progress[2]
    assert (progress.state, progress.pending_snapshot) == (ProgressState.SNAPSHOT, 11)


def test_no_snapshot_is_sent_to_a_peer_that_is_not_there() -> None:
    """Parity: TestIgnoreProvidingSnap"""
    cluster = compacted_leader()
    cluster.leader_role(1).progress[2].recent_active = False
    cluster.leader_role(1).progress[2].is_paused_until_answer = False

    cluster.propose(1, b"x")

    assert cluster.take_sent() == []


@pytest.mark.pure_python("it replaces a method of the storage in memory")
def test_no_snapshot_is_sent_while_the_storage_has_none_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = compacted_leader()

    def not_now() -> RaftSnapshot:
        raise LogUnavailable("being made")

    monkeypatch.setattr(cluster.nodes[1].storage, "snapshot", not_now)
    ask_for_what_is_gone(cluster)
    assert cluster.take_sent() == []

    monkeypatch.undo()
    cluster.step(RaftMessage(Kind.HEARTBEAT_REPLY, 2, 1, term=1))
    assert [m.kind for m in cluster.take_sent()] == [Kind.SNAPSHOT]


def test_replication_pauses_while_a_snapshot_is_under_way() -> None:
    """Parity: TestPendingSnapshotPauseReplication"""
    cluster = compacted_leader()
    ask_for_what_is_gone(cluster)
    cluster.take_sent()

    cluster.propose(1, b"x")

    assert cluster.take_sent() == []


@pytest.mark.parametrize(("arrived", "next_index"), [(False, 1), (True, 12)])
def test_after_a_snapshot_the_peer_is_probed_behind_it_or_where_it_was(
    arrived: bool, next_index: int
) -> None:
    """Parity: TestSnapshotFailure, TestSnapshotSucceed"""
    cluster = compacted_leader()
    ask_for_what_is_gone(cluster)

    cluster[1].report_snapshot(2, arrived=arrived)

    progress = cluster.leader_role(1).progress[2]
    assert (progress.state, progress.pending_snapshot) == (ProgressState.PROBE, 0)
    assert progress.next == next_index
    assert progress.is_paused()


def test_a_snapshot_is_given_up_when_the_peer_reports_a_newer_match() -> None:
    """Parity: TestSnapshotAbort"""
    cluster = compacted_leader()
    ask_for_what_is_gone(cluster)

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=11))

    progress = cluster.leader_role(1).progress[2]
    assert (progress.state, progress.pending_snapshot) == (ProgressState.REPLICATE, 0)
    assert progress.next == 12


def test_a_snapshot_is_given_up_when_the_peer_reports_what_the_log_still_has() -> None:
    """Script snapshot_succeed_via_app_resp_behind: behind the snapshot, but not behind the log."""
    cluster = compacted_leader()
    cluster.leader_role(1).progress[2].become_snapshot(20)

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=11))

    assert cluster.leader_role(1).progress[2].state is ProgressState.REPLICATE


# -- compaction -------------------------------------------------------------------------------


def test_compaction_keeps_a_tail_for_followers_that_are_a_little_slow() -> None:
    cluster = elected_cluster(3, trailing_entries=5)
    assert cluster[1].index_to_compact() == 0
    for _ in range(20):
        cluster.propose(1, b"x")
    storage = cluster.nodes[1].storage
    storage.take_snapshot(20, cluster[1].membership)

    index = cluster[1].index_to_compact()
    storage.compact(index)

    assert index == 15
    assert storage.first_index() == 16
    cluster.isolate(3)
    cluster.propose(1, b"y")
    cluster.heal()
    cluster.heartbeat(1)
    assert cluster.messages_sent(Kind.SNAPSHOT) == []
    assert cluster[3].log.last_index() == 22


def test_a_restart_begins_at_the_snapshot() -> None:
    cluster = elected_cluster(3)
    for number in range(5):
        cluster.propose(1, b"%d" % number)
    cluster.take_snapshot(1)
    cluster.propose(1, b"after")

    cluster.restart(1)
    cluster.settle()

    assert cluster.nodes[1].data() == [b"after"]
    assert cluster[1].log.first_index() == 7


# -- bytes ------------------------------------------------------------------------------------


def described(data: bytes) -> RaftSnapshot:
    return describe_bytes(ELEVEN, data, chunk_bytes=4, checksum=zlib.crc32)


def test_a_snapshot_travels_in_checked_chunks_and_can_be_resumed() -> None:
    data = b"0123456789"
    snapshot = described(data)
    assert len(snapshot.chunk_checksums) == 3
    receiver, taken = SnapshotReceiver(snapshot, zlib.crc32), bytearray()

    chunk = chunk_at(snapshot, data, receiver.offset_next)
    assert receiver.accept(chunk)
    taken += chunk.data
    assert not receiver.accept(chunk)  # repeated
    assert not receiver.accept(chunk_at(snapshot, data, 8))  # too early

    receiver = SnapshotReceiver(snapshot, zlib.crc32, offset_next=6)  # a torn chunk on disk
    assert receiver.offset_next == 4
    while not receiver.is_complete():
        chunk = chunk_at(snapshot, data, receiver.offset_next)
        assert receiver.accept(chunk)
        taken += chunk.data
    receiver.check_whole(bytes(taken))
    assert bytes(taken) == data


def test_damaged_chunks_and_wholes_are_refused() -> None:
    data = b"0123456789"
    snapshot = described(data)
    receiver = SnapshotReceiver(snapshot, zlib.crc32)

    with pytest.raises(SnapshotDamaged):
        receiver.accept(SnapshotChunk(0, b"012x"))
    with pytest.raises(SnapshotDamaged):
        receiver.accept(SnapshotChunk(0, b"01"))
    with pytest.raises(SnapshotDamaged):
        receiver.check_whole(b"012345678x")
    with pytest.raises(InvalidRequest):
        chunk_at(snapshot, data, 3)
    with pytest.raises(InvalidRequest):
        SnapshotReceiver(msgspec.structs.replace(snapshot, size_bytes=99), zlib.crc32)
    with pytest.raises(InvalidRequest):
        describe_bytes(ELEVEN, data, chunk_bytes=0, checksum=zlib.crc32)


def test_an_empty_snapshot_is_complete_at_once() -> None:
    receiver = SnapshotReceiver(described(b""), zlib.crc32)

    assert receiver.is_complete()
    assert not receiver.accept(SnapshotChunk(0, b""))


def test_entries_behind_a_snapshot_can_be_written_while_it_is_installed() -> None:
    cluster = RaftCluster(3, only=(1,))
    cluster.nodes[1].disk_is_held = True
    receive(cluster, 1, ELEVEN)
    cluster.step(
        RaftMessage(
            Kind.APPEND,
            2,
            1,
            term=11,
            index=11,
            log_term=11,
            entries=(RaftEntry(12, 11),),
            commit=12,
        )
    )
    assert len(cluster.nodes[1].waiting_writes) == 2
    assert cluster.nodes[1].applied == []

    cluster.complete_writes(1)
    cluster.settle()

    assert [e.index for e in cluster.nodes[1].applied] == [12]
