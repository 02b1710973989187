"""The follower: takes what the leader sends, and passes on what only the leader can answer."""

from __future__ import annotations

from flintmq.errors import InvalidRequest
from flintmq.raft.core import Role
from flintmq.raft.messages import (
    NOBODY,
    EntryId,
    EntryKind,
    MessageKind,
    Payload,
    RaftEntry,
    RaftMessage,
)
from flintmq.raft.ready import ReadState
from flintmq.raft.roles import RoleName


class Follower(Role):
    name = RoleName.FOLLOWER

    def propose(self, payloads: list[tuple[EntryKind, Payload]]) -> EntryId | None:
        node = self.node
        if node.leader == NOBODY or not node.settings.forward_proposals:
            return super().propose(payloads)
        entries = tuple(RaftEntry(0, 0, data, kind) for kind, data in payloads)
        node.send(MessageKind.PROPOSE, node.leader, entries=entries)
        return None

    def step(self, message: RaftMessage) -> None:
        node = self.node
        match message.kind:
            case MessageKind.APPEND | MessageKind.HEARTBEAT | MessageKind.SNAPSHOT:
                node.election_elapsed = 0
                node.leader = message.sender
                take_from_leader(self, message)
            case MessageKind.TIMEOUT_NOW:
                # The leader asks us to take over. No pre-vote: it wants us, and knows we are ready.
                node.campaign(transfer=True)
            case MessageKind.READ_INDEX_REPLY:
                node.reads.append(ReadState(message.index, message.context))
            case MessageKind.PROPOSE if not node.settings.forward_proposals:
                pass
            case MessageKind.PROPOSE | MessageKind.READ_INDEX | MessageKind.TRANSFER_LEADER:
                if node.leader != NOBODY:
                    node.forward(message, node.leader)
            case _:
                pass  # answers to questions we no longer ask


def take_from_leader(role: Role, message: RaftMessage) -> None:
    """What a follower does with the leader's word; candidates become followers first."""
    node, log = role.node, role.node.log
    if message.kind is MessageKind.HEARTBEAT:
        # The leader knows we hold at least this much (it sends min(match, commit)).
        node.commit_to(min(message.commit, log.last_index()))
        node.send(MessageKind.HEARTBEAT_REPLY, message.sender, read_round=message.read_round)
    elif message.kind is MessageKind.APPEND:
        _take_append(role, message)
    elif message.snapshot is not None:
        restored = node.restore(message.snapshot)
        index = log.last_index() if restored else log.committed
        node.send(MessageKind.APPEND_REPLY, message.sender, index=index)


def _take_append(role: Role, message: RaftMessage) -> None:
    node, log = role.node, role.node.log
    if message.index < log.committed:
        # Everything up to our commit agrees with every leader, so say where we are.
        node.send(MessageKind.APPEND_REPLY, message.sender, index=log.committed)
        return
    if message.entries and message.entries[0].index != message.index + 1:
        raise InvalidRequest("the entries of an append do not follow the entry before them")
    last_new = log.append_after(message.index, message.log_term, message.entries)
    if last_new is not None:
        node.commit_to(min(message.commit, last_new))
        node.send(MessageKind.APPEND_REPLY, message.sender, index=last_new)
        return
    # Refused. The hint names our last entry that could still agree: not behind the probe, and of
    # a term not after the probe's. The leader skips its own later terms in the same way.
    hint, hint_term = log.find_conflict_by_term(
        min(message.index, log.last_index()), message.log_term
    )
    node.send(
        MessageKind.APPEND_REPLY,
        message.sender,
        index=message.index,
        reject=True,
        hint=hint,
        log_term=hint_term,
    )
