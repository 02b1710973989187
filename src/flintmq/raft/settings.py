"""The settings of a node of a group. Times are counted in ticks of the caller."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.errors import InvalidRequest

UNLIMITED = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """Checked once, here. The defaults suit ticks of 100 ms."""

    node: int
    group: int = 0
    election_ticks: int = 10  # a timeout is drawn anew from [election_ticks, 2 * election_ticks)
    heartbeat_ticks: int = 1
    pre_vote: bool = True
    check_quorum: bool = True
    lease_reads: bool = False  # trusts the clocks: no round trip, and stale if ticks run late
    forward_proposals: bool = True
    tells_commit_at_once: bool = True  # else with the next append or heartbeat: half the messages
    membership_needs_live_quorum: bool = True  # refuse a change that the living could not commit
    message_bytes_max: int = 1 << 20  # entries in one append; one entry may be larger
    inflight_messages_max: int = 256
    inflight_bytes_max: int = 64 << 20
    uncommitted_bytes_max: int = 256 << 20
    apply_bytes_max: int = 16 << 20  # handed out and not yet reported applied
    trailing_entries: int = 1000  # kept behind a snapshot for followers that are a little slow

    def __post_init__(self) -> None:
        if self.node < 1:
            raise InvalidRequest("node ids begin at 1")
        if not 0 < self.heartbeat_ticks < self.election_ticks:
            raise InvalidRequest(
                "election_ticks must be greater than heartbeat_ticks, both above 0"
            )
        if self.inflight_messages_max < 1:
            raise InvalidRequest("inflight_messages_max must be at least 1")
        if self.inflight_bytes_max < self.message_bytes_max:
            raise InvalidRequest("inflight_bytes_max must hold at least one full message")
        if self.lease_reads and not self.check_quorum:
            raise InvalidRequest("lease_reads needs check_quorum: without it no lease exists")
