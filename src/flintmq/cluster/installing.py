"""Checkpoints that travel between nodes, as one node sees it: who gives, who takes, and how what
was taken becomes the state of the shard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..engine.checkpoints import aside
from ..engine.kept import KeptShard
from ..engine.recovery import RECOVERY_STEP_SECONDS, RecoveryPace
from ..errors import FlintError, InvalidRequest, StorageFull
from .peer_frames import FrameKind
from .receiving import CheckpointReceiver, clear_aside, put_in_place
from .shard_host import ShardHost, may_install
from .ship_frames import ShipList, ShipOffer, decode_chunk, decode_end, decode_offer, decode_want
from .shipping import CheckpointSender, SendShipping


class Driving(Protocol):
    """A node, as far as this needs it."""

    @property
    def host(self) -> ShardHost: ...
    def drive_anew(self) -> ShardHost: ...


class Shipping:
    def __init__(
        self,
        kept: KeptShard,
        send: SendShipping,
        node: Driving,
        go_on: Callable[[], object],
        bytes_per_second: int,
    ) -> None:
        self._kept, self._node = kept, node
        self.sender = CheckpointSender(
            kept,
            send,
            self._hold,
            self._has_behind,
            go_on,
            bytes_per_second=bytes_per_second,
        )
        self.receiver = CheckpointReceiver(kept, send, self._install)
        self._is_closed = False
        clear_aside(kept.files)  # a process before us was ended meanwhile

    def _hold(self, index: int | None) -> None:
        self._node.host.storage.held_behind = index

    def _has_behind(self, index: int) -> bool:
        return self._node.host.storage.first_index() <= index + 1

    def receive(self, peer: int, kind: int, body: memoryview) -> None:
        """A frame of `ship_frames`. Raises MalformedFrame."""
        if self._is_closed:
            return
        match kind:
            case FrameKind.SHIP:
                group, offer = decode_offer(body)
                if group == self._kept.group:
                    self._offered(peer, offer)
            case FrameKind.WANT:
                self.sender.wanted(peer, decode_want(body))
            case FrameKind.CHUNK:
                self.receiver.arrived(peer, *decode_chunk(body))
            case FrameKind.SHIPPED:
                self.sender.ended(peer, decode_end(body))

    def _offered(self, peer: int, offer: ShipOffer) -> None:
        host = self._node.host
        if host.is_stopped:
            return
        if host.holds(offer.index, offer.term):
            host.tell_held(peer, offer.index)  # that has happened, or was never needed
            self.receiver.refuse(peer, offer)
        elif may_install(host, offer.index, offer.term):
            self.receiver.offered(peer, offer)
        elif host.raft.log.last_index() >= offer.index:
            # Ours goes on beyond it, and not from it: a later one can take its place.
            self.receiver.refuse(peer, offer)

    async def close(self) -> None:
        self._is_closed = True
        self.sender.close()
        await self.receiver.close()

    # --- installing

    async def _install(self, peer: int, offer: ShipOffer, listed: ShipList) -> None:
        error = await self._kept.checkpoints.replace(self._replaced(offer, listed))
        if error is not None:
            raise error
        self._node.host.tell_held(peer)

    async def _replaced(self, offer: ShipOffer, listed: ShipList) -> FlintError | None:
        """While no checkpoint is written. Where nothing was changed, the shard goes on as it was;
        where that is not known, the node stops."""
        kept, host = self._kept, self._node.host
        if not may_install(host, offer.index, offer.term):
            return InvalidRequest(
                f"the log of this node has come to index {host.raft.log.last_index()} meanwhile, "
                f"the checkpoint ends with {offer.index}"
            )
        try:
            await host.retire()
            position = kept.position_behind(offer.index)
            await aside(kept.host, put_in_place, kept, listed, position)
            kept.checkpoints.forget_obsolete()
            await kept.take_up_anew(RecoveryPace(kept.host.is_threaded, RECOVERY_STEP_SECONDS))
        except StorageFull as error:
            self._node.drive_anew()
            return error
        except FlintError as error:
            kept.host.failed(error)
            return error
        except Exception as error:
            kept.shard.fault("taking up the checkpoint of another node", error)
            return kept.shard.failure
        self._node.drive_anew()
        await aside(kept.host, kept.checkpoints.remove_litter)
        return None
