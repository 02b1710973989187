"""The engine itself under faults: three real nodes, journals on simulated disks, rough lines.

First with faults, then in calm weather: then a leader is found, all that clients still wait for is
answered, and all nodes hold the same. Everything is drawn from one seed and happens on one loop, in
simulated time: the same seed tells the same story.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from flintmq.broker_api import BrokerApi
from flintmq.clock import SystemClock
from flintmq.cluster.shard_host import APPLY_SECONDS
from flintmq.engine.host import Host
from flintmq.errors import FlintError, StorageFull
from flintmq.testing import SimulatedFileSystem
from flintmq.testing.simulated_filesystem import Crashed
from tests.simulation.engine_clients import (
    EngineConsumer,
    EngineDrainer,
    EngineLooker,
    EnginePublisher,
    EngineReader,
    EngineStager,
    everything,
)
from tests.simulation.engine_faults import EngineFaults
from tests.simulation.engine_judges import Judges
from tests.simulation.engine_life import LifeClock, NodeLife, copy_of
from tests.simulation.engine_network import RoughNetwork
from tests.simulation.engine_plan import draw_engine_plan
from tests.simulation.invariants import Violation
from tests.simulation.simulated_loop import LoopStuck, SimulatedLoop
from tests.simulation.world import SimulationFailed

NODES = (1, 2, 3)
CALM_SECONDS_MAX = 60.0
TIMES = (
    "cluster.shard_host.perf_counter",
    "cluster.lead.steady_seconds",
    "engine.recovery.perf_counter",
    "engine.proposer.thread_time",
)
"""Where the machine's time decides what is done when."""


@dataclass(slots=True)
class EngineReport:
    seed: int
    counts: Counter[str]
    digest: str
    trace: list[str] = field(default_factory=list)


class EngineWorld:
    def __init__(self, seed: int, loop: SimulatedLoop, random: Random, *, trace: bool) -> None:
        self.seed, self.loop, self.random = seed, loop, random
        self.plan = draw_engine_plan(random)
        self.counts: Counter[str] = Counter()
        self.judges = Judges(self.counts)
        self.is_calm = False
        self.trace: list[str] | None = [] if trace else None
        plan = self.plan
        self.network = RoughNetwork(
            loop, random, self.counts, delay=plan.delay, loss=plan.loss, repeat=plan.repeat
        )
        self.disks = {id: SimulatedFileSystem() for id in NODES}
        self.lives: dict[int, NodeLife] = {}
        self._terms: set[int] = set()
        self._transferred_from: int | None = None
        self._broken: asyncio.Future[None] = loop.create_future()
        """Fails with the first promise that is broken."""

    # --- looking

    def note(self, text: str) -> None:
        self.judges.note(text)
        if self.trace is not None:
            self.trace.append(f"{self.loop.time():>9.4f} {text}")

    def broken(self, error: BaseException) -> None:
        if not self._broken.done():
            self._broken.set_exception(error)

    def up(self) -> list[NodeLife]:
        return [life for life in self.lives.values() if life.is_up]

    def leader(self) -> NodeLife | None:
        leading = [life for life in self.up() if life.node.is_leading()]
        return max(leading, key=lambda life: life.node.host.term, default=None)

    def raised(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback or a task that nobody waits for has raised."""
        error = context.get("exception")
        if isinstance(error, Crashed):
            for life in self.up():
                life.look_for_power()
        elif isinstance(error, Violation) or (error and not isinstance(error, FlintError)):
            self.broken(error)

    def _applied(self, life: NodeLife, index: int) -> None:
        try:
            self.judges.applied(life.id, index, life.node.local)
            if life.node.differs:
                raise Violation(f"node {life.id} takes itself for different")
        except Violation as error:
            self.broken(error)

    # --- lives

    async def start(self, id: int) -> None:
        random, plan = self.random, self.plan
        clock = LifeClock(self.loop, random.uniform(0.99, 1.01), random.randrange(-300, 300))
        life = NodeLife(
            id,
            self.disks[id],
            self.network,
            clock,
            random,
            founders=NODES,
            sync_seconds=plan.sync_seconds,
            broker_of=self._broker_of(id),
            on_applied=self._applied,
            on_power_gone=self.power_gone,
            lease_reads=plan.lease_reads,
            reclaim_seconds=plan.reclaim_seconds,
            checkpoint_bytes=plan.checkpoint_bytes,
            journal_file_bytes=plan.file_bytes,
            keep_bytes=plan.keep_bytes,
        )
        self.lives[id] = life
        life.node.on_leader_changed(lambda leader, term: self._leads(id, leader, term))
        life.on_failed = self.killed
        if not self.is_calm and self.lives.keys() == set(NODES) and random.random() < 0.1:
            life.cut_power_after(random.randrange(30))
        try:
            await life.open()
        except Crashed:
            self.counts["crashes in recovery"] += 1
            self.power_gone(life)
            return
        except StorageFull:
            self.killed(life)
            return
        recovery = life.node.local.host.recovery
        if recovery is not None and recovery.torn_bytes:
            self.counts["torn writes found"] += 1
        self.note(f"node {id} starts")

    def _leads(self, id: int, leader: int, term: int) -> None:
        self.note(f"node {id} hears that {leader} leads term {term}")
        if leader == id and term not in self._terms:
            self._terms.add(term)
            self._nobody_else_has_a_lease(id)
            self.counts["elections"] += 1
            was, self._transferred_from = self._transferred_from, None
            self.counts["leadership transfers"] += was is not None and was != id

    def _nobody_else_has_a_lease(self, id: int) -> None:
        for life in self.up():
            if life.id != id and life.node.is_leading() and life.has_lease():
                self.broken(Violation(f"node {id} leads, and node {life.id} has a lease"))

    def transfer_begins(self, leader: NodeLife) -> None:
        """If it is another that leads next, while this one is up, the lead was handed over."""
        self._transferred_from = leader.id

    def _broker_of(self, id: int) -> Callable[[int], BrokerApi | None]:
        def broker_of(leader: int) -> BrokerApi | None:
            life = self.lives.get(leader)
            if life is None or not life.is_up or self.network.is_cut(id, leader):
                return None
            return life.node.for_peers

        return broker_of

    def power_gone(self, life: NodeLife) -> None:
        """What was not synced is lost, or torn, by the seed."""
        self.counts["crashes"] += 1
        self.note(f"node {life.id} loses its power")
        self._ends(life, life.disk.crash(self.random))

    def killed(self, life: NodeLife) -> None:
        """The process is gone; what it wrote is there, synced or not."""
        self.counts["kills"] += 1
        self.note(f"the process of node {life.id} ends")
        self._ends(life, copy_of(life.disk))

    def _ends(self, life: NodeLife, left: SimulatedFileSystem) -> None:
        if self._transferred_from == life.id:
            self._transferred_from = None
        self.disks[life.id] = left
        life.end()
        self._count(life)
        # A disk may have failed just before it became calm.
        delay = 0.1 if self.is_calm else self.random.choice(self.plan.away_seconds)
        self.loop.call_later(delay, self._start_again, life.id)

    def _start_again(self, id: int) -> None:
        if not self.lives[id].is_up and not self.lives[id].is_starting:
            self.spawn(self.start(id), f"start {id}")

    def _count(self, life: NodeLife) -> None:
        """What a process has done until its end."""
        self.counts["checkpoints written"] += sum(life.node.local.host.checkpoint_seconds.counts)
        self.counts["snapshots installed"] += life.installed
        if life.node._shipping is not None:
            self.counts["snapshot bytes"] += life.node._shipping.receiver.received_bytes

    def give_room(self) -> None:
        for disk in self.disks.values():
            disk.size_max = None

    def spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self.loop.create_task(work, name=name)

        def done(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.broken(error)

        task.add_done_callback(done)
        return task

    # --- the two phases

    async def run(self) -> None:
        for id in NODES:
            await self.start(id)
        plan = self.plan
        if plan.order == "key":  # what is buried frees its key, which the judges do not follow
            for topic in plan.topics:
                await self.lives[1].node.broker.create_topic(topic, {"max_deliveries": None})
        clients = [
            *(
                EnginePublisher(self, f"publisher {n}", is_plain=n < plan.plain_publishers)
                for n in range(plan.publishers)
            ),
            *(EngineConsumer(self, f"consumer {n}") for n in range(plan.consumers)),
            *(EngineStager(self, f"stager {n}") for n in range(plan.stagers)),
            EngineReader(self, "reader"),
            EngineLooker(self, "looker"),
        ]
        tasks = [self.spawn(client.run(), client.name) for client in clients]
        faults = self.spawn(EngineFaults(self).run(), "faults")
        await self._or_broken(asyncio.sleep(plan.seconds))
        faults.cancel()
        await self._be_calm(tasks)

    async def _or_broken(self, work: Any) -> Any:
        task = self.loop.create_task(work, name="watch")
        await asyncio.wait((task, self._broken), return_when=asyncio.FIRST_COMPLETED)
        if self._broken.done():
            task.cancel()
            await self._broken
        return task.result()

    async def _be_calm(self, clients: list[asyncio.Task[None]]) -> None:
        self.is_calm = True
        self.note("calm")
        self.network.calm_down()
        self.give_room()
        for id in NODES:
            life = self.lives[id]
            life.be_calm()
            if life.is_starting:
                await life.opened.wait()
            if not self.lives[id].is_up:
                await self.start(id)
        await self._in_time(clients)
        if self.plan.consumers:
            drainers = [EngineDrainer(self, f"drainer of {t}", t) for t in self.plan.topics]
            await self._in_time([self.spawn(one.run(), one.name) for one in drainers])
        await self._or_broken(self._agreed())
        for life in self.up():
            if life.node.host.is_stopped:
                raise Violation(f"node {life.id} has stopped: {life.node.host.shard.failure!r}")
        leader = self.leader()
        assert leader is not None
        rows = {topic: await everything(leader.node.broker, topic) for topic in self.plan.topics}
        self.judges.judge(rows)
        self.counts["messages"] = sum(map(len, rows.values()))
        for life in self.up():
            self._count(life)

    async def _in_time(self, tasks: list[asyncio.Task[None]]) -> None:
        """In calm weather everybody comes to an end."""
        await self._or_broken(asyncio.wait(tasks, timeout=CALM_SECONDS_MAX))
        if waiting := [task.get_name() for task in tasks if not task.done()]:
            raise Violation(f"in calm weather {waiting} wait: {self.picture()}")

    async def _agreed(self) -> None:
        until = self.loop.time() + CALM_SECONDS_MAX
        while True:
            ends = {life.node.host.raft.log.last_index() for life in self.lives.values()}
            applied = {life.node.host.shard.proposer.applied for life in self.lives.values()}
            if len(ends | applied) == 1 and self.leader() is not None:
                break
            if self.loop.time() > until:
                raise Violation(f"no agreement in calm weather: {self.picture()}")
            await asyncio.sleep(0.1)
        for life in self.lives.values():
            care = life.node.care
            self.counts["states compared"] += 0 if care is None else care.checks.checked
            # Whatever its number is: all hold it.
            self.judges.compare(life.id, applied.copy().pop(), life.node.local)
        self.counts["entries applied"] = applied.pop()

    def picture(self) -> str:
        return "; ".join(
            f"node {life.id} {life.node.host.standing.value} term {life.node.host.term} leader "
            f"{life.node.host.leader} applied {life.node.host.shard.proposer.applied} last "
            f"{life.node.host.raft.log.last_index()} stopped {life.node.host.is_stopped} "
            f"failure {life.node.host.shard.failure!r}"
            for life in self.lives.values()
        )


@contextmanager
def simulated_time(loop: SimulatedLoop, random: Random) -> Iterator[None]:
    """What looks at the machine's clock sees the loop's; what draws by lot draws by the seed."""
    patches: list[Any] = [patch(f"flintmq.{name}", loop.time) for name in TIMES]
    patches.append(patch.object(SystemClock, "monotonic", lambda self: loop.time()))
    patches.append(patch("secrets.randbits", random.getrandbits))
    patches.append(patch.object(Host, "first_file_bytes", 4096))
    # Some apply one entry in each turn of the loop, as a node does that is busy.
    apply_seconds = random.choice((APPLY_SECONDS, APPLY_SECONDS, -1.0))
    patches.append(patch("flintmq.cluster.shard_host.APPLY_SECONDS", apply_seconds))
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in reversed(patches):
            one.stop()


def simulate_engine(seed: int, *, trace: bool = False) -> EngineReport:
    random = Random(f"engine {seed}")
    loop = SimulatedLoop(random)
    with simulated_time(loop, random):
        world = EngineWorld(seed, loop, random, trace=trace)
        loop.set_exception_handler(world.raised)
        try:
            loop.run_until_complete(world.run())
        except (Violation, FlintError, LoopStuck) as error:
            text = str(error) if isinstance(error, Violation) else repr(error)
            again = f"python -m tests.simulation --engine --seeds {seed}:{seed + 1} --trace"
            text += f"; see it again by: {again}"
            now = round(loop.time() * 1_000_000)
            raise SimulationFailed(seed, now, text, world.trace or []) from error
        finally:
            loop.set_exception_handler(lambda loop, context: None)
            with suppress(LoopStuck):
                loop.end()
    world.counts["events"] = loop.events
    world.counts["virtual ms"] = round(loop.time() * 1000)
    digest = world.judges.history.hexdigest()
    return EngineReport(seed, world.counts, digest, world.trace or [])
