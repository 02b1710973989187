"""The side that gives: a node that was away for longer than the journal is kept gets the last
checkpoint of who leads, file by file.

The offer names the list of the files; the other node asks for its chunks, then for theirs. While
somebody asks, the files stay where they are and the log is kept from the checkpoint on: so whoever
has it goes on with entries. All together send no more than a rate.

A node may refuse it: its log goes on beyond the checkpoint, with entries that were never committed.
Then a later one is written, for which there is one more entry where nothing else was published.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..engine.checkpoints import aside
from ..engine.kept import KeptShard
from ..errors import FlintError
from ..observe.logs import event
from ..storage.filesystem import File
from ..storage.manifest import Manifest
from .peer_frames import FrameKind
from .ship_frames import (
    CHUNK_BYTES,
    ChunkPlace,
    ShipEnd,
    ShipOffer,
    encode_chunk,
    encode_list,
    encode_offer,
)

_log = logging.getLogger(__name__)

BYTES_PER_SECOND = 64 << 20
OFFER_SECONDS = 1.0
"""How long an offer is not repeated."""
IDLE_SECONDS = 60.0
"""How long a checkpoint is kept for a node that does not ask."""

SendShipping = Callable[[int, int, bytes], None]
"""To a peer: the kind of a frame, and its body."""


@dataclass(slots=True)
class Shipment:
    """A checkpoint that is kept for others."""

    offer: ShipOffer
    listed: bytes
    names: list[str]
    pinned: set[str]


class CheckpointSender:
    def __init__(
        self,
        kept: KeptShard,
        send: SendShipping,
        hold: Callable[[int | None], object],
        has_behind: Callable[[int], bool],
        go_on: Callable[[], object],
        *,
        bytes_per_second: int = BYTES_PER_SECOND,
    ) -> None:
        """`hold(index)`: keep the log from there on; None: no longer. `has_behind(index)`: whether
        the log goes on from there. `go_on()`: have one more entry in it."""
        self._kept, self._send, self._hold, self._has_behind = kept, send, hold, has_behind
        self._go_on, self._refused = go_on, 0
        self._rate = bytes_per_second
        self._free_at = 0.0
        self.shipment: Shipment | None = None
        self._making: asyncio.Task[None] | None = None
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._offered: dict[int, float] = {}
        self._heard: dict[int, float] = {}
        """When those who are offered it were last heard of."""
        self._timer: asyncio.TimerHandle | None = None
        self.sent_bytes = 0

    # --- what others tell

    def needed_by(self, peers: Iterable[int]) -> None:
        """These need what the log no longer has. Told again and again, as long as they do."""
        loop = asyncio.get_running_loop()
        if self.shipment is not None and not self._has_behind(self.shipment.offer.index):
            self._release()  # it is from when we led before: nobody could go on from it
        now, shipment = loop.time(), self.shipment
        if shipment is None:
            if self._making is None:
                self._making = loop.create_task(self._make())
            return
        for peer in peers:
            if now >= self._offered.get(peer, 0.0):
                self._offered[peer] = now + OFFER_SECONDS
                self._heard.setdefault(peer, now)
                body = encode_offer(self._kept.group, shipment.offer)
                self._send(peer, FrameKind.SHIP, body)

    def asked(self, peer: int, at_least: int) -> None:
        """A node has to have its state anew: a checkpoint that ends there or later will do. It asks
        again until it is offered one."""
        checkpoints, shipment = self._kept.checkpoints, self.shipment
        if shipment is not None and shipment.offer.index >= at_least:
            self.needed_by([peer])
        elif checkpoints.manifest.head.checkpoint >= at_least:
            if shipment is not None and not self._sending:
                self._release()  # nobody is being sent it
            self.needed_by([peer])
        else:
            checkpoints.begin()

    def wanted(self, peer: int, place: ChunkPlace) -> None:
        shipment = self.shipment
        if shipment is None or place.checkpoint != shipment.offer.index or peer in self._sending:
            return  # it asks again, or is offered another
        loop = asyncio.get_running_loop()
        self._heard[peer] = loop.time()
        sending = self._sending[peer] = loop.create_task(self._send_chunk(peer, shipment, place))
        sending.add_done_callback(lambda _: self._sending.pop(peer, None))

    def ended(self, peer: int, end: ShipEnd) -> None:
        if self.shipment is not None and end.checkpoint == self.shipment.offer.index:
            if not end.is_done:
                self._refused = end.checkpoint
            self._heard.pop(peer, None)
            if not self._heard:
                self._release()

    def close(self) -> None:
        for task in (self._making, *self._sending.values()):
            if task is not None:
                task.cancel()
        self._release()

    # --- what is kept

    async def _make(self) -> None:
        try:
            if await self._is_of_use():
                await self._keep_last()
        except FlintError as error:
            self._tell_failed(error)
        finally:
            self._making = None

    async def _is_of_use(self) -> bool:
        """Whether there is a checkpoint behind the one that was refused."""
        checkpoints, refused = self._kept.checkpoints, self._refused
        if checkpoints.manifest.head.checkpoint > refused:
            return True
        if self._kept.shard.proposer.applied <= refused:
            if self._kept.log.index <= refused:
                self._go_on()
            return False  # we are told again, also when that is applied
        await checkpoints.checkpoint()
        return True

    async def _keep_last(self) -> None:
        kept = self._kept
        # In one step: from here on no checkpoint removes these files.
        manifest = kept.checkpoints.manifest.whole()
        pinned = manifest.files()
        kept.checkpoints.copied.append(pinned)
        self._hold(manifest.checkpoint)
        try:
            names = sorted(pinned)
            offer, data = await aside(kept.host, self._listed, manifest, names)
        except BaseException:
            self._unpin(pinned)
            raise
        self.shipment = Shipment(offer, data, names, pinned)
        self._look_later()

    def _listed(self, manifest: Manifest, names: list[str]) -> tuple[ShipOffer, bytes]:
        return encode_list(manifest, [(name, self._kept.files.size_of(name)) for name in names])

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(IDLE_SECONDS, self._look)

    def _look(self) -> None:
        before = asyncio.get_running_loop().time() - IDLE_SECONDS
        if all(heard <= before for heard in self._heard.values()):
            self._release()
        else:
            self._look_later()

    def _release(self) -> None:
        shipment, self.shipment = self.shipment, None
        self._heard, self._offered = {}, {}
        if self._timer is not None:
            self._timer.cancel()
        if shipment is not None:
            self._unpin(shipment.pinned)

    def _unpin(self, pinned: set[str]) -> None:
        copied = self._kept.checkpoints.copied
        copied[:] = [one for one in copied if one is not pinned]
        self._hold(None)

    # --- chunks

    async def _send_chunk(self, peer: int, shipment: Shipment, place: ChunkPlace) -> None:
        try:
            data = await aside(self._kept.host, self._read, shipment, place)
        except FlintError as error:
            self._tell_failed(error)
            self._release()
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._free_at = max(now, self._free_at) + len(data) / self._rate
        if (pause := self._free_at - now - CHUNK_BYTES / self._rate) > 0:
            await asyncio.sleep(pause)
        self.sent_bytes += len(data)
        self._send(peer, FrameKind.CHUNK, encode_chunk(place, data))

    def _read(self, shipment: Shipment, place: ChunkPlace) -> bytes:
        """In a thread. Nothing behind the end of a file."""
        if place.file == 0:
            return shipment.listed[place.position : place.position + CHUNK_BYTES]
        if place.file > len(shipment.names):
            return b""
        file: File = self._kept.files.open(shipment.names[place.file - 1])
        try:
            return file.pread(CHUNK_BYTES, place.position)
        finally:
            file.close()

    def _tell_failed(self, error: FlintError) -> None:
        event(
            _log,
            logging.ERROR,
            "cluster_shipping_failed",
            f"cannot send a checkpoint to a node that needs it: {error}",
            group=self._kept.group,
        )
