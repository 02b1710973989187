"""The side that takes: a checkpoint of who leads is fetched, checked, and put in place of ours.

    fetching     files are written aside, in `shipped/`, and the shard goes on as it was
    installing   the shard takes no part; files are put in place, then the manifest that names them
                 is, in one step; then the shard is taken up from that

A crash leaves the old manifest, and then what was fetched is thrown away at the next start; or the
new one, which has all it refers to. The journal ends before it then: its next entry begins it anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress

import msgspec

from ..engine.checkpoints import aside, segment_name
from ..engine.kept import KeptShard
from ..errors import Corrupt, Disconnected, FlintError, StorageFull
from ..observe.logs import event
from ..storage.filesystem import File, FileSystem
from ..storage.manifest import Manifest, TopicRecord, WriterState
from ..storage.segments import Segment
from .peer_frames import FrameKind
from .ship_frames import (
    CHUNK_BYTES,
    ChunkPlace,
    ShipEnd,
    ShipList,
    ShipOffer,
    decode_list,
    encode_end,
    encode_want,
)
from .shipping import SendShipping

_log = logging.getLogger(__name__)

ASIDE = "shipped"
SEGMENTS = "segments"
CHUNK_SECONDS = 1.0
"""How long a chunk is waited for before it is asked for again."""
TRIES = 30
PAUSE_SECONDS = 5.0
"""How long no offer is taken after one that came to nothing."""

Install = Callable[[int, ShipOffer, ShipList], Awaitable[None]]


class CheckpointReceiver:
    def __init__(
        self,
        kept: KeptShard,
        send: SendShipping,
        install: Install,
    ) -> None:
        self._kept, self._send, self._install = kept, send, install
        self._current: tuple[int, ShipOffer] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_installing = False
        self._waiting: tuple[ChunkPlace, asyncio.Future[bytes]] | None = None
        self._heard_at = self._not_before = 0.0
        self.received_bytes = self.all_bytes = 0

    @property
    def is_free(self) -> bool:
        """Nothing is being fetched."""
        return self._task is None

    def offered(self, peer: int, offer: ShipOffer) -> None:
        """Take what is offered, unless another is on its way."""
        now = asyncio.get_running_loop().time()
        if self._task is not None:
            if self._current != (peer, offer) and now - self._heard_at > PAUSE_SECONDS:
                self._give_up()  # the next offer is taken
            return
        if now >= self._not_before:
            self._current, self._heard_at = (peer, offer), now
            self._task = asyncio.get_running_loop().create_task(self._receive(peer, offer))

    def refuse(self, peer: int, offer: ShipOffer) -> None:
        """It is of no use here: nobody has to keep it for us."""
        if self._current is None:
            self._send(peer, FrameKind.SHIPPED, encode_end(self._end(offer, False)))

    def arrived(self, peer: int, place: ChunkPlace, data: memoryview) -> None:
        if self._waiting is None or self._current is None or self._current[0] != peer:
            return
        wanted, future = self._waiting
        if place == wanted and not future.done():
            self._heard_at = asyncio.get_running_loop().time()
            future.set_result(bytes(data))

    async def close(self) -> None:
        """What is being installed is finished first."""
        task = self._task
        if task is not None:
            self._not_before = float("inf")
            self._give_up()
            await asyncio.wait([task])

    def _give_up(self) -> None:
        if self._task is not None and not self._is_installing:
            self._task.cancel()

    # --- fetching

    async def _receive(self, peer: int, offer: ShipOffer) -> None:
        kept, is_done = self._kept, False
        try:
            event(
                _log,
                logging.WARNING,
                "cluster_catching_up",
                f"this node is new or too far behind: it fetches a checkpoint from node {peer}",
                group=kept.group,
                leader=peer,
                index=offer.index,
            )
            data = await self._fetch_list(peer, offer)
            listed = await aside(kept.host, decode_list, offer, data)
            await aside(kept.host, make_aside, kept.files)
            for number, (_, size) in enumerate(listed.files, 1):
                await self._fetch_file(peer, offer, number, size)
            self._is_installing = True
            await self._install(peer, offer, listed)
            is_done = True
            await aside(kept.host, clear_aside, kept.files)
            event(
                _log,
                logging.WARNING,
                "cluster_caught_up",
                f"this node continues from the checkpoint of node {peer}",
                group=kept.group,
                leader=peer,
                index=offer.index,
                bytes=self.received_bytes,
            )
        except FlintError as error:
            event(
                _log,
                logging.WARNING,
                "cluster_not_caught_up",
                f"the checkpoint of node {peer} could not be used; asking again: {error}",
                group=kept.group,
                leader=peer,
                index=offer.index,
            )
            self._not_before = asyncio.get_running_loop().time() + PAUSE_SECONDS
            with suppress(FlintError):  # what is left is thrown away by the next one
                await aside(kept.host, clear_aside, kept.files)
        finally:
            self._task = self._current = self._waiting = None
            self._is_installing = False
            self._send(peer, FrameKind.SHIPPED, encode_end(self._end(offer, is_done)))

    def _end(self, offer: ShipOffer, is_done: bool) -> ShipEnd:
        return ShipEnd(self._kept.group, offer.index, is_done)

    async def _fetch_list(self, peer: int, offer: ShipOffer) -> bytes:
        data = bytearray()
        while len(data) < offer.list_bytes:
            place = ChunkPlace(self._kept.group, offer.index, 0, len(data))
            data += await self._chunk(peer, place, offer.list_bytes - len(data))
        return bytes(data)

    async def _fetch_file(self, peer: int, offer: ShipOffer, number: int, size: int) -> None:
        kept, position = self._kept, 0
        file: File = await aside(kept.host, kept.files.create, aside_name(number))
        try:
            while position < size:
                place = ChunkPlace(kept.group, offer.index, number, position)
                data = await self._chunk(peer, place, size - position)
                await aside(kept.host, file.pwritev, [data], position)
                position += len(data)
            await aside(kept.host, file.sync_all)
        finally:
            file.close()
        await aside(kept.host, verify, kept.files, aside_name(number))

    async def _chunk(self, peer: int, place: ChunkPlace, left: int) -> bytes:
        loop = asyncio.get_running_loop()
        for _ in range(TRIES):
            future: asyncio.Future[bytes] = loop.create_future()
            self._waiting = (place, future)
            self._send(peer, FrameKind.WANT, encode_want(place))
            await asyncio.wait([future], timeout=CHUNK_SECONDS)
            if future.done():
                data = future.result()
                if len(data) != min(CHUNK_BYTES, left):
                    raise Corrupt(f"{len(data)} bytes of a file that has {left} more")
                self.received_bytes += len(data)
                self.all_bytes += len(data)
                return data
        raise Disconnected(f"node {peer}", "it sends no more of its checkpoint")


# --- files


def aside_name(number: int) -> str:
    return f"{ASIDE}/{number:016d}.seg"


def make_aside(files: FileSystem) -> None:
    clear_aside(files)
    files.make_directory(ASIDE)


def clear_aside(files: FileSystem) -> None:
    """Throw away what was fetched and not put in place."""
    if files.exists(ASIDE):
        for name in files.list(ASIDE):
            files.remove(f"{ASIDE}/{name}")
        files.remove_directory(ASIDE)


def verify(files: FileSystem, name: str) -> None:
    """Check a whole segment against the checksums in it. Raises Corrupt."""
    with closing(Segment(files, name)) as segment:
        segment.verify()


def put_in_place(kept: KeptShard, listed: ShipList, position: int) -> None:
    """In a thread: what was fetched becomes what this shard has. `position`: where in our journal
    the entry behind it will be. Raises StorageFull with nothing changed."""
    checkpoints, files = kept.checkpoints, kept.files
    names: dict[str, str] = {}
    try:
        for number, (name, _) in enumerate(listed.files, 1):
            names[name] = segment_name(checkpoints.next_file)
            checkpoints.next_file += 1
            files.rename(aside_name(number), names[name])
        files.sync_directory(SEGMENTS)
        files.sync_directory(ASIDE)
        manifest = msgspec.structs.replace(
            renamed(listed.manifest, names), position=position, next_file=checkpoints.next_file
        )
        checkpoints.adopt(manifest)
    except StorageFull:
        checkpoints.litter += names.values()
        raise


def renamed(manifest: Manifest, names: dict[str, str]) -> Manifest:
    """A manifest that refers to the same segments by other names."""

    def topic_of(topic: TopicRecord) -> TopicRecord:
        sections = [section._replace(file=names[section.file]) for section in topic.sections]
        return msgspec.structs.replace(topic, sections=sections)

    def writer_of(writer: WriterState) -> WriterState:
        parts = [
            msgspec.structs.replace(
                part,
                batches=[
                    msgspec.structs.replace(batch, file=names[batch.file]) for batch in part.batches
                ],
            )
            for part in writer.parts
        ]
        return msgspec.structs.replace(writer, parts=parts)

    return msgspec.structs.replace(
        manifest,
        topics=[topic_of(topic) for topic in manifest.topics],
        stages=[writer_of(writer) for writer in manifest.stages],
    )
