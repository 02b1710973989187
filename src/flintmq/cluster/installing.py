"""Checkpoints that travel between nodes, as one node sees it: who gives, who takes, and how what
was taken becomes the state of the shard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..engine.checkpoints import aside
from ..engine.kept import KeptShard
from ..engine.recovery import RECOVERY_STEP_SECONDS, RecoveryPace, Replayed
from ..errors import FlintError, InvalidRequest, StorageFull
from ..raft import EntryKind, RaftEntry
from ..storage.frames import MEMBERSHIP, Record
from .peer_frames import FrameKind
from .receiving import CheckpointReceiver, clear_aside, put_in_place
from .replicated_log import command_in
from .shard_host import ShardHost, may_install, may_rebuild
from .ship_frames import (
    NO_CHECKPOINT,
    ChunkPlace,
    ShipList,
    ShipOffer,
    decode_chunk,
    decode_end,
    decode_offer,
    decode_want,
    encode_want,
)
from .shipping import CheckpointSender, SendShipping

REPLAY_BYTES = 1 << 20


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
        self._kept, self._node, self._send = kept, node, send
        self.sender = CheckpointSender(
            kept,
            send,
            self._hold,
            self._has_behind,
            go_on,
            bytes_per_second=bytes_per_second,
        )
        self.receiver = CheckpointReceiver(kept, send, self._install)
        self._is_closed = self._rebuilds = False
        self.on_rebuilt: Callable[[], object] | None = None
        """Told when what is applied here has come from another node."""
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
                place = decode_want(body)
                if place.checkpoint != NO_CHECKPOINT:
                    self.sender.wanted(peer, place)
                elif self._node.host.is_leading:
                    self.sender.asked(peer, place.position)
            case FrameKind.CHUNK:
                self.receiver.arrived(peer, *decode_chunk(body))
            case FrameKind.SHIPPED:
                self.sender.ended(peer, decode_end(body))

    def _offered(self, peer: int, offer: ShipOffer) -> None:
        host = self._node.host
        if host.is_stopped:
            return
        if self._rebuilds and may_rebuild(host, offer.index, offer.term):
            if self.receiver.is_free:
                self._hold(offer.index)  # it goes on with the entries behind that, which are here
            self.receiver.offered(peer, offer)
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

    def rebuild(self, leader: int) -> None:
        """Have a checkpoint of who leads take the place of what is applied here. To be said again
        until that is done."""
        if self._is_closed or not self.receiver.is_free:
            return
        self._rebuilds = True
        least = self._node.host.storage.first_index() - 1
        place = ChunkPlace(self._kept.group, NO_CHECKPOINT, 0, max(1, least))
        self._send(leader, FrameKind.WANT, encode_want(place))

    # --- installing

    async def _install(self, peer: int, offer: ShipOffer, listed: ShipList) -> None:
        error = await self._kept.checkpoints.replace(self._replaced(offer, listed))
        self._node.host.storage.held_behind = None
        if error is not None:
            raise error
        self._rebuilds = False
        if self.on_rebuilt is not None:
            self.on_rebuilt()
        self._node.host.tell_held(peer)

    async def _replaced(self, offer: ShipOffer, listed: ShipList) -> FlintError | None:
        """While no checkpoint is written. Where nothing was changed, the shard goes on as it was;
        where that is not known, the node stops."""
        kept, host = self._kept, self._node.host
        goes_on = self._rebuilds and may_rebuild(host, offer.index, offer.term)
        if not goes_on and not may_install(host, offer.index, offer.term):
            return InvalidRequest(
                f"the log of this node has come to index {host.raft.log.last_index()} meanwhile, "
                f"the checkpoint ends with {offer.index}"
            )
        applied = kept.shard.proposer.applied
        try:
            await host.retire()
            is_behind = host.writes.is_behind
            position = kept.position_behind(offer.index)
            await aside(kept.host, put_in_place, kept, listed, position)
            kept.checkpoints.forget_obsolete()
            pace = RecoveryPace(kept.host.is_threaded, RECOVERY_STEP_SECONDS)
            last = max(applied, offer.index)
            await kept.take_up_anew(pace)
            if goes_on:
                found = Replayed(offer.index, is_behind=is_behind, term=offer.term)
                await self._apply_again(host, found, last, pace)
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

    async def _apply_again(
        self, host: ShardHost, found: Replayed, last: int, pace: RecoveryPace
    ) -> None:
        """The log goes on behind the checkpoint: what was applied of it is applied again."""
        kept, log, storage = self._kept, self._kept.log, host.storage
        while found.index < last:
            for entry in storage.entries(found.index + 1, last + 1, REPLAY_BYTES):
                command = None
                if entry.kind is EntryKind.MEMBERSHIP:
                    log.command_of(record_of(kept.group, entry))
                else:
                    command = command_in(entry.data)
                kept.shard.proposer.take(entry.index, entry.term, command)
                found.index, found.term = entry.index, entry.term
                found.records += 1
                found.bytes += len(entry.data)
                await pace.step_aside()
        kept.go_on_behind(found)


def record_of(group: int, entry: RaftEntry) -> Record:
    """A change of who belongs to the group, as the journal has it."""
    return Record(group, entry.term, entry.index, (entry.data,), kind=MEMBERSHIP)
