"""How fast each follower is fed: probing, the inflight window, pauses, and what ends them."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.errors import RaftInvariantBroken
from flintmq.raft import MessageKind as Kind
from flintmq.raft import RaftMessage
from flintmq.raft.inflights import Inflights
from flintmq.raft.progress import PeerProgress, ProgressState
from tests.raft.cluster import RaftCluster, lone_leader


def replicating(**options: Any) -> RaftCluster:
    """A lone leader of two that knows where its follower stands."""
    cluster = lone_leader(2, **options)
    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    assert cluster.leader_role(1).progress[2].state is ProgressState.REPLICATE
    cluster.take_sent()
    return cluster


def progress_of(cluster: RaftCluster, node: int = 2) -> PeerProgress:
    return cluster.leader_role(1).progress[node]


def test_a_paused_follower_is_resumed_by_its_answer_not_by_our_heartbeat() -> None:
    """Parity: TestProgressResumeByHeartbeatResp"""
    cluster = lone_leader(2)
    assert progress_of(cluster).is_paused()

    cluster.heartbeat(1)
    assert progress_of(cluster).is_paused()

    progress_of(cluster).become_replicate()
    progress_of(cluster).is_paused_until_answer = True
    cluster.step(RaftMessage(Kind.HEARTBEAT_REPLY, 2, 1, term=1))
    assert not progress_of(cluster).is_paused()


def test_while_probing_one_append_is_in_flight_however_many_are_proposed() -> None:
    """Parity: TestProgressPaused"""
    cluster = lone_leader(2)  # its first append is the probe
    for _ in range(3):
        cluster.propose(1, b"x")

    assert cluster.take_sent() == []


def test_the_window_is_limited_by_messages_and_by_bytes() -> None:
    """Parity: TestProgressFlowControl"""
    limits: dict[str, Any] = {
        "message_bytes_max": 2048,
        "inflight_messages_max": 3,
        "inflight_bytes_max": 9000,
    }
    cluster = lone_leader(2, **limits)
    for _ in range(10):
        cluster.propose(1, b"a" * 1000)
    assert cluster.take_sent() == []

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=1))
    sent = [m for m in cluster.take_sent() if m.entries]
    assert [len(m.entries) for m in sent] == [2, 2, 2]  # three messages fill the window

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=sent[1].entries[-1].index))
    sent = [m for m in cluster.take_sent() if m.entries]
    assert [len(m.entries) for m in sent] == [2, 2]

    cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=cluster[1].log.last_index()))
    for _ in range(4):
        cluster.propose(1, b"b" * 5000)
    sent = [m for m in cluster.take_sent() if m.entries]
    assert len(sent) == 2  # two large ones pass the byte limit before the third message


def test_a_probe_goes_out_once_per_heartbeat_interval() -> None:
    """Parity: TestSendAppendForProgressProbe"""
    cluster = lone_leader(2)
    assert progress_of(cluster).state is ProgressState.PROBE

    for _ in range(3):
        for _ in range(3):
            cluster.propose(1, b"x")
        assert cluster.take_sent() == []
        cluster.heartbeat(1)
        assert [m.kind for m in cluster.take_sent()] == [Kind.HEARTBEAT]
        cluster.step(RaftMessage(Kind.HEARTBEAT_REPLY, 2, 1, term=1))
        (probe,) = cluster.take_sent()
        assert (probe.kind, probe.index) == (Kind.APPEND, 0)
        assert progress_of(cluster).is_paused()


def test_while_replicating_every_append_goes_out() -> None:
    """Parity: TestSendAppendForProgressReplicate"""
    cluster = replicating()
    for _ in range(10):
        cluster.propose(1, b"x")
        assert [len(m.entries) for m in cluster.take_sent()] == [1]


def test_while_a_snapshot_is_under_way_nothing_is_sent() -> None:
    """Parity: TestSendAppendForProgressSnapshot"""
    cluster = replicating()
    progress_of(cluster).become_snapshot(10)
    for _ in range(10):
        cluster.propose(1, b"x")

    assert cluster.take_sent() == []


def test_an_unreachable_peer_is_probed_from_what_it_is_known_to_hold() -> None:
    """Parity: TestRecvMsgUnreachable"""
    cluster = replicating()
    for _ in range(3):
        cluster.propose(1, b"x")
    assert progress_of(cluster).next == 5

    cluster[1].report_unreachable(2)

    assert progress_of(cluster).state is ProgressState.PROBE
    assert progress_of(cluster).next == progress_of(cluster).match + 1 == 2


def filled(messages_max: int = 3) -> RaftCluster:
    cluster = replicating(inflight_messages_max=messages_max)
    for _ in range(messages_max):
        cluster.propose(1, b"x")
        assert len(cluster.take_sent()) == 1
    assert progress_of(cluster).inflights.is_full()
    return cluster


def test_a_full_window_stops_sending() -> None:
    """Parity: TestMsgAppFlowControlFull"""
    cluster = filled()
    for _ in range(5):
        cluster.propose(1, b"x")

    assert cluster.take_sent() == []


def test_acknowledgements_move_the_window_and_stale_ones_do_not() -> None:
    """Parity: TestMsgAppFlowControlMoveForward"""
    cluster = filled()
    for acked in (2, 3, 4):
        cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=acked))
        cluster.take_sent()
        cluster.propose(1, b"x")
        assert len([m for m in cluster.take_sent() if m.entries]) == 1
        assert progress_of(cluster).inflights.is_full()

        cluster.step(RaftMessage(Kind.APPEND_REPLY, 2, 1, term=1, index=acked - 1))
        assert progress_of(cluster).inflights.is_full()


def test_a_heartbeat_answer_lets_one_message_through_a_full_window() -> None:
    """Parity: TestMsgAppFlowControlRecvHeartbeat

    The message is empty: its refusal tells what was lost, its acceptance that nothing was.
    """
    cluster = filled()
    for _ in range(3):
        cluster.step(RaftMessage(Kind.HEARTBEAT_REPLY, 2, 1, term=1))
        sent = cluster.take_sent()
        assert [(m.kind, m.entries) for m in sent] == [(Kind.APPEND, ())]
        cluster.propose(1, b"x")
        assert cluster.take_sent() == []


# -- the window itself ------------------------------------------------------------------------


def test_the_window_adds_frees_and_fills() -> None:
    """Parity: TestInflightsAdd, TestInflightsFreeTo, TestInflightFull, TestInflightsReset"""
    window = Inflights(3, 1000)
    for index in (1, 2, 3):
        assert not window.is_full()
        window.add(index, 100)
    assert window.is_full()
    with pytest.raises(RaftInvariantBroken):
        window.add(4, 100)

    window.free_to(0)
    assert (len(window), window.in_flight_bytes) == (3, 300)
    window.free_to(2)
    assert (len(window), window.in_flight_bytes) == (1, 100)
    window.add(4, 900)
    assert window.is_full()  # by bytes

    window.reset()
    assert (len(window), window.in_flight_bytes, window.is_full()) == (0, 0, False)


def progress(state: ProgressState, match: int, next_index: int, pending: int = 0) -> PeerProgress:
    item = PeerProgress(next_index=next_index, inflights=Inflights(256, 1 << 20), match=match)
    item.state, item.pending_snapshot = state, pending
    return item


@pytest.mark.parametrize(
    ("state", "paused", "expected"),
    [
        (ProgressState.PROBE, False, False),
        (ProgressState.PROBE, True, True),
        (ProgressState.REPLICATE, False, False),
        (ProgressState.REPLICATE, True, True),
        (ProgressState.SNAPSHOT, False, True),
        (ProgressState.SNAPSHOT, True, True),
    ],
)
def test_when_a_peer_is_paused(state: ProgressState, paused: bool, expected: bool) -> None:
    """Parity: TestProgressIsPaused, TestProgressResume"""
    item = progress(state, 1, 2)
    item.is_paused_until_answer = paused

    assert item.is_paused() is expected


@pytest.mark.parametrize(
    ("state", "next_index", "pending", "probes_at"),
    [
        (ProgressState.REPLICATE, 5, 0, 2),
        (ProgressState.SNAPSHOT, 5, 10, 11),
        (ProgressState.SNAPSHOT, 5, 0, 2),
    ],
)
def test_where_probing_begins(
    state: ProgressState, next_index: int, pending: int, probes_at: int
) -> None:
    """Parity: TestProgressBecomeProbe, TestProgressBecomeReplicate, TestProgressBecomeSnapshot"""
    item = progress(state, 1, next_index, pending)

    item.become_probe()
    assert (item.state, item.match, item.next) == (ProgressState.PROBE, 1, probes_at)

    item.become_replicate()
    assert (item.state, item.match, item.next) == (ProgressState.REPLICATE, 1, 2)

    item.become_snapshot(10)
    assert (item.state, item.match, item.pending_snapshot) == (ProgressState.SNAPSHOT, 1, 10)


@pytest.mark.parametrize(
    ("update", "match", "next_index", "news"),
    [(2, 3, 5, False), (3, 3, 5, False), (4, 4, 5, True), (5, 5, 6, True)],
)
def test_a_confirmation_moves_match_forward_only(
    update: int, match: int, next_index: int, news: bool
) -> None:
    """Parity: TestProgressUpdate"""
    item = progress(ProgressState.PROBE, 3, 5)

    assert item.confirm(update) is news
    assert (item.match, item.next) == (match, next_index)


@pytest.mark.parametrize(
    ("state", "match", "next_index", "refused", "hint", "is_news", "next_after"),
    [
        (ProgressState.REPLICATE, 5, 10, 5, 5, False, 10),
        (ProgressState.REPLICATE, 5, 10, 4, 4, False, 10),
        (ProgressState.REPLICATE, 5, 10, 9, 9, True, 6),
        (ProgressState.PROBE, 0, 0, 0, 0, False, 0),
        (ProgressState.PROBE, 0, 10, 5, 5, False, 10),
        (ProgressState.PROBE, 0, 10, 9, 9, True, 9),
        (ProgressState.PROBE, 0, 2, 1, 1, True, 1),
        (ProgressState.PROBE, 0, 1, 0, 0, True, 1),
        (ProgressState.PROBE, 0, 10, 9, 2, True, 3),
        (ProgressState.PROBE, 0, 10, 9, 0, True, 1),
    ],
)
def test_a_refusal_moves_next_back_unless_it_is_stale(
    state: ProgressState,
    match: int,
    next_index: int,
    refused: int,
    hint: int,
    is_news: bool,
    next_after: int,
) -> None:
    """Parity: TestProgressMaybeDecr"""
    item = progress(state, match, next_index)

    assert item.refuse(refused, hint) is is_news
    assert (item.match, item.next) == (match, next_after)
