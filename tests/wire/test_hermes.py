"""HermesMQ's frames: golden bytes, and the protobuf runtime as a second opinion."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.frontends.hermes import codec as hermes
from tests.servers.hermes import schema

GOLDEN = {
    found[1]: bytes.fromhex(found[2])
    for line in (Path(__file__).parent / "golden" / "hermes.txt").read_text().splitlines()
    if (found := re.fullmatch(r"([^#].*?) {2,}([0-9a-f]+)", line))
}
REQUESTS: dict[str, hermes.Request] = {
    "stats request": hermes.Stats(),
    "create_topic t": hermes.CreateTopic("t"),
    'produce t "hello"': hermes.Produce("t", payload=b"hello"),
    "poll t g max 10, vis 1000, manual": hermes.Poll("t", "g", 10, 1000, "manual"),
    "ack t g lease 0": hermes.Ack("t", "g", 0),
    "set_rate_limit t 0.5/s burst 1": hermes.SetRateLimit("t", 0.5, 1),
    "subscribe t g 10, vis 30000, manual": hermes.Subscribe("t", "g", 10, 30000, "manual"),
    'bootstrap [(1,"127.0.0.1:9")]': hermes.Bootstrap((hermes.Node(1, "127.0.0.1:9"),)),
}
RESPONSES = {
    "response ok": hermes.OK,
    "response produced 0": hermes.produced(0),
    "response polled, empty": hermes.polled([]),
    "response rate_limited, retry 1000 ms": hermes.error(
        "rate_limited", "rate limit exceeded", retry_after_ms=1000
    ),
}
FEW = settings(max_examples=40)
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
TEXT = st.text(max_size=20)
VALUES = {
    "string": TEXT,
    "bytes": st.binary(max_size=300),
    "uint32": U32,
    "uint64": U64,
    "double": st.floats(allow_nan=False),
}


def test_every_golden_frame_is_looked_at() -> None:
    assert set(GOLDEN) == {*REQUESTS, *RESPONSES}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_read_as_it_was_meant(name: str) -> None:
    (body,) = hermes.FrameReader().feed(GOLDEN[name])

    assert hermes.decode_request(body.data) == REQUESTS[name]


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_is_written_byte_for_byte(name: str) -> None:
    assert RESPONSES[name] == GOLDEN[name]


@FEW
@given(st.data(), st.sampled_from(schema.ONE_OF["Request"].split()))
def test_whatever_the_protobuf_runtime_writes_we_read(data: Any, kind: str) -> None:
    label, _, message = kind.partition(":")
    fields = [part.split(":") for part in schema.MESSAGES[message].split()]
    if message == "Bootstrap":
        values: dict[str, Any] = {"nodes": data.draw(st.lists(st.tuples(U64, TEXT), max_size=4))}
    else:
        values = {name: data.draw(VALUES[type_name]) for name, type_name in fields}

    read = hermes.decode_request(schema.request(label, **values).SerializeToString())

    assert type(read).__name__ == message
    if isinstance(read, hermes.Bootstrap):
        assert [(node.id, node.peer_addr) for node in read.nodes] == values["nodes"]
    else:
        assert {name: getattr(read, name) for name in values} == values


@FEW
@given(st.lists(st.builds(hermes.Delivered, U64, U64, U32, U32, st.binary(max_size=300), U64)))
def test_what_we_deliver_the_protobuf_runtime_reads(items: list[hermes.Delivered]) -> None:
    frame = hermes.polled(items)
    read = schema.Response.FromString(frame[4:])

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert [
        tuple(getattr(item, name) for name in hermes.Delivered.__struct_fields__)
        for item in read.polled.items
    ] == [tuple(getattr(one, name) for name in one.__struct_fields__) for one in items]


@FEW
@given(U64, TEXT, TEXT)
def test_offsets_errors_and_stats_are_read(number: int, some: str, more: str) -> None:
    said = schema.Response.FromString
    figures = hermes.StatsResult(number, 1, 2, number, True, 3, 4, 5)
    refused = said(hermes.error(some, more, leader_addr=some, retry_after_ms=number)[4:]).error
    counted = said(hermes.stats(figures)[4:]).stats

    assert said(hermes.produced(number)[4:]).produced.offset == number
    assert (refused.code, refused.message, refused.leader_addr) == (some, more, some)
    assert refused.retry_after_ms == number
    assert [getattr(counted, name) for name in figures.__struct_fields__] == [
        number, 1, 2, number, True, 3, 4, 5,
    ]  # fmt: skip


@FEW
@given(st.binary(max_size=60))
def test_whatever_the_runtime_refuses_we_refuse(body: bytes) -> None:
    """Not the other way round: a known field of another wire type is unknown there, wrong here."""
    try:
        schema.Request.FromString(body)
    except DecodeError:
        with pytest.raises(hermes.Undecodable):
            hermes.decode_request(body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("0a", "cut off"),
        ("0a05", "cut off"),
        ("0a020a05", "cut off"),
        ("0a040a02ff41", "no UTF-8"),
        ("08ff", "wire type"),
        ("0a020801", "wire type"),
        ("07", "no key"),
        ("0a0b08ffffffffffffffffffff01", "wire type"),
        ("6c", "has not begun"),
    ],
)
def test_a_broken_request_says_what_is_wrong(body: str, why: str) -> None:
    with pytest.raises(hermes.Undecodable, match=why):
        hermes.decode_request(bytes.fromhex(body))


@pytest.mark.parametrize("body", ["", "6a0161", "f80101", "6b08016c"])
def test_a_request_of_no_known_kind_is_none(body: str) -> None:
    assert hermes.decode_request(bytes.fromhex(body)) is None


def test_the_last_kind_counts_and_one_said_twice_is_put_together() -> None:
    ack, stats = bytes.fromhex("1a060a0174120167"), bytes.fromhex("4200")
    more = bytes.fromhex("1a021807")

    assert hermes.decode_request(ack + stats) == hermes.Stats()
    assert hermes.decode_request(ack + more) == hermes.Ack("t", "g", 7)


@FEW
@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 9))
def test_frames_are_the_same_however_the_stream_is_cut(bodies: list[bytes], step: int) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader = hermes.FrameReader()

    found = [
        body for at in range(0, len(stream), step) for body in reader.feed(stream[at : at + step])
    ]

    assert [body.data for body in found] == bodies
    assert not reader.is_within_frame


def test_of_a_long_frame_only_the_beginning_is_kept_and_what_follows_is_read() -> None:
    reader = hermes.FrameReader(kept_bytes_max=10)
    stream = (25).to_bytes(4, "big") + bytes(range(25)) + (2).to_bytes(4, "big") + b"ok"

    found = [body for at in range(0, len(stream), 3) for body in reader.feed(stream[at : at + 3])]

    assert found == [hermes.Body(25, bytes(range(10))), hermes.Body(2, b"ok")]
    assert [body.is_whole for body in found] == [False, True]


def test_a_length_beyond_64_mib_ends_the_stream_behind_what_came_before() -> None:
    reader = hermes.FrameReader()

    assert reader.feed(GOLDEN["stats request"] + b"\x04\x00\x00\x01") == [
        hermes.Body(2, bytes.fromhex("4200"))
    ]
    assert reader.is_broken
    assert reader.feed(GOLDEN["stats request"]) == []


def test_the_length_of_a_payload_is_found_in_the_beginning_of_its_frame() -> None:
    long = schema.request("produce", topic="t", priority=3, payload=b"x" * 2000, producer_id="p")
    body = long.SerializeToString()

    assert hermes.payload_length_in(body[:100]) == 2000
    assert hermes.payload_length_in(body[:7]) is None
    assert hermes.payload_length_in(GOLDEN["ack t g lease 0"][4:]) is None
