"""Moving a snapshot's bytes in checked chunks: what to send next, what has arrived.

The core knows a snapshot by its metadata only; the transport moves the bytes with these two. A
transfer can be interrupted anywhere and goes on at the first missing byte. Pure: the bytes are
arguments, and so is the checksum, a function such as crc32c.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from flintmq.errors import InvalidRequest, SnapshotDamaged
from flintmq.raft.messages import RaftSnapshot

Checksum = Callable[[bytes | memoryview], int]


class SnapshotChunk(msgspec.Struct, frozen=True):
    offset: int
    data: bytes | memoryview


def describe_bytes(
    snapshot: RaftSnapshot, data: bytes | memoryview, *, chunk_bytes: int, checksum: Checksum
) -> RaftSnapshot:
    """The snapshot with the facts by which a receiver can check its bytes."""
    if chunk_bytes < 1:
        raise InvalidRequest("chunk_bytes must be at least 1")
    view = memoryview(data)
    return msgspec.structs.replace(
        snapshot,
        size_bytes=len(view),
        chunk_bytes=chunk_bytes,
        checksum=checksum(view),
        chunk_checksums=tuple(
            checksum(view[start : start + chunk_bytes])
            for start in range(0, len(view), chunk_bytes)
        ),
    )


def chunk_at(snapshot: RaftSnapshot, data: bytes | memoryview, offset: int) -> SnapshotChunk:
    """The chunk a receiver asks for by the offset it has reached."""
    if offset % snapshot.chunk_bytes or not 0 <= offset < snapshot.size_bytes:
        raise InvalidRequest(f"no chunk of this snapshot begins at {offset}")
    return SnapshotChunk(offset, memoryview(data)[offset : offset + snapshot.chunk_bytes])


class SnapshotReceiver:
    """Checks chunks in order and says which comes next. Keeps no bytes: the caller writes each
    accepted chunk, and after a restart goes on at the offset it has durably written."""

    def __init__(self, snapshot: RaftSnapshot, checksum: Checksum, *, offset_next: int = 0) -> None:
        chunks = -(-snapshot.size_bytes // snapshot.chunk_bytes) if snapshot.chunk_bytes else 0
        if chunks != len(snapshot.chunk_checksums):
            raise InvalidRequest("the snapshot's chunk checksums do not fit its size")
        if snapshot.chunk_bytes and offset_next != snapshot.size_bytes:
            offset_next -= offset_next % snapshot.chunk_bytes  # a torn chunk is asked for again
        self.snapshot = snapshot
        self.offset_next = offset_next
        self._checksum = checksum

    def is_complete(self) -> bool:
        return self.offset_next >= self.snapshot.size_bytes

    def accept(self, chunk: SnapshotChunk) -> bool:
        """True: write these bytes at their offset. False: not the chunk we wait for; ignore it.

        Raises SnapshotDamaged when the bytes are wrong; asking for them again may help.
        """
        if chunk.offset != self.offset_next or self.is_complete():
            return False
        snapshot = self.snapshot
        size = min(snapshot.chunk_bytes, snapshot.size_bytes - chunk.offset)
        expected = snapshot.chunk_checksums[chunk.offset // snapshot.chunk_bytes]
        if len(chunk.data) != size or self._checksum(chunk.data) != expected:
            raise SnapshotDamaged(f"the chunk at {chunk.offset} does not match its checksum")
        self.offset_next += size
        return True

    def check_whole(self, data: bytes | memoryview) -> None:
        """Before the snapshot is installed: the assembled bytes are the ones that were sent."""
        if len(data) != self.snapshot.size_bytes or self._checksum(data) != self.snapshot.checksum:
            raise SnapshotDamaged("the whole snapshot does not match its checksum")
