"""The sentences of the Raft paper, sections 5.1 to 5.4, one test each.

`Parity:` names the scenario of the model's test suite that a test reproduces; `docs/raft-parity.md`
lists them all.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from flintmq.raft import (
    HardState,
    Membership,
    MemoryStorage,
    RaftEntry,
    RaftMessage,
    RaftNode,
    RaftSettings,
)
from flintmq.raft import MessageKind as Kind
from tests.raft.cluster import RaftCluster, elected_cluster, lone_leader


def lone_candidate(**options: Any) -> RaftCluster:
    cluster = RaftCluster(3, only=(1,), pre_vote=False, check_quorum=False, **options)
    cluster.campaign(1)
    assert cluster.roles()[1] == "candidate"
    return cluster


def lone_node(role: str) -> RaftCluster:
    match role:
        case "leader":
            return lone_leader(check_quorum=False)
        case "candidate":
            return lone_candidate()
        case "pre-candidate":
            cluster = RaftCluster(3, only=(1,), check_quorum=False)
            cluster.campaign(1)
            return cluster
        case _:
            return RaftCluster(3, only=(1,), pre_vote=False, check_quorum=False)


# -- 5.1 terms --------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["follower", "candidate", "leader"])
def test_a_message_of_a_higher_term_makes_every_role_a_follower_of_that_term(role: str) -> None:
    """Parity: TestFollowerUpdateTermFromMessage, TestCandidateUpdateTermFromMessage,
    TestLeaderUpdateTermFromMessage"""
    cluster = lone_node(role)

    cluster.step(RaftMessage(Kind.APPEND, 2, 1, term=9))

    assert (cluster[1].term, cluster.roles()[1], cluster[1].leader) == (9, "follower", 2)


@pytest.mark.pure_python("it replaces a method of a role")
def test_a_request_of_an_old_term_never_reaches_the_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parity: TestRejectStaleTermMessage"""
    cluster = RaftCluster(3, only=(1,), hard_states={1: HardState(term=5)}, check_quorum=False)
    seen: list[RaftMessage] = []
    monkeypatch.setattr(cluster[1].role, "step", seen.append)

    cluster.step(RaftMessage(Kind.APPEND, 2, 1, term=4))
    assert seen == []

    cluster.step(RaftMessage(Kind.APPEND, 2, 1, term=5))
    assert len(seen) == 1


# -- 5.2 elections ----------------------------------------------------------------------------


def test_a_fresh_node_starts_as_a_follower() -> None:
    """Parity: TestStartAsFollower"""
    assert RaftCluster(3).roles() == {1: "follower", 2: "follower", 3: "follower"}


def test_on_the_heartbeat_tick_the_leader_sends_one_empty_heartbeat_to_each_follower() -> None:
    """Parity: TestLeaderBcastBeat"""
    cluster = lone_leader(heartbeat_ticks=2)
    cluster.propose(1, b"a")
    cluster.take_sent()

    cluster.tick(1)
    assert cluster.take_sent() == []

    cluster.tick(1)
    beats = cluster.take_sent()
    assert [(m.kind, m.receiver) for m in beats] == [(Kind.HEARTBEAT, 2), (Kind.HEARTBEAT, 3)]
    assert all((m.index, m.log_term, m.entries) == (0, 0, ()) for m in beats)


@pytest.mark.parametrize("role", ["follower", "candidate"])
def test_after_the_election_timeout_a_node_asks_all_others_for_votes(role: str) -> None:
    """Parity: TestFollowerStartElection, TestCandidateStartNewElection"""
    cluster = lone_node(role)
    term = cluster[1].term
    cluster.take_sent()

    cluster.tick(1, 2 * cluster[1].settings.election_ticks - 1)

    assert (cluster[1].term, cluster.roles()[1], cluster[1].core.vote) == (term + 1, "candidate", 1)
    requests = [m for m in cluster.take_sent() if m.kind is Kind.VOTE]
    assert [(m.receiver, m.term) for m in requests] == [(2, term + 1), (3, term + 1)]


@pytest.mark.parametrize(
    ("size", "votes", "role"),
    [
        (1, {}, "leader"),
        (3, {2: True, 3: True}, "leader"),
        (3, {2: True}, "leader"),
        (5, {2: True, 3: True, 4: True, 5: True}, "leader"),
        (5, {2: True, 3: True, 4: True}, "leader"),
        (5, {2: True, 3: True}, "leader"),
        (3, {2: False, 3: False}, "follower"),
        (5, {2: False, 3: False, 4: False, 5: False}, "follower"),
        (5, {2: True, 3: False, 4: False, 5: False}, "follower"),
        (3, {}, "candidate"),
        (5, {2: True}, "candidate"),
        (5, {2: False, 3: False}, "candidate"),
        (5, {}, "candidate"),
    ],
)
def test_votes_decide_an_election_once_a_majority_is_clear(
    size: int, votes: dict[int, bool], role: str
) -> None:
    """Parity: TestLeaderElectionInOneRoundRPC"""
    cluster = RaftCluster(size, only=(1,), pre_vote=False)
    cluster.campaign(1)

    for voter, granted in votes.items():
        cluster.step(RaftMessage(Kind.VOTE_REPLY, voter, 1, term=1, reject=not granted))

    assert (cluster.roles()[1], cluster[1].term) == (role, 1)


def test_the_same_vote_twice_is_one_vote() -> None:
    cluster = RaftCluster(5, only=(1,), pre_vote=False)
    cluster.campaign(1)

    for _ in range(3):
        cluster.step(RaftMessage(Kind.VOTE_REPLY, 2, 1, term=1))

    assert cluster.roles()[1] == "candidate"


@pytest.mark.parametrize(
    ("voted_for", "asker", "granted"),
    [(0, 2, True), (0, 3, True), (2, 2, True), (3, 3, True), (2, 3, False), (3, 2, False)],
)
def test_a_node_votes_for_one_candidate_per_term_and_repeats_that_vote(
    voted_for: int, asker: int, granted: bool
) -> None:
    """Parity: TestFollowerVote"""
    cluster = RaftCluster(3, only=(1,), hard_states={1: HardState(term=1, vote=voted_for)})

    cluster.step(RaftMessage(Kind.VOTE, asker, 1, term=1))

    (reply,) = cluster.take_sent()
    assert (reply.kind, reply.receiver, reply.reject) == (Kind.VOTE_REPLY, asker, not granted)


@pytest.mark.parametrize("term", [1, 2])
def test_a_candidate_concedes_to_a_leader_of_its_term_or_a_later_one(term: int) -> None:
    """Parity: TestCandidateFallback"""
    cluster = lone_candidate()
    assert cluster[1].term == 1

    cluster.step(RaftMessage(Kind.APPEND, 2, 1, term=term))

    assert (cluster.roles()[1], cluster[1].term, cluster[1].leader) == ("follower", term, 2)


@pytest.mark.parametrize("role", ["follower", "candidate"])
def test_election_timeouts_cover_the_whole_range_from_one_to_two(role: str) -> None:
    """Parity: TestFollowerElectionTimeoutRandomized, TestCandidateElectionTimeoutRandomized"""
    cluster = lone_node(role)
    raft, drawn = cluster[1], set[int]()

    for _ in range(1000):
        ticks, term = 0, raft.term
        while raft.term == term:
            raft.tick()
            ticks += 1
        cluster.settle()
        drawn.add(ticks)
        if role == "follower":
            raft.core.become_follower(raft.term, 2)

    assert drawn == set(range(10, 20))


@pytest.mark.parametrize("role", ["follower", "candidate"])
def test_two_nodes_rarely_time_out_in_the_same_tick(role: str) -> None:
    """Parity: TestFollowersElectionTimeoutNonconflict, TestCandidatesElectionTimeoutNonconflict"""
    rounds, conflicts = 500, 0
    random = Random(1)
    members = Membership(voters=(1, 2, 3, 4, 5))
    for _ in range(rounds):
        timeouts = []
        for node in members.voters:
            settings = RaftSettings(node=node, pre_vote=False)
            raft = RaftNode(settings, MemoryStorage(members), Random(random.random()))
            if role == "candidate":
                raft.campaign()
            timeouts.append(raft.core.election_timeout)
        conflicts += timeouts.count(min(timeouts)) > 1

    # Five nodes draw from ten values: the first is alone with probability 0.7 or more.
    assert conflicts / rounds < 0.4


# -- 5.3 replication --------------------------------------------------------------------------


def test_a_proposal_is_appended_and_sent_behind_the_entry_before_it() -> None:
    """Parity: TestLeaderStartReplication"""
    cluster = elected_cluster()
    cluster.nodes[1].disk_is_held = True

    cluster[1].propose(b"some data")
    ready = cluster[1].ready()

    entry = RaftEntry(2, 1, b"some data")
    assert ready.entries == [entry]
    assert [(m.receiver, m.index, m.log_term, m.commit, m.entries) for m in ready.messages] == [
        (2, 1, 1, 1, (entry,)),
        (3, 1, 1, 1, (entry,)),
    ]


def test_a_replicated_entry_is_handed_out_and_its_commit_made_known() -> None:
    """Parity: TestLeaderCommitEntry"""
    cluster = lone_leader()
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 3, 1, term=1, index=1))
    cluster.propose(1, b"some data")
    cluster.take_sent()

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=2))

    assert cluster.nodes[1].data() == [b"some data"]
    told = [(m.receiver, m.commit) for m in cluster.take_sent() if m.kind is Kind.APPEND]
    assert told == [(2, 2), (3, 2)]


@pytest.mark.parametrize(
    ("size", "acks", "commits"),
    [
        (1, (), True),
        (3, (), False),
        (3, (2,), True),
        (3, (2, 3), True),
        (5, (), False),
        (5, (2,), False),
        (5, (2, 3), True),
        (5, (2, 3, 4), True),
        (5, (2, 3, 4, 5), True),
    ],
)
def test_an_entry_commits_exactly_when_a_majority_holds_it(
    size: int, acks: tuple[int, ...], commits: bool
) -> None:
    """Parity: TestLeaderAcknowledgeCommit"""
    cluster = lone_leader(size)
    for peer in range(2, size + 1):
        cluster.step(RaftMessage(Kind.APPEND_REPLY, peer, 1, term=1, index=1))
    cluster.propose(1, b"x")

    for peer in acks:
        cluster.step(RaftMessage(Kind.APPEND_REPLY, peer, 1, term=1, index=2))

    assert (cluster[1].log.committed == 2) is commits


@pytest.mark.parametrize("terms", [(), (2,), (1, 2), (1,)])
def test_committing_an_entry_commits_everything_before_it(terms: tuple[int, ...]) -> None:
    """Parity: TestLeaderCommitPrecedingEntries"""
    cluster = RaftCluster(
        3, only=(1,), pre_vote=False, logs={1: terms}, hard_states={1: HardState(term=2)}
    )
    cluster.campaign(1)
    cluster.step(RaftMessage(Kind.VOTE_REPLY, 2, 1, term=3))
    cluster.propose(1, b"x")

    last = len(terms) + 2
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=3, index=last))

    assert [(e.index, e.term) for e in cluster.nodes[1].applied] == [
        *((index, term) for index, term in enumerate(terms, start=1)),
        (last - 1, 3),
        (last, 3),
    ]


@pytest.mark.parametrize("commit", [1, 2, 3])
def test_a_follower_applies_in_order_up_to_the_commit_it_is_told(commit: int) -> None:
    """Parity: TestFollowerCommitEntry"""
    cluster = RaftCluster(3, only=(1,))
    entries = tuple(RaftEntry(index, 1, b"%d" % index) for index in (1, 2, 3))

    cluster.step(RaftMessage(Kind.APPEND, 2, 1, term=1, entries=entries, commit=commit))

    assert cluster.nodes[1].applied == list(entries[:commit])


@pytest.mark.parametrize(
    ("index", "term", "accepted", "hint"),
    [
        (0, 0, True, 0),
        (1, 1, True, 0),
        (2, 2, True, 0),
        (1, 2, False, 1),
        (2, 3, False, 2),
        (3, 3, False, 2),
    ],
)
def test_an_append_is_refused_unless_the_entry_before_it_is_ours(
    index: int, term: int, accepted: bool, hint: int
) -> None:
    """Parity: TestFollowerCheckMsgApp"""
    cluster = RaftCluster(3, only=(1,), logs={1: (1, 2)})

    cluster.step(RaftMessage(Kind.APPEND, 2, 1, term=3, index=index, log_term=term))

    (reply,) = cluster.take_sent()
    assert (reply.kind, reply.reject, reply.hint) == (Kind.APPEND_REPLY, not accepted, hint)
    assert reply.index == index


@pytest.mark.parametrize(
    ("index", "term", "sent", "log", "written"),
    [
        (2, 2, (3,), (1, 2, 3), (3,)),
        (1, 1, (3, 4), (1, 3, 4), (3, 4)),
        (0, 0, (1,), (1, 2), ()),
        (0, 0, (3,), (3,), (3,)),
    ],
)
def test_only_from_the_first_conflict_on_is_a_log_replaced(
    index: int,
    term: int,
    sent: tuple[int, ...],
    log: tuple[int, ...],
    written: tuple[int, ...],
) -> None:
    """Parity: TestFollowerAppendEntries"""
    cluster = RaftCluster(3, only=(1,), logs={1: (1, 2)})
    entries = tuple(RaftEntry(index + n, t) for n, t in enumerate(sent, start=1))

    cluster.step(
        RaftMessage(Kind.APPEND, 2, 1, term=4, index=index, log_term=term, entries=entries)
    )

    assert cluster.log_terms(1) == list(log)
    assert [e.term for r in cluster.nodes[1].readies for e in r.entries] == list(written)


FIGURE_7 = {
    "a": (1, 1, 1, 4, 4, 5, 5, 6, 6),
    "b": (1, 1, 1, 4),
    "c": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
    "d": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
    "e": (1, 1, 1, 4, 4, 4, 4),
    "f": (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
}


@pytest.mark.parametrize("follower", sorted(FIGURE_7))
def test_the_leader_brings_each_follower_of_figure_7_in_line(follower: str) -> None:
    """Parity: TestLeaderSyncFollowerLog"""
    leader_log = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    cluster = RaftCluster(
        3,
        logs={1: leader_log, 2: FIGURE_7[follower]},
        hard_states={1: HardState(term=8), 2: HardState(term=7), 3: HardState(term=8)},
        pre_vote=False,
    )
    # Node 3 is the empty log whose vote makes the leader; (d) would not vote for it.
    cluster.cut(1, 2)
    cluster.cut(2, 3)
    cluster.campaign(1)
    cluster.heal()
    cluster.propose(1, b"x")
    cluster.heartbeat(1)

    assert cluster.log_terms(2) == cluster.log_terms(1) == [*leader_log, 9, 9]


# -- 5.4 safety -------------------------------------------------------------------------------


@pytest.mark.parametrize(("terms", "last"), [((1,), (1, 1)), ((1, 2), (2, 2))])
def test_a_vote_request_carries_the_last_entry_and_goes_to_every_peer(
    terms: tuple[int, ...], last: tuple[int, int]
) -> None:
    """Parity: TestVoteRequest"""
    cluster = RaftCluster(3, only=(1,), logs={1: terms}, pre_vote=False)

    cluster.campaign(1)

    requests = [m for m in cluster.take_sent() if m.kind is Kind.VOTE]
    assert [(m.receiver, m.index, m.log_term) for m in requests] == [(2, *last), (3, *last)]


@pytest.mark.parametrize(
    ("ours", "their_term", "their_index", "granted"),
    [
        ((1,), 1, 1, True),
        ((1,), 1, 2, True),
        ((1, 1), 1, 1, False),
        ((1,), 2, 1, True),
        ((1,), 2, 2, True),
        ((1, 1), 2, 1, True),
        ((2,), 1, 1, False),
        ((2,), 1, 2, False),
        ((1, 2), 1, 1, False),
    ],
)
def test_a_vote_is_refused_to_a_log_that_is_behind(
    ours: tuple[int, ...], their_term: int, their_index: int, granted: bool
) -> None:
    """Parity: TestVoter"""
    cluster = RaftCluster(3, only=(1,), logs={1: ours})

    cluster.step(RaftMessage(Kind.VOTE, 2, 1, term=3, index=their_index, log_term=their_term))

    (reply,) = cluster.take_sent()
    assert (reply.kind, reply.reject) == (Kind.VOTE_REPLY, not granted)


@pytest.mark.parametrize(("index", "committed"), [(1, 0), (2, 0), (3, 3)])
def test_counting_copies_never_commits_an_entry_of_an_earlier_term(
    index: int, committed: int
) -> None:
    """Parity: TestLeaderOnlyCommitsLogFromCurrentTerm"""
    cluster = RaftCluster(3, only=(1,), logs={1: (1, 2)}, pre_vote=False)
    cluster.campaign(1)
    cluster.step(RaftMessage(Kind.VOTE_REPLY, 2, 1, term=3))

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=3, index=index))

    assert cluster[1].log.committed == committed
