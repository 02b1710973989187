"""BlipMQ's frames byte for byte: the samples of its own documents, and bytes that are none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.errors import MalformedFrame
from flintmq.frontends.blip.codec import (
    LENGTH_MAX,
    BlipFrame,
    BlipFrameDecoder,
    BlipPublish,
    BlipSubscribe,
    Type,
    decode_auth,
    decode_hello,
    decode_number,
    decode_publish,
    decode_subscribe,
    encode_ack,
    encode_deliver,
    encode_frame,
    encode_nack,
    encode_publish,
)


def frames_of(data: bytes, **options: int) -> list[BlipFrame]:
    frames: list[BlipFrame] = []
    BlipFrameDecoder(**options).feed(data, frames)
    return frames


def test_the_samples_of_its_protocol_page_are_read() -> None:
    data = bytes.fromhex(
        "0000000b 01 0000000000000001 0001"
        "00000012 02 0000000000000002 0007 6465762d6b6579"
        "00000010 04 0000000000000003 0004 64656d6f 01"
        "00000012 03 0000000000000004 01 0004 64656d6f 6869"
        "00000011 05 0000000000000003 000000000000002a"
    )

    hello, auth, subscribe, publish, ack = frames_of(data)

    assert (hello.type, hello.id, decode_hello(hello.payload)) == (Type.HELLO, 1, 1)
    assert (auth.type, auth.id, decode_auth(auth.payload)) == (Type.AUTH, 2, "dev-key")
    assert decode_subscribe(subscribe.payload, 1) == BlipSubscribe(1, b"demo")
    assert decode_publish(publish.payload, 1) == BlipPublish(1, b"demo", b"hi")
    assert (ack.id, decode_number(ack.payload)) == (3, 42)


def test_what_is_sent_is_what_its_clients_read() -> None:
    assert encode_ack(3, 42).hex() == "0000001105" + "0000000000000003" + "000000000000002a"
    assert encode_publish(4, 1, b"demo", b"hi").hex() == (
        "0000001203" + "0000000000000004" + "01" + "0004" + "64656d6f" + "6869"
    )
    assert encode_nack(7, 404, "no").hex() == (
        "0000000f06" + "0000000000000007" + "0194" + "0002" + "6e6f"
    )
    assert encode_frame(Type.PONG, 9).hex() == "0000000908" + "0000000000000009"
    assert encode_deliver(1, 5, b"t", b"x").hex() == (
        "000000160a" + "0000000000000005" + "01" + "0000000000000005" + "0001" + "74" + "78"
    )


def test_version_two_has_a_ttl_a_key_a_group_and_an_offset() -> None:
    publish = bytes.fromhex("c1 00001388 0002 6b31 0001 74 6869")
    subscribe = bytes.fromhex("0001 74 c1 0001 67 0000000000000009")

    assert decode_publish(publish, 2) == BlipPublish(1, b"t", b"hi", 5000, b"k1")
    assert decode_subscribe(subscribe, 2) == BlipSubscribe(1, b"t", b"g", 9)
    assert decode_publish(bytes.fromhex("80 0000000a 0001 74"), 2) == BlipPublish(0, b"t", b"", 10)
    assert decode_subscribe(bytes.fromhex("0001 74 40 0000000000000000"), 2) == BlipSubscribe(
        0, b"t", None, 0
    )


def test_version_one_takes_flags_for_a_qos_that_is_none_and_bears_what_follows() -> None:
    assert decode_publish(bytes.fromhex("81 0001 74"), 1) == BlipPublish(0x81, b"t", b"")
    assert decode_subscribe(bytes.fromhex("0001 74 00 ffff"), 1) == BlipSubscribe(0, b"t")


@pytest.mark.parametrize("payload", ["", "01", "0100", "01 0002 74", "01 ffff"])
def test_a_publish_that_ends_too_early_is_none(payload: str) -> None:
    assert decode_publish(bytes.fromhex(payload), 1) is None


@pytest.mark.parametrize(
    "payload", ["80 0000", "80 00000001", "40 0005 6b", "c1 00000001 00", "c1 00000001 0001 6b"]
)
def test_an_optional_field_that_ends_too_early_is_none(payload: str) -> None:
    assert decode_publish(bytes.fromhex(payload), 2) is None


@pytest.mark.parametrize("payload", ["", "00", "0001", "0001 74", "0001 74 81", "0001 74 40 00"])
def test_a_subscribe_that_ends_too_early_is_none(payload: str) -> None:
    assert decode_subscribe(bytes.fromhex(payload), 2) is None


def test_other_payloads_have_exactly_their_length() -> None:
    assert decode_hello(b"\0") is None
    assert decode_hello(b"\0\1\0") is None
    assert decode_number(bytes(7)) is None
    assert decode_number(bytes(9)) is None
    assert decode_auth(b"") is None
    assert decode_auth(b"\0\2a") is None
    assert decode_auth(b"\0\1ab") is None
    assert decode_auth(b"\0\1\xff") is None


@pytest.mark.parametrize("length", [0, 8, LENGTH_MAX + 1, 0xFFFFFFFF])
def test_a_length_that_is_not_allowed_is_found_by_its_four_bytes(length: int) -> None:
    with pytest.raises(MalformedFrame):
        frames_of(length.to_bytes(4, "big"))


def test_a_type_that_is_not_known_is_found_once_its_frame_is_whole() -> None:
    good, bad = encode_frame(Type.PING, 1), encode_frame(0x0B, 2)
    decoder, frames = BlipFrameDecoder(), list[BlipFrame]()

    decoder.feed(good + bad[:-1], frames)
    assert [frame.id for frame in frames] == [1]
    with pytest.raises(MalformedFrame):
        decoder.feed(bad[-1:], frames)


def test_deliver_is_a_type_of_version_two_alone() -> None:
    deliver = encode_deliver(0, 0, b"t", b"")

    with pytest.raises(MalformedFrame):
        frames_of(deliver)
    assert len(frames_of(deliver, type_max=Type.DELIVER)) == 1


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 30)))
def test_frames_are_the_same_however_the_bytes_are_cut(
    payloads: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(encode_frame(Type.PUBLISH, n, p) for n, p in enumerate(payloads))
    decoder, frames = BlipFrameDecoder(), list[BlipFrame]()
    for cut in cuts:
        decoder.feed(data[:cut], frames)
        data = data[cut:]
    decoder.feed(data, frames)

    assert [frame.payload for frame in frames] == payloads
    assert decoder.kept_bytes == 0


def test_a_text_of_a_refusal_is_cut_between_letters() -> None:
    (frame,) = frames_of(encode_nack(1, 500, "ä" * 2000))

    assert frame.payload[4:].decode() == "ä" * 512
