"""What goes wrong in the world of the engine, by the seed: lines, processes, power, disks, time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.engine_life import NodeLife
    from tests.simulation.engine_world import EngineWorld

TIMERS_LATER_SECONDS = 1e-4


class EngineFaults:
    """Each fault of `engine_plan.FAULTS` is a method."""

    def __init__(self, world: EngineWorld) -> None:
        self._world, self._random = world, world.random
        self._nodes = tuple(world.disks)

    async def run(self) -> None:
        world = self._world
        while True:
            await asyncio.sleep(self._random.uniform(0.1, 2 * world.plan.fault_every))
            name = self._random.choice(world.plan.faults)
            if up := world.up():
                world.note(f"fault {name}")
                world.counts[f"fault {name}"] += 1
                getattr(self, name)(up)

    # --- lines

    def _heal_later(self) -> None:
        seconds = self._random.choice((0.3, 1.5, 4.0))
        self._world.loop.call_later(seconds, self._world.network.heal)

    def split(self, up: list[NodeLife]) -> None:
        """One node is alone, in both directions."""
        alone = self._random.choice(self._nodes)
        for other in self._nodes:
            if other != alone:
                self._world.network.cut(alone, other)
                self._world.network.cut(other, alone)
        self._heal_later()

    def one_way(self, up: list[NodeLife]) -> None:
        sender, receiver = self._random.sample(self._nodes, 2)
        self._world.network.cut(sender, receiver)
        self._heal_later()

    def forsake(self, up: list[NodeLife]) -> None:
        """The leader loses one of the others. The third is held up meanwhile, hears from it all at
        once what it said, and loses it then: both may elect another when their promises are over,
        and not before."""
        world, leader = self._world, self._world.leader()
        others = [life for life in up if life is not leader]
        if leader is None or len(others) < 2:
            return
        lost, held_up = self._random.sample(others, 2)
        self._cut_both_ways(leader, lost)
        begins = world.loop.time() + self._random.uniform(0.3, 1.2)
        wakes = begins + self._random.uniform(0.5, 0.95)
        world.loop.call_at(begins, self._hold, held_up, wakes)
        world.loop.call_at(wakes + 0.01, self._cut_both_ways, leader, held_up)
        world.loop.call_at(wakes + 1.5, world.network.heal)

    def _cut_both_ways(self, one: NodeLife, other: NodeLife) -> None:
        if not self._world.is_calm:
            self._world.network.cut(one.id, other.id)
            self._world.network.cut(other.id, one.id)

    # --- power and processes

    def crash(self, up: list[NodeLife]) -> None:
        self._world.power_gone(self._random.choice(up))

    def crash_leader(self, up: list[NodeLife]) -> None:
        if (leader := self._world.leader()) is not None:
            self._world.power_gone(leader)

    def crash_all(self, up: list[NodeLife]) -> None:
        for life in up:
            self._world.power_gone(life)

    def kill(self, up: list[NodeLife]) -> None:
        """The process ends, and its machine goes on."""
        self._world.killed(self._random.choice(up))

    def cut_power_in_a_write(self, up: list[NodeLife]) -> None:
        self._random.choice(up).cut_power_after(self._random.choice((0, 1, 1, 2, 3, 5, 20)))

    # --- the lead

    def transfer(self, up: list[NodeLife]) -> None:
        if (leader := self._world.leader()) is not None:
            others = [id for id in self._nodes if id != leader.id]
            leader.node.hand_over(self._random.choice((0, *others)))
            self._world.transfer_begins(leader)

    # --- disks

    def slow_disk(self, up: list[NodeLife]) -> None:
        life = self._random.choice(up)
        life.slow = self._random.choice((10.0, 50.0))

        def end() -> None:
            life.slow = 1.0

        self._world.loop.call_later(self._random.uniform(0.5, 3.0), end)

    def full_disk(self, up: list[NodeLife]) -> None:
        """There is no more room, or a little, for a while."""
        disk = self._world.disks[self._random.choice(up).id]
        disk.size_max = disk._used() + self._random.choice((0, 100, 3_000))
        seconds = self._random.choice((0.5, 2.0, 5.0))
        self._world.loop.call_later(seconds, self._world.give_room)

    def failing_disk(self, up: list[NodeLife]) -> None:
        """A write or a sync fails: the process has to end, and is started again."""
        life = self._random.choice(up)
        operation = self._random.choice(("sync", "sync", "pwritev", "sync_all", "sync_directory"))
        life.fail_disk(operation, self._random.choice((1, 1, 3)))

    # --- time

    def held_up(self, up: list[NodeLife]) -> None:
        """Timers and what comes from others wait, as when a process is stopped for a while."""
        until = self._world.loop.time() + self._random.choice((0.3, 1.0, 2.5))
        self._hold(self._random.choice(up), until)

    def _hold(self, life: NodeLife, until: float) -> None:
        """A loop reads first what has come meanwhile, and then looks at its timers."""
        if not self._world.is_calm:
            self._world.network.hold(life.id, until)
            life.clock.held_until = until + TIMERS_LATER_SECONDS
