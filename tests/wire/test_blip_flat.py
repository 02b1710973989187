"""BlipMQ's first protocol byte for byte: buffers made by the official library, and damaged ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.errors import MalformedFrame
from flintmq.frontends.blip.flat_codec import (
    Command,
    FlatAction,
    FlatMessage,
    LengthDecoder,
    SubAck,
    decode_answer,
    decode_command,
    encode_command,
    encode_message,
    encode_sub_ack,
)

SUB = bytes.fromhex(
    "00000030 10000000 0000 0a00 1000 0700 0800 0c00 0a000000 00000001 0c000000 04000000 00000000"
    "04000000 63686174 00000000"
)
PUB = bytes.fromhex(
    "00000040 14000000 00000000 0c001800 00000400 08000c00 0c000000 1c000000 10000000"
    "8813000000000000 00000000 02000000 68690000 04000000 63686174 00000000"
)
SUB_ACK = bytes.fromhex(
    "00000035 00 0c000000 08000c00 04000800 08000000 18000000 04000000 0a000000"
    "73756273637269626564 0000 04000000 63686174 00000000"
)
MESSAGE = bytes.fromhex(
    "00000039 01 10000000 0c002000 08000400 10001800 0c000000 1c000000 0700000000000000"
    "0068e5cf8b010000 8813000000000000 02000000 68690000"
)


def test_commands_of_the_official_library_are_read() -> None:
    assert decode_command(SUB[4:]) == Command(FlatAction.SUB, b"chat", b"")
    assert decode_command(PUB[4:]) == Command(FlatAction.PUB, b"chat", b"hi", 5000)


def test_answers_are_byte_for_byte_those_of_the_official_library() -> None:
    assert encode_sub_ack(b"chat", b"subscribed") == SUB_ACK
    assert encode_message(FlatMessage(7, b"hi", 1_700_000_000_000, 5000)) == MESSAGE


def test_answers_are_read_back() -> None:
    assert decode_answer(SUB_ACK[4:]) == SubAck(b"chat", b"subscribed")
    assert decode_answer(MESSAGE[4:]) == FlatMessage(7, b"hi", 1_700_000_000_000, 5000)


@settings(max_examples=30)
@given(
    st.sampled_from(list(FlatAction)),
    st.text(max_size=9),
    st.binary(max_size=9),
    st.integers(0, 2**64 - 1),
)
def test_every_command_comes_back(action: FlatAction, topic: str, payload: bytes, ttl: int) -> None:
    command = Command(action, topic.encode(), payload, ttl)

    whole = encode_command(command)

    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert decode_command(whole[4:]) == command


@settings(max_examples=30)
@given(st.integers(0, 2**64 - 1), st.binary(max_size=9), st.integers(0, 2**64 - 1))
def test_every_message_comes_back(id: int, payload: bytes, ttl: int) -> None:
    message = FlatMessage(id, payload, 1, ttl)

    assert decode_answer(encode_message(message)[4:]) == message


def test_an_action_that_is_not_known_publishes_as_it_does_there() -> None:
    body = bytearray(SUB[4:])
    body[19 + 4] = 9

    assert decode_command(bytes(body)).action == FlatAction.PUB


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_buffer_is_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from([SUB, PUB]))[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(0, len(body))) :]

    try:
        found = decode_command(bytes(body))
    except MalformedFrame:
        return
    assert len(found.topic) + len(found.payload) <= 2 * len(body)


def test_a_text_without_its_end_is_refused() -> None:
    body = bytearray(SUB[4:])
    body[-4] = 0x41  # where the NUL was

    with pytest.raises(MalformedFrame):
        decode_command(bytes(body))


@pytest.mark.parametrize("length", [0, 101, 0xFFFFFFFF])
def test_a_length_that_is_not_allowed_is_refused_before_anything_is_kept(length: int) -> None:
    with pytest.raises(MalformedFrame):
        LengthDecoder(100).feed(length.to_bytes(4, "big"), [])


def test_commands_are_cut_out_of_a_stream() -> None:
    decoder, bodies = LengthDecoder(100), list[bytes]()
    for byte in SUB + PUB:
        decoder.feed(bytes([byte]), bodies)

    assert [len(body) for body in bodies] == [len(SUB) - 4, len(PUB) - 4]
