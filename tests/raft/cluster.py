"""A whole Raft group in one thread, moved by hand: for tests that tell one story.

Disks are instant unless held; messages wait in a queue until `settle`, and links can be cut. No
time passes by itself. For chance, delay and crashes see `tests.simulation`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from flintmq.raft import (
    EntryKind,
    HardState,
    Membership,
    MemoryStorage,
    MessageKind,
    RaftEntry,
    RaftMessage,
    RaftNode,
    RaftSettings,
    Ready,
)
from flintmq.raft.leader import Leader


class ClusterNode:
    """A node, its disk, what it applied, and the writes that wait while its disk is held."""

    def __init__(self, settings: RaftSettings, storage: MemoryStorage, seed: int) -> None:
        self.settings = settings
        self.storage = storage
        self.seed = seed
        self.raft = RaftNode(settings, storage, Random(seed))
        self.applied: list[RaftEntry] = []
        self.disk_is_held = False
        self.apply_is_held = False
        self.waiting_writes: deque[Ready] = deque()
        self.reads: list[tuple[int, bytes]] = []
        self.readies: list[Ready] = []

    def data(self) -> list[bytes]:
        """What was applied, without no-ops and membership changes."""
        return [
            bytes(entry.data)
            for entry in self.applied
            if entry.kind is EntryKind.NORMAL and len(entry.data)
        ]


class RaftCluster:
    """Nodes by id. `lets_pass`, when set, is asked about every message."""

    def __init__(
        self,
        node_count: int = 3,
        *,
        learners: tuple[int, ...] = (),
        only: tuple[int, ...] | None = None,
        logs: Mapping[int, Sequence[int]] | None = None,
        hard_states: Mapping[int, HardState] | None = None,
        settings: dict[int, dict[str, Any]] | None = None,
        **common: Any,
    ) -> None:
        """`only` starts some of the members; `logs` gives nodes entries of these terms to begin
        with; `settings` are for single nodes, `common` for all."""
        ids = tuple(range(1, node_count + 1))
        voters = tuple(node for node in ids if node not in learners)
        self.membership = Membership(voters=voters, learners=learners)
        self._common = {"membership_needs_live_quorum": False, **common}
        self._special = settings or {}
        self.nodes: dict[int, ClusterNode] = {}
        self.queue: deque[RaftMessage] = deque()
        self.sent: list[RaftMessage] = []  # everything that left a node, delivered or not
        self._cut: set[tuple[int, int]] = set()
        self._dropped_kinds: set[MessageKind] = set()
        self.lets_pass: Callable[[RaftMessage], bool] = lambda message: True
        for node in only or ids:
            storage = MemoryStorage(self.membership)
            terms = (logs or {}).get(node, ())
            storage.append([RaftEntry(index, term) for index, term in enumerate(terms, start=1)])
            hard_state = HardState(term=terms[-1]) if terms else HardState()
            storage.set_hard_state((hard_states or {}).get(node, hard_state))
            self.add_node(node, storage)

    def add_node(self, node: int, storage: MemoryStorage | None = None) -> ClusterNode:
        """Start a node; a new one learns the founders here and the rest from the log."""
        settings = RaftSettings(node=node, **{**self._common, **self._special.get(node, {})})
        self.nodes[node] = ClusterNode(
            settings, storage or MemoryStorage(self.membership), seed=node
        )
        return self.nodes[node]

    def restart(self, node: int) -> None:
        """Stop and start from what its disk holds. It applies everything again."""
        before = self.nodes[node]
        self.nodes[node] = ClusterNode(before.settings, before.storage, before.seed)
        self.queue = deque(message for message in self.queue if message.receiver != node)

    def __getitem__(self, node: int) -> RaftNode:
        return self.nodes[node].raft

    def leader_role(self, node: int) -> Leader:
        role = self.nodes[node].raft.role
        assert isinstance(role, Leader), f"node {node} does not lead"
        return role

    # -- the network ------------------------------------------------------------------------

    def cut(self, sender: int, receiver: int, *, both_ways: bool = True) -> None:
        self._cut.add((sender, receiver))
        if both_ways:
            self._cut.add((receiver, sender))

    def isolate(self, node: int) -> None:
        for other in self.nodes:
            if other != node:
                self.cut(node, other)

    def drop(self, *kinds: MessageKind) -> None:
        self._dropped_kinds.update(kinds)

    def heal(self) -> None:
        self._cut.clear()
        self._dropped_kinds.clear()
        self.lets_pass = lambda message: True

    def passes(self, message: RaftMessage) -> bool:
        return (
            message.receiver in self.nodes
            and (message.sender, message.receiver) not in self._cut
            and message.kind not in self._dropped_kinds
            and self.lets_pass(message)
        )

    # -- moving on --------------------------------------------------------------------------

    def settle(self) -> None:
        """Do everything that can be done without time passing."""
        for _ in range(100_000):
            worked = [self.work_off(node) for node in list(self.nodes)]
            if not self.queue and not any(worked):
                return
            while self.queue:
                self.deliver(self.queue.popleft())
        raise AssertionError("the cluster does not come to rest")

    def deliver(self, message: RaftMessage) -> None:
        if self.passes(message):
            self.nodes[message.receiver].raft.step(message)
            self.work_off(message.receiver)

    def step(self, message: RaftMessage) -> None:
        """Give a node a message of the test's own making, then settle."""
        self.nodes[message.receiver].raft.step(message)
        self.settle()

    def work_off(self, node: int) -> bool:
        """Carry out all Readies of one node. True when there was something to do."""
        cluster_node = self.nodes[node]
        worked = False
        while cluster_node.raft.has_ready():
            worked = True
            ready = cluster_node.raft.ready()
            cluster_node.readies.append(ready)
            self._send(ready.messages)
            cluster_node.reads.extend((read.index, read.context) for read in ready.reads)
            if ready.persisted is not None:
                cluster_node.waiting_writes.append(ready)
                if not cluster_node.disk_is_held:
                    self.complete_writes(node)
            if not cluster_node.apply_is_held:
                self._apply(cluster_node, ready.committed)
        return worked

    def _send(self, messages: list[RaftMessage]) -> None:
        self.queue.extend(messages)
        self.sent.extend(messages)

    def complete_writes(self, node: int, count: int | None = None) -> None:
        """The disk finishes the oldest writes, all of them unless a count is given."""
        cluster_node = self.nodes[node]
        storage, waiting = cluster_node.storage, cluster_node.waiting_writes
        for _ in range(len(waiting) if count is None else count):
            ready = waiting.popleft()
            if ready.hard_state is not None:
                storage.set_hard_state(ready.hard_state)
            if ready.snapshot is not None:
                storage.install(ready.snapshot)
            storage.append(ready.entries)
            self._send(ready.messages_after_sync)
            assert ready.persisted is not None
            cluster_node.raft.persisted(ready.persisted)

    def _apply(self, cluster_node: ClusterNode, entries: list[RaftEntry]) -> None:
        for entry in entries:
            cluster_node.applied.append(entry)
            if entry.kind is EntryKind.MEMBERSHIP:
                cluster_node.raft.apply_membership(entry)
            cluster_node.raft.applied(entry.index)

    # -- wishes, each followed by settling --------------------------------------------------

    def campaign(self, node: int) -> None:
        self.nodes[node].raft.campaign()
        self.settle()

    def propose(self, node: int, *payloads: bytes) -> None:
        self.nodes[node].raft.propose(*payloads)
        self.settle()

    def tick(self, node: int, count: int = 1) -> None:
        for _ in range(count):
            self.nodes[node].raft.tick()
            self.settle()

    def tick_all(self, count: int = 1) -> None:
        for _ in range(count):
            for node in list(self.nodes):
                self.nodes[node].raft.tick()
            self.settle()

    def heartbeat(self, node: int) -> None:
        """The leader's heartbeat goes out and is answered."""
        self.tick(node, self.nodes[node].settings.heartbeat_ticks)

    def take_snapshot(self, node: int, *, trailing_entries: int = 0) -> None:
        """Make a snapshot of what is applied, and compact the log behind it."""
        cluster_node = self.nodes[node]
        index = cluster_node.raft.log.applied
        cluster_node.storage.take_snapshot(index, cluster_node.raft.membership)
        cluster_node.storage.compact(index - trailing_entries)

    def take_sent(self) -> list[RaftMessage]:
        """What left since the last time this was asked."""
        self.settle()
        taken, self.sent = self.sent, []
        return taken

    # -- looking ----------------------------------------------------------------------------

    def roles(self) -> dict[int, str]:
        return {node: item.raft.role.name.value for node, item in self.nodes.items()}

    def terms(self) -> dict[int, int]:
        return {node: item.raft.term for node, item in self.nodes.items()}

    def committed(self) -> dict[int, int]:
        return {node: item.raft.log.committed for node, item in self.nodes.items()}

    def leader(self) -> int:
        """The leader of the highest term."""
        leaders = [
            (item.raft.term, node)
            for node, item in self.nodes.items()
            if isinstance(item.raft.role, Leader)
        ]
        assert leaders, "nobody leads"
        return max(leaders)[1]

    def log_terms(self, node: int) -> list[int]:
        """The terms of the whole log, from its first entry here."""
        log = self.nodes[node].raft.log
        return [entry.term for entry in log.entries(log.first_index())]

    def messages_sent(self, kind: MessageKind, *, since: int = 0) -> list[RaftMessage]:
        return [message for message in self.sent[since:] if message.kind is kind]


def elected_cluster(node_count: int = 3, **options: Any) -> RaftCluster:
    """A cluster that node 1 leads, at rest."""
    cluster = RaftCluster(node_count, **options)
    cluster.campaign(1)
    assert cluster.leader() == 1
    cluster.take_sent()
    return cluster


def lone_leader(node_count: int = 3, **options: Any) -> RaftCluster:
    """Node 1 alone, leading by votes the test gave it; its peers are the test's to play."""
    cluster = RaftCluster(node_count, only=(1,), pre_vote=False, **options)
    raft = cluster[1]
    raft.campaign()
    cluster.settle()
    for peer in range(2, node_count // 2 + 2):
        raft.step(RaftMessage(MessageKind.VOTE_REPLY, peer, 1, term=raft.term))
    cluster.settle()
    assert raft.role.name.value == "leader"
    cluster.take_sent()
    return cluster
