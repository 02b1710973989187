"""Majorities and joint majorities, against the naive definition on every small input."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.raft import MemberAction, Membership, MembershipChange, MembershipStep, Transition
from flintmq.raft.membership import LEAVE_JOINT, changed, check_is_sound
from flintmq.raft.quorum import EVERYTHING, VoteResult, joint_index, joint_vote, majority_index

NODES = st.sets(st.integers(1, 7))
VOTES = st.dictionaries(st.integers(1, 7), st.booleans())
ACKS = st.dictionaries(st.integers(1, 7), st.integers(0, 5))


def naive_index(voters: set[int], acked: dict[int, int]) -> int:
    """The largest index that more than half of the voters have reached, tried one by one."""
    if not voters:
        return EVERYTHING
    for index in range(max(acked.values(), default=0), 0, -1):
        if 2 * sum(acked.get(voter, 0) >= index for voter in voters) > len(voters):
            return index
    return 0


def naive_vote(halves: list[set[int]], votes: dict[int, bool]) -> VoteResult:
    """What every way of casting the missing votes would lead to."""
    missing = sorted(set().union(*halves) - set(votes))
    outcomes = set()
    for cast in itertools.product((True, False), repeat=len(missing)):
        full = {**votes, **dict(zip(missing, cast, strict=True))}
        outcomes.add(all(2 * sum(full[v] for v in half) > len(half) for half in halves if half))
    if outcomes == {True}:
        return VoteResult.WON
    return VoteResult.LOST if outcomes == {False} else VoteResult.PENDING


@pytest.mark.parametrize(
    ("acks", "index"),
    [
        ((5,), 5),
        ((0,), 0),
        ((5, 7), 5),
        ((5, 0), 0),
        ((1, 2, 3), 2),
        ((100, 101, 0), 100),
        ((1, 2, 3, 4), 2),
        ((1, 1, 5, 5, 5), 5),
        ((1, 1, 1, 5, 5), 1),
    ],
)
def test_the_committed_index_of_a_majority(acks: tuple[int, ...], index: int) -> None:
    """Parity: TestDataDriven"""
    acked = dict(enumerate(acks, start=1))

    assert majority_index(list(acked), acked) == index


@given(NODES, NODES, ACKS)
def test_joint_commit_is_what_both_naive_majorities_reached(
    incoming: set[int], outgoing: set[int], acked: dict[int, int]
) -> None:
    """Parity: TestQuick"""
    expected = min(naive_index(incoming, acked), naive_index(outgoing, acked))

    assert joint_index(incoming, outgoing, acked) == expected


@given(NODES, NODES, VOTES)
def test_joint_votes_are_decided_when_no_missing_vote_can_change_them(
    incoming: set[int], outgoing: set[int], votes: dict[int, bool]
) -> None:
    result = joint_vote(incoming, outgoing, votes)

    # Each half is judged by itself; where they share voters, a half can be lost for sure while
    # no single completion shows it, so the naive answer may only be less decided about PENDING.
    naive = naive_vote([incoming, outgoing], votes)
    assert result is naive or (result is VoteResult.PENDING and naive is VoteResult.LOST)


@given(NODES, VOTES)
def test_votes_of_one_half_are_exactly_the_naive_ones(
    voters: set[int], votes: dict[int, bool]
) -> None:
    assert joint_vote(voters, set(), votes) is naive_vote([voters], votes)


STEPS = st.lists(
    st.builds(MembershipStep, st.sampled_from(list(MemberAction)), st.integers(1, 5)),
    min_size=1,
    max_size=5,
)


@given(st.sets(st.integers(1, 5), min_size=1), STEPS)
def test_a_joint_change_ends_where_its_steps_one_by_one_would(
    voters: set[int], steps: list[MembershipStep]
) -> None:
    """Parity: TestConfChangeQuick, TestConfChangeDataDriven"""
    before = Membership(voters=tuple(sorted(voters)))
    expected_voters, expected_learners = set(voters), set[int]()
    for step in steps:
        expected_voters.discard(step.node)
        expected_learners.discard(step.node)
        if step.action is MemberAction.ADD_VOTER:
            expected_voters.add(step.node)
        elif step.action is MemberAction.ADD_LEARNER:
            expected_learners.add(step.node)
    if not expected_voters:
        return

    joint = changed(before, MembershipChange(tuple(steps), Transition.JOINT_EXPLICIT))
    check_is_sound(joint)
    assert joint.outgoing == before.voters
    after = changed(joint, LEAVE_JOINT)

    check_is_sound(after)
    assert after == Membership(
        voters=tuple(sorted(expected_voters)), learners=tuple(sorted(expected_learners))
    )
