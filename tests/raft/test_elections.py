"""Who becomes leader, who does not, and whom that disturbs: votes, pre-votes, leases, learners."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from flintmq.errors import RaftInvariantBroken
from flintmq.raft import (
    HardState,
    MemberAction,
    Membership,
    MembershipChange,
    MembershipStep,
    MemoryStorage,
    RaftEntry,
    RaftMessage,
    RaftNode,
    RaftSettings,
    RaftSnapshot,
    add_voter,
    remove,
)
from flintmq.raft import MessageKind as Kind
from flintmq.raft.candidate import Candidate, PreCandidate
from flintmq.raft.follower import Follower
from flintmq.raft.leader import Leader
from flintmq.raft.roles import TRANSITIONS, RoleName
from tests.raft.cluster import RaftCluster, elected_cluster, lone_leader

PLAIN: dict[str, Any] = {"pre_vote": False, "check_quorum": False}
BOTH_WAYS = pytest.mark.parametrize("pre_vote", [False, True], ids=["vote", "pre-vote"])


def age_leases(cluster: RaftCluster, *nodes: int) -> None:
    """Let the followers' leases run out without letting them campaign."""
    for node in nodes:
        cluster[node].core.election_timeout = 10**6
        for _ in range(cluster[node].settings.election_ticks):
            cluster[node].tick()


@BOTH_WAYS
@pytest.mark.parametrize(
    ("size", "dead", "logs", "role"),
    [
        (3, (), {}, "leader"),
        (3, (3,), {}, "leader"),
        (3, (2, 3), {}, "candidate"),
        (4, (2, 3), {}, "candidate"),
        (5, (2, 3), {}, "leader"),
        # Three longer logs refuse; a quorum of refusals ends the campaign.
        (5, (), {2: (1,), 3: (1,), 4: (1, 1)}, "follower"),
    ],
)
def test_who_wins_an_election_with_dead_peers_and_longer_logs(
    pre_vote: bool, size: int, dead: tuple[int, ...], logs: dict[int, tuple[int, ...]], role: str
) -> None:
    """Parity: TestLeaderElection, TestLeaderElectionPreVote"""
    cluster = RaftCluster(size, logs=logs, pre_vote=pre_vote, check_quorum=False)
    for node in dead:
        cluster.isolate(node)

    cluster.campaign(1)

    if pre_vote and role == "candidate":
        role = "pre-candidate"
    assert cluster.roles()[1] == role
    # With pre-vote an election that is not won leaves the term alone.
    lost_before_it_began = pre_vote and role != "leader"
    expected = 0 if lost_before_it_began else 1
    assert cluster[1].term == (max(expected, 1) if logs else expected)


def test_a_learner_never_campaigns_by_itself() -> None:
    """Parity: TestLearnerElectionTimeout"""
    cluster = RaftCluster(2, learners=(2,), only=(2,), pre_vote=False)

    cluster.tick(2, 100)

    assert cluster.roles()[2] == "follower"
    assert cluster.take_sent() == []


def test_a_learner_can_lead_after_its_promotion() -> None:
    """Parity: TestLearnerPromotion"""
    cluster = elected_cluster(2, learners=(2,), **PLAIN)
    cluster[1].propose_membership(add_voter(2))
    cluster.settle()
    cluster.heartbeat(1)
    assert not cluster[2].status().is_learner

    cluster.campaign(2)

    assert cluster.roles() == {1: "follower", 2: "leader"}


def test_a_learner_answers_a_vote_request_it_may_have_been_promoted() -> None:
    """Parity: TestLearnerCanVote"""
    cluster = RaftCluster(2, learners=(2,), only=(2,))

    cluster.step(RaftMessage(Kind.VOTE, 1, 2, term=2, index=11, log_term=11))

    (reply,) = cluster.take_sent()
    assert (reply.kind, reply.reject) == (Kind.VOTE_REPLY, False)


@BOTH_WAYS
def test_each_node_in_turn_campaigns_and_wins(pre_vote: bool) -> None:
    """Parity: TestLeaderCycle, TestLeaderCyclePreVote"""
    cluster = RaftCluster(3, pre_vote=pre_vote, check_quorum=False)

    for node in (1, 2, 3):
        cluster.campaign(node)
        expected = {other: "leader" if other == node else "follower" for other in (1, 2, 3)}
        assert cluster.roles() == expected


@BOTH_WAYS
def test_a_leader_without_the_newest_uncommitted_entries_overwrites_them(pre_vote: bool) -> None:
    """Parity: TestLeaderElectionOverwriteNewerLogs, TestLeaderElectionOverwriteNewerLogsPreVote"""
    voted = HardState(term=2, vote=3)
    cluster = RaftCluster(
        5,
        logs={1: (1,), 2: (1,), 3: (2,)},  # 1 led term 1; 3 won term 2 and told nobody
        hard_states={4: voted, 5: voted},
        pre_vote=pre_vote,
        check_quorum=False,
    )

    cluster.campaign(1)
    if cluster.roles()[1] != "leader":  # the first try met the unknown term 2
        assert cluster[1].term == 2
        cluster.campaign(1)

    assert (cluster.roles()[1], cluster[1].term) == ("leader", 3)
    assert {node: cluster.log_terms(node) for node in cluster.nodes} == {
        node: [1, 3] for node in cluster.nodes
    }


@pytest.mark.parametrize("kind", [Kind.VOTE, Kind.PRE_VOTE])
@pytest.mark.parametrize("role", ["follower", "pre-candidate", "candidate", "leader"])
def test_a_fit_candidate_of_a_higher_term_gets_a_vote_from_every_role(
    kind: Kind, role: str
) -> None:
    """Parity: TestVoteFromAnyState, TestPreVoteFromAnyState"""
    options: dict[str, Any] = {"pre_vote": role == "pre-candidate", "check_quorum": False}
    if role == "leader":
        cluster = lone_leader(check_quorum=False)
    else:
        cluster = RaftCluster(3, only=(1,), **options)
        if role != "follower":
            cluster.campaign(1)
    assert cluster.roles()[1] == role
    term, vote = cluster[1].term, cluster[1].core.vote
    cluster.take_sent()

    cluster.step(RaftMessage(kind, 2, 1, term=term + 1, index=42, log_term=term + 1))

    (reply,) = cluster.take_sent()
    assert (reply.reject, reply.term) == (False, term + 1)
    if kind is Kind.VOTE:
        assert (cluster.roles()[1], cluster[1].term, cluster[1].core.vote) == (
            "follower",
            term + 1,
            2,
        )
    else:
        assert (cluster.roles()[1], cluster[1].term, cluster[1].core.vote) == (role, term, vote)


def test_of_two_candidates_one_wins_and_the_loser_disturbs_but_cannot_win() -> None:
    """Parity: TestDuelingCandidates"""
    cluster = RaftCluster(3, **PLAIN)
    cluster.cut(1, 3)
    cluster.campaign(1)
    cluster.campaign(3)
    assert cluster.roles() == {1: "leader", 2: "follower", 3: "candidate"}

    cluster.heal()
    cluster.campaign(3)  # a higher term, but the shorter log

    assert cluster.roles() == {1: "follower", 2: "follower", 3: "follower"}
    assert cluster.terms() == {1: 2, 2: 2, 3: 2}
    assert (cluster.log_terms(1), cluster.log_terms(3)) == ([1], [])


def test_of_two_pre_candidates_one_wins_and_the_loser_disturbs_nobody() -> None:
    """Parity: TestDuelingPreCandidates"""
    cluster = RaftCluster(3, check_quorum=False)
    cluster.cut(1, 3)
    cluster.campaign(1)
    cluster.campaign(3)
    assert cluster.roles() == {1: "leader", 2: "follower", 3: "follower"}

    cluster.heal()
    cluster.campaign(3)

    assert cluster.roles() == {1: "leader", 2: "follower", 3: "follower"}
    assert cluster.terms() == {1: 1, 2: 1, 3: 1}


def test_an_isolated_candidate_concedes_after_healing_and_takes_the_leaders_log() -> None:
    """Parity: TestCandidateConcede"""
    cluster = RaftCluster(3, **PLAIN)
    cluster.isolate(1)
    cluster.campaign(1)
    cluster.campaign(3)
    cluster.heal()

    cluster.heartbeat(3)
    cluster.propose(3, b"force follower")
    cluster.heartbeat(3)

    assert (cluster.roles()[1], cluster[1].term) == ("follower", 1)
    assert cluster.nodes[1].data() == [b"force follower"]
    assert cluster.log_terms(1) == cluster.log_terms(2) == cluster.log_terms(3)


@BOTH_WAYS
def test_a_group_of_one_elects_itself(pre_vote: bool) -> None:
    """Parity: TestSingleNodeCandidate, TestSingleNodePreCandidate"""
    cluster = RaftCluster(1, pre_vote=pre_vote)

    cluster.tick(1, 20)

    assert (cluster.roles()[1], cluster[1].term) == ("leader", 1)


@pytest.mark.parametrize(
    ("elapsed", "probability"), [(5, 0.0), (10, 0.1), (13, 0.4), (15, 0.6), (18, 0.9), (20, 1.0)]
)
def test_the_chance_to_time_out_grows_evenly_with_the_ticks(
    elapsed: int, probability: float
) -> None:
    """Parity: TestPastElectionTimeout"""
    raft, past, draws = RaftCluster(3)[1], 0, 5000
    for _ in range(draws):
        raft.core.become_follower(raft.term, 2)
        raft.core.election_elapsed = elapsed
        past += raft.core.is_past_election_timeout()

    assert abs(past / draws - probability) < 0.03


VOTE_CASES = [
    # our role, their last index and term, our vote, granted; our log ends with (2, term 2)
    *[("follower", i, t, 0, False) for i, t in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]],
    ("follower", 2, 0, 0, False),
    ("follower", 2, 1, 0, False),
    ("follower", 2, 2, 0, True),
    ("follower", 0, 3, 0, True),
    ("follower", 3, 2, 2, True),
    ("follower", 3, 2, 1, False),
    ("leader", 3, 3, 1, False),
    ("pre-candidate", 3, 3, 1, False),
    ("candidate", 3, 3, 1, False),
]


@pytest.mark.parametrize("kind", [Kind.VOTE, Kind.PRE_VOTE])
@pytest.mark.parametrize(("role", "index", "term", "vote", "granted"), VOTE_CASES)
def test_a_vote_of_the_same_term_needs_a_fit_log_and_a_free_vote(
    kind: Kind, role: str, index: int, term: int, vote: int, granted: bool
) -> None:
    """Parity: TestRecvMsgVote, TestRecvMsgPreVote"""
    cluster = RaftCluster(
        3, only=(1,), logs={1: (2, 2)}, hard_states={1: HardState(term=3, vote=vote)}, **PLAIN
    )
    raft = cluster[1]
    roles = {"leader": Leader, "pre-candidate": PreCandidate, "candidate": Candidate}
    if role in roles:
        raft.core.role = roles[role](raft.core)

    cluster.step(RaftMessage(kind, 2, 1, term=3, index=index, log_term=term))

    (reply,) = [m for m in cluster.take_sent() if m.kind in (Kind.VOTE_REPLY, Kind.PRE_VOTE_REPLY)]
    assert reply.reject is not granted


@pytest.mark.parametrize(("before", "after"), list(itertools.product(RoleName, RoleName)))
def test_a_role_is_left_only_by_the_ways_of_the_table(before: RoleName, after: RoleName) -> None:
    """Parity: TestStateTransition"""
    roles = {
        RoleName.FOLLOWER: Follower,
        RoleName.PRE_CANDIDATE: PreCandidate,
        RoleName.CANDIDATE: Candidate,
        RoleName.LEADER: Leader,
    }
    raft = RaftCluster(1)[1]
    raft.core.role = roles[before](raft.core)

    if (before, after) in TRANSITIONS:
        raft.core._become(roles[after](raft.core))
        assert raft.role.name is after
    else:
        with pytest.raises(RaftInvariantBroken):
            raft.core._become(roles[after](raft.core))

    forbidden = {(RoleName.FOLLOWER, RoleName.LEADER), (RoleName.LEADER, RoleName.CANDIDATE)}
    assert not forbidden & TRANSITIONS


@pytest.mark.parametrize("kind", [Kind.VOTE, Kind.APPEND])
@pytest.mark.parametrize("role", ["follower", "pre-candidate", "candidate", "leader"])
def test_every_role_steps_down_for_a_higher_term_and_knows_the_leader_by_appends_only(
    role: str, kind: Kind
) -> None:
    """Parity: TestAllServerStepdown"""
    if role == "leader":
        cluster = lone_leader(check_quorum=False)
    else:
        cluster = RaftCluster(3, only=(1,), pre_vote=role == "pre-candidate", check_quorum=False)
        if role != "follower":
            cluster.campaign(1)
    last = cluster[1].log.last_index()

    cluster.step(
        RaftMessage(kind, 2, 1, term=3, log_term=3, index=last if kind is Kind.VOTE else 0)
    )

    assert (cluster.roles()[1], cluster[1].term) == ("follower", 3)
    assert cluster[1].leader == (2 if kind is Kind.APPEND else 0)
    assert cluster[1].log.last_index() == last


@pytest.mark.parametrize("kind", [Kind.HEARTBEAT, Kind.APPEND])
def test_a_stranded_candidate_rejoins_on_the_leaders_word(kind: Kind) -> None:
    """Parity: TestCandidateResetTermMsgHeartbeat, TestCandidateResetTermMsgApp"""
    cluster = elected_cluster(3, **PLAIN)
    cluster.isolate(3)
    cluster.campaign(3)
    cluster.campaign(3)
    assert (cluster.roles()[3], cluster[3].term) == ("candidate", 3)
    cluster.heal()

    # With neither pre-vote nor leases the old leader is not told; a new term must come.
    cluster.step(RaftMessage(kind, 1, 3, term=3))

    assert (cluster.roles()[3], cluster[3].leader) == ("follower", 1)


@BOTH_WAYS
def test_a_candidates_own_vote_that_is_durable_too_late_is_not_counted(pre_vote: bool) -> None:
    """Parity: TestCandidateSelfVoteAfterLostElection, TestCandidateSelfVoteAfterLostElectionPreVote

    The pre-vote of ourselves promises nothing and is counted at once, so only a real vote can be
    late; with pre-vote we are a candidate after the first grant.
    """
    cluster = RaftCluster(3, only=(1,), pre_vote=pre_vote)
    cluster.nodes[1].disk_is_held = True
    cluster.campaign(1)
    if pre_vote:
        cluster.step(RaftMessage(Kind.PRE_VOTE_REPLY, 2, 1, term=1))
    assert cluster.roles()[1] == "candidate"

    cluster.step(RaftMessage(Kind.HEARTBEAT, 2, 1, term=1))
    cluster.complete_writes(1)
    cluster.settle()

    assert (cluster.roles()[1], cluster[1].leader) == ("follower", 2)


def test_a_pre_vote_of_ourselves_does_not_count_as_a_vote() -> None:
    """Parity: TestCandidateDeliversPreCandidateSelfVoteAfterBecomingCandidate"""
    cluster = RaftCluster(3, only=(1,))
    cluster.campaign(1)
    cluster.nodes[1].disk_is_held = True
    cluster.step(RaftMessage(Kind.PRE_VOTE_REPLY, 2, 1, term=1))
    role = cluster[1].role
    assert isinstance(role, Candidate)
    assert role.votes == {}

    cluster.step(RaftMessage(Kind.PRE_VOTE_REPLY, 2, 1, term=1))  # late and repeated
    assert role.votes == {}

    cluster.complete_writes(1)
    assert role.votes == {1: True}
    assert cluster.roles()[1] == "candidate"


def test_a_leader_stays_while_a_quorum_answers() -> None:
    """Parity: TestLeaderStepdownWhenQuorumActive"""
    cluster = elected_cluster(3)

    for _ in range(cluster[1].settings.election_ticks + 1):
        cluster.step(RaftMessage(Kind.HEARTBEAT_REPLY, 2, 1, term=1))
        cluster[1].tick()
        cluster.nodes[1].raft.ready()

    assert cluster.roles()[1] == "leader"


def test_a_leader_steps_down_after_an_election_timeout_without_a_quorum() -> None:
    """Parity: TestLeaderStepdownWhenQuorumLost"""
    cluster = elected_cluster(3)
    cluster.isolate(1)

    cluster.tick(1, 2 * cluster[1].settings.election_ticks)

    assert cluster.roles()[1] != "leader"


def test_a_voter_in_its_lease_refuses_a_new_candidate_until_the_lease_is_over() -> None:
    """Parity: TestLeaderSupersedingWithCheckQuorum"""
    cluster = elected_cluster(3, pre_vote=False)

    cluster.campaign(3)
    assert cluster.roles()[3] == "candidate"

    age_leases(cluster, 2)
    cluster.cut(1, 2)
    cluster.cut(1, 3)
    cluster.campaign(3)
    assert cluster.roles()[3] == "leader"


def test_elections_work_with_leases_from_fresh_and_from_aged_state() -> None:
    """Parity: TestLeaderElectionWithCheckQuorum"""
    cluster = elected_cluster(3, pre_vote=False)
    age_leases(cluster, 2, 3)

    cluster.campaign(3)

    assert cluster.roles() == {1: "follower", 2: "follower", 3: "leader"}


def test_a_candidate_stuck_at_a_higher_term_frees_itself_by_its_answer() -> None:
    """Parity: TestFreeStuckCandidateWithCheckQuorum"""
    cluster = elected_cluster(3, pre_vote=False)
    cluster.isolate(1)
    cluster.campaign(3)  # node 2 is in its lease
    cluster.campaign(3)
    assert (cluster.roles()[3], cluster[3].term) == ("candidate", 3)
    cluster.heal()

    cluster.heartbeat(1)
    assert (cluster.roles()[1], cluster[1].term) == ("follower", 3)

    cluster.campaign(3)
    assert (cluster.roles()[3], cluster[3].term) == ("leader", 4)


@pytest.mark.parametrize("check_quorum", [True, False])
@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_learner_at_a_higher_term_is_heard_with_any_settings_and_caught_up(
    pre_vote: bool, check_quorum: bool
) -> None:
    """It never campaigns, so its answer is the only way for the leader to learn of its term."""
    cluster = RaftCluster(
        2,
        learners=(2,),
        hard_states={2: HardState(term=9)},
        pre_vote=pre_vote,
        check_quorum=check_quorum,
    )
    cluster.isolate(2)
    cluster.campaign(1)
    assert (cluster.roles()[1], cluster[1].term) == ("leader", 1)
    cluster.heal()

    cluster.heartbeat(1)
    assert (cluster.roles()[1], cluster.terms()) == ("follower", {1: 9, 2: 9})

    cluster.tick(1, 20)
    assert (cluster.roles()[1], cluster.terms()) == ("leader", {1: 10, 2: 10})
    assert cluster.log_terms(2) == cluster.log_terms(1)


def test_a_removed_node_does_not_reach_the_leader_through_a_learner() -> None:
    """It does not know that it was removed, nor that node 2 votes no more, and asks for ever."""
    cluster = elected_cluster(3, **PLAIN)
    cluster.isolate(3)
    steps = (MembershipStep(MemberAction.ADD_LEARNER, 2), MembershipStep(MemberAction.REMOVE, 3))
    cluster[1].propose_membership(MembershipChange(steps))
    cluster.settle()
    assert cluster[2].membership == Membership(voters=(1,), learners=(2,))
    cluster.heal()
    cluster.cut(3, 1)

    for _ in range(10):
        cluster.campaign(3)
        cluster.heartbeat(1)
        cluster.propose(1, b"undisturbed")

    assert cluster[3].term == 11
    assert (cluster.roles()[1], cluster[1].term, cluster[2].term) == ("leader", 1, 1)
    assert cluster[2].log.committed == cluster[1].log.committed


def test_a_learner_takes_the_term_of_a_candidate_it_votes_for() -> None:
    """It may have been promoted and not know it, so it votes; and then its term has moved."""
    cluster = elected_cluster(2, learners=(2,), **PLAIN)
    last = cluster[2].log.last_id()
    behind = RaftMessage(Kind.VOTE, 3, 2, term=7, index=last.index - 1, log_term=last.term)
    fit = RaftMessage(Kind.VOTE, 3, 2, term=7, index=last.index, log_term=last.term)

    cluster.step(behind)
    assert (cluster[2].term, cluster[2].core.vote) == (1, 0)
    cluster.step(fit)
    assert (cluster[2].term, cluster[2].core.vote) == (7, 3)

    refusal, grant = cluster.messages_sent(Kind.VOTE_REPLY)
    assert (refusal.term, refusal.reject) == (1, True)
    assert (grant.term, grant.reject) == (7, False)


def test_a_voter_takes_the_term_of_a_candidate_it_refuses() -> None:
    """Else a candidate could be ahead of the rest for ever, and win in no term."""
    cluster = elected_cluster(3, **PLAIN)

    cluster.step(RaftMessage(Kind.VOTE, 3, 2, term=7))

    assert (cluster[2].term, cluster[2].core.vote) == (7, 0)


def test_a_node_not_in_its_own_membership_does_not_campaign_but_follows() -> None:
    """Parity: TestNonPromotableVoterWithCheckQuorum"""
    cluster = RaftCluster(2, pre_vote=False)
    cluster[2].core.membership = Membership(voters=(1,))
    cluster.tick(2, 30)
    assert cluster.roles()[2] == "follower"

    cluster.campaign(1)

    assert cluster.roles() == {1: "leader", 2: "follower"}
    assert cluster[2].leader == 1


def test_without_pre_vote_a_returning_follower_forces_the_leader_down() -> None:
    """Parity: TestDisruptiveFollower"""
    cluster = elected_cluster(3, pre_vote=False)
    cluster.isolate(3)
    cluster.campaign(3)
    cluster.heal()

    cluster.heartbeat(1)

    assert cluster.roles()[1] == "follower"
    assert cluster[1].term == cluster[3].term == 2


def test_with_pre_vote_a_returning_follower_disturbs_nobody() -> None:
    """Parity: TestDisruptiveFollowerPreVote"""
    cluster = elected_cluster(3)
    cluster.isolate(3)
    cluster.propose(1, b"a")
    cluster.campaign(3)
    cluster.campaign(3)
    assert (cluster.roles()[3], cluster[3].term) == ("pre-candidate", 1)
    cluster.heal()

    cluster.heartbeat(1)

    assert cluster.roles() == {1: "leader", 2: "follower", 3: "follower"}
    assert cluster.terms() == {1: 1, 2: 1, 3: 1}


@BOTH_WAYS
def test_a_leader_does_not_campaign(pre_vote: bool) -> None:
    """Parity: TestCampaignWhileLeader, TestPreCampaignWhileLeader"""
    cluster = elected_cluster(1, pre_vote=pre_vote)

    cluster.campaign(1)

    assert (cluster.roles()[1], cluster[1].term) == ("leader", 1)


def test_a_node_behind_in_term_can_still_finish_an_election() -> None:
    """Parity: TestNodeWithSmallerTermCanCompleteElection"""
    cluster = elected_cluster(3, check_quorum=False)
    cluster.isolate(3)
    cluster.campaign(2)
    cluster.propose(2, b"a")
    assert cluster.terms() == {1: 2, 2: 2, 3: 1}
    cluster.campaign(3)
    assert cluster.roles()[3] == "pre-candidate"
    cluster.heal()
    cluster.isolate(2)  # the leader is gone for good

    for _ in range(3):  # 3 learns the term from a refusal, then 1 wins by its longer log
        cluster.campaign(3)
        cluster.campaign(1)

    assert "leader" in (cluster.roles()[1], cluster.roles()[3])


def test_after_a_split_vote_the_next_round_completes() -> None:
    """Parity: TestPreVoteWithSplitVote"""
    cluster = elected_cluster(3, check_quorum=False)
    cluster.isolate(1)
    for node in (2, 3):  # both campaign at once
        cluster[node].campaign()
    cluster.settle()
    assert cluster.terms()[2] == cluster.terms()[3] == 2
    assert "leader" not in (cluster.roles()[2], cluster.roles()[3])

    cluster.campaign(2)

    assert (cluster.roles()[2], cluster[2].term) == ("leader", 3)


def test_pre_vote_and_leases_together_still_elect_after_the_leader_is_lost() -> None:
    """Parity: TestPreVoteWithCheckQuorum"""
    cluster = elected_cluster(3)
    cluster.isolate(1)

    for _ in range(60):
        cluster.tick_all()

    assert "leader" in (cluster.roles()[2], cluster.roles()[3])
    assert cluster.roles()[1] == "pre-candidate"


def test_a_learner_ignores_a_call_to_campaign_and_timeout_now() -> None:
    """Parity: TestLearnerCampaign"""
    cluster = RaftCluster(2, learners=(2,), pre_vote=False)
    cluster.campaign(2)
    assert cluster.roles()[2] == "follower"

    cluster.campaign(1)
    cluster.step(RaftMessage(Kind.TIMEOUT_NOW, 1, 2, term=1))

    assert cluster.roles() == {1: "leader", 2: "follower"}


def migrating() -> RaftCluster:
    """Node 3, without pre-vote still, has run ahead in term with a short log; 1 and 2 have it."""
    cluster = elected_cluster(3, check_quorum=False, settings={3: {"pre_vote": False}})
    cluster.isolate(3)
    cluster.propose(1, b"a")
    cluster.campaign(3)
    cluster.campaign(3)
    assert (cluster.roles()[3], cluster[3].term) == ("candidate", 3)
    object.__setattr__(cluster[3].settings, "pre_vote", True)
    cluster.heal()
    return cluster


def test_a_cluster_in_which_pre_vote_is_being_switched_on_still_elects() -> None:
    """Parity: TestPreVoteMigrationCanCompleteElection"""
    cluster = migrating()
    cluster.isolate(1)

    for _ in range(3):
        cluster.campaign(3)
        cluster.campaign(2)

    assert cluster.roles()[2] == "leader"


def test_a_node_with_a_higher_term_and_a_shorter_log_is_freed_there() -> None:
    """Parity: TestPreVoteMigrationWithFreeStuckPreCandidate"""
    cluster = migrating()
    cluster.campaign(3)
    assert cluster.roles()[3] in ("pre-candidate", "follower")

    cluster.heartbeat(1)  # its answer carries the higher term

    assert cluster.roles()[1] == "follower"
    assert cluster[1].term == cluster[3].term == 3


@pytest.mark.parametrize(
    "change",
    [
        remove(2),
        MembershipChange(
            (MembershipStep(MemberAction.REMOVE, 2), MembershipStep(MemberAction.ADD_LEARNER, 3))
        ),
    ],
    ids=["simple", "joint"],
)
def test_a_node_with_an_unapplied_committed_change_does_not_campaign(
    change: MembershipChange,
) -> None:
    """Parity: TestConfChangeCheckBeforeCampaign, TestConfChangeV2CheckBeforeCampaign"""
    cluster = elected_cluster(3, pre_vote=False, check_quorum=False)
    for node in (1, 2, 3):
        cluster.nodes[node].apply_is_held = True
    cluster[1].log.applied_to(1)
    cluster[1].propose_membership(change)
    cluster.settle()
    cluster.heartbeat(1)
    assert cluster[2].log.has_unapplied_membership_change()

    cluster.campaign(2)
    assert cluster.roles()[2] == "follower"
    cluster.step(RaftMessage(Kind.TIMEOUT_NOW, 1, 2, term=1))
    assert cluster.roles()[2] == "follower"

    cluster[2].applied(cluster[2].log.committed)
    cluster.campaign(2)
    assert cluster.roles()[2] != "follower"


@pytest.mark.parametrize(
    ("membership", "promotable"),
    [
        (Membership(voters=(1,)), True),
        (Membership(voters=(1, 2, 3)), True),
        (Membership(), False),
        (Membership(voters=(2, 3)), False),
        (Membership(voters=(2,), learners=(1,)), False),
        (Membership(voters=(2,), outgoing=(1, 2)), True),
    ],
)
def test_a_node_may_campaign_only_as_a_voter_of_its_own_membership(
    membership: Membership, promotable: bool
) -> None:
    """Parity: TestPromotable"""
    raft = RaftNode(RaftSettings(node=1), MemoryStorage(membership), Random(1))

    assert raft.core.is_promotable() is promotable


def test_a_node_that_waits_for_a_snapshot_does_not_campaign() -> None:
    cluster = RaftCluster(3, only=(1,), pre_vote=False)
    cluster.nodes[1].disk_is_held = True
    snapshot = RaftSnapshot(index=9, term=1, membership=cluster.membership)
    cluster.step(RaftMessage(Kind.SNAPSHOT, 2, 1, term=1, snapshot=snapshot))

    cluster.campaign(1)
    assert cluster.roles()[1] == "follower"

    cluster.complete_writes(1)
    cluster.campaign(1)
    assert cluster.roles()[1] == "candidate"


def test_a_vote_survives_a_restart() -> None:
    cluster = RaftCluster(3, only=(1,))
    cluster.step(RaftMessage(Kind.VOTE, 2, 1, term=1))
    cluster.restart(1)
    cluster.take_sent()

    cluster.step(RaftMessage(Kind.VOTE, 3, 1, term=1))

    (reply,) = cluster.take_sent()
    assert reply.reject


def test_a_log_that_ran_ahead_of_its_stored_term_brings_the_term_along() -> None:
    """A crash kept the entries of a write and lost the hard state beside them."""
    storage = MemoryStorage(Membership(voters=(1, 2, 3)))
    storage.set_hard_state(HardState(term=4, vote=2))
    storage.append([RaftEntry(1, 4), RaftEntry(2, 5)])

    raft = RaftNode(RaftSettings(node=1), storage, Random(1))

    assert (raft.term, raft.core.vote) == (5, 0)


def test_forgetting_the_leader_lets_a_follower_vote_at_once() -> None:
    cluster = elected_cluster(3)
    cluster.isolate(1)
    cluster.campaign(2)
    assert cluster.roles()[2] == "pre-candidate"

    cluster[3].forget_leader()
    assert (cluster[3].leader, cluster.roles()[3], cluster[3].term) == (0, "follower", 1)
    cluster.campaign(2)

    assert cluster.roles()[2] == "leader"


def test_with_lease_reads_a_leader_cannot_be_forgotten() -> None:
    cluster = RaftCluster(3, lease_reads=True)
    cluster.tick_all(40)
    leader = cluster.leader()
    follower = leader % 3 + 1

    cluster[follower].forget_leader()

    assert cluster[follower].leader == leader


@pytest.mark.parametrize(("hint", "committed"), [(2, 2), (1, 0), (0, 0)])
def test_what_a_refusal_says_is_committed_counts_only_for_the_same_entry(
    hint: int, committed: int
) -> None:
    cluster = RaftCluster(3, only=(1,), logs={1: (1, 2)}, **PLAIN)
    cluster.campaign(1)

    cluster.step(RaftMessage(Kind.VOTE_REPLY, 2, 1, term=3, reject=True, commit=2, hint=hint))

    assert cluster[1].log.committed == committed


def test_a_refusal_of_an_older_term_is_not_counted_but_what_it_knows_is_true() -> None:
    """What is committed is so in every term. See scenarios/demoted_leader_of_an_older_term.txt."""
    cluster = RaftCluster(2, only=(1,), logs={1: (1, 2)}, **PLAIN)
    cluster.campaign(1)

    cluster.step(RaftMessage(Kind.VOTE_REPLY, 2, 1, term=2, reject=True, commit=2, hint=2))

    assert cluster[1].log.committed == 2
    assert (cluster.roles()[1], cluster[1].term) == ("candidate", 3)


def test_a_leader_that_demoted_itself_tells_the_rest_what_is_committed() -> None:
    """The simulator's first find: nobody could be elected any more.

    Node 2 led, demoted itself with entry 3, appended entry 4 and stepped down when it applied 3.
    Node 1 does not know that 3 is committed, so it still needs the vote of node 2, whose log is
    longer. The refusal must tell it.
    """
    cluster = RaftCluster(2, **PLAIN)
    cluster.campaign(2)
    cluster[2].propose_membership(MembershipChange((MembershipStep(MemberAction.ADD_LEARNER, 2),)))
    ready = cluster[2].ready()
    entry = ready.entries[0]
    cluster.step(
        RaftMessage(Kind.APPEND, 2, 1, term=1, index=1, log_term=1, entries=(entry,), commit=1)
    )
    cluster.nodes[2].storage.append([entry])
    assert ready.persisted is not None
    cluster[2].persisted(ready.persisted)
    cluster[2].propose(b"never leaves")
    cluster.cut(2, 1)
    cluster[2].step(RaftMessage(Kind.APPEND_REPLY, 1, 2, term=1, index=2))
    cluster.settle()
    assert cluster.roles()[2] == "follower"
    assert cluster[2].log.last_index() == 3 > cluster[1].log.last_index() == 2
    assert (cluster[1].log.committed, cluster[2].log.committed) == (1, 2)
    cluster.heal()

    cluster.campaign(1)
    assert cluster[1].membership == Membership(voters=(1,), learners=(2,))
    cluster.campaign(1)

    assert cluster.roles() == {1: "leader", 2: "follower"}
