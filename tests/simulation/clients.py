"""Clients that read and write through any server, and remember what they were told.

An answer that does not come in time leaves the outcome unknown, and it stays unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.linearizability import NEVER, Operation
from tests.simulation.plan import MS

if TYPE_CHECKING:
    from tests.simulation.server import Server
    from tests.simulation.world import World

PATIENCE_US = 1500 * MS


class Client:
    """One operation at a time. Values written are unique, so that a read names its write."""

    def __init__(self, world: World, name: int) -> None:
        self._world = world
        self.name = name
        self._current = 0
        self._favourite = 0

    def begin(self) -> None:
        self._world.later(self._world.random.randrange(200) * MS, self._call)

    def _call(self) -> None:
        world, random = self._world, self._world.random
        if world.is_calm:
            return
        key = f"k{random.randrange(world.plan.keys)}"
        draw = random.random()
        if draw < 0.35:
            action: tuple[Any, ...] = ("put", world.next_operation)
        elif draw < 0.45:
            action = ("cas", random.randrange(max(1, world.next_operation)), world.next_operation)
        elif draw < 0.7:
            action = ("get",)
        else:
            key, action = f"topic-{key}", ("append", random.randint(1, 9))
        self.call(key, action)

    def call(self, key: str, action: tuple[Any, ...]) -> None:
        world = self._world
        operation = world.next_operation
        world.next_operation += 1
        self._current = operation
        called = world.next_moment()
        # Before it is asked: a lease answers at once, and that answer is to be judged as well.
        world.history[operation] = Operation(key, action, called)
        if not self._try(operation, key, action, called):
            # Surely without effect: forget it, and ask another server soon.
            del world.history[operation]
            self._current = 0
            self._favourite = 0
            world.later(world.random.randrange(10, 200) * MS, self._call)
            return
        world.later(PATIENCE_US, self._give_up, operation)

    def _try(self, operation: int, key: str, action: tuple[Any, ...], called: int) -> bool:
        world = self._world
        up = [server for server in world.servers.values() if server.is_up]
        up = [server for server in up if server.paused_until <= world.now]
        if not up:
            return False
        server = self._choose(up)
        self._favourite = server.id

        def answered(result: Any) -> None:
            self._answered(operation, key, action, called, result)

        if action[0] == "get":
            return server.read(operation, key, answered)
        return server.write(operation, action[0], key, list(action[1:]), answered)

    def _choose(self, up: list[Server]) -> Server:
        world = self._world
        server = world.servers.get(self._favourite)
        if server is None or server not in up or world.random.random() < 0.1:
            leader = world.leader()
            server = leader if leader in up and world.random.random() < 0.5 else None
            server = server or world.random.choice(up)
        return server

    def _answered(
        self, operation: int, key: str, action: tuple[Any, ...], called: int, result: Any
    ) -> None:
        world = self._world
        returned = world.next_moment()
        world.history[operation] = Operation(key, action, called, returned, result)
        world.counts["operations answered"] += 1
        world.note(f"client {self.name} {action} {key} -> {result}")
        if operation == self._current:
            self._current = 0
            world.later(world.random.randrange(1, 80) * MS, self._call)

    def _give_up(self, operation: int) -> None:
        if operation != self._current:
            return
        self._world.counts["operations unknown"] += 1
        self._current = 0
        self._favourite = 0
        self._call()


class Reader(Client):
    """Reads only, and from the one leader it found until that one refuses. The others soon wait for
    a write when their leader is cut off, and would not notice that it still answers reads."""

    def _call(self) -> None:
        if not self._world.is_calm:
            self.call(f"k{self._world.random.randrange(self._world.plan.keys)}", ("get",))

    def _choose(self, up: list[Server]) -> Server:
        server = self._world.servers.get(self._favourite)
        if server is None or server not in up:
            server = self._world.leader()
        return server if server is not None and server in up else self._world.random.choice(up)


def known(history: dict[int, Operation]) -> list[Operation]:
    """Reads without an answer tell nothing."""
    return [
        operation
        for _, operation in sorted(history.items())
        if operation.action[0] != "get" or operation.returned < NEVER
    ]
