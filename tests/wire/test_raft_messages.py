"""Raft messages survive the wire; nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.errors import InvalidRequest, MalformedRaftMessage
from flintmq.net.wire.raft_messages import (
    CONTEXT_BYTES_MAX,
    ENTRIES_MAX,
    decode_message,
    encode_message,
)
from flintmq.raft import EntryKind, Membership, MessageKind, RaftEntry, RaftMessage, RaftSnapshot

GOLDEN = [
    (
        RaftMessage(MessageKind.HEARTBEAT, 1, 2, term=3, commit=4, read_round=5, group=6),
        "0103140006000000"
        "0100000000000000"
        "0200000000000000"
        "0300000000000000"
        "0400000000000000"
        "0500000000000000",
    ),
    (
        RaftMessage(
            MessageKind.APPEND_REPLY, 2, 1, term=3, index=9, reject=True, hint=7, log_term=2
        ),
        "01022b0000000000"
        "0200000000000000"
        "0100000000000000"
        "0300000000000000"
        "0900000000000000"
        "0200000000000000"
        "0700000000000000",
    ),
    (
        RaftMessage(
            MessageKind.APPEND,
            1,
            2,
            term=3,
            index=1,
            log_term=1,
            entries=(RaftEntry(2, 3, b"abc"), RaftEntry(3, 3, b"\x01", EntryKind.MEMBERSHIP)),
        ),
        "0101030100000000"
        "0100000000000000"
        "0200000000000000"
        "0300000000000000"
        "0100000000000000"
        "0100000000000000"
        "02000000"
        "0200000000000000"
        "0300000000000000"
        "03000000"
        "00"
        "0300000000000000"
        "01000000"
        "01"
        "616263"
        "01",
    ),
    (
        RaftMessage(MessageKind.VOTE, 1, 2, term=3, force=True),
        "0105400000000000010000000000000002000000000000000300000000000000",
    ),
    (
        RaftMessage(MessageKind.READ_INDEX, 1, 2, context=b"ctx"),
        "010c8000000000000100000000000000020000000000000000000000000000000300637478",
    ),
    (
        RaftMessage(
            MessageKind.SNAPSHOT,
            1,
            2,
            term=3,
            snapshot=RaftSnapshot(
                8, 2, Membership((1, 2), (3,), (2,), (), True), 10, 8, 0xAB, (0xC, 0xD)
            ),
        ),
        "0109000200000000"
        "0100000000000000"
        "0200000000000000"
        "0300000000000000"
        "0800000000000000"
        "0200000000000000"
        "0a00000000000000"
        "08000000"
        "ab00000000000000"
        "01"
        "0200"
        "0100000000000000"
        "0200000000000000"
        "0100"
        "0300000000000000"
        "0100"
        "0200000000000000"
        "0000"
        "02000000"
        "0c00000000000000"
        "0d00000000000000",
    ),
]


def on_the_wire(message: RaftMessage) -> bytes:
    return b"".join(encode_message(message))


@pytest.mark.parametrize(("message", "golden"), GOLDEN, ids=lambda item: getattr(item, "kind", ""))
def test_the_format_is_as_drawn(message: RaftMessage, golden: str) -> None:
    assert on_the_wire(message).hex() == golden
    assert decode_message(bytes.fromhex(golden)) == message


U64 = st.integers(0, 2**64 - 1)
IDS = st.integers(1, 2**64 - 1)
NODES = st.lists(IDS, unique=True, max_size=4).map(sorted)


@st.composite
def memberships(draw: st.DrawFn) -> Membership:
    nodes = draw(st.lists(IDS, unique=True, min_size=4, max_size=9))
    voters, outgoing = nodes[:2], draw(st.sampled_from([[], nodes[1:4]]))
    learners_next = nodes[2:3] if outgoing else []
    return Membership(
        tuple(sorted(voters)),
        tuple(sorted(nodes[5:])),
        tuple(sorted(outgoing)),
        tuple(learners_next),
        bool(outgoing) and draw(st.booleans()),
    )


@st.composite
def entry_lists(draw: st.DrawFn) -> tuple[RaftEntry, ...]:
    first = draw(st.integers(0, 2**40))
    kinds = st.sampled_from(list(EntryKind))
    contents = draw(st.lists(st.tuples(U64, st.binary(max_size=20), kinds), max_size=5))
    return tuple(
        RaftEntry(first + position if first else 0, term, data, kind)
        for position, (term, data, kind) in enumerate(contents)
    )


SNAPSHOTS = st.builds(
    RaftSnapshot,
    U64,
    U64,
    memberships(),
    U64,
    st.integers(0, 2**32 - 1),
    U64,
    st.lists(U64, max_size=4).map(tuple),
)
MESSAGES = st.builds(
    RaftMessage,
    kind=st.sampled_from(list(MessageKind)),
    sender=U64,
    receiver=U64,
    term=U64,
    index=U64,
    log_term=U64,
    commit=U64,
    entries=entry_lists(),
    reject=st.booleans(),
    hint=U64,
    read_round=U64,
    context=st.binary(max_size=30),
    force=st.booleans(),
    snapshot=st.none() | SNAPSHOTS,
    group=st.integers(0, 2**32 - 1),
)


@given(MESSAGES)
def test_every_message_comes_back_as_it_went(message: RaftMessage) -> None:
    assert decode_message(on_the_wire(message)) == message
    assert decode_message(memoryview(on_the_wire(message))) == message


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_have_exactly_one_meaning(data: bytes) -> None:
    try:
        message = decode_message(data)
    except MalformedRaftMessage:
        return
    assert on_the_wire(message) == data


@given(MESSAGES, st.data())
def test_a_flipped_bit_is_refused_or_has_exactly_one_meaning(
    message: RaftMessage, data: st.DataObject
) -> None:
    damaged = bytearray(on_the_wire(message))
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = decode_message(bytes(damaged))
    except MalformedRaftMessage:
        return
    assert on_the_wire(read) == bytes(damaged)


@pytest.mark.parametrize(("message", "golden"), GOLDEN, ids=lambda item: getattr(item, "kind", ""))
def test_a_message_cut_anywhere_is_refused(message: RaftMessage, golden: str) -> None:
    data = bytes.fromhex(golden)

    for end in range(len(data)):
        with pytest.raises(MalformedRaftMessage):
            decode_message(data[:end])
    with pytest.raises(MalformedRaftMessage):
        decode_message(data + b"\x00")


def test_payloads_are_copied_neither_way() -> None:
    payload = b"x" * 100
    message = RaftMessage(MessageKind.APPEND, 1, 2, term=1, entries=(RaftEntry(1, 1, payload),))

    parts = encode_message(message)
    assert any(part is payload for part in parts)

    received = b"".join(parts)
    data = decode_message(received).entries[0].data
    assert isinstance(data, memoryview)
    assert data.obj is received
    assert data.readonly


def test_a_count_is_checked_before_anything_is_made_of_it() -> None:
    data = bytearray.fromhex(GOLDEN[2][1])
    data[48:52] = (2**32 - 1).to_bytes(4, "little")

    with pytest.raises(MalformedRaftMessage):
        decode_message(bytes(data))


def test_too_long_messages_and_unknown_versions_and_kinds_are_refused() -> None:
    data = bytearray.fromhex(GOLDEN[0][1])
    with pytest.raises(MalformedRaftMessage):
        decode_message(bytes(data), bytes_max=10)
    for position, value in ((0, 2), (1, 99), (3, 0x80)):
        damaged = bytearray(data)
        damaged[position] = value
        with pytest.raises(MalformedRaftMessage):
            decode_message(bytes(damaged))


@pytest.mark.parametrize(
    "message",
    [
        RaftMessage(MessageKind.READ_INDEX, 1, 2, context=b"x" * (CONTEXT_BYTES_MAX + 1)),
        RaftMessage(MessageKind.APPEND, 1, 2, entries=(RaftEntry(1, 1), RaftEntry(3, 1))),
        RaftMessage(MessageKind.PROPOSE, 1, 2, entries=(RaftEntry(0, 0),) * (ENTRIES_MAX + 1)),
        RaftMessage(
            MessageKind.SNAPSHOT,
            1,
            2,
            snapshot=RaftSnapshot(1, 1, Membership(tuple(range(1, 2000)))),
        ),
    ],
)
def test_what_passes_our_limits_is_not_sent(message: RaftMessage) -> None:
    with pytest.raises(InvalidRequest):
        encode_message(message)
