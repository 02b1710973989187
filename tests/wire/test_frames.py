"""Frames: any way the bytes are cut gives the same frames, and nothing but frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder
from flintmq.errors import MalformedFrame
from flintmq.net.wire.frames import HEADER, HEADER_BYTES, Frame, FrameDecoder, encode_frame
from flintmq.net.wire.hello import Hello, client_hello, parse_hello, server_hello
from flintmq.net.wire.operations import Op, OpenRequest, PublishRequest, encode

frames = st.builds(
    lambda op, id, control, batches, received: b"".join(
        encode_frame(op, id, control, [b"\x00" * 8 * batches], received=received)
    ),
    st.integers(0, 255),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=60),
    st.integers(0, 9),
    st.integers(0, 2**64 - 1),
)


def _plain(frame: Frame) -> tuple[object, ...]:
    return (frame.op, frame.id, frame.received, bytes(frame.control), bytes(frame.batches))


def test_a_frame_is_header_control_padding_and_batches() -> None:
    whole = b"".join(encode_frame(Op.PUBLISH, 7, b"abc", [b"x" * 16], received=9))

    assert whole.hex() == (
        "34000000" "10" "00" "0000" "0700000000000000" "0900000000000000" "03000000" "00000000"
        "616263" "0000000000" + "78" * 16
    )  # fmt: skip
    assert [_plain(frame) for frame in FrameDecoder().feed(whole)] == [
        (16, 7, 9, b"abc", b"x" * 16)
    ]


def test_the_first_frames_of_a_session_are_these() -> None:
    rows = BatchBuilder()
    rows.append(b"hello")
    batch = rows.seal(producer="me", base_sequence=3)

    assert client_hello().hex() == "464c4e54010100000300000000000000"
    assert encode(OpenRequest()).hex() == "96c000c0a0c2c2"
    assert encode(OpenRequest(b"\x01\x02", 5, None, "me", True)).hex() == "96c402010205c0a26d65c3c2"
    assert encode(PublishRequest("orders", 1, True, None, None)).hex() == "95a66f726465727301c3c0c0"
    assert batch.encode().hex() == (
        "464d5142010100001000000001000000080000001000000010000000807e494b0300000000000000"
        "ffffffffffffffff0000000000000000000000005f25f9f3020000006d6500000000000005000000"
        "68656c6c6f000000"
    )


@given(st.lists(frames, max_size=6), st.data())
def test_frames_come_out_whole_wherever_the_stream_is_cut(
    sent: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(sent)
    whole = [_plain(frame) for frame in FrameDecoder().feed(stream)]
    decoder = FrameDecoder()
    got: list[tuple[object, ...]] = []
    position = 0
    while position < len(stream):
        step = data.draw(st.integers(1, max(1, len(stream) - position)))
        got += map(_plain, decoder.feed(stream[position : position + step]))
        position += step

    assert got == whole
    assert len(whole) == len(sent)
    assert decoder.kept_bytes == 0


def test_bytes_one_by_one_are_the_same_frames() -> None:
    stream = b"".join(encode_frame(Op.PING, n, b"\x90")[0] for n in range(3))
    decoder = FrameDecoder()

    got = [frame.id for at in range(len(stream)) for frame in decoder.feed(stream[at : at + 1])]

    assert got == [0, 1, 2]


@given(st.binary(max_size=400))
def test_any_bytes_are_frames_or_a_clear_error(garbage: bytes) -> None:
    decoder = FrameDecoder(4096)
    try:
        for frame in decoder.feed(garbage):
            assert HEADER_BYTES <= frame.byte_length <= 4096
    except MalformedFrame:
        return
    assert decoder.kept_bytes <= 4096


@pytest.mark.parametrize("length", [0, 1, 27, 4093, 2**31, 2**32 - 1])
def test_a_length_that_cannot_be_is_refused_before_anything_is_kept(length: int) -> None:
    decoder = FrameDecoder(4096)

    with pytest.raises(MalformedFrame, match="bytes"):
        decoder.feed(length.to_bytes(4, "little"))
    assert decoder.kept_bytes == 0


@pytest.mark.parametrize("control", [9, 17, 2**32 - 1])
def test_a_control_part_ends_within_its_frame(control: int) -> None:
    whole = HEADER.pack(36, 2, 0, 0, 1, 0, control, 0) + bytes(8)

    with pytest.raises(MalformedFrame, match="control"):
        FrameDecoder().feed(whole)


def test_zeros_are_zero() -> None:
    with pytest.raises(MalformedFrame):
        FrameDecoder().feed(HEADER.pack(28, 2, 0, 1, 1, 0, 0, 0))


def test_a_hello_agrees_on_a_version_or_says_that_none_fits() -> None:
    assert server_hello(parse_hello(client_hello())) == (client_hello(), True)
    answer, fits = server_hello(Hello(2, 9, 0))
    assert (parse_hello(answer), fits) == (Hello(0, 1, 0), False)


@pytest.mark.parametrize("start", [b"GET / HT", b"FLNX", b"\x00\x00\x00\x10", b"F\x00"])
def test_what_is_no_hello_is_seen_by_its_first_bytes(start: bytes) -> None:
    with pytest.raises(MalformedFrame, match="FLNT"):
        parse_hello(start)


@pytest.mark.parametrize("start", [b"HTTP/1.1 400 NoHttp", b"GET / HTTP/1.1\r\n"])
def test_who_took_one_port_for_the_other_is_told(start: bytes) -> None:
    with pytest.raises(MalformedFrame, match="another port"):
        parse_hello(start[:16])
