"""What nodes say to each other while one gives the other its last checkpoint. Pure.

    4 SHIP     group u32 | MessagePack `ShipOffer`                     main line, from who leads
    5 WANT     group u32 | index u64 | file u32 | position u64         main line
    6 CHUNK    group u32 | index u64 | file u32 | position u64 | bytes bulk line
    7 SHIPPED  group u32 | index u64 | done u8                         main line

All numbers are little-endian. A shipment is known by the index of its checkpoint. File 0 is its
`ShipList`, which names the others: 1 is the first of them. A receiver asks for one chunk at a time,
so what is on its way is bounded, and an interrupted one goes on where it was. A WANT of index 0
asks for an offer: of a checkpoint that ends at `position` or later.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, TypeVar

import msgspec

from ..batch.checksum import crc32c
from ..errors import Corrupt, MalformedFrame
from ..storage.manifest import Manifest

CHUNK_BYTES = 1 << 20

_GROUP = Struct("<I")
_PLACE = Struct("<IQIQ")
_END = Struct("<IQB")

T = TypeVar("T")


class ShipOffer(msgspec.Struct, frozen=True):
    """A checkpoint that can be had. Fields are only added."""

    index: int
    term: int
    list_bytes: int
    list_checksum: int


class ShipList(msgspec.Struct, frozen=True):
    """What a checkpoint is made of."""

    manifest: Manifest
    files: list[tuple[str, int]]
    """The segments that the manifest names, and how many bytes each has."""


class ChunkPlace(NamedTuple):
    """Which bytes, of which file, of which shipment."""

    group: int
    checkpoint: int
    file: int
    position: int


NO_CHECKPOINT = 0
"""In the place of an index: whichever there is."""


class ShipEnd(NamedTuple):
    group: int
    checkpoint: int
    is_done: bool


def encode_offer(group: int, offer: ShipOffer) -> bytes:
    return _GROUP.pack(group) + msgspec.msgpack.encode(offer)


def decode_offer(body: memoryview) -> tuple[int, ShipOffer]:
    (group,) = _GROUP.unpack_from(_at_least(body, _GROUP.size))
    try:
        return group, msgspec.msgpack.decode(body[_GROUP.size :], type=ShipOffer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"an offer of a checkpoint: {error}") from None


def encode_want(place: ChunkPlace) -> bytes:
    return _PLACE.pack(*place)


def decode_want(body: memoryview) -> ChunkPlace:
    return ChunkPlace(*_PLACE.unpack_from(_at_least(body, _PLACE.size)))


def encode_chunk(place: ChunkPlace, data: bytes | memoryview) -> bytes:
    return b"".join((_PLACE.pack(*place), data))


def decode_chunk(body: memoryview) -> tuple[ChunkPlace, memoryview]:
    return decode_want(body), body[_PLACE.size :]


def encode_end(end: ShipEnd) -> bytes:
    return _END.pack(*end)


def decode_end(body: memoryview) -> ShipEnd:
    group, index, is_done = _END.unpack_from(_at_least(body, _END.size))
    return ShipEnd(group, index, bool(is_done))


def _at_least(body: memoryview, size: int) -> memoryview:
    if len(body) < size:
        raise MalformedFrame(f"{len(body)} bytes about a shipment; {size} are the least")
    return body


def encode_list(manifest: Manifest, files: list[tuple[str, int]]) -> tuple[ShipOffer, bytes]:
    data = msgspec.msgpack.encode(ShipList(manifest, files))
    return ShipOffer(manifest.checkpoint, manifest.term, len(data), crc32c(data)), data


def decode_list(offer: ShipOffer, data: bytes) -> ShipList:
    """Raises Corrupt where it is not what was offered."""
    if len(data) != offer.list_bytes or crc32c(data) != offer.list_checksum:
        raise Corrupt("the list of a checkpoint does not match its checksum")
    try:
        found = msgspec.msgpack.decode(data, type=ShipList)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the list of a checkpoint cannot be read: {error}") from None
    if found.manifest.checkpoint != offer.index or {name for name, _ in found.files} != (
        found.manifest.files()
    ):
        raise Corrupt("the list of a checkpoint names other files than its manifest")
    return found
