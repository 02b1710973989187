"""Majority arithmetic, for one set of voters and for the two of a joint configuration.

Pure functions; tested against a naive version on every small input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

EVERYTHING = 2**64 - 1  # an empty half of a joint configuration objects to nothing


class VoteResult(Enum):
    PENDING = "pending"
    LOST = "lost"
    WON = "won"


def majority_index(voters: Collection[int], acked: Mapping[int, int]) -> int:
    """The highest value that a majority of the voters has reached."""
    if not voters:
        return EVERYTHING
    values = sorted([acked.get(voter, 0) for voter in voters])
    return values[(len(values) - 1) // 2]


def joint_index(
    incoming: Collection[int], outgoing: Collection[int], acked: Mapping[int, int]
) -> int:
    if not outgoing:
        return majority_index(incoming, acked)
    return min(majority_index(incoming, acked), majority_index(outgoing, acked))


def majority_vote(voters: Collection[int], votes: Mapping[int, bool]) -> VoteResult:
    """Votes are counted by voter, never by number of messages."""
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    missing = sum(1 for voter in voters if voter not in votes)
    needed = len(voters) // 2 + 1 if voters else 0
    if granted >= needed:
        return VoteResult.WON
    if granted + missing >= needed:
        return VoteResult.PENDING
    return VoteResult.LOST


def joint_vote(
    incoming: Collection[int], outgoing: Collection[int], votes: Mapping[int, bool]
) -> VoteResult:
    results = {majority_vote(incoming, votes), majority_vote(outgoing, votes)}
    if VoteResult.LOST in results:
        return VoteResult.LOST
    return VoteResult.PENDING if VoteResult.PENDING in results else VoteResult.WON
