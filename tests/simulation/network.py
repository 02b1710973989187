"""A network that delays, loses, repeats and reorders, with links that can be cut one way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.net.wire.raft_messages import decode_message, encode_message
from flintmq.raft import MessageKind, RaftMessage

if TYPE_CHECKING:
    from tests.simulation.world import World


class SimulatedNetwork:
    """Messages on their way survive the restart of either end, as on a real network."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cut_links: set[tuple[int, int]] = set()  # sender, receiver
        self.rough_until = 0

    def cut(self, sender: int, receiver: int) -> None:
        self.cut_links.add((sender, receiver))

    def heal(self) -> None:
        self.cut_links.clear()
        self.rough_until = 0

    def send(self, message: RaftMessage, snapshot_bytes: bytes) -> None:
        world, plan = self._world, self._world.plan
        if plan.goes_through_codec:
            message = decode_message(b"".join(encode_message(message)))
        world.counts["messages"] += 1
        rough = world.now < self.rough_until
        loss = 0.0 if world.is_calm else plan.loss + (0.3 if rough else 0.0)
        if loss and world.random.random() < loss:
            world.counts["messages lost"] += 1
            self._lost(message)
            return
        copies = 1
        duplication = 0.0 if world.is_calm else plan.duplication + (0.2 if rough else 0.0)
        if duplication and world.random.random() < duplication:
            world.counts["messages repeated"] += 1
            copies = 2
        for _ in range(copies):
            delay = world.random.randint(*plan.delay_us)
            if not world.is_calm and world.random.random() < plan.straggle + (0.2 if rough else 0):
                world.counts["messages delayed"] += 1
                delay *= world.random.randint(5, 50)
            world.later(delay, self._deliver, message, snapshot_bytes)

    def _deliver(self, message: RaftMessage, snapshot_bytes: bytes) -> None:
        world = self._world
        server = world.servers.get(message.receiver)
        is_cut = (message.sender, message.receiver) in self.cut_links
        if is_cut or server is None or not server.is_up:
            world.counts["messages cut off"] += 1
            self._lost(message)
        elif world.now < server.paused_until:
            world.later(server.paused_until - world.now, self._deliver, message, snapshot_bytes)
        else:
            if world.trace is not None:
                world.note(
                    f"{message.sender}>{message.receiver} {message.kind.name} t{message.term}"
                    f" i{message.index} lt{message.log_term} c{message.commit}"
                    f" e{len(message.entries)}{' reject' if message.reject else ''}"
                )
            server.receive(message, snapshot_bytes)

    def _lost(self, message: RaftMessage) -> None:
        world = self._world
        sender = world.servers[message.sender]
        if sender.is_up and (message.kind is MessageKind.SNAPSHOT or world.random.random() < 0.1):
            sender.later(20_000, sender.lost_on_the_way, message)
