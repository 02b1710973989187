"""Asking for votes: the pre-candidate asks whether it could win, the candidate to win.

A pre-candidate changes neither its term nor its vote, so a node that cannot win disturbs no other
(Raft dissertation 9.6). A candidate's own vote counts when it is durable, not before.
"""

from __future__ import annotations

from typing import ClassVar

from flintmq.raft.core import RaftCore, Role
from flintmq.raft.follower import take_from_leader
from flintmq.raft.messages import MessageKind, RaftMessage
from flintmq.raft.quorum import VoteResult
from flintmq.raft.ready import Persisted
from flintmq.raft.roles import RoleName


class _Campaigner(Role):
    reply_kind: ClassVar[MessageKind]

    def __init__(self, node: RaftCore) -> None:
        super().__init__(node)
        self.votes: dict[int, bool] = {}

    def record(self, voter: int, granted: bool) -> VoteResult:
        """The first word of a voter counts; repeats change nothing."""
        self.votes.setdefault(voter, granted)
        return self.node.membership.vote_result(self.votes)

    def step(self, message: RaftMessage) -> None:
        node = self.node
        match message.kind:
            case MessageKind.APPEND | MessageKind.HEARTBEAT | MessageKind.SNAPSHOT:
                # The term filter let it pass, so this leader is of our term: concede.
                node.become_follower(message.term, message.sender)
                take_from_leader(node.role, message)
            case self.reply_kind:
                self.count(self.record(message.sender, not message.reject))
            case _:
                pass  # there is no leader to pass anything on to

    def count(self, result: VoteResult) -> None:
        if result is VoteResult.WON:
            self.win()
        elif result is VoteResult.LOST:
            # Keep the term: a refusal that carried a higher one made us follower already.
            self.node.become_follower(self.node.term, 0)

    def win(self) -> None:
        raise NotImplementedError


class PreCandidate(_Campaigner):
    name = RoleName.PRE_CANDIDATE
    reply_kind = MessageKind.PRE_VOTE_REPLY

    def begin(self) -> None:
        self.count(self.record(self.node.id, True))  # promises nothing, so it need not be durable

    def win(self) -> None:
        self.node.start_election()


class Candidate(_Campaigner):
    name = RoleName.CANDIDATE
    reply_kind = MessageKind.VOTE_REPLY

    def win(self) -> None:
        self.node.become_leader()

    def persisted(self, receipt: Persisted) -> None:
        if receipt.vote == self.node.id:
            self.count(self.record(self.node.id, True))
