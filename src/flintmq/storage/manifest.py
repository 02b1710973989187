"""The manifest: what a data directory holds, as of one index of the journal.

Written anew at every checkpoint: to a file beside it, synced, renamed over it, and the directory
synced, so that there is always one whole manifest.

    "FMQMAN1\\0"   version u32   CRC32C of the content u32   length u64   content (MessagePack)
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Any

import msgspec

from ..batch.checksum import crc32c
from ..errors import Corrupt, StorageFull, UnsupportedFormat
from ..group_model import Order, Ranges
from ..groups.queue_state import QueueState
from ..model import TopicOptions
from .filesystem import FileSystem, read_file, replace_file
from .segments import Section

NAME = "manifest"
COPY_NAME = "manifest.copy"
"""The same once more, written after the first and before anything relies on it: so it is as new
as the other, or the one before it with everything it refers to still there. Only a repair reads it.
"""
_MAGIC = b"FMQMAN1\0"
_VERSION = 1
_HEADER = Layout("<8sIIQ")


class CursorState(msgspec.Struct, frozen=True, array_like=True):
    name: str
    began: int
    committed: int | None


class GroupState(msgspec.Struct, frozen=True, array_like=True):
    """A queue group: what it was made with, and what it has settled."""

    name: str
    order: Order
    filter: str | None
    start: str
    paused: bool
    queue: QueueState


class TopicState(msgspec.Struct, frozen=True, array_like=True):
    """A topic as of the checkpoint."""

    id: int
    name: str
    options: TopicOptions
    first_offset: int
    next_offset: int
    last_time: int
    sections: list[Section]
    cursors: list[CursorState]
    producers: list[tuple[str, list[Any]]]
    groups: list[GroupState] = []
    cancelled: Ranges = []
    """Delayed messages that were withdrawn."""
    discarded: Ranges = []
    """Dead letters that were let go for good: nobody is to read them."""
    windows: bytes = b""
    """What is remembered of producers, as `engine/dedup.py` draws it. Earlier versions have it in
    `producers`."""
    sizes: list[int] = []
    """What its messages count for, as `sizes.py` has it. Earlier versions have none."""


class StagedState(msgspec.Struct, frozen=True, array_like=True):
    """A staged batch: where it is to go, and where it lies in the hidden log."""

    topic: int
    name: str
    file: str
    offset: int


class PartState(msgspec.Struct, frozen=True, array_like=True):
    number: int
    part: str
    time: int
    batches: list[StagedState]


class WriterState(msgspec.Struct, frozen=True, array_like=True):
    """A writer of staged parts: its last committed number, where that went (topic id, name, offset,
    rows, time), and what it has staged."""

    name: str
    last: int
    places: list[Any]
    parts: list[PartState]

    def files(self) -> set[str]:
        return {batch.file for part in self.parts for batch in part.batches}


class Manifest(msgspec.Struct, frozen=True):
    checkpoint: int = 0
    """Everything up to this index of the journal is in here and in the segments."""
    position: int = 0
    """Where in the journal to go on reading from: the place of the first index behind it, or
    before that."""
    last_topic_id: int = 0
    next_file: int = 1
    topics: list[TopicState] = []
    stages: list[WriterState] = []
    epoch: int = 0
    """What the last lease tokens begin with."""
    time_ms: int = 0
    """The broker's time when it was written: after a restart it is not earlier."""
    producer_limits: tuple[int, int] | None = None
    """How long producers are remembered, in milliseconds, and in how many bytes; None: as the
    program that reads this has it."""
    producer_time: int = 0
    """The time up to which producers were forgotten."""
    obsolete: list[str] = []
    """Segments that nothing here refers to any more: to be removed, also after a crash."""

    def files(self) -> set[str]:
        """The segments it refers to."""
        named = {section.file for topic in self.topics for section in topic.sections}
        return named.union(*(writer.files() for writer in self.stages))


def write_manifest(filesystem: FileSystem, manifest: Manifest) -> None:
    """Put a new manifest in place of the old one, durably."""
    content = msgspec.msgpack.encode(manifest)
    header = _HEADER.pack(_MAGIC, _VERSION, crc32c(content), len(content))
    replace_file(filesystem, NAME, [header, content])
    try:
        replace_file(filesystem, COPY_NAME, [header, content])
    except StorageFull:
        # The manifest is in place, so this has not failed. A copy of the one before it would name
        # segments that are about to go.
        if filesystem.exists(COPY_NAME):
            filesystem.remove(COPY_NAME)


def read_manifest(filesystem: FileSystem, name: str = NAME) -> Manifest | None:
    """The manifest; None in a directory that has none yet. Damage is an error, never a default."""
    if not filesystem.exists(name):
        return None
    data = read_file(filesystem, name)
    if len(data) < _HEADER.size:
        raise _corrupt(name, f"is {len(data)} bytes; it was cut short")
    magic, version, checksum, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise _corrupt(name, "does not begin as a manifest does")
    if version != _VERSION:
        raise UnsupportedFormat(
            f"the data directory has format {version}; this FlintMQ reads {_VERSION}: "
            "use the FlintMQ that wrote it, or a newer one"
        )
    content = memoryview(data)[_HEADER.size :]
    if len(content) != length or crc32c(content) != checksum:
        raise _corrupt(name, "does not match its checksum")
    try:
        return msgspec.msgpack.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnsupportedFormat(
            f"file {name!r} of the data directory is whole, but not as this FlintMQ writes it "
            f"({error}); use the FlintMQ that wrote it, or a newer one"
        ) from error


def check_not_lost(filesystem: FileSystem, segments: str, journal: str) -> None:
    """Refuse a directory without a manifest that had one, or was to get one by a copy: it would
    pass for an empty one. A journal has a file before there is the first segment."""

    def has(directory: str, prefix: str, suffix: str) -> bool:
        return filesystem.exists(directory) and any(
            name.startswith(prefix) and name.endswith(suffix) for name in filesystem.list(directory)
        )

    if filesystem.exists(COPY_NAME) or (
        has(segments, "", ".seg") and not has(journal, "journal-", "")
    ):
        raise _corrupt(NAME, "is missing, but there is data that it spoke of")


def _corrupt(name: str, what: str) -> Corrupt:
    return Corrupt(
        f"file {name!r} of the data directory {what}; restore a backup, or run "
        "`flintmq log repair`, which rebuilds it from its copy or from the segments"
    )
