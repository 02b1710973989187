"""Changing who belongs to a group, through the log: one at a time, and jointly."""

from __future__ import annotations

import pytest

from flintmq.errors import InvalidRequest, MembershipChangeRefused, ProposalRefused
from flintmq.raft import (
    LEAVE_JOINT,
    EntryKind,
    MemberAction,
    Membership,
    MembershipChange,
    MembershipStep,
    RaftEntry,
    RaftMessage,
    Transition,
    add_learner,
    add_voter,
    decode_change,
    encode_change,
    remove,
)
from flintmq.raft import MessageKind as Kind
from flintmq.raft.membership import changed, check_is_sound
from tests.raft.cluster import RaftCluster, elected_cluster, lone_leader

SWAP = MembershipChange(
    (MembershipStep(MemberAction.REMOVE, 3), MembershipStep(MemberAction.ADD_VOTER, 4))
)


def change(cluster: RaftCluster, what: MembershipChange, node: int = 1) -> None:
    cluster[node].propose_membership(what)
    cluster.settle()


def test_a_change_is_appended_and_its_index_remembered() -> None:
    """Parity: TestStepConfig"""
    cluster = lone_leader(2)
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))

    taken = cluster[1].propose_membership(add_learner(3))

    assert taken is not None
    assert taken.index == cluster[1].log.last_index() == 2
    assert cluster.leader_role(1).pending_membership_index == 2


def test_a_second_change_while_one_is_unapplied_is_refused_and_from_afar_becomes_a_no_op() -> None:
    """Parity: TestStepIgnoreConfig"""
    cluster = lone_leader(2)
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    cluster[1].propose_membership(add_learner(3))

    with pytest.raises(MembershipChangeRefused):
        cluster[1].propose_membership(add_learner(4))
    assert cluster[1].log.last_index() == 2

    forwarded = RaftEntry(0, 0, encode_change(add_learner(4)), EntryKind.MEMBERSHIP)
    cluster.step(RaftMessage(Kind.PROPOSE, 2, 1, entries=(forwarded, RaftEntry(0, 0, b"x"))))
    assert [(e.kind, e.data) for e in cluster[1].log.entries(3)] == [
        (EntryKind.NORMAL, b""),
        (EntryKind.NORMAL, b"x"),
    ]
    assert cluster.leader_role(1).pending_membership_index == 2


def test_a_change_that_is_committed_but_not_applied_still_blocks_the_next() -> None:
    cluster = elected_cluster(3)
    cluster.nodes[1].apply_is_held = True
    change(cluster, add_learner(4))
    assert cluster[1].log.committed == 2

    with pytest.raises(MembershipChangeRefused):
        cluster[1].propose_membership(add_learner(5))


@pytest.mark.parametrize("has_change", [True, False])
def test_a_new_leader_treats_its_whole_tail_as_a_possible_change(has_change: bool) -> None:
    """Parity: TestNewLeaderPendingConfig"""
    cluster = elected_cluster(3, pre_vote=False, check_quorum=False)
    cluster.cut(1, 3)
    cluster.drop(Kind.APPEND_REPLY)
    if has_change:
        change(cluster, add_learner(4))
    else:
        cluster.propose(1, b"x")
    cluster.heal()
    cluster.isolate(1)
    cluster.lets_pass = lambda m: m.kind is not Kind.APPEND

    cluster.campaign(2)

    assert cluster.leader_role(2).pending_membership_index == 2
    with pytest.raises(MembershipChangeRefused):
        cluster[2].propose_membership(add_learner(5))


def test_no_change_before_an_entry_of_the_term_is_committed() -> None:
    """The correction of 2015 to single-server changes."""
    cluster = lone_leader(3)

    with pytest.raises(MembershipChangeRefused):
        cluster[1].propose_membership(add_learner(4))

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    assert cluster[1].propose_membership(add_learner(4)) is not None


def test_a_voter_is_added() -> None:
    """Parity: TestAddNode"""
    cluster = elected_cluster(1)
    cluster.add_node(2)

    change(cluster, add_voter(2))

    assert cluster[1].membership == Membership(voters=(1, 2))
    cluster.heartbeat(1)
    assert cluster[2].membership == Membership(voters=(1, 2))
    assert cluster[2].log.committed == 2


def test_a_learner_is_added_and_promoted() -> None:
    """Parity: TestAddLearner"""
    cluster = elected_cluster(1)
    cluster.add_node(2)

    change(cluster, add_learner(2))
    cluster.heartbeat(1)
    assert cluster[1].membership == Membership(voters=(1,), learners=(2,))
    assert cluster[2].status().is_learner

    change(cluster, add_voter(2))
    cluster.heartbeat(1)
    assert cluster[1].membership == Membership(voters=(1, 2))
    assert not cluster[2].status().is_learner

    change(cluster, add_learner(2))  # and demoted again
    assert cluster[1].membership == Membership(voters=(1,), learners=(2,))


def test_adding_a_node_does_not_at_once_trip_the_quorum_check() -> None:
    """Parity: TestAddNodeCheckQuorum"""
    cluster = elected_cluster(1)
    election_ticks = cluster[1].settings.election_ticks
    for _ in range(election_ticks - 1):
        cluster.tick(1)

    change(cluster, add_voter(2))  # never answers
    cluster.tick(1)
    assert cluster.roles()[1] == "leader"

    cluster.tick(1, election_ticks)
    assert cluster.roles()[1] == "follower"


def test_a_voter_is_removed_but_not_the_last() -> None:
    """Parity: TestRemoveNode"""
    cluster = elected_cluster(2)

    change(cluster, remove(2))
    assert cluster[1].membership == Membership(voters=(1,))
    assert 2 not in cluster.leader_role(1).progress

    with pytest.raises(MembershipChangeRefused):
        cluster[1].propose_membership(remove(1))


def test_a_learner_is_removed() -> None:
    """Parity: TestRemoveLearner"""
    cluster = elected_cluster(2, learners=(2,))

    change(cluster, remove(2))

    assert cluster[1].membership == Membership(voters=(1,))
    with pytest.raises(MembershipChangeRefused):
        cluster[1].propose_membership(remove(1))


def test_members_are_listed_in_order() -> None:
    """Parity: TestRaftNodes"""
    before = Membership(voters=(3,))
    for node in (2, 9, 1):
        before = changed(before, add_voter(node))

    assert before.voters == before.everybody() == (1, 2, 3, 9)


def test_shrinking_the_quorum_commits_what_is_now_held_by_a_majority() -> None:
    """Parity: TestCommitAfterRemoveNode"""
    cluster = elected_cluster(2)
    cluster[1].propose_membership(remove(2))
    ready = cluster[1].ready()
    entry = ready.entries[0]
    cluster.nodes[1].storage.append(ready.entries)
    assert ready.persisted is not None
    cluster[1].persisted(ready.persisted)
    cluster.isolate(2)
    cluster.propose(1, b"hello")
    assert cluster[1].log.committed == 1

    cluster[1].step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=entry.index))
    cluster.settle()

    assert cluster[1].membership == Membership(voters=(1,))
    assert cluster.nodes[1].data() == [b"hello"]


def test_a_leader_that_removes_itself_steps_down_when_it_applies_that() -> None:
    cluster = elected_cluster(3)

    change(cluster, remove(1))

    assert cluster.roles()[1] == "follower"
    assert not cluster[1].core.is_promotable()
    cluster.tick_all(60)
    assert cluster.leader() in (2, 3)
    cluster.propose(cluster.leader(), b"goes on")
    assert cluster.nodes[2].data() == cluster.nodes[3].data() == [b"goes on"]


def test_a_removed_node_that_does_not_know_it_disturbs_nobody() -> None:
    cluster = elected_cluster(3)
    cluster.isolate(3)
    change(cluster, remove(3))
    cluster.heal()

    cluster.tick_all(100)

    assert cluster.leader() == 1
    assert cluster.terms()[1] == 1
    assert cluster.roles()[3] == "pre-candidate"


# -- joint ------------------------------------------------------------------------------------


def test_a_joint_change_is_entered_and_left_by_itself() -> None:
    cluster = elected_cluster(3)
    cluster.add_node(4)

    change(cluster, SWAP)
    cluster.heartbeat(1)

    assert cluster[1].membership == Membership(voters=(1, 2, 4))
    kinds = [e.kind for e in cluster.nodes[1].applied]
    assert kinds.count(EntryKind.MEMBERSHIP) == 2  # into it and out of it
    assert cluster[4].membership == Membership(voters=(1, 2, 4))


def test_an_explicit_joint_configuration_is_left_when_asked() -> None:
    cluster = elected_cluster(3)
    cluster.add_node(4)
    explicit = MembershipChange(SWAP.steps, Transition.JOINT_EXPLICIT)

    change(cluster, explicit)
    cluster.heartbeat(1)
    assert cluster[1].membership == Membership(voters=(1, 2, 4), outgoing=(1, 2, 3))
    with pytest.raises(MembershipChangeRefused):
        cluster[1].propose_membership(add_voter(5))

    change(cluster, LEAVE_JOINT)
    assert cluster[1].membership == Membership(voters=(1, 2, 4))
    with pytest.raises(MembershipChangeRefused):
        cluster[1].propose_membership(LEAVE_JOINT)


def test_in_a_joint_configuration_both_halves_must_agree() -> None:
    cluster = elected_cluster(3)
    cluster.add_node(4)
    cluster.add_node(5)
    replace = MembershipChange(
        (
            MembershipStep(MemberAction.REMOVE, 2),
            MembershipStep(MemberAction.REMOVE, 3),
            MembershipStep(MemberAction.ADD_VOTER, 4),
            MembershipStep(MemberAction.ADD_VOTER, 5),
        ),
        Transition.JOINT_EXPLICIT,
    )
    change(cluster, replace)
    cluster.heartbeat(1)
    committed = cluster[1].log.committed

    cluster.isolate(4)
    cluster.isolate(5)
    cluster.propose(1, b"only the old half")
    assert cluster[1].log.committed == committed

    cluster.heal()
    cluster.isolate(2)
    cluster.isolate(3)
    cluster.propose(1, b"only the new half")
    assert cluster[1].log.committed == committed + 1  # the first one has both halves now

    cluster.heal()
    cluster.heartbeat(1)
    assert cluster.nodes[1].data() == [b"only the old half", b"only the new half"]


def test_a_joint_configuration_is_left_by_the_next_leader_when_the_first_is_lost() -> None:
    cluster = elected_cluster(3, check_quorum=False)
    cluster.add_node(4)
    cluster.lets_pass = lambda m: (
        not any(e.kind is EntryKind.MEMBERSHIP and not len(e.data) for e in m.entries)
    )
    change(cluster, SWAP)
    cluster.heartbeat(1)
    assert cluster[2].membership.is_joint()
    cluster.heal()
    cluster.isolate(1)

    cluster.campaign(2)
    cluster.heartbeat(2)

    assert cluster.leader() == 2
    assert cluster[2].membership == Membership(voters=(1, 2, 4))


def test_a_voter_that_becomes_a_learner_waits_until_the_joint_phase_ends() -> None:
    demote = MembershipChange(
        (MembershipStep(MemberAction.ADD_LEARNER, 3), MembershipStep(MemberAction.ADD_VOTER, 4)),
        Transition.JOINT_EXPLICIT,
    )
    before = Membership(voters=(1, 2, 3))

    joint = changed(before, demote)
    assert joint == Membership(voters=(1, 2, 4), outgoing=(1, 2, 3), learners_next=(3,))
    assert joint.is_voter(3)
    assert changed(joint, LEAVE_JOINT) == Membership(voters=(1, 2, 4), learners=(3,))


def test_a_leader_replaces_itself() -> None:
    cluster = elected_cluster(3)
    cluster.add_node(4)
    change(
        cluster,
        MembershipChange(
            (MembershipStep(MemberAction.REMOVE, 1), MembershipStep(MemberAction.ADD_VOTER, 4))
        ),
    )
    cluster.tick_all(60)

    assert cluster.leader() in (2, 3, 4)
    assert cluster[cluster.leader()].membership == Membership(voters=(2, 3, 4))


def test_a_change_the_living_could_not_commit_is_refused() -> None:
    cluster = elected_cluster(3, membership_needs_live_quorum=True)
    cluster.heartbeat(1)
    cluster.isolate(3)
    cluster.tick(1, 25)  # node 3 is no longer heard from

    with pytest.raises(MembershipChangeRefused):
        cluster[1].propose_membership(remove(2))  # 1 and the silent 3 would be left
    with pytest.raises(MembershipChangeRefused):
        cluster[1].propose_membership(
            MembershipChange(
                (
                    MembershipStep(MemberAction.ADD_VOTER, 4),
                    MembershipStep(MemberAction.ADD_VOTER, 5),
                )
            )
        )
    change(cluster, remove(3))
    assert cluster[1].membership == Membership(voters=(1, 2))


def test_a_new_voter_comes_in_as_a_learner_first() -> None:
    cluster = elected_cluster(1, membership_needs_live_quorum=True)
    with pytest.raises(MembershipChangeRefused):
        cluster[1].propose_membership(add_voter(2))
    cluster.add_node(2)

    change(cluster, add_learner(2))
    cluster.heartbeat(1)
    change(cluster, add_voter(2))

    assert cluster[1].membership == Membership(voters=(1, 2))


# -- the values -------------------------------------------------------------------------------


def test_two_voters_cannot_change_in_one_simple_step() -> None:
    two = Membership(voters=(1, 2, 3))
    steps = (MembershipStep(MemberAction.REMOVE, 3), MembershipStep(MemberAction.ADD_VOTER, 4))

    assert changed(two, MembershipChange(steps)).is_joint()
    with pytest.raises(MembershipChangeRefused):
        changed(two, add_voter(0))


def test_adding_twice_and_removing_a_stranger_change_nothing() -> None:
    before = Membership(voters=(1, 2), learners=(3,))

    assert changed(before, add_voter(2)) == before
    assert changed(before, add_learner(3)) == before
    assert changed(before, remove(9)) == before


@pytest.mark.parametrize(
    "unsound",
    [
        Membership(voters=(1,), learners=(1,)),
        Membership(voters=(1,), outgoing=(2,), learners=(2,)),
        Membership(voters=(1,), learners_next=(2,)),
        Membership(voters=(1,), auto_leave=True),
        Membership(voters=(0, 1)),
    ],
)
def test_an_unsound_membership_is_refused(unsound: Membership) -> None:
    with pytest.raises(InvalidRequest):
        check_is_sound(unsound)


@pytest.mark.parametrize(
    "what",
    [
        LEAVE_JOINT,
        add_voter(7),
        remove(2**63),
        SWAP,
        MembershipChange(SWAP.steps, Transition.JOINT_EXPLICIT),
        MembershipChange((), Transition.JOINT_IMPLICIT),
    ],
)
def test_a_change_survives_its_encoding(what: MembershipChange) -> None:
    assert decode_change(encode_change(what)) == what
    assert decode_change(memoryview(encode_change(what))) == what


@pytest.mark.parametrize("data", [b"\x00", b"\x00\x01", b"\x09\x00", b"\x00\x01" + b"\x09" * 9])
def test_bytes_that_are_no_change_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_change(data)


def test_a_change_with_too_many_steps_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        encode_change(
            MembershipChange(tuple(MembershipStep(MemberAction.REMOVE, n) for n in range(1, 99)))
        )


def test_a_leader_outside_its_membership_takes_no_proposals() -> None:
    cluster = lone_leader(2)
    del cluster.leader_role(1).progress[1]

    with pytest.raises(ProposalRefused):
        cluster[1].propose(b"x")
