"""Records and frames: the bytes of the journal. Pure.

A frame is what one group write puts into the journal: the records of all who waited for it,
under one checksum. Numbers are little-endian; a frame begins on a multiple of 8.

    byte  0        8         12          16        24         32       36       40
          +--------+---------+-----------+---------+----------+--------+--------+---------+
          | salt   | length  | checksum  | number  | durable  | count  | flags  | records |
          +--------+---------+-----------+---------+----------+--------+--------+---------+

    salt      u64, the one in the header of the file: where a frame may begin can be searched for
    length    u32, the bytes of all records with their padding
    checksum  u32, CRC32C of the file's generation (u64), then of the frame without this field. What
              an earlier use left in a recycled file has another salt and another generation, and
              what was written elsewhere another number: neither ever passes for this frame
    number    u64, counts the frames of the journal from 1 on, without gaps
    durable   u64, the durable mark: when this frame was written, the frames up to this number had
              been synced. With the policy `always` that is number - 1
    count     u32, how many records follow; 0 in the mark that a clean close writes
    flags     u32, bit 0: one run, which is to say all records are entries of one group and one
              term with consecutive indexes, and looking at the first tells all

A record, padded with zeros to a multiple of 8:

    byte  0        4       8       16       24        32
          +--------+-------+-------+--------+---------+----------+---------+
          | group  | kind  | term  | index  | length  | payload  | padding |
          +--------+-------+-------+--------+---------+----------+---------+

    group     u32, the Raft group
    kind      u32, bits 0 to 7: 0 ENTRY; 1 RESTART: the log of the group begins anew at this index
              (a snapshot took the place of what was before), and the payload is the caller's as in
              any other; 2 STATE, see below. Bits 8 to 15, of an entry: 0 NORMAL, 1 MEMBERSHIP
    term      u64
    index     u64, one more than that of the record of this group before it. A lower one takes the
              place of that record and drops those behind it: so a Raft log replaces a suffix
    length    u64, the bytes of the payload

A STATE is what a group must never forget: its term, and its vote. It has index 0 and no
place among the entries; the last one counts. STATE and MEMBERSHIP are in files of version 2 only.

    payload   vote u64   commit u64   level u32   flags u32 (1: the group has left this node)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from ..batch.checksum import crc32c
from ..errors import Corrupt, InvalidRequest
from .filesystem import Buffer, bytes_in

FRAME = Struct("<QIIQQII")
FRAME_BYTES = FRAME.size
RECORD = Struct("<IIQQQ")
RECORD_BYTES = RECORD.size
_pack_record = RECORD.pack
_SEED = Struct("<QQIQQII")  # the generation, then the frame's header without the checksum
_SALT = Struct("<Q")

ENTRY = 0
RESTART = 1
STATE = 2
MEMBERSHIP = 1 << 8
_KINDS = (ENTRY, RESTART, STATE, ENTRY | MEMBERSHIP)
ONE_RUN = 1
HAS_LEFT = 1
_STATE = Struct("<QQII")

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
FRAME_BODY_BYTES_MAX = U32_MAX & ~7

_JOIN_BYTES_MAX = 64 * 1024
"""Buffers below this are copied together: cheaper than a checksum call and an iovec for each."""
_PADDING = [b"\0" * (-length % 8) for length in range(8)]


@dataclass(slots=True)
class Record:
    """One entry of one group's log. Buffers that are read are views: copy what is kept for long."""

    group: int
    term: int
    index: int
    buffers: tuple[Buffer, ...]
    kind: int = ENTRY

    @property
    def size(self) -> int:
        """What it takes in a frame."""
        return (RECORD_BYTES + bytes_in(self.buffers) + 7) & ~7

    @property
    def payload(self) -> Buffer:
        return self.buffers[0] if len(self.buffers) == 1 else b"".join(self.buffers)


class State(NamedTuple):
    """The hard state of a group."""

    term: int
    vote: int = 0
    commit: int = 0
    level: int = 0
    flags: int = 0

    def record(self, group: int) -> Record:
        return Record(group, self.term, 0, (_STATE.pack(*self[1:]),), STATE)

    @classmethod
    def of(cls, term: int, payload: Buffer) -> State:
        if len(payload) != _STATE.size:
            raise Corrupt(f"a hard state of {len(payload)} bytes")
        return cls(term, *_STATE.unpack(payload))


@dataclass(slots=True)
class RecordRun:
    """Records of one group and term with consecutive indexes, one directly behind the other."""

    group: int
    term: int
    index: int
    count: int
    kind: int
    state: State | None = None
    """Of a STATE, which is a run of its own."""

    @classmethod
    def of(cls, group: int, term: int, index: int, kind: int, payload: Buffer) -> RecordRun:
        return cls(group, term, index, 1, kind, State.of(term, payload) if kind == STATE else None)


@dataclass(slots=True, eq=False)
class RecordLot:
    """The records of one submit, encoded. They go into one frame: all of them are kept, or none."""

    buffers: list[Buffer]
    bytes: int
    count: int
    runs: list[RecordRun]


def bytes_of(lots: Sequence[RecordLot]) -> int:
    return lots[0].bytes if len(lots) == 1 else sum(lot.bytes for lot in lots)


def encode(records: Sequence[Record]) -> RecordLot:
    buffers: list[Buffer] = []
    total = 0
    runs: list[RecordRun] = []
    for record in records:
        group, term, index, kind = record.group, record.term, record.index, record.kind
        parts = record.buffers
        length = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        buffers.append(_pack_record(group, kind, term, index, length))
        buffers += parts
        total += RECORD_BYTES + length
        if length & 7:
            padding = _PADDING[length & 7]
            buffers.append(padding)
            total += len(padding)
        runs.append(
            RecordRun(group, term, index, 1, kind)
            if kind != STATE
            else RecordRun.of(group, term, index, kind, record.payload)
        )
    if total > FRAME_BODY_BYTES_MAX:
        raise InvalidRequest(
            f"{total:,} bytes are too many for one write; {FRAME_BODY_BYTES_MAX:,} is the limit"
        )
    return RecordLot(buffers, total, len(records), joined(runs) if len(runs) > 1 else runs)


def joined(runs: Sequence[RecordRun]) -> list[RecordRun]:
    """Runs as long as they can be. A restart stays alone."""
    result: list[RecordRun] = []
    for run in runs:
        if result:
            last = result[-1]
            if (
                last.group == run.group
                and last.term == run.term
                and last.index + last.count == run.index
                and last.kind == run.kind == ENTRY
            ):
                last.count += run.count
                continue
        result.append(RecordRun(run.group, run.term, run.index, run.count, run.kind, run.state))
    return result


@dataclass(frozen=True, slots=True)
class FileSeed:
    """What the frames of one file have in common: the seed of their checksums."""

    generation: int
    salt: int


def seal(
    buffers: Sequence[Buffer],
    runs: Sequence[RecordRun],
    place: FileSeed,
    *,
    number: int,
    durable: int,
) -> list[Buffer]:
    """The frame around encoded records, ready to be written. `runs` are joined."""
    body = _coalesced(buffers)
    length = bytes_in(body)
    count = runs[0].count if len(runs) == 1 else sum(run.count for run in runs)
    flags = ONE_RUN if len(runs) == 1 and runs[0].kind == ENTRY else 0
    checksum = crc32c(
        _SEED.pack(place.generation, place.salt, length, number, durable, count, flags)
    )
    for part in body:
        checksum = crc32c(part, checksum)
    return [FRAME.pack(place.salt, length, checksum, number, durable, count, flags), *body]


def _coalesced(buffers: Sequence[Buffer]) -> list[Buffer]:
    if bytes_in(buffers) < _JOIN_BYTES_MAX:
        return [b"".join(buffers)] if buffers else []
    result: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < _JOIN_BYTES_MAX:
            small.append(buffer)
            continue
        if small:
            result.append(b"".join(small))
            small = []
        result.append(buffer)
    if small:
        result.append(b"".join(small))
    return result


class JournalFrame:
    """A frame whose checksum holds."""

    __slots__ = ("body", "count", "durable", "flags", "number", "offset")

    def __init__(
        self, offset: int, number: int, durable: int, count: int, flags: int, body: memoryview
    ) -> None:
        self.offset, self.number, self.durable = offset, number, durable
        self.count, self.flags, self.body = count, flags, body

    @property
    def end(self) -> int:
        return self.offset + FRAME_BYTES + len(self.body)

    def records(self) -> Iterator[Record]:
        body = self.body
        position = 0
        unpack, size = RECORD.unpack_from, len(body)
        for _ in range(self.count):
            start = position + RECORD_BYTES
            if start > size:
                raise Corrupt(f"frame {self.number} ends inside a record")
            group, kind, term, index, length = unpack(body, position)
            end = start + length
            if end > size:
                raise Corrupt(f"frame {self.number} ends inside a record")
            if kind not in _KINDS:
                raise Corrupt(f"frame {self.number} has a record of unknown kind {kind}")
            yield Record(group, term, index, (body[start:end],), kind)
            position = (end + 7) & ~7
        if position != size:
            raise Corrupt(f"frame {self.number} has bytes behind its last record")

    def runs(self) -> list[RecordRun]:
        if self.flags & ONE_RUN and self.count and len(self.body) >= RECORD_BYTES:
            group, kind, term, index, _ = RECORD.unpack_from(self.body)
            return [RecordRun(group, term, index, self.count, kind)]
        return joined(
            [RecordRun.of(r.group, r.term, r.index, r.kind, r.payload) for r in self.records()]
        )


def begins_frame(data: memoryview, at: int, place: FileSeed) -> int | None:
    """How many bytes the frame has that seems to begin here; None where none does."""
    if at + FRAME_BYTES > len(data):
        return None
    salt, length = FRAME.unpack_from(data, at)[:2]
    if salt != place.salt or length % 8:
        return None
    return FRAME_BYTES + int(length)


def number_in(head: bytes) -> int:
    """The number in the header of a frame, good or not."""
    return int(FRAME.unpack_from(head)[3])


def frame_at(data: memoryview, at: int, place: FileSeed, offset: int) -> JournalFrame | None:
    """The frame in `data` at `at`, which is `offset` in the file; None unless all of it is good."""
    size = begins_frame(data, at, place)
    if size is None or at + size > len(data):
        return None
    salt, length, checksum, number, durable, count, flags = FRAME.unpack_from(data, at)
    body = data[at + FRAME_BYTES : at + size]
    seed = crc32c(_SEED.pack(place.generation, salt, length, number, durable, count, flags))
    if crc32c(body, seed) != checksum:
        return None
    return JournalFrame(offset, number, durable, count, flags, body)


def salt_bytes(place: FileSeed) -> bytes:
    return _SALT.pack(place.salt)
