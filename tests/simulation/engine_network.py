"""Lines between nodes that lose, delay, repeat and reorder what they carry, by the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from flintmq.cluster.transport import PeerListener
from flintmq.raft import RaftMessage

if TYPE_CHECKING:
    from collections import Counter


class RoughNetwork:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        counts: Counter[str],
        *,
        delay: tuple[float, float],
        loss: float,
        repeat: float,
    ) -> None:
        self._loop, self._random, self._counts = loop, random, counts
        self._delay, self._loss, self._repeat = delay, loss, repeat
        self._lives: dict[int, tuple[PeerListener, int]] = {}
        self._incarnations = 0
        self._cut: set[tuple[int, int]] = set()
        self._held_until: dict[int, float] = {}

    # --- faults

    def hold(self, receiver: int, until: float) -> None:
        """What comes for a node waits until then."""
        self._held_until[receiver] = until

    def cut(self, sender: int, receiver: int) -> None:
        self._cut.add((sender, receiver))

    def is_cut(self, one: int, other: int) -> bool:
        """Whether nothing goes there and back."""
        return (one, other) in self._cut or (other, one) in self._cut

    def heal(self) -> None:
        self._cut.clear()

    def calm_down(self) -> None:
        self.heal()
        self._held_until.clear()
        self._loss = self._repeat = 0.0

    # --- what transports ask

    def join(self, node: int, listener: PeerListener) -> None:
        self._incarnations += 1
        others = list(self._lives.items())
        self._lives[node] = (listener, self._incarnations)
        for other, (known, incarnation) in others:
            known.peer_connected(node, self._incarnations)
            listener.peer_connected(other, incarnation)

    def leave(self, node: int) -> None:
        if self._lives.pop(node, None) is not None:
            for listener, _ in list(self._lives.values()):
                listener.peer_lost(node)

    def carry(self, sender: int, receiver: int, messages: Sequence[RaftMessage]) -> None:
        self._carry(sender, receiver, lambda listener: listener.receive(sender, messages))

    def ship(self, sender: int, receiver: int, kind: int, body: bytes) -> None:
        self._carry(
            sender,
            receiver,
            lambda listener: listener.receive_shipping(sender, kind, memoryview(body)),
        )

    def _carry(self, sender: int, receiver: int, give: Callable[[PeerListener], None]) -> None:
        random, life = self._random, self._lives.get(sender)
        if life is None:
            return
        copies = 1
        if random.random() < self._loss:
            self._counts["messages lost"] += 1
            copies = 0
        elif random.random() < self._repeat:
            self._counts["messages repeated"] += 1
            copies = 2
        for _ in range(copies):
            delay = random.uniform(*self._delay)
            if random.random() < 0.02:
                delay *= 20
            self._loop.call_later(delay, self._deliver, sender, life, receiver, give)

    def _deliver(
        self, sender: int, life: object, receiver: int, give: Callable[[PeerListener], None]
    ) -> None:
        known = self._lives.get(receiver)
        if (until := self._held_until.get(receiver, 0.0)) > self._loop.time():
            self._loop.call_at(until, self._deliver, sender, life, receiver, give)
        elif (sender, receiver) in self._cut:
            self._counts["messages cut off"] += 1
        elif known is not None and self._lives.get(sender) is life:
            give(known[0])


class RoughTransport:
    def __init__(self, network: RoughNetwork, node: int) -> None:
        self._network, self._node = network, node
        self.is_over = False
        """The process has ended; what is left of it is not heard."""

    def start(self, listener: PeerListener) -> None:
        self._network.join(self._node, listener)

    def send(self, peer: int, messages: Sequence[RaftMessage]) -> None:
        if not self.is_over:
            self._network.carry(self._node, peer, messages)

    def send_shipping(self, peer: int, kind: int, body: bytes) -> None:
        if not self.is_over:
            self._network.ship(self._node, peer, kind, body)

    async def close(self) -> None:
        if not self.is_over:
            self._network.leave(self._node)
