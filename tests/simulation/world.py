"""The run of one seed: a heap of events in virtual time, first with faults, then without.

Safety: whatever happens, the invariants hold after every step. Liveness: once the faults end, the
cluster elects a leader, brings every member up to date and serves. Then the clients' histories are
judged. There is one random generator and no other source of chance; sets are never iterated.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from flintmq.errors import FlintError, ProposalRefused
from flintmq.raft import LEAVE_JOINT, Membership, TraceEvent
from flintmq.raft.leader import Leader
from tests.simulation.clients import Client, Reader, known
from tests.simulation.faults import Faults
from tests.simulation.invariants import Invariants, Violation
from tests.simulation.linearizability import Operation, append_log, is_linearizable
from tests.simulation.network import SimulatedNetwork
from tests.simulation.plan import MS, draw_plan
from tests.simulation.server import Server

CALM_US_MAX = 60_000 * MS
CALM_PATIENCE_US = 2_000 * MS


@dataclass(slots=True)
class Report:
    seed: int
    counts: Counter[str]
    history: list[Operation] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


class SimulationFailed(Exception):
    """A seed broke a promise; run it again to see the same."""

    def __init__(self, seed: int, now_us: int, text: str, trace: list[str]) -> None:
        super().__init__(f"seed {seed} at {now_us / 1000:.1f} ms: {text}")
        self.seed, self.trace = seed, trace


class World:
    def __init__(self, seed: int, *, node_count: int | None = None, trace: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.plan = draw_plan(self.random, node_count)
        self.now = 0
        self.is_calm = False
        self.counts: Counter[str] = Counter()
        self.trace: list[str] | None = [] if trace else None
        self._heap: list[tuple[int, int, Any, tuple[Any, ...]]] = []
        self._events = 0
        self._moment = 0
        self.next_operation = 1
        self.history: dict[int, Operation] = {}
        self.network = SimulatedNetwork(self)
        self.invariants = Invariants(self)
        self.servers: dict[int, Server] = {}
        founders = Membership(voters=tuple(range(1, self.plan.node_count + 1)))
        for node in founders.voters:
            self.servers[node] = Server(self, node, founders)

    # -- time -------------------------------------------------------------------------------

    def later(self, delay_us: int, call: Any, *arguments: Any) -> None:
        self._events += 1
        heapq.heappush(self._heap, (self.now + delay_us, self._events, call, arguments))

    def next_moment(self) -> int:
        """A position in the one order of calls and returns."""
        self._moment += 1
        return self._moment

    def _run_until(self, end_us: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            self.now, _, call, arguments = heapq.heappop(heap)
            self.counts["events"] += 1
            call(*arguments)
        self.now = end_us

    # -- looking ----------------------------------------------------------------------------

    def note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now:>9} {text}")

    def traced(self, server: Server, event: TraceEvent) -> None:
        self.note(f"node {event.node} {event.what} t{event.term} i{event.index}")
        if event.what == "leader":
            self.counts["elections"] += 1
        elif event.what == "restore":
            self.counts["snapshots restored"] += 1
        if event.what in ("leader", "follower"):
            server.role_changed()
        self.invariants.traced(server, event)

    def leader(self) -> Server | None:
        """Who leads the highest term, as far as anyone who is up believes."""
        leaders = [
            server
            for server in self.servers.values()
            if server.is_up and isinstance(server.raft.role, Leader)
        ]
        return max(leaders, key=lambda server: server.raft.term, default=None)

    def add_server(self, node: int) -> None:
        self.servers[node] = Server(self, node, None)

    # -- the two phases ---------------------------------------------------------------------

    def run(self) -> Report:
        try:
            self._be_safe()
            self._be_live()
            self._judge_history()
        except (Violation, FlintError) as error:
            text = str(error) if isinstance(error, Violation) else repr(error)
            raise SimulationFailed(self.seed, self.now, text, self.trace or []) from error
        self.counts["commits"] = self.invariants.commit_max - 1
        self.counts["virtual ms"] = self.now // MS
        return Report(self.seed, self.counts, known(self.history), self.trace or [])

    def _be_safe(self) -> None:
        Faults(self).begin()
        for name in range(1, self.plan.clients + 1):
            Client(self, name).begin()
        for name in range(self.plan.clients + 1, self.plan.clients + self.plan.readers + 1):
            Reader(self, name).begin()
        self._run_until(self.plan.safety_us)

    def _be_live(self) -> None:
        self.is_calm = True
        self.note("calm")
        self.network.heal()
        for server in self.servers.values():
            server.paused_until = 0
            server.disk.slow_until = 0
            if not server.is_up:
                server.start()
        end = self.now + CALM_US_MAX
        while not self._has_converged():
            if self.now >= end:
                raise Violation(f"liveness: no agreement in calm weather: {self._picture()}")
            self._run_until(self.now + 100 * MS)
            self._leave_joint()
        self._must_serve(end)

    def _leave_joint(self) -> None:
        """An explicit joint configuration waits for its operator; so that is us."""
        leader = self.leader()
        if leader is None or not leader.raft.membership.is_joint():
            return
        if not leader.raft.membership.auto_leave:
            try:
                leader.raft.propose_membership(LEAVE_JOINT)
            except ProposalRefused:
                return
            leader.pump()

    def _has_converged(self) -> bool:
        leader = self.leader()
        if leader is None or leader.raft.membership.is_joint():
            return False
        last = leader.raft.log.last_index()
        if leader.machine.applied != last or leader.raft.log.term(last) != leader.raft.term:
            return False
        return all(
            self.servers[node].machine.applied == last
            and self.servers[node].raft.membership == leader.raft.membership
            for node in leader.raft.membership.everybody()
        )

    def _must_serve(self, end: int) -> None:
        """The cluster takes a write, and its last member reads it back. Messages that straggle in
        from before may still move leadership: who gets no answer asks again, as a client would."""
        written = self._ask_until_answered(end, self._write_once)
        read = self._ask_until_answered(end, self._read_once)
        if read != written:
            raise Violation(f"liveness: wrote {written}, read {read}")
        while not self._has_converged():
            if self.now >= end:
                raise Violation(f"liveness: no agreement in calm weather: {self._picture()}")
            self._run_until(self.now + 100 * MS)
        leader = self.leader()
        assert leader is not None
        members = [self.servers[node] for node in leader.raft.membership.everybody()]
        if len({member.machine.to_bytes() for member in members}) != 1:
            raise Violation("state-machine safety: the members ended in different states")

    def _ask_until_answered(self, end: int, ask: Callable[[Server, list[Any]], object]) -> Any:
        answers: list[Any] = []
        asked_at = -CALM_PATIENCE_US
        while not answers:
            if self.now >= end:
                raise Violation(f"liveness: no answer in calm weather: {self._picture()}")
            leader = self.leader()
            if leader is not None and self.now - asked_at >= CALM_PATIENCE_US:
                asked_at = self.now
                ask(leader, answers)
            self._run_until(self.now + 100 * MS)
        return answers[0]

    def _write_once(self, leader: Server, answers: list[Any]) -> object:
        value = self.next_operation
        self.next_operation += 1
        return leader.write(
            value, "put", "calm", ["the same"], lambda _: answers.append("the same")
        )

    def _read_once(self, leader: Server, answers: list[Any]) -> object:
        operation = self.next_operation
        self.next_operation += 1
        reader = self.servers[leader.raft.membership.everybody()[-1]]
        return reader.read(operation, "calm", answers.append)

    def _picture(self) -> str:
        return "; ".join(
            f"{server.id} {server.raft.role.name.value} t{server.raft.term}"
            f" applied {server.machine.applied} last {server.raft.log.last_index()}"
            f" {server.raft.membership}"
            for server in self.servers.values()
        )

    def _judge_history(self) -> None:
        """The clients' answers could have come from one copy."""
        history = known(self.history)
        registers = [op for op in history if not op.key.startswith("topic-")]
        topics = [op for op in history if op.key.startswith("topic-")]
        if not is_linearizable(registers):
            raise Violation("linearizability: the registers' history has no explanation")
        if not is_linearizable(topics, append_log, 0):
            raise Violation("linearizability: the topics' history has no explanation")
        self.counts["operations judged"] = len(history)


def simulate(seed: int, *, node_count: int | None = None, trace: bool = False) -> Report:
    """Run one seed; SimulationFailed when a promise is broken."""
    return World(seed, node_count=node_count, trace=trace).run()
