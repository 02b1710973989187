"""The manifest: what a data directory holds, as of one index of the journal.

A small one is written anew at every checkpoint: to a file beside it, synced, renamed over it, and
the directory synced, so that there is always one whole manifest.

    "FMQMAN1\\0"   version u32   CRC32C of the content u32   length u64   content (MessagePack)

A large one is a base of that form, version 2, that names a file of changes. Checkpoints after it
add what has changed since the one before: a frame with a manifest that has only those topics, and
the ids of those that are gone. When the changes are larger than the base, it is written anew.

    manifest.changes-<number>   "FMQCHG1\\0"   version u32   0 u32   number u64   then frames:
    frame                       length u64   sequence u64   checksum u32   0 u32   content

`number` is never used again, and `sequence` counts the frames of a file from 1 on; both are in the
checksum, CRC32C of number, sequence and content, so that a frame is good in its place only.

What a crash leaves. The file of changes has its name and header on the disk before a base names it.
A frame is synced before anything relies on it: before the journal lets go of what it holds, and
before segments are removed that the state before it refers to. So a frame that is not whole is the
last, and the checkpoint before it holds, with its segments and its journal; a start syncs what it
finds before it relies on it, because a killed process may not have. Everything is written
twice, first here, then to `.copy`: a frame that is whole in the copy alone was whole here, and
counts. A start that finds base or changes other than they should be after a crash goes on reading
like this, and writes a new base at the next checkpoint; the files of changes before that go last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from struct import Struct as Layout
from threading import Lock
from typing import Any

import msgspec
from msgspec.structs import replace

from ..batch.checksum import crc32c
from ..cluster_model import NodeEntry
from ..errors import Corrupt, FlintError, StorageFull, UnsupportedFormat
from ..group_model import Order, Ranges
from ..groups.offset_set import Chunks, OffsetSet
from ..groups.queue_state import QueueState
from ..model import Definition, TopicOptions
from .filesystem import FileSystem, bytes_in, read_file, replace_file
from .segments import Section
from .tiered import TieredSection

NAME = "manifest"
COPY_NAME = "manifest.copy"
"""The same once more, written after the first and before anything relies on it: so it is as new
as the other, or the one before it with everything it refers to still there. Only a repair reads it.
"""
_MAGIC = b"FMQMAN1\0"
_VERSIONS = (1, 2)
_HEADER = Layout("<8sIIQ")
_CHANGES_NAME = "manifest.changes-"
_CHANGES_MAGIC = b"FMQCHG1\0"
_FRAME = Layout("<QQII")
_PLACE = Layout("<QQ")

WHOLE_BYTES_MAX = 64 * 1024
"""A manifest below this is written whole every time."""


class CursorState(msgspec.Struct, frozen=True, array_like=True):
    name: str
    began: int
    committed: int | None


class GroupRecord(msgspec.Struct, frozen=True, array_like=True):
    """A queue group: what it was made with, and what it has settled."""

    name: str
    order: Order
    filter: str | None
    start: str
    paused: bool
    queue: QueueState


class TopicRecord(msgspec.Struct, frozen=True, array_like=True):
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
    groups: list[GroupRecord] = []
    cancelled: Ranges = []
    """Delayed messages that were withdrawn."""
    discarded: Ranges = []
    """Dead letters that were discarded: they are not to be read any more."""
    windows: bytes = b""
    """What is remembered of producers, as `engine/state/producers.py` draws it. Earlier versions
    have it in `producers`."""
    sizes: list[int] = []
    """What its messages count for, as `sizes.py` has it. Earlier versions have none."""
    compacted: Chunks = []
    """Of a compacted topic, what was dropped or discarded, as an OffsetSet is stored; then
    `discarded` is empty."""
    tiered: list[TieredSection] = []
    """What is in object storage. Sections may begin later than the first offset, then."""
    borrowed: int = 0
    """Objects that begin before this offset are another data directory's."""

    def gone(self) -> Ranges:
        """What is not to be read any more."""
        return self.discarded or OffsetSet.from_chunks(self.compacted).ranges()


class StagedState(msgspec.Struct, frozen=True, array_like=True):
    """A staged batch: where it is to go, and where it lies in the hidden log. Or a run of them,
    with so many rows, which count for so many bytes."""

    topic: int
    name: str
    file: str
    offset: int
    rows: int = 0
    """0: it is one batch."""
    size: int = 0


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
    ended: int = 0
    """When it was said to end; 0: it was not."""

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
    topics: list[TopicRecord] = []
    stages: list[WriterState] = []
    epoch: int = 0
    """The last term, or what an earlier version had in its place: lease tokens begin with it."""
    time_ms: int = 0
    """The broker's time when it was written: after a restart it is not earlier."""
    producer_limits: tuple[int, int] | None = None
    """How long producers are remembered, in milliseconds, and in how many bytes; None: as the
    program that reads this has it."""
    producer_time: int = 0
    """The time up to which producers were forgotten."""
    obsolete: list[str] = []
    """Segments that nothing here refers to any more: to be removed, also after a crash."""
    changes: int = 0
    """The number of the file with the changes after this; 0: there is none."""
    deleted: list[int] = []
    """In a change: topics that are gone."""
    term: int = 1
    """The term of the entry at the checkpoint. Earlier versions, which do not have it here, wrote
    all of theirs under 1."""
    group: int = 0
    members: bytes = b""
    """Which nodes of a cluster keep copies, as `cluster/storage.py` writes it; empty: this one."""
    nodes: list[NodeEntry] = []
    """The nodes of the cluster. A broker alone has none, nor had earlier versions."""

    definitions: list[Definition] = []
    last_definition: int = 0
    """The highest version that a definition ever had."""
    loose: list[str] = []
    """Objects that may be there and belong to no topic: they are to be removed."""

    def files(self) -> set[str]:
        """The segments it refers to."""
        return _with_staged((s.file for topic in self.topics for s in topic.sections), self)


def write_manifest(filesystem: FileSystem, manifest: Manifest) -> None:
    """Put a whole manifest in place of the old one, durably."""
    topics = _encoded_topics(manifest.topics)
    _write_base(filesystem, msgspec.structs.replace(manifest, changes=0), topics)


def _write_base(filesystem: FileSystem, head: Manifest, topics: bytes) -> None:
    content = _encoded(head, topics)
    version = 2 if head.changes else 1
    header = _HEADER.pack(_MAGIC, version, crc32c(content), len(content))
    replace_file(filesystem, NAME, [header, content])
    try:
        replace_file(filesystem, COPY_NAME, [header, content])
    except StorageFull:
        _give_up_copy(filesystem)


def _give_up_copy(filesystem: FileSystem) -> None:
    """The manifest is in place, so nothing has failed. A copy of the one before it would name
    segments that are about to go."""
    if filesystem.exists(COPY_NAME):
        filesystem.remove(COPY_NAME)


def _encoded_topics(topics: Collection[TopicRecord]) -> bytes:
    """One by one: in a thread, others get their turn meanwhile."""
    encode, count = msgspec.msgpack.Encoder().encode, len(topics)
    head = b"\xdd" + count.to_bytes(4, "big") if count > 15 else bytes([0x90 | count])
    return head + b"".join([encode(topic) for topic in topics])


def _encoded(head: Manifest, topics: bytes) -> bytes:
    return msgspec.msgpack.encode(msgspec.structs.replace(head, topics=msgspec.Raw(topics)))


def read_manifest(filesystem: FileSystem, name: str = NAME) -> Manifest | None:
    """The manifest with all its changes; None in a directory that has none yet. Damage is an error,
    never a default."""
    return _read(filesystem, name)[0]


def _read(filesystem: FileSystem, name: str) -> tuple[Manifest | None, _Changes | None]:
    base = _read_base(filesystem, name)
    while base is not None and base.changes:
        changes = _Changes(filesystem, base.changes)
        if changes.exists():
            return changes.folded(base), changes
        now = _read_base(filesystem, name)
        if now is None or now.changes == base.changes:
            raise _corrupt(changes.name, "is missing")
        base = now  # a broker has written a new one meanwhile
    return base, None


def _read_base(filesystem: FileSystem, name: str) -> Manifest | None:
    if not filesystem.exists(name):
        return None
    data = read_file(filesystem, name)
    if len(data) < _HEADER.size:
        raise _corrupt(name, f"is {len(data)} bytes; it was cut short")
    magic, version, checksum, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise _corrupt(name, "does not begin as a manifest does")
    if version not in _VERSIONS:
        raise UnsupportedFormat(
            f"the data directory has format {version}; this FlintMQ reads {_VERSIONS[-1]}: "
            "use the FlintMQ that wrote it, or a newer one"
        )
    content = memoryview(data)[_HEADER.size :]
    if len(content) != length or crc32c(content) != checksum:
        raise _corrupt(name, "does not match its checksum")
    return _decoded(content, name)


def _decoded(content: memoryview, name: str) -> Manifest:
    try:
        return msgspec.msgpack.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnsupportedFormat(
            f"file {name!r} of the data directory is whole, but not as this FlintMQ writes it "
            f"({error}); use the FlintMQ that wrote it, or a newer one"
        ) from error


class _Changes:
    """The file of changes of one base, and its copy."""

    def __init__(self, filesystem: FileSystem, number: int) -> None:
        self._filesystem = filesystem
        self.number = number
        self.name = f"{_CHANGES_NAME}{number:016d}"
        self._names = (self.name, f"{self.name}.copy")
        self._header = _HEADER.pack(_CHANGES_MAGIC, 1, 0, number)
        self._end = _HEADER.size
        self._sequence = 0
        self.is_sound = True
        """Whether both files end with the last frame: then another may follow."""

    @property
    def size(self) -> int:
        return self._end

    def exists(self) -> bool:
        return self._filesystem.exists(self.name)

    def create(self) -> None:
        for name in self._names:
            replace_file(self._filesystem, name, [self._header])

    def add(self, head: Manifest, topics: bytes) -> None:
        """Add a frame, durably. Raises StorageFull with nothing changed."""
        content, sequence = _encoded(head, topics), self._sequence + 1
        checksum = crc32c(content, crc32c(_PLACE.pack(self.number, sequence)))
        frame = [_FRAME.pack(len(content), sequence, checksum, 0), content]
        self._write(self._names[0], frame)
        try:
            self._write(self._names[1], frame)
        except StorageFull:
            self.is_sound = False
            _give_up_copy(self._filesystem)
        self._sequence = sequence
        self._end += bytes_in(frame)

    def _write(self, name: str, frame: list[bytes]) -> None:
        with closing(self._filesystem.open(name, writable=True)) as file:
            try:
                file.pwritev(frame, self._end)
            except StorageFull:
                with suppress(FlintError):
                    file.truncate(self._end)
                raise
            file.sync_all()

    def folded(self, base: Manifest) -> Manifest:
        """A base with the changes after it."""
        topics = {topic.id: topic for topic in base.topics}
        here, copy = (self._read(name) for name in self._names)
        if not here and not copy:
            raise _corrupt(self.name, "does not begin as a file of changes does")
        while True:
            due = self._sequence + 1
            ends = [self._end_of_frame(data, self._end, due) for data in (here, copy)]
            data, end = (here, ends[0]) if ends[0] else (copy, ends[1])
            if not end:
                break
            self.is_sound = self.is_sound and ends[0] == ends[1]
            content = memoryview(data)[self._end + _FRAME.size : end]
            change = _decoded(content, self.name)
            for id in change.deleted:
                topics.pop(id, None)
            topics.update((topic.id, topic) for topic in change.topics)
            base = msgspec.structs.replace(change, deleted=[], changes=self.number)
            self._sequence, self._end = due, end
        self.is_sound = self.is_sound and len(here) == len(copy) == self._end
        for data in (here, copy):
            self._check_nothing_behind(data)
        return msgspec.structs.replace(base, topics=list(topics.values()))

    def _read(self, name: str) -> bytes:
        """The content; nothing of a file that does not begin as it should."""
        data = read_file(self._filesystem, name) if self._filesystem.exists(name) else b""
        return data if data.startswith(self._header) else b""

    def _end_of_frame(self, data: bytes, at: int, due: int) -> int:
        """Where the frame ends that begins here; 0 where none does that is whole."""
        start = at + _FRAME.size
        if start > len(data):
            return 0
        length, sequence, checksum, _ = _FRAME.unpack_from(data, at)
        if sequence != due or start + length > len(data):
            return 0
        content = memoryview(data)[start : start + length]
        is_whole = crc32c(content, crc32c(_PLACE.pack(self.number, sequence))) == checksum
        return start + int(length) if is_whole else 0

    def _check_nothing_behind(self, data: bytes) -> None:
        """A whole frame behind one that is not: the disk has damaged that."""
        due = self._sequence + 2
        at = self._end
        while (at := data.find(due.to_bytes(8, "little"), at + 1)) >= 0:
            if self._end_of_frame(data, at - 8, due):
                raise _corrupt(self.name, f"is damaged at byte {self._end:,}")

    def remove_others(self) -> None:
        """Remove the changes of bases before this one."""
        for name in changes_in(self._filesystem):
            if name not in self._names:
                self._filesystem.remove(name)


class ManifestStore:
    """The manifest of a directory in use: what the last checkpoint wrote, and how to write the
    next. `write` may be called in a thread; what it changes is in place when it returns."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self.head = Manifest(term=0)
        """All but the topics."""
        self.topics: dict[int, TopicRecord] = {}
        self._uses: Counter[str] = Counter()
        self._changes: _Changes | None = None
        self._base_bytes = 0
        self._replacing = Lock()

    def open(self) -> Manifest | None:
        for name in changes_in(self._filesystem):
            # A process before us may have been killed before it synced a frame. What is read is
            # relied on: what it makes obsolete is removed.
            with closing(self._filesystem.open(name, writable=True)) as file:
                file.reread()
        manifest, changes = _read(self._filesystem, NAME)
        if manifest is None:
            return None
        self.head = msgspec.structs.replace(manifest, topics=[])
        self.topics = {topic.id: topic for topic in manifest.topics}
        self._uses = Counter(s.file for topic in manifest.topics for s in topic.sections)
        if changes is not None and self._has_copy():
            self._base_bytes = self._filesystem.size_of(NAME)
            self._changes = changes
        return manifest

    def _has_copy(self) -> bool:
        """Whether the copy is of this base: their headers have checksum and length."""
        return self._filesystem.exists(COPY_NAME) and (
            _header_of(self._filesystem, NAME) == _header_of(self._filesystem, COPY_NAME)
        )

    def files(self) -> set[str]:
        """The segments it refers to."""
        return _with_staged(self._uses, self.head)

    def whole(self) -> Manifest:
        """Also while a thread writes the next one."""
        with self._replacing:
            head, topics = self.head, self.topics
        return msgspec.structs.replace(head, topics=list(topics.values()))

    def write(
        self,
        head: Manifest,
        changed: Collection[TopicRecord],
        deleted: Collection[int],
        litter: Iterable[str],
    ) -> None:
        """Write what has changed since the last time, durably. Raises StorageFull with nothing
        changed. Segments that nothing refers to from now on are `obsolete`, with the litter."""
        topics, uses = self.topics.copy(), self._uses.copy()
        for id in {*deleted, *(state.id for state in changed)}:
            if (known := self.topics.get(id)) is not None:
                uses.subtract(section.file for section in known.sections)
        for id in deleted:
            topics.pop(id, None)
        topics.update((state.id, state) for state in changed)
        uses.update(section.file for state in changed for section in state.sections)
        uses = +uses
        obsolete = sorted({*litter, *self.files()} - _with_staged(uses, head))
        head = msgspec.structs.replace(head, obsolete=obsolete, topics=[], changes=0)
        changes = self._changes if self._changes and self._changes.is_sound else None
        try:
            if changes is None or changes.size > self._base_bytes:
                head, changes = self._begin_anew(head, topics.values()), None
        except StorageFull:
            if changes is None:
                raise  # else what has changed is less
        if changes is not None:
            change = msgspec.structs.replace(head, deleted=sorted(deleted))
            changes.add(change, _encoded_topics(changed))
        with self._replacing:
            self.head, self.topics, self._uses = head, topics, uses

    def _begin_anew(self, head: Manifest, topics: Collection[TopicRecord]) -> Manifest:
        encoded = _encoded_topics(topics)
        changes = _Changes(self._filesystem, head.next_file)
        if len(encoded) > WHOLE_BYTES_MAX:
            changes.create()
            number = changes.number
            head = msgspec.structs.replace(head, next_file=number + 1, changes=number)
        _write_base(self._filesystem, head, encoded)
        self._base_bytes = len(encoded)
        changes.is_sound = self._filesystem.exists(COPY_NAME)
        self._changes = changes if head.changes else None
        changes.remove_others()
        return head


def as_copy(manifest: Manifest) -> Manifest:
    """What a copy of the directory has: it reads the objects, and they are not its own."""
    topics = [
        replace(topic, borrowed=topic.tiered[-1].section.next) if topic.tiered else topic
        for topic in manifest.topics
    ]
    return replace(manifest, topics=topics, loose=[])


def changes_in(filesystem: FileSystem) -> list[str]:
    """All files of changes, also those of earlier bases."""
    return [name for name in filesystem.list() if name.startswith(_CHANGES_NAME)]


def _header_of(filesystem: FileSystem, name: str) -> bytes:
    with closing(filesystem.open(name)) as file:
        return file.pread(_HEADER.size, 0)


def _with_staged(uses: Iterable[str], head: Manifest) -> set[str]:
    return set(uses).union(*(writer.files() for writer in head.stages))


def check_not_lost(files: FileSystem, segments: str, filesystem: FileSystem, journal: str) -> None:
    """Refuse a group without a manifest that had one, or was to get one by a copy: it would pass
    for an empty one. A journal has a file before there is the first segment."""

    def has(there: FileSystem, directory: str, prefix: str, suffix: str) -> bool:
        return there.exists(directory) and any(
            name.startswith(prefix) and name.endswith(suffix) for name in there.list(directory)
        )

    if files.exists(COPY_NAME) or (
        has(files, segments, "", ".seg") and not has(filesystem, journal, "journal-", "")
    ):
        raise _corrupt(NAME, "is missing, but there is data that it spoke of")


def _corrupt(name: str, what: str) -> Corrupt:
    return Corrupt(
        f"file {name!r} of the data directory {what}; restore a backup, or run "
        "`flintmq log repair`, which rebuilds it from its copy or from the segments"
    )
