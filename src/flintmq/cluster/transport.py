"""How the messages of nodes travel: the seam between what decides (`node`) and peer lines.

A node gives its messages to a `Transport`, all of one turn of the event loop at once, and never
waits for it. What arrives, and what becomes of lines, is told to the node, a `PeerListener`.
Messages to one peer should arrive in order; they may be lost, late or repeated without harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from ..raft import RaftMessage


class PeerListener(Protocol):
    """A node, as its lines see it. Everything is called on the thread of the event loop."""

    def receive(self, peer: int, messages: Sequence[RaftMessage]) -> None:
        """A peer's messages of one turn, in the order in which they were sent. The node takes them
        all before it answers any: so one write to the disk serves them all."""

    def receive_shipping(self, peer: int, kind: int, body: memoryview) -> None:
        """A frame of `ship_frames`."""

    def peer_connected(self, peer: int, incarnation: int) -> None:
        """There is a line to that peer. `incarnation` is drawn anew each time its process starts:
        another one than before has forgotten what was not on its disk."""

    def peer_lost(self, peer: int) -> None:
        """The line broke: what was sent last may not have arrived."""

    def peer_is_fit(self, peer: int, is_fit: bool) -> None:
        """Whether the disk of that peer is good enough to lead on, as it says itself."""


class Transport(Protocol):
    """The lines of one node to all its peers."""

    def start(self, listener: PeerListener) -> None:
        """Begin to tell what arrives. Called once, before anything is sent."""

    def send(self, peer: int, messages: Sequence[RaftMessage]) -> None:
        """Send what is for one peer; in one frame, if it can. Never waits, never raises: where
        there is no line, or too much waits for a slow one, messages are lost."""

    def send_shipping(self, peer: int, kind: int, body: bytes) -> None:
        """Send a frame of `ship_frames`; one with content beside what is sent otherwise, so that
        it holds nothing up. May be lost like all others."""

    async def close(self) -> None: ...


class LocalNetwork:
    """Lines inside one process, for tests and for trying things out. Links can be cut."""

    def __init__(self) -> None:
        self._listeners: dict[int, tuple[PeerListener, int]] = {}
        self._cut: set[tuple[int, int]] = set()
        self._incarnations = 0
        self.on_sent: Callable[[int, int, Sequence[RaftMessage]], None] | None = None
        """Told of everything that is sent: from, to, what."""

    def transport(self, node: int) -> LocalTransport:
        return LocalTransport(self, node)

    def cut(self, sender: int, receiver: int) -> None:
        """What one sends to the other is lost from now on; the way back is another link."""
        self._cut.add((sender, receiver))

    def cut_off(self, node: int) -> None:
        """Nothing goes in or out."""
        for other in self._listeners:
            self.cut(node, other)
            self.cut(other, node)

    def heal(self) -> None:
        self._cut.clear()

    def join(self, node: int, listener: PeerListener) -> None:
        self._incarnations += 1
        others = list(self._listeners.items())
        self._listeners[node] = (listener, self._incarnations)
        for other, (known, incarnation) in others:
            known.peer_connected(node, self._incarnations)
            listener.peer_connected(other, incarnation)

    def leave(self, node: int) -> None:
        if self._listeners.pop(node, None) is not None:
            for listener, _ in list(self._listeners.values()):
                listener.peer_lost(node)

    def carry(self, sender: int, receiver: int, messages: Sequence[RaftMessage]) -> None:
        if self.on_sent is not None:
            self.on_sent(sender, receiver, messages)
        if (sender, receiver) not in self._cut and receiver in self._listeners:
            asyncio.get_running_loop().call_soon(
                self._deliver, sender, self._listeners.get(sender), receiver, messages
            )

    def ship(self, sender: int, receiver: int, kind: int, body: bytes) -> None:
        life = self._listeners.get(sender)

        def deliver() -> None:
            known = self._listeners.get(receiver)
            if known is not None and life is not None and self._listeners.get(sender) is life:
                known[0].receive_shipping(sender, kind, memoryview(body))

        if (sender, receiver) not in self._cut and receiver in self._listeners:
            asyncio.get_running_loop().call_soon(deliver)

    def _deliver(
        self, sender: int, life: object, receiver: int, messages: Sequence[RaftMessage]
    ) -> None:
        known = self._listeners.get(receiver)
        # A line ends with the process of either side, and with it what is on its way.
        if known is not None and life is not None and self._listeners.get(sender) is life:
            known[0].receive(sender, messages)


class LocalTransport:
    def __init__(self, network: LocalNetwork, node: int) -> None:
        self._network, self._node = network, node

    def start(self, listener: PeerListener) -> None:
        self._network.join(self._node, listener)

    def send(self, peer: int, messages: Sequence[RaftMessage]) -> None:
        self._network.carry(self._node, peer, messages)

    def send_shipping(self, peer: int, kind: int, body: bytes) -> None:
        self._network.ship(self._node, peer, kind, body)

    async def close(self) -> None:
        self._network.leave(self._node)
