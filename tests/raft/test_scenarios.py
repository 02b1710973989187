"""Cluster stories as transcripts: commands, then the whole expected output.

The files in `scenarios/` are meant to be read. A story is a comment, then blocks of commands, each
ended by `----` and what the commands must print, up to the next empty line. After every command
the cluster settles. With FLINTMQ_REWRITE=1 in the environment the expected output is written anew
instead of compared; read the difference before you commit it.

    nodes N [learners=3,4] [log.2=1,1,2] [term=2] [setting=value ...]    a cluster
    start N                       a new node, a member of nothing yet
    campaign | restart | isolate | forget N
    propose N "text" ...          refusals are printed
    change N [joint|explicit] +4 ~5 -3       add voter, add learner, remove
    leave N                       leave the joint configuration
    tick N|all COUNT              heartbeat N
    cut A B | one-way A B | drop KIND[>N] ... | heal
    hold-disk N | sync N [COUNT] | hold-apply N | apply N
    transfer ASKED SUCCESSOR | read N WORD | unreachable N PEER | reported N PEER ok|failed
    compact N [keep=K]
    messages on|off               print every message that leaves a node
    show [N ...] | progress N | log N | applied N
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.errors import ProposalRefused
from flintmq.raft import (
    LEAVE_JOINT,
    EntryKind,
    HardState,
    MemberAction,
    Membership,
    MembershipChange,
    MembershipStep,
    MessageKind,
    RaftMessage,
    Transition,
)
from tests.raft.cluster import RaftCluster

SCENARIOS = Path(__file__).parent / "scenarios"
SIGNS = {"+": MemberAction.ADD_VOTER, "~": MemberAction.ADD_LEARNER, "-": MemberAction.REMOVE}


class Teller:
    """Carries out the commands of one story and collects what they print."""

    def __init__(self) -> None:
        self.cluster = RaftCluster(1)
        self.lines: list[str] = []
        self._prints_messages = False
        self._reads_seen = 0

    def tell(self, command: str) -> None:
        verb, *words = shlex.split(command)
        getattr(self, "do_" + verb.replace("-", "_"))(*words)
        if self._prints_messages:
            self._print_messages()
        else:
            self.cluster.settle()
            self.cluster.sent.clear()
        self._print_reads()

    def _print_messages(self) -> None:
        """Settle one message at a time, in the order they were sent."""
        cluster = self.cluster
        while True:
            worked = [cluster.work_off(node) for node in list(cluster.nodes)]
            for message in cluster.sent:
                fate = "" if cluster.passes(message) else "   lost"
                self.lines.append(described(message) + fate)
            cluster.sent.clear()
            if not cluster.queue and not any(worked):
                return
            if cluster.queue:
                cluster.deliver(cluster.queue.popleft())

    def _print_reads(self) -> None:
        for node, item in self.cluster.nodes.items():
            for index, context in item.reads:
                self.lines.append(f"{node} may read {context.decode()} at {index}")
            item.reads.clear()

    def _wish(self, what: Callable[[], object]) -> None:
        try:
            what()
        except ProposalRefused as refused:
            self.lines.append(f"refused: {refused}")

    # -- commands ---------------------------------------------------------------------------

    def do_nodes(self, count: str, *options: str) -> None:
        settings: dict[str, Any] = {}
        learners: tuple[int, ...] = ()
        logs: dict[int, list[int]] = {}
        term = 0
        for option in options:
            name, _, value = option.partition("=")
            if name == "learners":
                learners = tuple(int(word) for word in value.split(","))
            elif name == "term":
                term = int(value)
            elif name.startswith("log."):
                logs[int(name[4:])] = [int(word) for word in value.split(",")]
            else:
                name = name.replace("-", "_")
                settings[name] = {"on": True, "off": False}.get(value, value)
                if isinstance(settings[name], str):
                    settings[name] = int(value)
        hard_states = {node: HardState(term=term) for node in range(1, int(count) + 1) if term}
        self.cluster = RaftCluster(
            int(count), learners=learners, logs=logs, hard_states=hard_states, **settings
        )

    def do_start(self, node: str) -> None:
        self.cluster.add_node(int(node))

    def do_campaign(self, node: str) -> None:
        self.cluster[int(node)].campaign()

    def do_restart(self, node: str) -> None:
        self.cluster.restart(int(node))

    def do_forget(self, node: str) -> None:
        self.cluster[int(node)].forget_leader()

    def do_propose(self, node: str, *payloads: str) -> None:
        self._wish(lambda: self.cluster[int(node)].propose(*(p.encode() for p in payloads)))

    def do_change(self, node: str, *words: str) -> None:
        transition = Transition.AUTO
        if words[0] in ("joint", "explicit"):
            transition = {
                "joint": Transition.JOINT_IMPLICIT,
                "explicit": Transition.JOINT_EXPLICIT,
            }[words[0]]
            words = words[1:]
        steps = tuple(MembershipStep(SIGNS[word[0]], int(word[1:])) for word in words)
        change = MembershipChange(steps, transition)
        self._wish(lambda: self.cluster[int(node)].propose_membership(change))

    def do_leave(self, node: str) -> None:
        self._wish(lambda: self.cluster[int(node)].propose_membership(LEAVE_JOINT))

    def do_tick(self, node: str, count: str) -> None:
        for _ in range(int(count)):
            for each in list(self.cluster.nodes) if node == "all" else [int(node)]:
                self.cluster[each].tick()
            if not self._prints_messages:
                self.cluster.settle()

    def do_heartbeat(self, node: str) -> None:
        self.do_tick(node, "1")

    def do_isolate(self, node: str) -> None:
        self.cluster.isolate(int(node))

    def do_cut(self, one: str, other: str) -> None:
        self.cluster.cut(int(one), int(other))

    def do_one_way(self, sender: str, receiver: str) -> None:
        """Only from sender to receiver do messages still pass."""
        self.cluster.cut(int(receiver), int(sender), both_ways=False)

    def do_drop(self, *kinds: str) -> None:
        """KIND, or KIND>NODE for those to one node only."""
        self.cluster.drop(*(MessageKind[kind] for kind in kinds if ">" not in kind))
        some = {kind for kind in kinds if ">" in kind}
        if some:
            self.cluster.lets_pass = lambda m: f"{m.kind.name}>{m.receiver}" not in some

    def do_heal(self) -> None:
        self.cluster.heal()

    def do_hold_disk(self, node: str) -> None:
        self.cluster.nodes[int(node)].disk_is_held = True

    def do_sync(self, node: str, count: str | None = None) -> None:
        self.cluster.complete_writes(int(node), int(count) if count else None)
        if not count:
            self.cluster.nodes[int(node)].disk_is_held = False

    def do_hold_apply(self, node: str) -> None:
        self.cluster.nodes[int(node)].apply_is_held = True

    def do_apply(self, node: str) -> None:
        """Apply everything that was handed out meanwhile."""
        item = self.cluster.nodes[int(node)]
        item.apply_is_held = False
        handed = [entry for ready in item.readies for entry in ready.committed]
        self.cluster._apply(item, [e for e in handed if e.index > item.raft.log.applied])

    def do_transfer(self, asked: str, successor: str) -> None:
        self.cluster[int(asked)].transfer_leadership(int(successor))

    def do_read(self, node: str, word: str) -> None:
        self._wish(lambda: self.cluster[int(node)].read_index(word.encode()))

    def do_unreachable(self, node: str, peer: str) -> None:
        self.cluster[int(node)].report_unreachable(int(peer))

    def do_reported(self, node: str, peer: str, outcome: str) -> None:
        self.cluster[int(node)].report_snapshot(int(peer), arrived=outcome == "ok")

    def do_compact(self, node: str, keep: str = "keep=0") -> None:
        trailing = int(keep.removeprefix("keep="))
        self.cluster.take_snapshot(int(node), trailing_entries=trailing)

    def do_messages(self, switch: str) -> None:
        self._prints_messages = switch == "on"

    # -- looking ----------------------------------------------------------------------------

    def do_show(self, *nodes: str) -> None:
        for node in [int(word) for word in nodes] or list(self.cluster.nodes):
            status = self.cluster[node].status()
            self.lines.append(
                f"{node} {status.role:<13} term={status.term} leader={status.leader}"
                f" last={status.last_index}"
                + f" durable={status.durable_index}"
                * (status.durable_index < status.last_index)
                + f" committed={status.committed}"
                f" applied={status.applied} {members(status.membership)}"
            )

    def do_progress(self, node: str) -> None:
        for peer, status in self.cluster[int(node)].status().peers.items():
            marks = ["paused"] * status.is_paused
            if status.inflight_messages:
                marks.append(f"inflight={status.inflight_messages}")
            if status.pending_snapshot:
                marks.append(f"snapshot={status.pending_snapshot}")
            line = f"{peer} {status.state} match={status.match} next={status.next}"
            self.lines.append(" ".join([line, *marks]))

    def do_log(self, node: str) -> None:
        log = self.cluster[int(node)].log
        items = [f"{e.index}/{e.term}" for e in log.entries(log.first_index())]
        self.lines.append(f"{node} log " + " ".join(items))

    def do_applied(self, node: str) -> None:
        words = [
            "change" if e.kind is EntryKind.MEMBERSHIP else bytes(e.data).decode() or "no-op"
            for e in self.cluster.nodes[int(node)].applied
        ]
        self.lines.append(f"{node} applied " + " ".join(words))


def members(membership: Membership) -> str:
    text = "voters=" + ",".join(map(str, membership.voters))
    for name in ("outgoing", "learners", "learners_next"):
        if nodes := getattr(membership, name):
            text += f" {name}=" + ",".join(map(str, nodes))
    return text


def described(message: RaftMessage) -> str:
    """One line; what is zero goes without saying."""
    text = f"{message.sender}>{message.receiver} {message.kind.name}"
    for name in ("term", "index", "log_term", "commit", "hint"):
        if value := getattr(message, name):
            text += f" {name}={value}"
    if message.entries:
        text += " entries=" + ",".join(f"{e.index}/{e.term}" for e in message.entries)
    if message.snapshot is not None:
        text += f" snapshot={message.snapshot.index}/{message.snapshot.term}"
    return text + " reject" * message.reject + " force" * message.force


def retold(text: str) -> str:
    """The story with the output its commands print now."""
    teller = Teller()
    told: list[str] = []
    skipping = False
    for line in text.splitlines():
        if skipping:
            if line.strip():
                continue
            skipping = False
        told.append(line)
        if line == "----":
            told.extend(teller.lines)
            teller.lines.clear()
            skipping = True
        elif line.strip() and not line.startswith("#"):
            teller.tell(line)
    assert not teller.lines, "the last block has no ---- to show its output"
    return "\n".join(told) + "\n"


@pytest.mark.parametrize("name", sorted(path.stem for path in SCENARIOS.glob("*.txt")))
def test_the_story_is_told_as_written(name: str) -> None:
    path = SCENARIOS / f"{name}.txt"
    written = path.read_text()

    told = retold(written)

    if os.environ.get("FLINTMQ_REWRITE"):
        path.write_text(told)
    else:
        assert told == written


def test_there_are_stories() -> None:
    assert len(list(SCENARIOS.glob("*.txt"))) >= 28
