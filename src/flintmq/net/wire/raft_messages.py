"""Raft messages as bytes. Pure; framing and authentication are the transport's.

    head      u8 version = 1 | u8 kind | u16 flags | u32 group
              u64 sender | u64 receiver | u64 term
    numbers   u64 each, only those whose flag is set, in this order:
                0x0001 index   0x0002 log_term   0x0004 commit   0x0008 hint   0x0010 read_round
    0x0020    reject (no bytes)
    0x0040    force (no bytes)
    0x0080    context    u16 length | bytes
    0x0100    entries    u32 count | u64 index of the first, or 0: none has one yet
                         count times: u64 term | u32 length | u8 kind
    0x0200    snapshot   u64 index | u64 term | u64 size | u32 chunk size | u64 checksum
                         u8 auto leave | voters, learners, outgoing, learners next: u16 n | n x u64
                         u32 n | n x u64 chunk checksums
    payloads  the entries' data, one behind the other, to the end

All numbers little-endian. A value has one encoding: a flag whose field is zero or empty is refused,
and so are bytes left over. Every count is checked against the bytes that are there before anything
is made of it. Payloads are neither copied when encoding (they are parts of their own, for writev)
nor when decoding (they are views into the received buffer, which must not be changed after).
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TypeAlias

from flintmq.errors import InvalidRequest, MalformedRaftMessage
from flintmq.raft.membership import Membership, check_is_sound
from flintmq.raft.messages import EntryKind, MessageKind, RaftEntry, RaftMessage, RaftSnapshot

Buffer: TypeAlias = bytes | memoryview

VERSION = 1
MESSAGE_BYTES_MAX = 256 << 20
CONTEXT_BYTES_MAX = 1024
ENTRIES_MAX = 1 << 16
MEMBERS_MAX = 1024
CHUNKS_MAX = 1 << 20

_HEAD = struct.Struct("<BBHIQQQ")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_ENTRIES = struct.Struct("<IQ")
_ENTRY = struct.Struct("<QIB")
_SNAPSHOT = struct.Struct("<QQQIQB")

_NUMBERS = ("index", "log_term", "commit", "hint", "read_round")  # flags 0x01 to 0x10
_NUMBER_FLAGS = 0x1F
_NUMBERS_OF = [tuple(i for i in range(5) if flags >> i & 1) for flags in range(32)]
_U64S = [struct.Struct(f"<{count}Q") for count in range(6)]
_REJECT = 0x20
_FORCE = 0x40
_CONTEXT = 0x80
_HAS_ENTRIES = 0x100
_HAS_SNAPSHOT = 0x200
_ALL_FLAGS = 0x3FF

_KINDS = {int(kind): kind for kind in MessageKind}
_ENTRY_KINDS = {int(kind): kind for kind in EntryKind}


def encode_message(message: RaftMessage) -> list[Buffer]:
    """The message as buffers to be written one behind the other; payloads are the very objects."""
    flags = 0
    numbers: list[int] = []
    for position, value in enumerate(
        (message.index, message.log_term, message.commit, message.hint, message.read_round)
    ):
        if value:
            flags |= 1 << position
            numbers.append(value)
    if message.reject:
        flags |= _REJECT
    if message.force:
        flags |= _FORCE
    rest = b""
    if message.context:
        if len(message.context) > CONTEXT_BYTES_MAX:
            raise InvalidRequest(f"a context takes at most {CONTEXT_BYTES_MAX} bytes")
        flags |= _CONTEXT
        rest += _U16.pack(len(message.context)) + message.context
    if message.entries:
        flags |= _HAS_ENTRIES
        rest += _encode_entry_table(message.entries)
    if message.snapshot is not None:
        flags |= _HAS_SNAPSHOT
        rest += _encode_snapshot(message.snapshot)
    head = _HEAD.pack(
        VERSION,
        message.kind,
        flags,
        message.group,
        message.sender,
        message.receiver,
        message.term,
    )
    first = head + _U64S[len(numbers)].pack(*numbers) + rest
    return [first, *(entry.data for entry in message.entries if len(entry.data))]


def _encode_entry_table(entries: tuple[RaftEntry, ...]) -> bytes:
    if len(entries) > ENTRIES_MAX:
        raise InvalidRequest(f"a message takes at most {ENTRIES_MAX} entries")
    first = entries[0].index
    for position, entry in enumerate(entries):
        if entry.index != (first + position if first else 0):
            raise InvalidRequest("the entries of a message must follow each other")
    table = [_ENTRY.pack(entry.term, len(entry.data), entry.kind) for entry in entries]
    return _ENTRIES.pack(len(entries), first) + b"".join(table)


def _encode_snapshot(snapshot: RaftSnapshot) -> bytes:
    membership = snapshot.membership
    if len(membership.everybody()) > MEMBERS_MAX or len(snapshot.chunk_checksums) > CHUNKS_MAX:
        raise InvalidRequest("the snapshot has too many members or chunks")
    parts = [
        _SNAPSHOT.pack(
            snapshot.index,
            snapshot.term,
            snapshot.size_bytes,
            snapshot.chunk_bytes,
            snapshot.checksum,
            membership.auto_leave,
        )
    ]
    for nodes in _node_lists(membership):
        parts.append(_U16.pack(len(nodes)) + struct.pack(f"<{len(nodes)}Q", *nodes))
    checksums = snapshot.chunk_checksums
    parts.append(_U32.pack(len(checksums)) + struct.pack(f"<{len(checksums)}Q", *checksums))
    return b"".join(parts)


def _node_lists(membership: Membership) -> tuple[tuple[int, ...], ...]:
    return (
        membership.voters,
        membership.learners,
        membership.outgoing,
        membership.learners_next,
    )


class _FieldReader:
    """Walks through a buffer; every step is checked against its end."""

    def __init__(self, data: Buffer) -> None:
        self.view = memoryview(data).toreadonly()
        self.position = 0

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        begin = self._step(form.size)
        values: tuple[int, ...] = form.unpack_from(self.view, begin)
        return values

    def take(self, size: int) -> memoryview:
        begin = self._step(size)
        return self.view[begin : self.position]

    def _step(self, size: int) -> int:
        begin, end = self.position, self.position + size
        if end > len(self.view):
            raise MalformedRaftMessage(f"{size} bytes at {begin} pass the message's end")
        self.position = end
        return begin

    def numbers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", self.take(8 * count))


def decode_message(data: Buffer, *, bytes_max: int = MESSAGE_BYTES_MAX) -> RaftMessage:
    """The message in these bytes, all of them. Raises MalformedRaftMessage for anything else."""
    if len(data) > bytes_max:
        raise MalformedRaftMessage(f"a message of {len(data)} bytes; at most {bytes_max} are taken")
    reader = _FieldReader(data)
    version, kind, flags, group, sender, receiver, term = reader.unpack(_HEAD)
    if version != VERSION:
        raise MalformedRaftMessage(
            f"version {version} is not understood; this is version {VERSION}"
        )
    if kind not in _KINDS or flags & ~_ALL_FLAGS:
        raise MalformedRaftMessage(f"unknown kind {kind} or flags {flags:#x}")
    index, log_term, commit, hint, read_round = _decode_numbers(reader, flags & _NUMBER_FLAGS)
    context = _decode_context(reader) if flags & _CONTEXT else b""
    table = _decode_entry_table(reader) if flags & _HAS_ENTRIES else []
    snapshot = _decode_snapshot(reader) if flags & _HAS_SNAPSHOT else None
    entries = tuple(
        RaftEntry(index, entry_term, reader.take(length), entry_kind)
        for index, entry_term, length, entry_kind in table
    )
    if reader.position != len(reader.view):
        raise MalformedRaftMessage(f"{len(reader.view) - reader.position} bytes are left over")
    return RaftMessage(
        kind=_KINDS[kind],
        sender=sender,
        receiver=receiver,
        term=term,
        index=index,
        log_term=log_term,
        commit=commit,
        entries=entries,
        reject=bool(flags & _REJECT),
        hint=hint,
        read_round=read_round,
        context=context,
        force=bool(flags & _FORCE),
        snapshot=snapshot,
        group=group,
    )


def _decode_numbers(reader: _FieldReader, flags: int) -> list[int]:
    """The five numbers in their order; those without a flag are 0, and no others may be."""
    numbers = [0] * len(_NUMBERS)
    positions = _NUMBERS_OF[flags]
    for position, value in zip(positions, reader.unpack(_U64S[len(positions)]), strict=True):
        if not value:
            raise MalformedRaftMessage(f"{_NUMBERS[position]} is flagged and zero")
        numbers[position] = value
    return numbers


def _decode_context(reader: _FieldReader) -> bytes:
    (length,) = reader.unpack(_U16)
    if not 0 < length <= CONTEXT_BYTES_MAX:
        raise MalformedRaftMessage(f"a context of {length} bytes")
    return bytes(reader.take(length))


def _decode_entry_table(reader: _FieldReader) -> list[tuple[int, int, int, EntryKind]]:
    count, first = reader.unpack(_ENTRIES)
    if not 0 < count <= ENTRIES_MAX:
        raise MalformedRaftMessage(f"{count} entries in one message")
    table: list[tuple[int, int, int, EntryKind]] = []
    for position, (term, length, kind) in enumerate(
        _ENTRY.iter_unpack(reader.take(count * _ENTRY.size))
    ):
        if kind not in _ENTRY_KINDS:
            raise MalformedRaftMessage(f"unknown kind of entry {kind}")
        table.append((first + position if first else 0, term, length, _ENTRY_KINDS[kind]))
    return table


def _decode_snapshot(reader: _FieldReader) -> RaftSnapshot:
    index, term, size_bytes, chunk_bytes, checksum, auto_leave = reader.unpack(_SNAPSHOT)
    if auto_leave > 1:
        raise MalformedRaftMessage("auto leave is neither yes nor no")
    lists: list[tuple[int, ...]] = []
    for _ in range(4):
        (count,) = reader.unpack(_U16)
        if count > MEMBERS_MAX:
            raise MalformedRaftMessage(f"{count} members")
        nodes = reader.numbers(count)
        if any(later <= earlier for earlier, later in pairwise(nodes)):
            raise MalformedRaftMessage("members are not in order")
        lists.append(nodes)
    (chunks,) = reader.unpack(_U32)
    if chunks > CHUNKS_MAX:
        raise MalformedRaftMessage(f"{chunks} chunks")
    checksums = reader.numbers(chunks)
    membership = Membership(lists[0], lists[1], lists[2], lists[3], auto_leave=bool(auto_leave))
    try:
        check_is_sound(membership)
    except InvalidRequest as error:
        raise MalformedRaftMessage(str(error)) from None
    return RaftSnapshot(index, term, membership, size_bytes, chunk_bytes, checksum, checksums)
