"""A node of a cluster: the directory, the group in it, the lines to its peers, and time.

    node = ClusterNode(LocalFileSystem(path), transport, node=1, founders=(1, 2, 3))
    await node.open()
    node.broker          every verb, wherever it is led
    await node.close()

One group, number 0, holds everything. Ticks come by the node's own clock, or by hand: then whoever
made it calls `tick`, as a test does that has no time to lose.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from ..broker_api import BrokerApi
from ..clock import Clock, SleeplessClock, Timer
from ..engine.broker import Broker
from ..engine.host import Host
from ..engine.state.staging import STAGED_SECONDS, Staging
from ..errors import Closed, FlintError, InvalidRequest
from ..observe.logs import limited
from ..observe.metrics import Histogram
from ..raft import NOBODY, Membership, RaftMessage, RaftSettings, Status
from ..raft.leader import Leader
from ..rows import Decoder
from ..storage.filesystem import FileSystem
from .care import CopyCare
from .catalog import ClusterCatalog
from .checking import CHECK_TICKS
from .clock_health import ClockHealth
from .disk_health import IS_DIFFERENT, IS_OFF, STALLED_LOOKS, DiskHealth, tell_fitness
from .installing import Shipping
from .members import ClusterMembers
from .replicated import ReplicatedBroker
from .replicated_log import ReplicatedLog
from .shard_host import RECLAIM_SECONDS, ShardHost
from .shipping import BYTES_PER_SECOND
from .storage import KEEP_BYTES, begin_blank, found, is_member
from .transport import Transport

_log = logging.getLogger(__name__)

TICK_SECONDS = 0.1
ELECTION_TICKS = 10
LATE_TICKS = 5
"""So many at once are worth a word: half the time after which others elect another leader."""
TIMER_SECONDS = 0.001
"""How far off timers are: one that comes too early is not armed for no time at all."""
HAND_OVER_SECONDS = 1.0
UNLIMITED_BYTES = 1 << 40
"""What is not committed is bounded by what the proposer lets in."""

BrokerOf = Callable[[int], BrokerApi | None]
"""How a node asks another for what that one leads: by its id. Over the network a RemoteBroker to
it; inside one process, that node's own. None: it cannot be asked now."""


class NodeCounts:
    def __init__(self) -> None:
        self.leader_changes = self.taken = self.lost = self.transfers = self.late_ticks = 0

    def changed(self, before: int, now: int, own: int) -> None:
        if before != now:
            self.leader_changes += now != NOBODY
            self.taken += now == own
            self.lost += before == own

    def ticked(self, due: int, node: int) -> None:
        """So many ticks were due at once."""
        late = max(0, due - 1)
        self.late_ticks += late
        if late >= LATE_TICKS:
            seconds = late * TICK_SECONDS
            text = (
                f"this node was held up for {seconds:.1f} s: other nodes may have elected a new "
                "leader meanwhile; look for a paused or overloaded machine"
            )
            limited(_log, logging.WARNING, "cluster_held_up", "", text, node=node, seconds=seconds)


class ClusterNode:
    def __init__(
        self,
        filesystem: FileSystem,
        transport: Transport,
        *,
        node: int = 0,
        founders: Sequence[int] = (),
        catalog: ClusterCatalog | None = None,
        begins_blank: bool = False,
        broker_of: BrokerOf | None = None,
        clock: Clock | None = None,
        decoder: Decoder | None = None,
        random: Random | None = None,
        tick_seconds: float = TICK_SECONDS,
        election_ticks: int = ELECTION_TICKS,
        lease_reads: bool = True,
        keep_bytes: int = KEEP_BYTES,
        snapshot_rate: int = BYTES_PER_SECOND,
        reclaim_seconds: float = RECLAIM_SECONDS,
        stalled_ticks: int = STALLED_LOOKS,
        check_ticks: int = CHECK_TICKS,
        staging: Staging | None = None,
        staged_seconds: float = STAGED_SECONDS,
        **settings: Any,
    ) -> None:
        """`founders` are needed for a blank directory, and make it a founder's. Who does not know
        its id yet says it by `be`, before `open`. `catalog` has the nodes that are known before
        the log says so. Without `tick_seconds` (0) time passes for the group when `tick` is
        called. A disk that has not finished a write for `stalled_ticks` is taken for one that hangs
        (0: never). `settings` are those of the host of the directory."""
        self.filesystem, self._transport = filesystem, transport
        self.be(node, founders, begins_blank=begins_blank)
        self._log = ReplicatedLog()
        host = Host(filesystem, log_of=lambda group: self._log, **settings)
        self.local = Broker(
            clock, decoder, host=host, staging=staging, staged_seconds=staged_seconds
        )
        """The broker of this node: its verbs raise NotLeader where another leads."""
        self._ticking = SleeplessClock()
        self._tick_seconds = tick_seconds
        self._ticked_at = self._looked_at = 0.0
        self._timer: Timer | None = None
        self._keep_bytes, self._reclaim_seconds = keep_bytes, reclaim_seconds
        self._random = random or Random()
        self._election_ticks, self._lease_reads = election_ticks, lease_reads
        self.catalog = catalog or ClusterCatalog()
        self.members = ClusterMembers(self, self.catalog, self._log)
        """Who belongs to the cluster."""
        self._incarnations: dict[int, int] = {}
        self._connected: set[int] = set()
        self._unfit: set[int] = set()
        self.disk = DiskHealth(stalled_ticks)
        self.clock = ClockHealth()
        self.clocks_of_peers: Callable[[], Collection[int]] = tuple
        """How far their clocks are ahead of ours, in milliseconds."""
        self.counts = NodeCounts()
        self._listeners: list[Callable[[int, int], None]] = []
        self._told = (NOBODY, 0)
        self.care: CopyCare | None = None
        self._broker_of, self._check_ticks = broker_of, check_ticks
        self._host: ShardHost | None = None
        self._shipping: Shipping | None = None
        self._snapshot_rate = snapshot_rate
        self.broker = ReplicatedBroker(self, broker_of)
        """Every verb: what another node leads is asked for there."""
        self.for_front_ends = ReplicatedBroker(self, broker_of, members_follow=True)
        """The same for protocols whose clients do not know who leads."""
        self.for_peers = ReplicatedBroker(self, None, patience=0.0)
        """For other nodes: what is not led here is refused."""

    # --- life

    def be(self, node: int, founders: Sequence[int], *, begins_blank: bool = False) -> None:
        """Have this id, in a cluster that was founded by these. A node that `begins_blank` joins
        it, and gets everything from the others."""
        self.id, self._founders = node, Membership(tuple(sorted(founders)))
        self._begins_blank = begins_blank

    async def open(self, *, threaded: bool = True) -> None:
        """Recover the directory and begin to follow. A blank one begins as a founder's."""
        if self._founders.voters:
            if self.id not in self._founders.voters:
                raise InvalidRequest(f"node {self.id} is not one of {self._founders.voters}")
            found(self.filesystem, self._founders)
        elif self._begins_blank:
            begin_blank(self.filesystem)
        elif not is_member(self.filesystem):
            raise InvalidRequest(
                f"{self.filesystem.describe()} is not the directory of a node of a cluster; name "
                "the founders, or join a cluster"
            )
        await self.local.open(threaded=threaded)
        self.members.follow()
        kept = self.local.host.kept[0]
        self._host = self._driven()
        send, go_on = self._transport.send_shipping, self._log.go_on
        self._shipping = Shipping(kept, send, self, go_on, self._snapshot_rate)
        self.care = CopyCare(
            self, kept, self._log, self._shipping, send, self._broker_of, self._check_ticks
        )
        on_failed = self.local.host.on_failed

        def failed(error: FlintError) -> None:
            self.host.stop(error)
            if on_failed is not None:
                on_failed(error)

        self.local.host.on_failed = failed
        self._transport.start(self)
        self._ticked_at = self._ticking.monotonic()
        self._arm()
        self._found_at_once()

    def _driven(self) -> ShardHost:
        settings = RaftSettings(
            node=self.id,
            election_ticks=self._election_ticks,
            lease_reads=self._lease_reads,
            forward_proposals=False,
            tells_commit_at_once=False,
            uncommitted_bytes_max=UNLIMITED_BYTES,
        )
        host = ShardHost(
            settings,
            self.local.host.kept[0],
            self._log,
            self._ticking,
            self._random,
            self._send,
            self.make_good,
            keep_bytes=self._keep_bytes,
            reclaim_seconds=self._reclaim_seconds,
        )
        host.on_changed.append(self._tell_changed)
        host.on_too_far_behind = self._give_checkpoint
        host.before_leading = self._begins_to_lead
        return host

    def drive_anew(self) -> ShardHost:
        """The host of the shard was retired: another goes on, from what is applied now."""
        self._host = host = self._driven()
        self._tell_changed()
        return host

    def _give_checkpoint(self, peers: list[int]) -> None:
        if self._shipping is not None:
            self._shipping.sender.needed_by(peers)

    async def close(self) -> None:
        """Hand the lead over, write what is left, and stop."""
        if self.care is not None:
            await self.care.close()
        if self._host is not None and not self._host.is_stopped:
            await self.drained()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._handed_over(), HAND_OVER_SECONDS)
        await self.stop()
        await self.local.close()

    async def drained(self) -> None:
        """Wait until what was decided here is committed, if that does not take long."""
        proposer = self.local.shard.proposer
        proposer.end_turn()
        with suppress(TimeoutError):
            await asyncio.wait_for(proposer.wait_quiet(), HAND_OVER_SECONDS)

    async def _handed_over(self) -> None:
        host, successor = self.host, self._successor()
        if successor == NOBODY:
            return
        self.hand_over(successor)
        changed = asyncio.Event()
        host.on_changed.append(changed.set)
        while host.is_leading and not host.is_stopped:
            changed.clear()
            await changed.wait()

    async def stop(self) -> None:
        """Take no part any more, at once; the directory stays open."""
        if self.care is not None:
            await self.care.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._host is not None:
            self._host.stop(Closed("the broker"))
        await self._transport.close()

    @property
    def host(self) -> ShardHost:
        assert self._host is not None, "the node was opened"
        return self._host

    def _begins_to_lead(self) -> None:
        self.local.begins_to_lead()

    # --- looking

    @property
    def is_open(self) -> bool:
        return self._host is not None

    def status(self) -> Status:
        """Of group 0."""
        return self.host.raft.status()

    def leader(self) -> int:
        """Who leads, as far as is known here; 0: nobody."""
        return NOBODY if self._host is None or self._host.is_stopped else self._host.leader

    def is_leading(self) -> bool:
        """Whether verbs are decided here, now."""
        return self._host is not None and self._host.is_leading

    @property
    def may_lead(self) -> bool:
        """Whether disk, clock and state are well."""
        return self.disk.is_fit and not self.clock.is_off and not self.differs

    @property
    def differs(self) -> bool:
        """Whether what is applied here is not what most nodes have."""
        return self.care is not None and self.care.checks.differs

    @property
    def flags(self) -> int:
        """As a PING tells them: a node that has any is not handed the lead."""
        return self.disk.flags | IS_OFF * self.clock.is_off | IS_DIFFERENT * self.differs

    @property
    def commit_seconds(self) -> Histogram:
        return self._log.commit_seconds

    async def confirm_lead(self) -> None:
        """Wait until it is certain that nobody else led when this was asked. Raises NotLeader."""
        await self.host.lead.confirm()

    def on_leader_changed(self, callback: Callable[[int, int], None]) -> None:
        """`callback(leader, term)` is called when another leads, or nobody (0). Of this node only
        once its verbs are decided."""
        self._listeners.append(callback)

    def _tell_changed(self) -> None:
        host = self.host
        leader = host.leader if host.leader != self.id or host.is_leading else NOBODY
        if host.is_stopped:
            leader = NOBODY
        if (leader, host.term) != self._told:
            self.counts.changed(self._told[0], leader, self.id)
            self._told = (leader, host.term)
            for tell in list(self._listeners):
                tell(*self._told)

    def voters(self) -> set[int]:
        return set(self.host.raft.membership.all_voters())

    def peers(self) -> list[int]:
        """All other nodes of the cluster."""
        return [node for node in self.host.raft.membership.everybody() if node != self.id]

    # --- wishes

    def hand_over(self, to: int = NOBODY) -> None:
        """Have another node lead: that one, or the one that is furthest."""
        successor = to or self._successor()
        if successor != NOBODY:
            self.counts.transfers += 1
            self.host.hand_over(successor)

    def _successor(self) -> int:
        role = self.host.raft.role
        if not isinstance(role, Leader):
            return NOBODY
        voters = self._connected.intersection(self.host.raft.membership.all_voters())
        voters -= self._unfit
        live = [peer for peer in role.peers() if peer in voters and role.progress[peer].is_live()]
        return max(live, key=lambda peer: role.progress[peer].match, default=NOBODY)

    def _found_at_once(self) -> None:
        """Nobody has led yet: the first of the founders does, without a timeout."""
        host = self.host
        voters = host.raft.membership.voters
        if voters == (self.id,) or (
            host.raft.log.last_index() == 1 and host.leader == NOBODY and self.id == min(voters)
        ):
            host.campaign()

    # --- time

    def tick(self) -> None:
        """A tick's time has passed."""
        self.host.tick()
        self._look_at_disk()
        self._look_around()

    def _arm(self) -> None:
        if self._tick_seconds:
            due = self._ticked_at + self._tick_seconds - self._ticking.monotonic()
            due = max(TIMER_SECONDS, due)
            self._timer = self._ticking.call_later(due, self._tick)

    def _tick(self) -> None:
        self.make_good()
        now = self._ticking.monotonic()
        if now - self._looked_at > self._tick_seconds - TIMER_SECONDS:
            self._looked_at = now
            self._look_at_disk()
        if self._timer is not None:
            self._arm()

    def make_good(self) -> None:
        """Give the group all ticks that are due, also those that were missed while the loop was
        held up: leases count on them."""
        if not self._tick_seconds:
            return
        now = self._ticking.monotonic()
        missed = int((now - self._ticked_at) / self._tick_seconds)
        self._ticked_at += missed * self._tick_seconds
        # More than a few timeouts change nothing any more.
        for _ in range(min(missed, 4 * self._election_ticks)):
            self.host.tick()
        if missed:
            self.counts.ticked(missed, self.id)
            self._look_around()

    def _look_around(self) -> None:
        self.members.look()
        if self.care is not None and not self.host.is_stopped:
            self.care.tick()

    def _look_at_disk(self) -> None:
        """A node whose disk hangs or is full, or whose clock is off, leaves the lead to another."""
        host, disk = self.host, self.disk
        if host.is_stopped:
            return
        was_fit = disk.is_fit
        is_full = self.local.shard.proposer.full is not None
        if disk.look(host.writes.submitted, host.writes.durable, is_full=is_full):
            host.writes.probe()
        if disk.is_fit != was_fit:
            tell_fitness(disk, self.id)
        self.clock.look(self.clocks_of_peers(), self.id)
        host.raft.abstain(not self.may_lead)
        if not self.may_lead and host.is_leading:
            self.hand_over()

    # --- what the lines tell

    def receive(self, peer: int, messages: Sequence[RaftMessage]) -> None:
        if self._host is None:
            return
        # Time that went by before these were heard is no part of what is promised with them.
        self.make_good()
        self._host.receive([message for message in messages if message.sender == peer])

    def receive_shipping(self, peer: int, kind: int, body: memoryview) -> None:
        if self.care is not None:
            self.care.receive(peer, kind, body)

    def peer_connected(self, peer: int, incarnation: int) -> None:
        known = self._incarnations.get(peer)
        self._incarnations[peer] = incarnation
        self._connected.add(peer)
        if self._host is None or self._host.is_stopped:
            return
        if known is not None and known != incarnation:
            self._host.peer_restarted(peer)
        self._found_at_once()

    def peer_lost(self, peer: int) -> None:
        self._connected.discard(peer)
        if self._host is not None and not self._host.is_stopped:
            self._host.peer_lost(peer)

    def peer_is_fit(self, peer: int, is_fit: bool) -> None:
        if is_fit:
            self._unfit.discard(peer)
        else:
            self._unfit.add(peer)

    def _send(self, messages: list[RaftMessage]) -> None:
        by_peer: dict[int, list[RaftMessage]] = {}
        for message in messages:
            by_peer.setdefault(message.receiver, []).append(message)
        for peer, lot in by_peer.items():
            self._transport.send(peer, lot)
