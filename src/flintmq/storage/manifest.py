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
from ..errors import Corrupt, UnsupportedFormat
from ..model import TopicOptions
from .filesystem import FileSystem, replace_file
from .segments import Section

NAME = "manifest"
_MAGIC = b"FMQMAN1\0"
_VERSION = 1
_HEADER = Layout("<8sIIQ")


class CursorState(msgspec.Struct, frozen=True, array_like=True):
    name: str
    began: int
    committed: int | None


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


class Manifest(msgspec.Struct, frozen=True):
    checkpoint: int = 0
    """Everything up to this index of the journal is in here and in the segments."""
    position: int = 0
    """Where in the journal to go on reading from: the place of the first index behind it, or
    before that."""
    last_topic_id: int = 0
    next_file: int = 1
    topics: list[TopicState] = []
    stages: list[Any] = []
    obsolete: list[str] = []
    """Segments that nothing here refers to any more: to be removed, also after a crash."""


def write_manifest(filesystem: FileSystem, manifest: Manifest) -> None:
    """Put a new manifest in place of the old one, durably."""
    content = msgspec.msgpack.encode(manifest)
    header = _HEADER.pack(_MAGIC, _VERSION, crc32c(content), len(content))
    replace_file(filesystem, NAME, [header, content])


def read_manifest(filesystem: FileSystem) -> Manifest | None:
    """The manifest; None in a directory that has none yet. Damage is an error, never a default."""
    if not filesystem.exists(NAME):
        return None
    file = filesystem.open(NAME)
    data = file.pread(file.size(), 0)
    file.close()
    if len(data) < _HEADER.size:
        raise _corrupt(f"is {len(data)} bytes; it was cut short")
    magic, version, checksum, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise _corrupt("does not begin as a manifest does")
    if version != _VERSION:
        raise UnsupportedFormat(
            f"the data directory has format {version}; this FlintMQ reads {_VERSION}: "
            "use the FlintMQ that wrote it, or a newer one"
        )
    content = memoryview(data)[_HEADER.size :]
    if len(content) != length or crc32c(content) != checksum:
        raise _corrupt("does not match its checksum")
    return msgspec.msgpack.decode(content, type=Manifest)


def _corrupt(what: str) -> Corrupt:
    return Corrupt(
        f"file {NAME!r} of the data directory {what}; restore a backup, or run "
        "`flintmq log repair`, which rebuilds it from the segments"
    )
