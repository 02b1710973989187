"""The bytes between nodes: drawn once, the same for ever, and bounded before anything is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.cluster.peer_frames import (
    FRAME_BYTES_MAX,
    HELLO_BYTES,
    RAFT_BYTES_MAX,
    AboutNode,
    FrameKind,
    GoodbyeReason,
    LineKind,
    PeerFrame,
    PeerFrameDecoder,
    PeerHealth,
    PeerHello,
    decode_about,
    decode_goodbye,
    decode_hello,
    decode_ping,
    decode_raft,
    encode_about,
    encode_frame,
    encode_goodbye,
    encode_hello,
    encode_ping,
    encode_raft,
)
from flintmq.errors import MalformedFrame, MalformedRaftMessage
from flintmq.raft import MessageKind, RaftEntry, RaftMessage

HELLO = PeerHello(LineKind.BULK, bytes(range(16)), 2, 77, 99, b"n" * 16)
HEARTBEAT = RaftMessage(MessageKind.HEARTBEAT, sender=1, receiver=2, term=3, commit=4)


def message(data: bytes) -> RaftMessage:
    return RaftMessage(
        MessageKind.APPEND,
        sender=1,
        receiver=2,
        term=3,
        index=6,
        log_term=2,
        entries=(RaftEntry(7, 3, data),),
    )


def as_bytes(messages: list[RaftMessage]) -> list[RaftMessage]:
    """With payloads that can be compared."""
    return [
        RaftMessage(
            one.kind,
            one.sender,
            one.receiver,
            term=one.term,
            index=one.index,
            log_term=one.log_term,
            commit=one.commit,
            entries=tuple(RaftEntry(e.index, e.term, bytes(e.data)) for e in one.entries),
        )
        for one in messages
    ]


def test_golden_bytes_of_a_hello() -> None:
    assert encode_hello(HELLO).hex() == (
        "464c4e50" "01030100" "000102030405060708090a0b0c0d0e0f"
        "0200000000000000" "4d00000000000000" "6300000000000000" + "6e" * 16
    )  # fmt: skip
    assert decode_hello(encode_hello(HELLO)) == HELLO


def test_golden_bytes_of_frames() -> None:
    assert encode_goodbye(GoodbyeReason.CLOSING, "bye").hex() == "0b0000000a0100004184b3c6627965"
    assert encode_ping(PeerHealth(1, 2, 3, 4, 5, 6, 7), is_pong=True).hex() == (
        "2c00000003010000" "70480c22" "0100000000000000" "0200000000000000" "0300000000000000"
        "04000000" "05000000" "0600" "0700"
    )  # fmt: skip
    assert encode_raft([HEARTBEAT])[0].hex() == (
        "3400000001000100" "7436de83" "28000000"
        "01030400000000000100000000000000020000000000000003000000000000000400000000000000"
    )  # fmt: skip


def test_a_health_a_farewell_and_what_a_node_tells_come_back_as_they_were() -> None:
    health = PeerHealth(1, 2, 3, 4, 5, 6, 7)
    about = AboutNode("a", "127.0.0.1:7600", "1.0", True)
    data = encode_ping(health) + encode_goodbye(GoodbyeReason.NODE, "ünknown") + encode_about(about)

    ping, goodbye, told = PeerFrameDecoder().feed(data)

    assert decode_ping(ping) == health
    assert decode_goodbye(goodbye) == (GoodbyeReason.NODE, "ünknown")
    assert decode_about(told) == about


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.lists(st.integers(1, 200), min_size=1, max_size=8),
)
def test_messages_come_back_however_the_stream_is_cut(
    payloads: list[bytes], sizes: list[int]
) -> None:
    messages = [message(payload) for payload in payloads] + [HEARTBEAT]
    data = b"".join(encode_raft(messages))
    decoder, frames, position, turn = PeerFrameDecoder(), list[PeerFrame](), 0, 0
    while position < len(data):
        size = sizes[turn % len(sizes)]
        frames += decoder.feed(data[position : position + size])
        position, turn = position + size, turn + 1

    assert [one for frame in frames for one in as_bytes(list(decode_raft(frame)))] == messages


def test_the_messages_of_one_turn_are_one_frame_unless_they_are_large() -> None:
    assert len(encode_raft([HEARTBEAT] * 1000)) == 1
    assert encode_raft([]) == []
    large = message(bytes(RAFT_BYTES_MAX // 2 + 1))
    assert len(encode_raft([large, large, HEARTBEAT])) == 2


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_bit_that_has_changed_is_noticed(position: int, bit: int) -> None:
    data = bytearray(encode_raft([message(b"x" * 50), HEARTBEAT])[0])
    data[position % len(data)] ^= 1 << bit

    try:
        frames = PeerFrameDecoder().feed(bytes(data))
    except MalformedFrame:
        return
    assert frames == []  # a length that has grown waits for more


@pytest.mark.parametrize("length", [0, 7, FRAME_BYTES_MAX, 0xFFFFFFFF])
def test_a_length_out_of_bounds_is_refused_before_anything_is_kept(length: int) -> None:
    with pytest.raises(MalformedFrame, match="are allowed"):
        PeerFrameDecoder().feed(length.to_bytes(4, "little"))


@given(st.binary(max_size=200), st.integers(0, 5))
def test_rubbish_under_a_right_checksum_is_refused_and_nothing_else_happens(
    body: bytes, count: int
) -> None:
    (frame,) = PeerFrameDecoder().feed(encode_frame(FrameKind.RAFT, [body], count=count))

    if (count, body) != (0, b""):
        with pytest.raises((MalformedFrame, MalformedRaftMessage)):
            list(decode_raft(frame))


@given(st.binary(min_size=HELLO_BYTES, max_size=HELLO_BYTES))
def test_any_bytes_are_a_hello_or_refused(data: bytes) -> None:
    for said in (data, b"FLNP" + data[4:], b"FLNP\1\1\0\0" + data[8:]):
        try:
            hello = decode_hello(said)
        except MalformedFrame:
            continue
        assert encode_hello(hello) == said
