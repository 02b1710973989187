"""Every error FlintMQ raises, ordered by what the caller can do next.

FlintError
  InvalidRequest (ValueError)   fix the call
  ProposalRefused               raft: nothing was appended; try again later or elsewhere
    NotLeader                   ask the node named in it
    TooMuchUncommitted          slow down until the quorum has caught up
    LeadershipMoving            a transfer is under way; ask the next leader
    MembershipChangeRefused     wait for the change before it, or change the change
  LogCompacted                  raft storage: older than what is kept; use the snapshot
  LogUnavailable                raft storage: not there (yet)
  MalformedRaftMessage          drop the connection it came from
  SnapshotDamaged               ask for the chunk again, or for a new snapshot
  RaftInvariantBroken           stop the node: going on could lose what was promised
"""

from __future__ import annotations


class FlintError(Exception):
    """The root of everything FlintMQ raises on purpose."""


class InvalidRequest(FlintError, ValueError):
    """The call itself is wrong; the text says what is allowed."""


class ProposalRefused(FlintError):
    """Nothing was appended. The same proposal may be made again."""


class NotLeader(ProposalRefused):
    """Only the leader decides this, and it is someone else, or nobody yet."""

    def __init__(self, node: int, leader: int) -> None:
        known = f"node {leader} leads" if leader else "no leader is known"
        super().__init__(f"node {node} does not lead; {known}")
        self.node, self.leader = node, leader


class TooMuchUncommitted(ProposalRefused):
    """The leader holds as many unconfirmed bytes as it may. Let the quorum catch up first."""

    def __init__(self, uncommitted_bytes: int, uncommitted_bytes_max: int) -> None:
        super().__init__(
            f"{uncommitted_bytes} uncommitted bytes would pass the limit of {uncommitted_bytes_max}"
        )
        self.uncommitted_bytes = uncommitted_bytes
        self.uncommitted_bytes_max = uncommitted_bytes_max


class LeadershipMoving(ProposalRefused):
    """The leader is handing over; the node it hands over to will take the proposal."""

    def __init__(self, successor: int) -> None:
        super().__init__(f"leadership is moving to node {successor}")
        self.successor = successor


class MembershipChangeRefused(ProposalRefused):
    """The change may not be made now, or not in this form; the text says which."""


class LogCompacted(FlintError):
    """The entry was compacted away; only the snapshot still contains it."""

    def __init__(self, index: int, first_index: int) -> None:
        super().__init__(f"entry {index} is compacted; the log begins at {first_index}")
        self.index, self.first_index = index, first_index


class LogUnavailable(FlintError):
    """The storage cannot give this entry or snapshot now."""


class MalformedRaftMessage(FlintError):
    """The bytes are no raft message, or one beyond our limits."""


class SnapshotDamaged(FlintError):
    """A chunk or the whole snapshot does not match its checksum."""


class RaftInvariantBroken(FlintError):
    """Something that cannot happen did. Stop the node; do not repair by guessing."""
