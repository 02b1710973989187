"""The roles a node can play, and the only ways from one to another.

    from            to              when
    --------------  --------------  ------------------------------------------------------------
    follower        follower        a higher term, or another leader of it, is seen
    follower        pre-candidate   the election timeout passed (with pre-vote)
    follower        candidate       the election timeout passed (without), or by a transfer
    pre-candidate   pre-candidate   the round went nowhere; ask again
    pre-candidate   candidate       a quorum would vote for us
    pre-candidate   follower        a quorum would not, or a leader or a higher term is seen
    candidate       candidate       the round went nowhere; next term
    candidate       pre-candidate   the round went nowhere; ask first (with pre-vote)
    candidate       leader          a quorum, ourselves by a durable vote, voted for us
    candidate       follower        a quorum did not, or a leader or a higher term is seen
    leader          follower        a higher term is seen, the quorum is lost, or we are removed

A learner is a follower that the membership does not let vote: it never campaigns. It is no role
of its own, because it is the *applied membership* that makes one, in whatever role it finds us.
"""

from __future__ import annotations

from enum import Enum


class RoleName(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


_F, _P, _C, _L = RoleName

TRANSITIONS = frozenset(
    {(_F, _F), (_F, _P), (_F, _C)}
    | {(_P, _P), (_P, _C), (_P, _F)}
    | {(_C, _C), (_C, _P), (_C, _L), (_C, _F)}
    | {(_L, _F)}
)
