"""What the leader knows about one peer: how far it is, and how fast to feed it.

PROBE      its position is a guess: one append per heartbeat interval, until it answers
REPLICATE  its position is known: send ahead, within the inflight window
SNAPSHOT   it needs what the log no longer has: nothing is sent until the snapshot is there
"""

from __future__ import annotations

from enum import Enum

from flintmq.raft.inflights import Inflights
from flintmq.raft.status import PeerStatus


class ProgressState(Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class PeerProgress:
    """Invariant: match < next. Up to `match` the peer durably holds our entries; `next` is the
    first one to send. `match` never moves back while we lead, unless the peer begins anew."""

    __slots__ = (
        "inflights",
        "is_paused_until_answer",
        "lease_tick",
        "match",
        "next",
        "pending_snapshot",
        "read_round",
        "recent_active",
        "sent_commit",
        "state",
        "was_active",
    )

    def __init__(self, *, next_index: int, inflights: Inflights, match: int = 0) -> None:
        self.match = match
        self.next = next_index
        self.state = ProgressState.PROBE
        self.inflights = inflights
        self.is_paused_until_answer = False
        self.pending_snapshot = 0
        self.sent_commit = 0
        self.recent_active = False  # heard from since the last quorum check
        self.was_active = False  # heard from in the interval before that
        self.read_round = 0  # the last round of heartbeats it answered
        self.lease_tick = 0  # when that round was sent, on the leader's count of ticks

    def is_live(self) -> bool:
        return self.recent_active or self.was_active

    def is_paused(self) -> bool:
        return self.state is ProgressState.SNAPSHOT or self.is_paused_until_answer

    def status(self) -> PeerStatus:
        return PeerStatus(
            match=self.match,
            next=self.next,
            state=self.state.value,
            is_live=self.is_live(),
            is_paused=self.is_paused(),
            inflight_messages=len(self.inflights),
            inflight_bytes=self.inflights.in_flight_bytes,
            pending_snapshot=self.pending_snapshot,
        )

    # -- states -----------------------------------------------------------------------------

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self.is_paused_until_answer = False
        self.inflights.reset()

    def become_probe(self) -> None:
        if self.state is ProgressState.SNAPSHOT:
            # A snapshot that arrived takes it past its index; one that failed left no trace.
            self.next = max(self.match + 1, self.pending_snapshot + 1)
        else:
            self.next = self.match + 1
        self.pending_snapshot = 0
        self._enter(ProgressState.PROBE)
        self.sent_commit = min(self.sent_commit, self.next - 1)

    def become_replicate(self) -> None:
        self.next = self.match + 1
        self.pending_snapshot = 0
        self._enter(ProgressState.REPLICATE)

    def become_snapshot(self, index: int) -> None:
        self._enter(ProgressState.SNAPSHOT)
        self.pending_snapshot = index
        self.next = index + 1
        self.sent_commit = index

    def snapshot_was_sent(self, *, arrived: bool) -> None:
        if not arrived:
            self.pending_snapshot = 0
        self.become_probe()
        # Wait for the peer's answer, or the next heartbeat's, before trying again.
        self.is_paused_until_answer = True

    def forget(self) -> None:
        """The peer began anew, and may have less than it said: under a policy that does not sync
        each write, what it lost it must be given again."""
        self.match = self.read_round = self.lease_tick = self.pending_snapshot = 0
        self._enter(ProgressState.PROBE)  # from `next` on; it refuses that if it has less now
        self.sent_commit = 0

    # -- what was sent ----------------------------------------------------------------------

    def sent_entries(self, count: int, payload_bytes: int) -> None:
        if self.state is ProgressState.REPLICATE:
            if count:
                self.next += count
                self.inflights.add(self.next - 1, payload_bytes)
            self.is_paused_until_answer = self.inflights.is_full()
        elif count:
            self.is_paused_until_answer = True

    def can_learn_commit(self, commit: int) -> bool:
        """An empty append would tell the peer about a commit it can use and does not know."""
        return commit > self.sent_commit and self.sent_commit < self.next - 1

    # -- what was answered ------------------------------------------------------------------

    def confirm(self, index: int) -> bool:
        """The peer holds our log up to `index`. True when that is news."""
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        self.is_paused_until_answer = False
        return True

    def refuse(self, refused: int, hint: int) -> bool:
        """The peer refused an append behind `refused` and has at most `hint` in common with us.

        False when the refusal is stale: it answers something older than what we know.
        """
        if self.state is ProgressState.REPLICATE:
            if refused <= self.match:
                return False
            self.next = self.match + 1
            self.sent_commit = min(self.sent_commit, self.next - 1)
            return True
        if self.next - 1 != refused:
            return False
        self.next = max(min(refused, hint + 1), self.match + 1)
        self.sent_commit = min(self.sent_commit, self.next - 1)
        self.is_paused_until_answer = False
        return True
