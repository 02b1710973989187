"""Appending, replicating, committing; and the same with a disk that takes its time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from flintmq.errors import InvalidRequest, NotLeader, TooMuchUncommitted
from flintmq.raft import HardState, RaftEntry, RaftMessage, RaftNode, RaftSnapshot
from flintmq.raft import MessageKind as Kind
from flintmq.raft.progress import ProgressState
from tests.raft.cluster import RaftCluster, elected_cluster, lone_leader

PLAIN: dict[str, Any] = {"pre_vote": False, "check_quorum": False}


def test_the_leaders_own_match_advances_only_when_its_write_is_durable() -> None:
    """Parity: TestProgressLeader"""
    cluster = elected_cluster(2)
    cluster.nodes[1].disk_is_held = True
    ours = cluster.leader_role(1).progress[1]

    for index in range(2, 7):
        cluster.propose(1, b"foo")
        assert (ours.match, cluster[1].log.last_index()) == (1, index)

    cluster.complete_writes(1, count=1)
    assert ours.match < 6
    cluster.complete_writes(1)
    assert (ours.match, ours.next) == (6, 7)


def test_a_leader_does_not_count_itself_before_its_own_sync() -> None:
    cluster = elected_cluster(2)
    cluster.nodes[1].disk_is_held = True

    cluster.propose(1, b"foo")
    assert cluster[2].log.durable_index() == 2
    assert cluster[1].log.committed == 1

    cluster.complete_writes(1)
    assert cluster[1].log.committed == 2


def test_an_entry_can_commit_on_a_quorum_of_others_before_the_leaders_own_sync() -> None:
    cluster = elected_cluster(3)
    cluster.nodes[1].disk_is_held = True

    cluster.propose(1, b"foo")

    assert cluster.committed() == {1: 2, 2: 2, 3: 2}
    assert cluster.nodes[1].data() == []  # but it is applied here only when it is durable here
    cluster.complete_writes(1)
    cluster.settle()
    assert cluster.nodes[1].data() == [b"foo"]


def test_a_follower_acknowledges_only_after_its_sync() -> None:
    cluster = elected_cluster(3)
    cluster.nodes[2].disk_is_held = True
    cluster.nodes[3].disk_is_held = True

    cluster.propose(1, b"foo")
    assert cluster[1].log.committed == 1

    cluster.complete_writes(2)
    cluster.settle()
    assert cluster[1].log.committed == 2


def test_entries_before_and_after_a_change_of_leader_reach_all_in_order() -> None:
    """Parity: TestLogReplication"""
    cluster = elected_cluster(3, **PLAIN)
    cluster.propose(1, b"one")
    cluster.campaign(2)
    cluster.propose(2, b"two")
    cluster.heartbeat(2)

    assert {tuple(item.data()) for item in cluster.nodes.values()} == {(b"one", b"two")}


def test_a_learner_receives_and_commits_but_does_not_count() -> None:
    """Parity: TestLearnerLogReplication"""
    cluster = elected_cluster(2, learners=(2,))
    cluster.propose(1, b"one")
    cluster.heartbeat(1)
    assert cluster.nodes[2].data() == [b"one"]

    cluster.isolate(2)
    cluster.propose(1, b"two")
    assert cluster[1].log.committed == 3

    alone = elected_cluster(3, learners=(2,))
    alone.isolate(3)
    alone.propose(1, b"never")
    assert alone[2].log.last_index() == 2  # the learner has it
    assert alone[1].log.committed == 1


def test_a_group_of_one_commits_its_own_proposals() -> None:
    """Parity: TestSingleNodeCommit"""
    cluster = elected_cluster(1)

    cluster.propose(1, b"a")
    cluster.propose(1, b"b")

    assert cluster.nodes[1].data() == [b"a", b"b"]


def five_with_an_uncommitted_tail() -> RaftCluster:
    """Node 1 led and left two entries on 2 only; then 2 leads term 2 without a word to 3, 4, 5."""
    cluster = elected_cluster(5, **PLAIN)
    for node in (3, 4, 5):
        cluster.cut(1, node)
    cluster.propose(1, b"a")
    cluster.propose(1, b"b")
    assert cluster.committed()[1] == 1
    cluster.heal()
    return cluster


def test_old_entries_stay_uncommitted_until_one_of_the_new_term_commits() -> None:
    """Parity: TestCannotCommitWithoutNewTermEntry"""
    cluster = five_with_an_uncommitted_tail()
    cluster.lets_pass = lambda m: not (m.kind is Kind.APPEND and m.index + len(m.entries) > 3)
    cluster.campaign(2)
    cluster.heartbeat(2)
    assert cluster.roles()[2] == "leader"
    # Refuse the no-op everywhere: the old entries are on all five and may still not commit.
    for node in (3, 4, 5):
        entries = (RaftEntry(2, 1, b"a"), RaftEntry(3, 1, b"b"))
        cluster.step(
            RaftMessage(Kind.APPEND, 2, node, term=2, index=1, log_term=1, entries=entries)
        )
    assert all(cluster[node].log.last_index() >= 3 for node in cluster.nodes)
    assert cluster[2].log.committed == 1

    cluster.heal()
    cluster.heartbeat(2)
    assert cluster[2].log.committed == 4


def test_the_no_op_of_a_new_leader_commits_what_was_left() -> None:
    """Parity: TestCommitWithoutNewTermEntry"""
    cluster = five_with_an_uncommitted_tail()

    cluster.campaign(2)

    assert cluster[2].log.committed == 4
    assert cluster.nodes[2].data() == [b"a", b"b"]


def test_appends_of_a_deposed_leader_are_ignored() -> None:
    """Parity: TestOldMessages"""
    cluster = elected_cluster(3, **PLAIN)
    cluster.campaign(2)
    cluster.campaign(1)
    before = cluster.log_terms(1)

    cluster.step(
        RaftMessage(
            Kind.APPEND, 2, 1, term=2, index=2, log_term=2, entries=(RaftEntry(3, 2, b"old"),)
        )
    )
    cluster.propose(1, b"somedata")
    cluster.heartbeat(1)

    assert before == [1, 2, 3]
    assert all(cluster.log_terms(node) == [1, 2, 3, 3] for node in cluster.nodes)


@pytest.mark.parametrize(
    ("size", "dead", "commits"),
    [(3, (), True), (3, (3,), True), (3, (2, 3), False), (4, (3, 4), False), (5, (4, 5), True)],
)
def test_a_proposal_succeeds_exactly_when_a_majority_is_alive(
    size: int, dead: tuple[int, ...], commits: bool
) -> None:
    """Parity: TestProposal"""
    cluster = RaftCluster(size, **PLAIN)
    for node in dead:
        cluster.isolate(node)
    cluster.campaign(1)

    if not commits:
        with pytest.raises(NotLeader):
            cluster.propose(1, b"x")
    else:
        cluster.propose(1, b"x")
    cluster.settle()

    assert cluster.nodes[1].data() == ([b"x"] if commits else [])


def test_a_proposal_given_to_a_follower_is_passed_on() -> None:
    """Parity: TestProposalByProxy"""
    cluster = elected_cluster(3)

    assert cluster[2].propose(b"x") is None
    cluster.settle()

    assert cluster.nodes[1].data() == [b"x"]


def test_where_passing_on_is_switched_off_a_follower_says_who_leads() -> None:
    cluster = elected_cluster(3, forward_proposals=False)

    with pytest.raises(NotLeader) as refused:
        cluster[2].propose(b"x")

    assert refused.value.leader == 1
    cluster.step(RaftMessage(Kind.PROPOSE, 3, 2, entries=(RaftEntry(0, 0, b"x"),)))
    assert cluster.nodes[1].data() == []


@pytest.mark.parametrize(
    ("matches", "terms", "term", "commit"),
    [
        ((1,), (1,), 1, 1),
        ((1,), (1,), 2, 0),
        ((2,), (1, 2), 2, 2),
        ((1,), (2,), 2, 1),
        ((2, 1, 1), (1, 2), 1, 1),
        ((2, 1, 1), (1, 1), 2, 0),
        ((2, 1, 2), (1, 2), 2, 2),
        ((2, 1, 2), (1, 1), 2, 0),
        ((2, 1, 1, 1), (1, 2), 1, 1),
        ((2, 1, 1, 1), (1, 1), 2, 0),
        ((2, 1, 1, 2), (1, 2), 1, 1),
        ((2, 1, 1, 2), (1, 1), 2, 0),
        ((2, 1, 2, 2), (1, 2), 2, 2),
        ((2, 1, 2, 2), (1, 1), 2, 0),
    ],
)
def test_the_commit_index_is_the_quorums_median_in_the_leaders_term(
    matches: tuple[int, ...], terms: tuple[int, ...], term: int, commit: int
) -> None:
    """Parity: TestCommit"""
    cluster = lone_leader(len(matches))
    raft, role = cluster[1], cluster.leader_role(1)
    raft.log.unstable.truncate_and_append([RaftEntry(i, t) for i, t in enumerate(terms, start=1)])
    raft.log.committed, raft.core.term = 0, term
    for node, match in enumerate(matches, start=1):
        role.progress[node].match = match

    role.commit_what_is_held()

    assert raft.log.committed == commit


def test_a_message_of_an_old_term_changes_nothing() -> None:
    """Parity: TestStepIgnoreOldTermMsg"""
    cluster = RaftCluster(3, only=(1,), hard_states={1: HardState(term=2)})
    before = cluster[1].status()

    for kind in Kind:
        if kind not in (Kind.PROPOSE, Kind.READ_INDEX, Kind.TRANSFER_LEADER):
            cluster.step(RaftMessage(kind, 2, 1, term=1, index=7, log_term=1))

    assert cluster[1].status() == before


@pytest.mark.parametrize(
    ("index", "term", "commit", "sent", "last", "committed", "accepted"),
    [
        (2, 3, 3, (), 2, 0, False),  # the entry before has another term
        (3, 3, 3, (), 2, 0, False),  # the entry before is missing
        (1, 1, 1, (), 2, 1, True),
        (0, 0, 1, (2,), 1, 1, True),  # a conflict: the rest goes
        (2, 2, 3, (2, 2), 4, 3, True),
        (2, 2, 4, (2,), 3, 3, True),
        (1, 1, 4, (2,), 2, 2, True),
        (1, 1, 3, (), 2, 1, True),  # commit no further than what this message proves
        (1, 1, 3, (2,), 2, 2, True),
        (2, 2, 3, (), 2, 2, True),
        (2, 2, 4, (), 2, 2, True),
    ],
)
def test_what_a_follower_does_with_an_append(
    index: int,
    term: int,
    commit: int,
    sent: tuple[int, ...],
    last: int,
    committed: int,
    accepted: bool,
) -> None:
    """Parity: TestHandleMsgApp"""
    cluster = RaftCluster(3, only=(1,), logs={1: (1, 2)})
    entries = tuple(RaftEntry(index + n, t) for n, t in enumerate(sent, start=1))

    cluster.step(
        RaftMessage(
            Kind.APPEND, 2, 1, term=2, index=index, log_term=term, commit=commit, entries=entries
        )
    )

    assert (cluster[1].log.last_index(), cluster[1].log.committed) == (last, committed)
    (reply,) = cluster.take_sent()
    assert reply.reject is not accepted


@pytest.mark.parametrize(("told", "committed"), [(3, 3), (1, 2), (9, 3)])
def test_a_heartbeat_moves_the_commit_forward_never_back(told: int, committed: int) -> None:
    """Parity: TestHandleHeartbeat"""
    cluster = RaftCluster(
        3, only=(1,), logs={1: (1, 2, 3)}, hard_states={1: HardState(term=3, commit=2)}
    )

    cluster.step(RaftMessage(Kind.HEARTBEAT, 2, 1, term=3, commit=told))

    assert cluster[1].log.committed == committed
    (reply,) = cluster.take_sent()
    assert reply.kind is Kind.HEARTBEAT_REPLY


def test_a_heartbeat_answer_of_a_lagging_follower_brings_it_entries_until_it_confirms() -> None:
    """Parity: TestHandleHeartbeatResp"""
    cluster = lone_leader()
    answer = RaftMessage(Kind.HEARTBEAT_REPLY, 2, 1, term=1)

    for _ in range(2):
        cluster.step(answer)
        (append,) = cluster.take_sent()
        assert (append.kind, append.receiver, len(append.entries)) == (Kind.APPEND, 2, 1)

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    cluster.take_sent()
    cluster.step(answer)
    assert cluster.take_sent() == []


def test_an_append_reply_lets_waiting_entries_out_to_that_follower_only() -> None:
    """Parity: TestMsgAppRespWaitReset"""
    cluster = lone_leader()
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    assert cluster[1].log.committed == 1
    told = [m for m in cluster.take_sent() if m.kind is Kind.APPEND]
    assert [(m.receiver, m.commit, m.entries) for m in told] == [(2, 1, ())]  # 3 still waits

    cluster.propose(1, b"x")
    told = cluster.take_sent()
    assert [(m.receiver, len(m.entries)) for m in told] == [(2, 1)]

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 3, 1, term=1, index=1))
    told = cluster.take_sent()
    assert [(m.receiver, m.entries[0].index) for m in told if m.entries] == [(3, 2)]


def test_a_late_receipt_of_an_earlier_term_is_ignored_after_stepping_down() -> None:
    """Parity: TestLeaderMsgAppSelfAckAfterTermChange"""
    cluster = elected_cluster(3, **PLAIN)
    cluster.nodes[1].disk_is_held = True
    cluster.cut(1, 2)
    cluster.cut(1, 3)
    cluster.propose(1, b"lost")
    cluster.heal()
    cluster.lets_pass = lambda m: m.sender != 1 or m.kind is not Kind.APPEND
    cluster.campaign(2)
    assert (cluster.roles()[1], cluster[1].term) == ("follower", 2)

    cluster.complete_writes(1, count=1)  # the receipt of the write in term 1

    assert cluster.roles()[1] == "follower"
    assert cluster[1].log.committed < 3
    cluster.complete_writes(1)
    cluster.settle()
    assert cluster[1].log.durable_index() == cluster[1].log.last_index() == 2


def test_a_stale_receipt_does_not_pass_for_one_of_entries_written_since() -> None:
    """The ABA case: entry 2 of term 1 is written, cut, and comes back; the first receipt must not
    make the second write durable (script async_storage_writes_append_aba_race)."""
    cluster = RaftCluster(3, only=(1,), logs={1: (1,)}, check_quorum=False)
    cluster.nodes[1].disk_is_held = True
    old, new = RaftEntry(2, 1, b"x"), RaftEntry(2, 2, b"y")

    def append(sender: int, term: int, *entries: RaftEntry) -> None:
        message = RaftMessage(
            Kind.APPEND, sender, 1, term=term, index=1, log_term=1, entries=entries
        )
        cluster.step(message)

    append(2, 1, old)
    append(3, 2, new)
    append(2, 3, old)  # the third leader never saw term 2
    assert len(cluster.nodes[1].waiting_writes) == 3
    cluster.take_sent()

    cluster.complete_writes(1, count=1)
    assert cluster[1].log.durable_index() == 1
    cluster.complete_writes(1, count=1)
    assert cluster[1].log.durable_index() == 1
    cluster.complete_writes(1, count=1)
    assert cluster[1].log.durable_index() == 2
    assert [m.term for m in cluster.take_sent() if not m.reject][-1] == 3


def test_a_write_of_the_new_term_confirms_entries_still_being_written_from_the_old() -> None:
    cluster = RaftCluster(3, only=(1,), check_quorum=False)
    cluster.nodes[1].disk_is_held = True
    cluster.step(RaftMessage(Kind.APPEND, 2, 1, term=1, entries=(RaftEntry(1, 1, b"x"),)))
    cluster.step(RaftMessage(Kind.HEARTBEAT, 3, 1, term=2))

    cluster.complete_writes(1)

    assert cluster[1].log.durable_index() == 1


def test_no_message_of_a_term_leaves_before_the_term_is_durable() -> None:
    cluster = RaftCluster(3, only=(1,), pre_vote=False)
    cluster.nodes[1].disk_is_held = True

    cluster.campaign(1)
    assert cluster.take_sent() == []
    cluster.complete_writes(1)
    assert {m.kind for m in cluster.take_sent()} == {Kind.VOTE}

    cluster.step(RaftMessage(Kind.HEARTBEAT, 2, 1, term=7))
    assert cluster.take_sent() == []
    cluster.complete_writes(1)
    assert [m.kind for m in cluster.take_sent()] == [Kind.HEARTBEAT_REPLY]


@pytest.mark.parametrize(
    ("reply", "match", "next_index", "sends", "commit"),
    [
        # index, reject, hint: stale, refused, old-term entry, no-op accepted, match at 0
        ((3, True, 3), 0, 3, 0, 0),
        ((2, True, 2), 0, 2, 1, 0),
        ((2, False, 0), 2, 4, 1, 0),
        ((3, False, 0), 3, 4, 1, 3),
        ((0, False, 0), 0, 4, 1, 0),
    ],
)
def test_what_the_leader_does_with_an_append_reply(
    reply: tuple[int, bool, int], match: int, next_index: int, sends: int, commit: int
) -> None:
    """Parity: TestLeaderAppResp"""
    cluster = lone_leader(logs={1: (1, 2)})  # leads term 3; its no-op is entry 3
    progress = cluster.leader_role(1).progress[2]
    index, reject, hint = reply

    cluster.step(
        RaftMessage(Kind.APPEND_REPLY, 2, 1, term=3, index=index, reject=reject, hint=hint)
    )

    assert (progress.match, progress.next) == (match, next_index)
    sent = cluster.take_sent()
    assert [(m.kind, m.receiver, m.commit) for m in sent] == [(Kind.APPEND, 2, commit)] * sends


def test_a_heartbeat_carries_no_more_commit_than_the_follower_is_known_to_hold() -> None:
    """Parity: TestBcastBeat"""
    cluster = lone_leader()
    for index in range(2, 12):
        cluster.propose(1, b"%d" % index)
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=11))
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 3, 1, term=1, index=6))
    assert cluster[1].log.committed == 11
    cluster.take_sent()

    cluster[1].tick()
    beats = [m for m in cluster.take_sent() if m.kind is Kind.HEARTBEAT]

    assert {m.receiver: m.commit for m in beats} == {2: 11, 3: 6}
    assert all(m.entries == () for m in beats)


@pytest.mark.parametrize(("role", "beats"), [("leader", 2), ("candidate", 0), ("follower", 0)])
def test_the_heartbeat_tick_does_something_on_the_leader_only(role: str, beats: int) -> None:
    """Parity: TestRecvMsgBeat"""
    cluster = lone_leader() if role == "leader" else RaftCluster(3, only=(1,), pre_vote=False)
    if role == "candidate":
        cluster.campaign(1)
    cluster.take_sent()

    cluster.tick(1)

    assert len([m for m in cluster.take_sent() if m.kind is Kind.HEARTBEAT]) == beats


@pytest.mark.parametrize(
    ("state", "next_index"), [(ProgressState.REPLICATE, 3), (ProgressState.PROBE, 2)]
)
def test_next_advances_at_once_while_replicating_and_not_while_probing(
    state: ProgressState, next_index: int
) -> None:
    """Parity: TestLeaderIncreaseNext"""
    cluster = lone_leader()
    progress = cluster.leader_role(1).progress[2]
    progress.match, progress.next = 1, 2
    progress.is_paused_until_answer = False
    progress.state = state

    cluster.propose(1, b"x")

    assert progress.next == next_index


@pytest.mark.parametrize(
    ("leader", "follower", "replies"),
    [
        # etcd's worked examples, as terms from index 1: the leader needs at most one probe a term
        ((1, 2, 2, 4, 4, 4, 4), (1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3), 2),
        ((1, 2, 2, 3, 4, 4, 4, 5), (1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3), 2),
        ((1, 1, 1, 3), (1, 1, 1, 2, 2), 2),
        ((1, 1, 1, 2, 2, 2), (1, 1, 1), 2),
        ((1, 3, 3, 3, 3, 3, 5, 5), (1, 2, 2, 4, 4), 3),
        ((4, 4, 4, 4, 6, 6, 7), (4, 4, 4, 4), 2),
        ((2, 2, 2, 2, 2), (1, 1, 1, 1), 2),
        ((1, 1, 1, 1, 1), (), 2),
    ],
)
def test_a_refusal_lets_the_leader_skip_whole_terms(
    leader: tuple[int, ...], follower: tuple[int, ...], replies: int
) -> None:
    """Parity: TestFastLogRejection"""
    term = max(leader + follower) + 1
    cluster = RaftCluster(
        3,
        logs={1: leader, 2: follower},
        hard_states={node: HardState(term=term - 1) for node in (1, 2, 3)},
        **PLAIN,
    )
    cluster.cut(1, 2)
    cluster.campaign(1)
    cluster.heal()
    cluster.take_sent()

    cluster.heartbeat(1)

    assert cluster.log_terms(2) == [*leader, term]
    refusals = [m for m in cluster.sent if m.kind is Kind.APPEND_REPLY and m.reject]
    assert len(refusals) + 1 <= replies


def test_appends_out_of_order_never_move_match_back_nor_stall_replication() -> None:
    """Parity: TestLogReplicationWithReorderedMessage"""
    cluster = elected_cluster(2)
    held: list[RaftMessage] = []

    def hold(message: RaftMessage) -> bool:
        if message.kind is Kind.APPEND and message.receiver == 2:
            held.append(message)
            return False
        return True

    cluster.lets_pass = hold
    for number in range(4):
        cluster.propose(1, b"%d" % number)
    cluster.heal()
    first, second, *rest = held

    cluster.deliver(second)  # refused: the one before is missing
    cluster.deliver(first)
    for message in reversed(rest):
        cluster.deliver(message)
    matches = [cluster.leader_role(1).progress[2].match]
    for message in held:
        cluster.settle()
        cluster.deliver(message)
        matches.append(cluster.leader_role(1).progress[2].match)
    cluster.settle()

    assert matches == sorted(matches)
    assert cluster.nodes[2].data() == [b"0", b"1", b"2", b"3"]
    assert cluster.leader_role(1).progress[2].state is ProgressState.REPLICATE


def test_an_overlapping_append_deletes_nothing() -> None:
    """Fault F15: a late message that ends earlier must not cut the log."""
    cluster = RaftCluster(3, only=(1,))
    entries = tuple(RaftEntry(index, 1, b"%d" % index) for index in range(1, 6))
    cluster.step(RaftMessage(Kind.APPEND, 2, 1, term=1, entries=entries))

    cluster.step(RaftMessage(Kind.APPEND, 2, 1, term=1, entries=entries[:2]))
    cluster.step(RaftMessage(Kind.APPEND, 2, 1, term=1, index=1, log_term=1, entries=entries[1:3]))

    assert cluster.log_terms(1) == [1] * 5


def test_payloads_are_never_copied() -> None:
    cluster = elected_cluster(3)
    payload = b"x" * 1000

    cluster.propose(1, payload)

    sent = [m for m in cluster.sent if m.kind is Kind.APPEND and m.entries]
    assert all(m.entries[0].data is payload for m in sent)
    assert all(item.applied[-1].data is payload for item in cluster.nodes.values())
    assert all(item.storage.entries(2, 3)[0].data is payload for item in cluster.nodes.values())


def test_uncommitted_bytes_are_limited_but_one_large_proposal_always_fits() -> None:
    """Parity: TestUncommittedEntryLimit"""
    cluster = lone_leader(uncommitted_bytes_max=100)
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    ten = b"x" * 10
    for _ in range(10):
        cluster.propose(1, ten)

    with pytest.raises(TooMuchUncommitted):
        cluster.propose(1, ten)
    cluster.propose(1, b"")  # an empty one presses on nothing

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=cluster[1].log.last_index()))
    assert cluster.leader_role(1).uncommitted_bytes == 0
    cluster.propose(1, b"x" * 1000)
    with pytest.raises(TooMuchUncommitted):
        cluster.propose(1, ten)


def test_growth_under_a_partition_is_bounded() -> None:
    cluster = elected_cluster(3, uncommitted_bytes_max=1000, check_quorum=False)
    cluster.isolate(1)

    for _ in range(10):
        cluster.propose(1, b"x" * 100)
    with pytest.raises(TooMuchUncommitted):
        cluster.propose(1, b"x" * 100)


def test_messages_for_others_are_refused_and_local_events_have_no_message() -> None:
    cluster = elected_cluster(3)

    with pytest.raises(InvalidRequest):
        cluster[1].step(RaftMessage(Kind.HEARTBEAT, 2, 3, term=1))
    with pytest.raises(InvalidRequest):
        cluster[1].step(RaftMessage(Kind.HEARTBEAT, 2, 1, term=1, group=7))
    gap = RaftMessage(Kind.APPEND, 1, 2, term=1, index=1, log_term=1, entries=(RaftEntry(9, 1),))
    with pytest.raises(InvalidRequest):
        cluster[2].step(gap)
    assert cluster[2].log.last_index() == 1

    wire_names = {kind.name for kind in Kind}
    assert not wire_names & {"TICK", "CAMPAIGN", "PERSISTED", "APPLIED", "UNREACHABLE"}


def test_groups_that_share_nodes_do_not_hear_each_other() -> None:
    orders, payments = elected_cluster(3, group=1), RaftCluster(3, group=2)
    orders.propose(1, b"x")
    payments.campaign(2)

    assert {m.group for m in orders.sent} == {1}
    assert {m.group for m in payments.sent} == {2}
    assert {r.group for r in payments.nodes[2].readies} == {2}
    with pytest.raises(InvalidRequest):
        payments[1].step(next(m for m in orders.sent if m.receiver == 1))
    assert (orders.leader(), payments.leader()) == (1, 2)


def test_what_is_ready_is_handed_out_once() -> None:
    cluster = elected_cluster(3)
    cluster[1].propose(b"x")

    first = cluster[1].ready()

    assert first.entries
    assert first.messages
    assert not cluster[1].has_ready()


def test_committed_entries_are_handed_out_in_pages_and_none_is_skipped_after_a_restart() -> None:
    """Fault F20: pagination and a crash skipped an entry in the model once."""
    cluster = elected_cluster(1, apply_bytes_max=25)
    payloads = [b"%09d" % number for number in range(10)]
    cluster.propose(1, *payloads)
    assert cluster.nodes[1].data() == payloads

    cluster.restart(1)
    cluster.settle()

    pages = [r.committed for r in cluster.nodes[1].readies if r.committed]
    assert len(pages) > 3
    assert [e.index for page in pages for e in page] == list(range(1, 12))


def test_what_is_handed_out_and_not_applied_is_limited() -> None:
    cluster = elected_cluster(1, apply_bytes_max=25)
    cluster.nodes[1].apply_is_held = True

    cluster.propose(1, *[b"%09d" % number for number in range(10)])

    handed = [e for r in cluster.nodes[1].readies for e in r.committed if e.data]
    assert 0 < len(handed) < 5
    cluster[1].applied(handed[-1].index)
    cluster.settle()
    assert [e for r in cluster.nodes[1].readies for e in r.committed if e.data] != handed


def test_a_restart_goes_on_from_what_is_applied_even_if_the_commit_was_lost() -> None:
    """The simulator's find: a snapshot of entry 3 was durable, the hard state still said 2."""
    cluster = elected_cluster(1)
    cluster.propose(1, b"a", b"b")
    storage = cluster.nodes[1].storage
    storage.take_snapshot(3, cluster[1].membership)
    storage.set_hard_state(HardState(term=1, vote=1, commit=2))

    raft = RaftNode(cluster.nodes[1].settings, storage, Random(1), applied=3)

    assert (raft.log.committed, raft.log.applied) == (3, 3)


def test_the_stored_commit_never_runs_ahead_of_what_is_durable() -> None:
    """A crash may keep the hard state of a write and lose its entries."""
    cluster = elected_cluster(3)
    cluster.nodes[1].disk_is_held = True
    cluster.propose(1, b"foo")
    assert cluster[1].log.committed == 2

    assert [r.hard_state for r in cluster.nodes[1].waiting_writes if r.hard_state] == []
    cluster.complete_writes(1)
    cluster.settle()
    commits = [r.hard_state.commit for r in cluster.nodes[1].waiting_writes if r.hard_state]
    assert commits == [2]


def test_a_snapshot_that_is_being_installed_does_not_count_as_stored() -> None:
    cluster = RaftCluster(3, only=(1,))
    cluster.nodes[1].disk_is_held = True
    snapshot = RaftSnapshot(index=9, term=1, membership=cluster.membership)

    cluster.step(RaftMessage(Kind.SNAPSHOT, 2, 1, term=1, snapshot=snapshot))

    (write,) = cluster.nodes[1].waiting_writes
    assert write.hard_state is not None
    assert (write.hard_state.commit, write.snapshot) == (0, snapshot)
