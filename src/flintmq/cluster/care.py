"""What a node does for its copy: it is compared with that of the others, and mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..broker_api import BrokerApi
from ..engine.kept import KeptShard
from .checking import CheckedNode, StateChecks
from .installing import Shipping
from .mending import MendingNode, SectionMender
from .peer_frames import FrameKind
from .replicated_log import ReplicatedLog
from .shipping import SendShipping


class CaredNode(CheckedNode, MendingNode, Protocol):
    """A node, as far as this needs it."""


class CopyCare:
    def __init__(
        self,
        node: CaredNode,
        kept: KeptShard,
        log: ReplicatedLog,
        shipping: Shipping,
        send: SendShipping,
        broker_of: Callable[[int], BrokerApi | None] | None,
        check_ticks: int,
    ) -> None:
        self._shipping = shipping
        self.checks = StateChecks(
            node, kept.shard, log, send, shipping.rebuild, check_ticks=check_ticks
        )
        self.mender = SectionMender(node, kept, broker_of)
        shipping.on_rebuilt = self.checks.was_rebuilt

    def tick(self) -> None:
        self.checks.tick()
        self.mender.tick()

    def receive(self, peer: int, kind: int, body: memoryview) -> None:
        if kind == FrameKind.DIGEST:
            self.checks.receive(peer, body)
        else:
            self._shipping.receive(peer, kind, body)

    def shipped_bytes(self) -> tuple[int, int]:
        """Of checkpoints: sent to others, and received."""
        return self._shipping.sender.sent_bytes, self._shipping.receiver.all_bytes

    async def close(self) -> None:
        await self.mender.close()
        await self._shipping.close()
