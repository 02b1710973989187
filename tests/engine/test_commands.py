"""Commands as bytes: they come back as they were; any other bytes are Corrupt, nothing worse."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder
from flintmq.engine.commands import (
    LEVEL,
    AdvanceFirstOffset,
    Append,
    AppendedRows,
    Appends,
    Attempts,
    Change,
    CheckState,
    ConfigureTopics,
    CreateTopics,
    DeleteTopics,
    GroupChanges,
    SetCursor,
    Settle,
    decode_command,
    encode_command,
    topics_of,
)
from flintmq.errors import Corrupt, FlintError, UnsupportedFormat
from flintmq.model import TopicOptions

CHANGES: list[Change] = [
    CreateTopics([(1, "orders"), (2, "más")], TopicOptions(storage="durable", ttl=1.5)),
    ConfigureTopics([1], TopicOptions(retention_count=5), [(3, "orders/1")]),
    DeleteTopics([1, 2, 2**64 - 1]),
    CheckState(2**63 - 1),
    AdvanceFirstOffset(1, 2**62, "age"),
    SetCursor(1, "billing", 3, None),
    SetCursor(1, "billing", 3, 7),
    GroupChanges(
        [
            Attempts(1, "billing", [(3, 5, 1)], [], 2**40),
            Settle(2, "más", [(0, 1), (7, 9)], "expired"),
            Attempts(1, "billing", [], [(4, 1_234)], 0, [(3, 4)]),
        ]
    ),
]


def append() -> Append:
    rows = BatchBuilder()
    rows.append_row(b"one", key="k", headers={"h": "v"}, expiry=5, priority=3)
    rows.append(b"two")
    batch = rows.seal(producer="p", base_sequence=2**64 - 2)
    batch.stamp(40, 1_234)
    return Append(7, batch)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_a_change_comes_back_as_it_was(change: Change) -> None:
    assert decode_command(b"".join(encode_command(change))) == change


def appends() -> Appends:
    rows: list[AppendedRows] = [
        (7, 38, [b"one"], None, 0, 2**64 - 1),
        (9, 0, [b"", b"two"], "text/plain", -1, 0),
        (7, 40, [], None, -1, 0),
        (7, 42, [b"three"], None, 1, 5),
    ]
    return Appends(1_234, ["p", "más"], rows, [append().batch])


def test_appends_to_many_topics_come_back_as_they_were() -> None:
    command = appends()
    again = decode_command(b"".join(encode_command(command)))

    assert isinstance(again, Appends)
    assert (again.time, again.producers, again.rows) == command[:3]
    assert [batch.encode() for batch in again.batches] == [append().batch.encode()]
    assert set(topics_of(again)) == {7, 9}


def test_what_many_groups_change_says_which_topics_and_which_level() -> None:
    command = CHANGES[-1]
    assert set(topics_of(command)) == {1, 2}
    assert b"".join(encode_command(command))[:8] == bytes([0, 1, 0, 0, 0, 0, 0, 0])


def test_a_command_of_a_higher_level_asks_for_a_newer_version() -> None:
    encoded = bytearray(b"".join(encode_command(appends())))
    encoded[1] = LEVEL + 1

    with pytest.raises(UnsupportedFormat, match="needs a newer FlintMQ"):
        decode_command(bytes(encoded))


def test_an_append_comes_back_as_it_was() -> None:
    command = append()
    again = decode_command(b"".join(encode_command(command)))

    assert isinstance(again, Append)
    assert again.topic == 7
    assert again.batch.encode() == command.batch.encode()
    assert (again.batch.base_offset, again.batch.time(0)) == (40, 1_234)
    assert (again.batch.producer, again.batch.base_sequence) == ("p", 2**64 - 2)


def test_the_bytes_of_commands_are_these() -> None:
    command = append()

    assert b"".join(encode_command(command)) == (
        bytes([1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]) + command.batch.encode()
    )
    assert b"".join(encode_command(SetCursor(1, "billing", 3, None))).hex() == (
        "000000000000000095a6637572736f7201a762696c6c696e6703c0"
    )
    assert b"".join(encode_command(DeleteTopics([1, 300]))).hex() == (
        "000000000000000092a664656c6574659201cd012c"
    )
    assert b"".join(encode_command(AdvanceFirstOffset(1, 9, "age"))).hex() == (
        "000000000000000094a7616476616e63650109a3616765"
    )


@pytest.mark.parametrize("kind", range(256))
def test_a_record_that_is_too_short_is_corrupt(kind: int) -> None:
    for length in range(24):
        with pytest.raises(Corrupt):
            decode_command(bytes([kind, *bytes(length)]))


WHOLE = [b"".join(encode_command(command)) for command in [*CHANGES, append()]]


@given(st.sampled_from(WHOLE), st.data())
@settings(max_examples=250, deadline=None)
def test_damaged_commands_are_flint_errors_or_other_commands(
    whole: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(whole))) :]
    with suppress(FlintError):
        decode_command(bytes(damaged))


@given(st.integers(0, 3), st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_flint_errors_or_commands(kind: int, body: bytes) -> None:
    with suppress(FlintError):
        decode_command(bytes([kind, *bytes(7)]) + body)
