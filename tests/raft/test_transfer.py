"""Handing leadership over on purpose."""

from __future__ import annotations

import pytest

from flintmq.errors import LeadershipMoving
from flintmq.raft import (
    MemberAction,
    Membership,
    MembershipChange,
    MembershipStep,
    RaftMessage,
    remove,
)
from flintmq.raft import MessageKind as Kind
from tests.raft.cluster import RaftCluster, elected_cluster


def transfer(cluster: RaftCluster, successor: int, *, asked: int | None = None) -> None:
    cluster[asked or cluster.leader()].transfer_leadership(successor)
    cluster.settle()


def pending(cluster: RaftCluster, node: int = 1) -> int:
    return cluster[node].status().transferee


def test_leadership_moves_to_a_caught_up_follower_and_back() -> None:
    """Parity: TestLeaderTransferToUpToDateNode"""
    cluster = elected_cluster(3)

    transfer(cluster, 2)
    assert (cluster.leader(), cluster.roles()[1]) == (2, "follower")

    cluster.propose(2, b"x")
    transfer(cluster, 1)
    assert cluster.leader() == 1


def test_the_wish_can_be_given_to_a_follower() -> None:
    """Parity: TestLeaderTransferToUpToDateNodeFromFollower"""
    cluster = elected_cluster(3)

    transfer(cluster, 2, asked=2)
    assert cluster.leader() == 2

    transfer(cluster, 1, asked=3)
    assert cluster.leader() == 1


def test_a_transfer_works_although_leases_would_refuse_votes() -> None:
    """Parity: TestLeaderTransferWithCheckQuorum"""
    cluster = elected_cluster(3, check_quorum=True)
    cluster.heartbeat(1)
    assert cluster[3].core._is_in_lease()

    transfer(cluster, 2)

    assert cluster.leader() == 2
    assert any(m.force for m in cluster.messages_sent(Kind.VOTE))


def test_a_slow_successor_is_caught_up_first() -> None:
    """Parity: TestLeaderTransferToSlowFollower"""
    cluster = elected_cluster(3)
    cluster.isolate(3)
    cluster.propose(1, b"x")
    cluster.heal()
    cluster.heartbeat(1)
    role = cluster.leader_role(1)
    role.progress[3].match, role.progress[3].next = 1, 2  # as far as the leader knows

    transfer(cluster, 3)

    assert cluster.leader() == 3


def test_a_successor_that_needs_a_snapshot_gets_it_first() -> None:
    """Parity: TestLeaderTransferAfterSnapshot"""
    cluster = elected_cluster(3)
    cluster.isolate(3)
    cluster.propose(1, b"x")
    cluster.take_snapshot(1)
    cluster.heal()

    cluster[1].transfer_leadership(3)
    cluster.settle()
    cluster.heartbeat(1)

    assert cluster.messages_sent(Kind.SNAPSHOT)
    assert cluster.leader() == 3


@pytest.mark.parametrize("successor", [1, 4], ids=["self", "stranger"])
def test_a_transfer_to_itself_or_a_stranger_changes_nothing(successor: int) -> None:
    """Parity: TestLeaderTransferToSelf, TestLeaderTransferToNonExistingNode"""
    cluster = elected_cluster(3)

    transfer(cluster, successor)

    assert (cluster.leader(), pending(cluster)) == (1, 0)


def test_leadership_does_not_move_to_a_learner() -> None:
    cluster = elected_cluster(3, learners=(3,))

    transfer(cluster, 3)

    assert (cluster.leader(), pending(cluster)) == (1, 0)


def test_a_transfer_to_a_dead_node_is_given_up_after_an_election_timeout() -> None:
    """Parity: TestLeaderTransferTimeout"""
    cluster = elected_cluster(3)
    cluster.isolate(3)
    transfer(cluster, 3)
    assert pending(cluster) == 3

    cluster.tick(1, cluster[1].settings.election_ticks - 1)
    assert pending(cluster) == 3
    cluster.tick(1)

    assert (cluster.leader(), pending(cluster)) == (1, 0)


def test_proposals_are_refused_while_a_transfer_is_pending() -> None:
    """Parity: TestLeaderTransferIgnoreProposal"""
    cluster = elected_cluster(3)
    cluster.isolate(3)
    transfer(cluster, 3)

    with pytest.raises(LeadershipMoving) as refused:
        cluster[1].propose(b"x")

    assert refused.value.successor == 3
    assert cluster.leader_role(1).progress[1].match == 1


def test_a_pending_transfer_ends_with_a_vote_of_a_higher_term() -> None:
    """Parity: TestLeaderTransferReceiveHigherTermVote"""
    cluster = elected_cluster(3, pre_vote=False, check_quorum=False)
    cluster.isolate(3)
    transfer(cluster, 3)
    assert pending(cluster) == 3

    cluster.campaign(2)

    assert (cluster.leader(), pending(cluster, 2), pending(cluster)) == (2, 0, 0)


@pytest.mark.parametrize(
    "change",
    [remove(3), MembershipChange((MembershipStep(MemberAction.ADD_LEARNER, 3),))],
    ids=["removed", "demoted"],
)
def test_a_pending_transfer_ends_when_the_successor_loses_its_vote(
    change: MembershipChange,
) -> None:
    """Parity: TestLeaderTransferRemoveNode, TestLeaderTransferDemoteNode"""
    cluster = elected_cluster(3)
    cluster.drop(Kind.TIMEOUT_NOW)
    cluster.nodes[1].apply_is_held = True
    cluster[1].propose_membership(change)
    cluster.settle()
    transfer(cluster, 3)
    assert pending(cluster) == 3

    entry = next(e for r in cluster.nodes[1].readies for e in r.committed if e.kind == 1)
    cluster[1].apply_membership(entry)

    assert pending(cluster) == 0


def test_a_transfer_to_the_leader_itself_takes_a_pending_one_back() -> None:
    """Parity: TestLeaderTransferBack"""
    cluster = elected_cluster(3)
    cluster.isolate(3)
    transfer(cluster, 3)

    transfer(cluster, 1)

    assert (cluster.leader(), pending(cluster)) == (1, 0)


def test_a_second_transfer_to_another_node_replaces_the_first() -> None:
    """Parity: TestLeaderTransferSecondTransferToAnotherNode"""
    cluster = elected_cluster(3)
    cluster.isolate(3)
    transfer(cluster, 3)

    transfer(cluster, 2)

    assert cluster.leader() == 2


def test_repeating_a_transfer_does_not_buy_more_time() -> None:
    """Parity: TestLeaderTransferSecondTransferToSameNode"""
    cluster = elected_cluster(3)
    cluster.isolate(3)
    transfer(cluster, 3)
    cluster.tick(1, 5)

    transfer(cluster, 3)
    cluster.tick(1, cluster[1].settings.election_ticks - 5)

    assert pending(cluster) == 0


def test_timeout_now_does_nothing_at_a_node_that_was_removed() -> None:
    """Parity: TestTransferNonMember"""
    cluster = elected_cluster(3)
    cluster[2].core.membership = Membership(voters=(1, 3))

    cluster.step(RaftMessage(Kind.TIMEOUT_NOW, 1, 2, term=1))
    cluster.step(RaftMessage(Kind.VOTE_REPLY, 1, 2, term=1))

    assert cluster.roles()[2] == "follower"
