"""Linearizable reads: by a round of heartbeats, and by lease where that was chosen."""

from __future__ import annotations

import pytest

from flintmq.errors import InvalidRequest, NotLeader
from flintmq.raft import MessageKind as Kind
from flintmq.raft import RaftMessage, RaftSettings, remove
from tests.raft.cluster import RaftCluster, elected_cluster, lone_leader


def read(cluster: RaftCluster, node: int, context: bytes) -> list[tuple[int, bytes]]:
    cluster.nodes[node].reads.clear()
    cluster[node].read_index(context)
    cluster.settle()
    return cluster.nodes[node].reads


def test_a_read_is_answered_with_the_commit_index_on_the_leader_and_on_followers() -> None:
    """Parity: TestReadOnlyOptionSafe"""
    cluster = elected_cluster(3)
    for node, proposals, index in [(1, 10, 11), (2, 10, 21), (3, 10, 31)]:
        for number in range(proposals):
            cluster.propose(1, b"%d" % number)
        assert read(cluster, node, b"ctx%d" % node) == [(index, b"ctx%d" % node)]

    cluster.isolate(1)
    assert read(cluster, 1, b"cut off") == []  # nobody confirms that we still lead


def test_a_learners_confirmation_does_not_count_but_it_can_read() -> None:
    """Parity: TestReadOnlyWithLearner"""
    cluster = elected_cluster(2, learners=(2,))
    cluster.propose(1, b"x")
    assert read(cluster, 1, b"a") == [(2, b"a")]
    assert read(cluster, 2, b"b") == [(2, b"b")]

    larger = elected_cluster(3, learners=(2,))
    larger.cut(1, 3)
    assert read(larger, 1, b"c") == []


def leased(node_count: int = 3) -> tuple[RaftCluster, int]:
    cluster = RaftCluster(node_count, lease_reads=True)
    cluster.tick_all(40)
    leader = cluster.leader()
    cluster.propose(leader, b"x")
    cluster.heartbeat(leader)
    cluster.take_sent()
    return cluster, leader


def test_a_lease_answers_without_a_round_trip() -> None:
    """Parity: TestReadOnlyOptionLease"""
    cluster, leader = leased()
    committed = cluster[leader].log.committed

    cluster[leader].read_index(b"ctx")

    assert [(r.index, r.context) for r in cluster[leader].ready().reads] == [(committed, b"ctx")]
    assert cluster.take_sent() == []
    follower = leader % 3 + 1
    assert read(cluster, follower, b"from afar") == [(committed, b"from afar")]


def test_a_lease_runs_out_before_the_voters_may_choose_another_leader() -> None:
    """The model's lease lasts as long as its quorum check, up to twice the election timeout; a
    voter keeps still for one. Ours is counted from the heartbeats a quorum answered."""
    cluster, leader = leased()
    cluster.isolate(leader)

    answered = 0
    for _ in range(2 * cluster[leader].settings.election_ticks):
        cluster.tick(leader)
        if cluster.roles()[leader] != "leader":
            break
        answered += bool(read(cluster, leader, b"late"))

    assert 0 < answered < cluster[leader].settings.election_ticks - 1


def test_who_was_asked_to_hand_over_has_no_lease_any_more() -> None:
    cluster, leader = leased()
    cluster.isolate(leader)
    assert read(cluster, leader, b"a")

    cluster[leader].transfer_leadership(leader % 3 + 1)
    cluster[leader].transfer_leadership(leader)  # taken back; but the word may be out

    assert read(cluster, leader, b"b") == []


def test_a_restarted_voter_keeps_still_for_the_lease_it_may_have_granted() -> None:
    cluster, leader = leased()
    voter = leader % 3 + 1
    cluster.restart(voter)
    cluster.take_sent()
    term = cluster[voter].term + 1
    last = cluster[leader].log.last_id()
    request = RaftMessage(Kind.VOTE, leader, voter, term=term, index=last.index, log_term=last.term)

    cluster.step(request)
    assert cluster.take_sent() == []

    cluster.isolate(voter)
    cluster[voter].core.election_timeout = 10**6
    cluster.tick(voter, cluster[voter].settings.election_ticks)
    cluster.step(request)
    assert [m.kind for m in cluster.take_sent()] == [Kind.VOTE_REPLY]


def test_lease_reads_need_check_quorum() -> None:
    with pytest.raises(InvalidRequest):
        RaftSettings(node=1, lease_reads=True, check_quorum=False)


def test_a_new_leader_delays_reads_until_an_entry_of_its_term_commits() -> None:
    """Parity: TestReadOnlyForNewLeader"""
    cluster = lone_leader()
    cluster[1].read_index(b"early")
    cluster.heartbeat(1)
    beat = cluster.take_sent()[0]
    cluster.step(RaftMessage(Kind.HEARTBEAT_REPLY, 2, 1, term=1, read_round=beat.read_round))
    assert cluster.nodes[1].reads == []

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    rounds = [m.read_round for m in cluster.take_sent() if m.kind is Kind.HEARTBEAT]
    assert cluster.nodes[1].reads == []
    cluster.step(RaftMessage(Kind.HEARTBEAT_REPLY, 2, 1, term=1, read_round=rounds[-1]))

    assert cluster.nodes[1].reads == [(1, b"early")]


def test_two_reads_with_the_same_context_both_get_an_answer() -> None:
    """Parity: TestReadOnlyDuplicateRequest"""
    cluster = elected_cluster(3)
    cluster.propose(1, b"x")

    cluster[1].read_index(b"same")
    cluster[1].read_index(b"same")
    cluster.settle()

    assert cluster.nodes[1].reads == [(2, b"same"), (2, b"same")]


def test_answered_reads_are_forgotten() -> None:
    """Parity: TestRaftFreesReadOnlyMem"""
    cluster = elected_cluster(3)
    cluster[1].read_index(b"x")
    assert cluster[1].status().waiting_reads == 1

    cluster.settle()

    assert cluster[1].status().waiting_reads == 0


def test_reads_asked_before_the_heartbeats_leave_share_one_round() -> None:
    cluster = elected_cluster(3)
    for number in range(5):
        cluster[1].read_index(b"%d" % number)

    cluster.settle()

    assert len(cluster.messages_sent(Kind.HEARTBEAT)) == 2
    assert len(cluster.nodes[1].reads) == 5


def test_a_read_asked_after_the_heartbeats_left_needs_a_round_of_its_own() -> None:
    """The answer to an older heartbeat does not prove that we lead now."""
    cluster = lone_leader()
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    cluster[1].read_index(b"first")
    first = next(m for m in cluster.take_sent() if m.kind is Kind.HEARTBEAT)
    cluster[1].read_index(b"second")
    cluster.settle()

    cluster.step(RaftMessage(Kind.HEARTBEAT_REPLY, 2, 1, term=1, read_round=first.read_round))

    assert cluster.nodes[1].reads == [(1, b"first")]


def test_a_later_round_confirms_the_earlier_ones() -> None:
    cluster = lone_leader()
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    for number in range(3):
        cluster[1].read_index(b"%d" % number)
        cluster.settle()
    last = cluster.messages_sent(Kind.HEARTBEAT)[-1]

    cluster.step(RaftMessage(Kind.HEARTBEAT_REPLY, 2, 1, term=1, read_round=last.read_round))

    assert [context for _, context in cluster.nodes[1].reads] == [b"0", b"1", b"2"]


def test_a_read_asked_of_an_old_leader_is_not_answered() -> None:
    cluster = elected_cluster(3, check_quorum=False)
    cluster.isolate(1)
    cluster.campaign(2)
    cluster.propose(2, b"new")

    assert read(cluster, 1, b"stale") == []
    cluster.heal()
    cluster.heartbeat(2)
    assert cluster.nodes[1].reads == []


def test_a_read_waits_no_longer_when_the_quorum_shrinks_to_us() -> None:
    cluster = elected_cluster(2)
    cluster.drop(Kind.HEARTBEAT)
    assert read(cluster, 1, b"x") == []

    cluster[1].propose_membership(remove(2))
    cluster.settle()

    assert cluster.nodes[1].reads == [(1, b"x")]


def test_where_nobody_leads_a_read_is_refused() -> None:
    with pytest.raises(NotLeader):
        RaftCluster(3)[1].read_index(b"x")
