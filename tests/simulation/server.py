"""One simulated server: drives a RaftNode with a simulated disk and network, as a real one would.

Nothing is decided here that the core decides; this is the reference for a driver. Writes are
handed to the disk without waiting, messages of the second class leave when their write is durable,
and applying runs behind on its own.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any

from flintmq.errors import FlintError, ProposalRefused
from flintmq.raft import (
    EntryKind,
    Membership,
    MessageKind,
    RaftEntry,
    RaftMessage,
    RaftNode,
    RaftSettings,
    Ready,
    SnapshotReceiver,
    TraceEvent,
    chunk_at,
    describe_bytes,
)
from flintmq.raft.leader import Leader
from tests.simulation.disk import SimulatedDisk
from tests.simulation.machine import Machine, OffsetBroken, TopicProposer

if TYPE_CHECKING:
    from tests.simulation.world import World

CHUNK_BYTES = 256


class Server:
    def __init__(self, world: World, node: int, founders: Membership | None) -> None:
        self.world = world
        self.id = node
        self.disk = SimulatedDisk(founders)
        self.incarnation = 0
        self.is_up = False
        self.paused_until = 0
        self.tick_us = 0
        self.seen_term = self.seen_commit = self.durable_term = 0
        self.start()

    # -- life -------------------------------------------------------------------------------

    def start(self) -> None:
        world, plan = self.world, self.world.plan
        self.incarnation += 1
        self.is_up = True
        self.tick_us = int(plan.tick_us * world.random.uniform(0.95, 1.05))
        snapshot = self.disk.storage.snapshot()
        self.machine = Machine.from_bytes(self.disk.snapshot_bytes)
        self.machine.applied = snapshot.index
        settings = RaftSettings(node=self.id, **plan.settings)
        self.raft = RaftNode(
            settings,
            self.disk.storage,
            Random(world.random.getrandbits(64)),
            applied=snapshot.index,
            trace_hook=self._traced,
        )
        self.proposer: TopicProposer | None = None
        self._to_apply: deque[RaftEntry] = deque()
        self._apply_is_due = False
        self._waiting: dict[int, Any] = {}  # operation id -> what to call with the result
        self._reads: list[tuple[int, bytes]] = []
        self._read_keys: dict[bytes, tuple[str, Any]] = {}
        self._ticked_at = world.now
        world.invariants.restarted(self)
        self.later(world.random.randrange(self.tick_us), self._tick)
        if plan.compact_every_us:
            self.later(world.random.randrange(plan.compact_every_us), self._compact_now_and_then)

    def stop(self) -> None:
        """Power off: everything not on the disk is gone, and the disk keeps what it likes."""
        self.is_up = False
        self.incarnation += 1
        self.disk.crash(self.world.random)

    def later(self, delay_us: int, call: Any, *arguments: Any) -> None:
        """Call in this life only; a paused server does nothing until it goes on."""
        self.world.later(delay_us, self._in_this_life, self.incarnation, call, arguments)

    def _in_this_life(self, incarnation: int, call: Any, arguments: tuple[Any, ...]) -> None:
        if incarnation != self.incarnation:
            return
        if self.world.now < self.paused_until:
            self.world.later(
                self.paused_until - self.world.now, self._in_this_life, incarnation, call, arguments
            )
            return
        call(*arguments)

    def _traced(self, event: TraceEvent) -> None:
        self.world.traced(self, event)

    # -- events -----------------------------------------------------------------------------

    def _tick(self) -> None:
        self.raft.tick()
        self._ticked_at += self.tick_us
        self._make_good_for_ticks()
        self._ticked_at = self.world.now
        self.pump()
        self.later(self.tick_us, self._tick)

    def _make_good_for_ticks(self) -> None:
        """Leases count on ticks for all the time that passed, also while we were held up."""
        if self.raft.settings.lease_reads:
            while self._ticked_at + self.tick_us <= self.world.now:
                self._ticked_at += self.tick_us
                self.raft.tick()

    def receive(self, message: RaftMessage, snapshot_bytes: bytes) -> None:
        if message.snapshot is not None and not self._take_snapshot_bytes(message, snapshot_bytes):
            return
        self._make_good_for_ticks()
        self.raft.step(message)
        self.pump()

    def _take_snapshot_bytes(self, message: RaftMessage, data: bytes) -> bool:
        """Chunk by chunk, each checked; an interrupted transfer goes on where it stopped."""
        snapshot = message.snapshot
        assert snapshot is not None
        receiver, taken = SnapshotReceiver(snapshot, zlib.crc32), bytearray()
        while not receiver.is_complete():
            if self.world.random.random() < 0.05:
                receiver = SnapshotReceiver(snapshot, zlib.crc32, offset_next=len(taken))
            chunk = chunk_at(snapshot, data, receiver.offset_next)
            if receiver.accept(chunk):
                taken += chunk.data
        receiver.check_whole(bytes(taken))
        self.disk.received_bytes[snapshot.index] = bytes(taken)
        self.world.servers[message.sender].later(
            1000, self.world.servers[message.sender].snapshot_reported, self.id, True
        )
        return True

    def snapshot_reported(self, peer: int, arrived: bool) -> None:
        self.raft.report_snapshot(peer, arrived=arrived)
        self.pump()

    def _synced(self, due: Ready) -> None:
        """A sync covers everything written before it, whatever order the completions come in."""
        if not any(ready is due for ready in self.disk.writes):
            return
        while True:
            ready = self.disk.writes[0]
            self._persisted(ready)
            if ready is due:
                return

    def _persisted(self, ready: Ready) -> None:
        self.disk.complete(ready)
        if ready.hard_state is not None:
            self.durable_term = max(self.durable_term, ready.hard_state.term)
        if ready.snapshot is not None and ready.snapshot.index > self.machine.applied:
            self.machine = Machine.from_bytes(self.disk.snapshot_bytes)
            self.machine.applied = ready.snapshot.index
        self._send(ready.messages_after_sync)
        assert ready.persisted is not None
        self.raft.persisted(ready.persisted)
        self.pump()

    # -- carrying out Readies ---------------------------------------------------------------

    def pump(self) -> None:
        world = self.world
        while self.raft.has_ready():
            ready = self.raft.ready()
            world.invariants.handed_out(self, ready)
            self._send(ready.messages)
            if ready.persisted is not None:
                done = self.disk.write(ready, world.now, world.random, world.plan.sync_us)
                self.later(done - world.now, self._synced, ready)
            for read in ready.reads:
                world.invariants.may_read(self, read)
                self._reads.append((read.index, read.context))
            self._to_apply.extend(ready.committed)
            world.invariants.stepped(self)
            if self._to_apply and not self._apply_is_due:
                self._apply_is_due = True
                longest = 0 if world.is_calm else world.plan.apply_delay_us
                self.later(world.random.randint(0, longest) if longest else 0, self._apply)
        world.invariants.stepped(self)
        self._serve_reads()

    def _send(self, messages: list[RaftMessage]) -> None:
        for message in messages:
            self.world.invariants.sent(message)
            data = b""
            if message.snapshot is not None:
                data = self.disk.snapshot_bytes
                if message.snapshot != self.disk.storage.snapshot():
                    # A newer one has taken its place: this transfer cannot be served.
                    self.later(0, self.snapshot_reported, message.receiver, False)
                    continue
            self.world.network.send(message, data)

    def _apply(self) -> None:
        self._apply_is_due = False
        count = self.world.random.randint(1, len(self._to_apply)) if self._to_apply else 0
        for _ in range(count):
            entry = self._to_apply.popleft()
            if entry.index <= self.machine.applied:
                continue  # a snapshot was installed meanwhile
            self._apply_one(entry)
        if self._to_apply:
            self._apply_is_due = True
            self.later(1000, self._apply)
        self.pump()

    def _apply_one(self, entry: RaftEntry) -> None:
        self.world.invariants.applies(self, entry)
        if entry.kind is EntryKind.MEMBERSHIP:
            self.machine.applied = entry.index
            self.raft.apply_membership(entry)
        else:
            try:
                done = self.machine.apply(entry.index, entry.data)
            except OffsetBroken as error:
                self.world.invariants.fail(f"node {self.id} applying {entry.index}: {error}")
                return
            if done is not None and done[0] in self._waiting:
                self._waiting.pop(done[0])(done[1])
        self.raft.applied(entry.index)
        role = self.raft.role
        if isinstance(role, Leader) and entry.term == self.raft.term and self.proposer is None:
            # Everything before this term is applied: from here on our view is the truth.
            self.proposer = TopicProposer(self.raft.term, self.machine)

    # -- clients ----------------------------------------------------------------------------

    def write(self, operation: int, verb: str, key: str, rest: list[Any], answer: Any) -> bool:
        """Propose a command. False: surely not taken. Else `answer(result)` comes, or never."""
        if verb == "append":
            return self._append(operation, key, rest[0], answer)
        try:
            self.raft.propose(json.dumps([operation, verb, key, *rest]).encode())
        except ProposalRefused:
            return False
        self._waiting[operation] = answer
        self.pump()
        return True

    def _append(self, operation: int, topic: str, count: int, answer: Any) -> bool:
        if not isinstance(self.raft.role, Leader):
            return False
        if self.proposer is None or self.proposer.term != self.raft.term:
            return False  # the view is not rebuilt yet
        offset = self.proposer.next_offset(topic)
        try:
            self.raft.propose(json.dumps([operation, "append", topic, offset, count]).encode())
        except ProposalRefused:
            return False
        self.proposer.assigned(topic, count)
        self._waiting[operation] = answer
        self.pump()
        return True

    def role_changed(self) -> None:
        """A new term or role: offsets assigned before may not have survived."""
        self.proposer = None

    def read(self, operation: int, key: str, answer: Any) -> bool:
        context = b"%d" % operation
        self.world.invariants.asks_to_read(context)
        self._make_good_for_ticks()
        try:
            self.raft.read_index(context)
        except FlintError:
            return False
        self._read_keys[context] = (key, answer)
        self.pump()
        return True

    def _serve_reads(self) -> None:
        if not self._reads:
            return
        waiting: list[tuple[int, bytes]] = []
        for index, context in self._reads:
            if index > self.machine.applied:
                waiting.append((index, context))
            elif context in self._read_keys:  # a repeated answer finds nobody waiting
                key, answer = self._read_keys.pop(context)
                answer(self.machine.registers.get(key))
        self._reads = waiting

    # -- upkeep -----------------------------------------------------------------------------

    def compact(self) -> bool:
        """Make a snapshot of what is applied and cut the log behind it, less the trailing tail."""
        storage = self.disk.storage
        if (
            self.raft.log.unstable.snapshot is not None
            or self.machine.applied != self.raft.log.applied
        ):
            return False
        if self.machine.applied <= storage.snapshot().index:
            return False
        data = self.machine.to_bytes()
        storage.take_snapshot(self.machine.applied, self.raft.membership)
        described = describe_bytes(
            storage.snapshot(), data, chunk_bytes=CHUNK_BYTES, checksum=zlib.crc32
        )
        storage.describe_snapshot(
            size_bytes=described.size_bytes,
            chunk_bytes=described.chunk_bytes,
            checksum=described.checksum,
            chunk_checksums=described.chunk_checksums,
        )
        self.disk.snapshot_bytes = data
        index = self.raft.index_to_compact()
        if index:
            storage.compact(index)
        return True

    def _compact_now_and_then(self) -> None:
        if self.compact():
            self.world.counts["compactions"] += 1
        self.later(self.world.plan.compact_every_us, self._compact_now_and_then)

    def lost_on_the_way(self, message: RaftMessage) -> None:
        """The transport noticed. It always does for snapshots, sometimes for the rest."""
        if message.kind is MessageKind.SNAPSHOT:
            self.snapshot_reported(message.receiver, False)
        else:
            self.raft.report_unreachable(message.receiver)
            self.pump()
