"""What nodes say to each other, as bytes. Pure: no socket, no clock.

    hello   "FLNP" | level min u8 | level max u8 | line u8 (0 main, 1 bulk, 2 founding) | 0 u8
            cluster id 16 B | node u64 | incarnation u64 | life u64 | nonce 16 B

    byte 0          4      5       6       8              12
         +----------+------+-------+-------+--------------+------+
         | length   | kind | flags | count | CRC32C       | body |
         +----------+------+-------+-------+--------------+------+

All numbers are little-endian. `length` counts everything behind itself; the checksum is that of
kind, flags, count and body. Read as a length, "FLNP" is over every limit, so that a frame in the
place of a hello is known at once: that is a GOODBYE.

    1 RAFT      count x (length u32 | message as in net/wire/raft_messages.py)
    3 PING      the sender's clocks and health (`PeerHealth`); flags 1: the answer to one
    4 to 7      SHIP, WANT, CHUNK, SHIPPED: ship_frames.py
    8 FOUNDING  MessagePack of bootstrap.py
   10 GOODBYE   flags: a `GoodbyeReason`; body: a sentence, UTF-8
   11 PROOF     32 B, behind the hellos where there is no TLS: HMAC-SHA256(key, role, both hellos)
   12 ABOUT     MessagePack `AboutNode`: where its clients connect, and what it is called
   13 JOINING   MessagePack of joining.py
   14 DIGEST    group u32 | form u8 | 3 zeros | number u64 | digest u64: checking.py

The incarnation is drawn with the node's directory and lasts as long as that; the life is drawn at
each start of its process.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

import msgspec

from ..batch.checksum import crc32c
from ..errors import MalformedFrame
from ..net.wire.frames import LENGTH, LENGTH_BYTES, FrameCutter
from ..net.wire.raft_messages import Buffer, decode_message, encode_message
from ..raft import RaftMessage
from .levels import LEVEL

MAGIC = b"FLNP"
HELLO = Struct("<4sBBBB16sQQQ16s")
HELLO_BYTES = HELLO.size
PROOF_BYTES = 32
NONCE_BYTES = 16
NO_CLUSTER = bytes(16)
"""The cluster id of a node that belongs to none yet."""

HEAD = Struct("<IBBHI")
HEAD_BYTES = HEAD.size
FRAME_BYTES_MAX = 256 << 20
OPENING_BYTES_MAX = 64 << 10
"""What a frame may have before both sides have proved who they are, and on a founding line."""
RAFT_BYTES_MAX = 8 << 20
"""Beyond this the messages of one turn go on in another frame."""
REASON_BYTES_MAX = 512

_REST = Struct("<BBH")
_HEALTH = Struct("<QQQIIHH")


class LineKind(IntEnum):
    MAIN = 0
    BULK = 1
    FOUNDING = 2


class FrameKind(IntEnum):
    RAFT = 1
    PING = 3
    SHIP = 4
    WANT = 5
    CHUNK = 6
    SHIPPED = 7
    FOUNDING = 8
    GOODBYE = 10
    PROOF = 11
    ABOUT = 12
    JOINING = 13
    DIGEST = 14


class GoodbyeReason(IntEnum):
    """Why a line ends. What is 16 or more does not get better by trying again."""

    CLOSING = 1
    REPLACED = 2
    MALFORMED = 3
    SILENT = 4
    VERSION = 16
    CREDENTIAL = 17
    CLUSTER = 18
    NODE = 19
    INCARNATION = 20
    LINE = 21
    REMOVED = 22


class PeerHello(NamedTuple):
    line: LineKind
    cluster: bytes
    node: int
    incarnation: int
    life: int
    nonce: bytes
    version_min: int = 1
    """The level of the cluster; 1 where the node belongs to none."""
    version_max: int = LEVEL
    """The highest level that the node knows."""


@dataclass(frozen=True, slots=True)
class PeerFrame:
    """One frame; the body is a view into what was received."""

    kind: int
    flags: int
    count: int
    body: memoryview


class PeerHealth(NamedTuple):
    """What a PING tells. `echo` is the `now_ms` of the ping that is answered, else 0."""

    now_ms: int
    boot_ms: int
    echo: int = 0
    journal_age_ms: int = 0
    flags: int = 0
    level: int = 0
    """The highest that the node knows; 0: 1, of an earlier version."""
    leaders: int = 0


IS_PONG = 1


class AboutNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node tells of itself once a line is open. Fields are only added."""

    name: str = ""
    clients: str = ""
    """Where clients of the native protocol connect: host:port, or nothing yet."""
    version: str = ""
    has_tls: bool = False
    token: str = ""
    """By which its native server knows other nodes that ask on behalf of their clients. Drawn at
    each start, and told on lines between nodes only."""
    has_keys: bool = False
    """Whether the cluster has API keys, as far as this node knows."""


# --- hello and proof


def encode_hello(hello: PeerHello) -> bytes:
    return HELLO.pack(
        MAGIC,
        hello.version_min,
        hello.version_max,
        hello.line,
        0,
        hello.cluster,
        hello.node,
        hello.incarnation,
        hello.life,
        hello.nonce,
    )


def decode_hello(data: bytes) -> PeerHello:
    """What the other side said. Raises as soon as what is there cannot be a hello."""
    if data[:4] != MAGIC[: len(data)]:
        raise MalformedFrame(f"a line between nodes must start with {MAGIC!r}, not {data[:4]!r}")
    _, version_min, version_max, line, zero, cluster, node, *rest = HELLO.unpack(data)
    incarnation, life, nonce = rest
    if zero or line not in tuple(LineKind):
        raise MalformedFrame(f"a line of kind {line}")
    return PeerHello(
        LineKind(line), cluster, node, incarnation, life, nonce, version_min, version_max
    )


def proof_of(key: bytes, role: bytes, dialler: bytes, answerer: bytes) -> bytes:
    """Who can make this has the key of the cluster. Both nonces are in the hellos, so no proof is
    good for a second connection, and no side can hand the other its own back."""
    return hmac.digest(key, role + dialler + answerer, hashlib.sha256)


# --- frames


def encode_frame(kind: int, parts: Iterable[Buffer], *, flags: int = 0, count: int = 0) -> bytes:
    """A frame, ready to be written."""
    body = b"".join(parts)
    rest = _REST.pack(kind, flags, count)
    checksum = crc32c(body, crc32c(rest))
    length = HEAD_BYTES - LENGTH_BYTES + len(body)
    return b"".join((HEAD.pack(length, kind, flags, count, checksum), body))


def frame_bytes(data: bytes) -> int:
    """How long the frame is that begins here, with its length."""
    (length,) = LENGTH.unpack_from(data)
    return int(length) + LENGTH_BYTES


class PeerFrameDecoder(FrameCutter[PeerFrame]):
    """Cuts what a line between nodes receives. A frame whose checksum is wrong is not handed out;
    after an error the line has to go."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        super().__init__(HEAD_BYTES, _frame, frame_bytes_max)


def _frame(view: memoryview, at: int, length: int) -> PeerFrame:
    _, kind, flags, count, checksum = HEAD.unpack_from(view, at)
    body = view[at + HEAD_BYTES : at + length]
    if crc32c(body, crc32c(view[at + LENGTH_BYTES : at + LENGTH_BYTES + _REST.size])) != checksum:
        raise MalformedFrame(f"a frame of {length:,} bytes has a wrong checksum")
    return PeerFrame(kind, flags, count, body)


# --- bodies


def encode_raft(messages: Iterable[RaftMessage]) -> list[bytes]:
    """All messages of one turn: one frame, as long as they fit."""
    frames: list[bytes] = []
    parts: list[Buffer] = []
    count = size = 0
    for message in messages:
        buffers = encode_message(message)
        length = sum(map(len, buffers))
        if count and (size + length > RAFT_BYTES_MAX or count == 0xFFFF):
            frames.append(encode_frame(FrameKind.RAFT, parts, count=count))
            parts, count, size = [], 0, 0
        parts.append(LENGTH.pack(length))
        parts += buffers
        count += 1
        size += length
    if count:
        frames.append(encode_frame(FrameKind.RAFT, parts, count=count))
    return frames


def decode_raft(frame: PeerFrame) -> Iterator[RaftMessage]:
    """Raises MalformedFrame or MalformedRaftMessage. Entries are views into the frame."""
    position, end = 0, len(frame.body)
    for _ in range(frame.count):
        if end - position < LENGTH_BYTES:
            raise MalformedFrame(f"{frame.count} messages are more than their frame has")
        (length,) = LENGTH.unpack_from(frame.body, position)
        position += LENGTH_BYTES
        if length > end - position:
            raise MalformedFrame(f"a message of {length:,} bytes is longer than its frame")
        yield decode_message(frame.body[position : position + length])
        position += length
    if position != end:
        raise MalformedFrame(f"{end - position} bytes behind the last message of a frame")


def encode_ping(health: PeerHealth, *, is_pong: bool = False) -> bytes:
    return encode_frame(FrameKind.PING, (_HEALTH.pack(*health),), flags=IS_PONG * is_pong)


def decode_ping(frame: PeerFrame) -> PeerHealth:
    if len(frame.body) < _HEALTH.size:  # a later version may say more
        raise MalformedFrame(f"a ping of {len(frame.body)} bytes")
    return PeerHealth(*_HEALTH.unpack_from(frame.body))


def encode_goodbye(reason: GoodbyeReason, text: str) -> bytes:
    body = text.encode()[:REASON_BYTES_MAX]
    return encode_frame(FrameKind.GOODBYE, (body,), flags=reason)


def decode_goodbye(frame: PeerFrame) -> tuple[int, str]:
    """The reason may be one that we do not know yet."""
    return frame.flags, bytes(frame.body[:REASON_BYTES_MAX]).decode(errors="replace")


SHIPPING = frozenset(
    {FrameKind.SHIP, FrameKind.WANT, FrameKind.CHUNK, FrameKind.SHIPPED, FrameKind.DIGEST}
)
"""What concerns checkpoints and what they hold."""

_about = msgspec.msgpack.Decoder(AboutNode)


def encode_about(about: AboutNode) -> bytes:
    return encode_frame(FrameKind.ABOUT, (msgspec.msgpack.encode(about),))


def decode_about(frame: PeerFrame) -> AboutNode:
    try:
        return _about.decode(frame.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"what a node tells of itself: {error}") from None
