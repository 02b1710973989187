"""What nodes say while a checkpoint travels, as bytes and back."""

from __future__ import annotations

import msgspec
import pytest

from flintmq.cluster.ship_frames import (
    ChunkPlace,
    ShipEnd,
    ShipOffer,
    decode_chunk,
    decode_end,
    decode_list,
    decode_offer,
    decode_want,
    encode_chunk,
    encode_end,
    encode_list,
    encode_offer,
    encode_want,
)
from flintmq.errors import Corrupt, MalformedFrame
from flintmq.storage.manifest import Manifest

PLACE = ChunkPlace(3, 1 << 40, 7, 1 << 33)


def test_frames_come_back_as_they_were() -> None:
    offer = ShipOffer(12, 3, 400, 5)
    assert decode_offer(memoryview(encode_offer(3, offer))) == (3, offer)
    assert decode_want(memoryview(encode_want(PLACE))) == PLACE
    place, data = decode_chunk(memoryview(encode_chunk(PLACE, b"content")))
    assert (place, bytes(data)) == (PLACE, b"content")
    assert decode_end(memoryview(encode_end(ShipEnd(3, 9, True)))) == (3, 9, True)


def test_a_chunk_may_be_empty() -> None:
    assert bytes(decode_chunk(memoryview(encode_chunk(PLACE, b"")))[1]) == b""


@pytest.mark.parametrize("decode", [decode_offer, decode_want, decode_chunk, decode_end])
@pytest.mark.parametrize("body", [b"", b"123", b"12345678"])
def test_what_is_cut_short_is_refused(decode: object, body: bytes) -> None:
    assert callable(decode)
    with pytest.raises(MalformedFrame):
        decode(memoryview(body))


def test_a_field_that_a_later_version_adds_is_passed_over() -> None:
    body = bytes(4) + msgspec.msgpack.encode(
        {"index": 1, "term": 2, "list_bytes": 3, "list_checksum": 4, "more": 5}
    )
    assert decode_offer(memoryview(body)) == (0, ShipOffer(1, 2, 3, 4))


def test_a_list_is_what_was_offered_or_refused() -> None:
    manifest = Manifest(checkpoint=9, term=2)
    offer, data = encode_list(manifest, [])
    assert decode_list(offer, data).manifest == manifest
    with pytest.raises(Corrupt):
        decode_list(offer, data[:-1] + b"?")
    other, named = encode_list(manifest, [("segments/1.seg", 4)])
    with pytest.raises(Corrupt, match="other files"):
        decode_list(other, named)
    with pytest.raises(Corrupt, match="other files"):
        decode_list(msgspec.structs.replace(offer, index=10), data)
