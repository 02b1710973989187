"""The hello: what both sides say before the first frame. Pure.

    byte 0        4             5             6    8                16
         +--------+-------------+-------------+----+----------------+
         | "FLNT" | version min | version max | 0  | features       |
         +--------+-------------+-------------+----+----------------+

The client says which versions it speaks and which features it knows; the server answers with the
same sixteen bytes, where both versions are the one it has chosen and the features those that both
know. Where there is none in common, it answers with version 0, says its own maximum, and closes.
Numbers are little-endian. Read as a length, "FLNT" is impossible in every protocol we serve.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ...errors import MalformedFrame, UnsupportedFormat

MAGIC = b"FLNT"
VERSION = 1
DURATIONS = 1 << 0
"""Record batches may have durations in place of times: RELATIVE, see batch/format.py. Who does not
know of it is sent times, and sends times."""

ROWS = 1 << 1
"""Small publishes may come as rows, those of many topics in one frame (PUBLISH_ROWS), and receipts
go out many to a frame (RECEIPTS). Who does not know of it sends batches, and is sent replies."""

FEATURES = DURATIONS | ROWS

HELLO = Struct("<4sBBHQ")
HELLO_BYTES = HELLO.size


class Hello(NamedTuple):
    version_min: int
    version_max: int
    features: int


HTTP = (b"HTTP", b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"PATC", b"OPTI")
"""How it begins: people take one port for the other."""


def client_hello() -> bytes:
    return HELLO.pack(MAGIC, VERSION, VERSION, 0, FEATURES)


def parse_hello(data: bytes) -> Hello:
    """What the other side said. Raises as soon as what is there cannot be a hello."""
    if data[:4] != MAGIC[: len(data)]:
        hint = ": that is HTTP, which has another port" if data[:4] in HTTP else ""
        raise MalformedFrame(
            f"a FlintMQ connection must start with {MAGIC!r}, not {data[:4]!r}{hint}"
        )
    _, version_min, version_max, _, features = HELLO.unpack(data)
    return Hello(version_min, version_max, features)


def server_hello(theirs: Hello) -> tuple[bytes, bool]:
    """The answer to a client, and whether we speak a version it knows."""
    if theirs.version_min <= VERSION <= theirs.version_max:
        return HELLO.pack(MAGIC, VERSION, VERSION, 0, FEATURES & theirs.features), True
    return other_hello(), False


def other_hello() -> bytes:
    """The answer to a client that begins in another way: who we are, and no common version."""
    return HELLO.pack(MAGIC, 0, VERSION, 0, 0)


def check_server_hello(answer: Hello) -> None:
    if answer.version_min != VERSION:
        raise UnsupportedFormat(
            f"this client uses protocol version {VERSION}, the server supports up to "
            f"version {answer.version_max}; update the older of the two"
        )
