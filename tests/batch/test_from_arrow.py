"""Arrow columns become the same record batch that single messages would."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flintmq
from flintmq.arrow import to_arrow
from flintmq.batch import BatchBuilder, RecordBatch, key_hash
from flintmq.batch.from_arrow import from_arrow, key_hashes

pa = pytest.importorskip("pyarrow")

TIME = pa.timestamp("us", tz="UTC")
HEADER_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch_of(**columns: Any) -> Any:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def values(*items: bytes) -> Any:
    return pa.array(items, pa.binary())


def again(batch: RecordBatch) -> RecordBatch:
    """As it arrives at a broker: checked in full."""
    return RecordBatch.decode(batch.encode())


ROW = st.fixed_dictionaries(
    {
        "value": st.binary(max_size=20),
        "key": st.none() | st.binary(max_size=9),
        "headers": st.dictionaries(st.text(max_size=4), st.binary(max_size=4), max_size=3),
        "priority": st.integers(0, 7),
        "expiry": st.just(0) | st.integers(1, 2**40),
        "deliver_at": st.just(0) | st.integers(1, 2**40),
        "content_type": st.none() | st.sampled_from(["json", "text/plain"]),
    }
)


@given(
    rows=st.lists(ROW, min_size=1, max_size=20),
    cut=st.integers(0, 19),
    compression=st.sampled_from(["none", "zstd"]),
)
def test_every_batch_comes_back_from_arrow_as_it_was(
    rows: list[dict[str, Any]], cut: int, compression: str
) -> None:
    builder = BatchBuilder()
    for row in rows:
        builder.append_row(**row)
    whole = to_arrow(builder.seal())
    part = whole.slice(min(cut, len(rows) - 1))
    wanted = rows[min(cut, len(rows) - 1) :]

    batch = again(from_arrow(part, compression=compression))

    assert batch.row_count == len(wanted)
    for number, row in enumerate(wanted):
        assert batch.value(number) == row["value"]
        assert batch.key(number) == row["key"]
        assert batch.headers(number) == row["headers"]
        assert batch.priority(number) == row["priority"]
        assert batch.expiry(number) == row["expiry"]
        assert batch.deliver_at(number) == row["deliver_at"]
        assert batch.content_type(number) == row["content_type"]
        assert batch.key_hash(number) == (0 if row["key"] is None else key_hash(row["key"]))


@given(st.lists(st.none() | st.binary(max_size=70), min_size=1, max_size=30))
def test_keys_hash_as_the_client_hashes_them(keys: list[bytes | None]) -> None:
    wanted = [0 if key is None else key_hash(key) for key in keys]

    assert key_hashes(pa.array(keys, pa.binary())).to_pylist() == wanted
    assert key_hashes(pa.array([None, *keys], pa.binary()).slice(1)).to_pylist() == wanted


def test_a_batch_of_values_alone_is_the_very_bytes_that_a_builder_makes() -> None:
    items = [b"a" * 5, b"", b"xyz"]

    assert from_arrow(batch_of(value=values(*items))).body == BatchBuilder.of(items).seal().body


def test_string_columns_make_text() -> None:
    batch = again(
        from_arrow(
            batch_of(
                value=pa.array(["größer", ""]),
                key=pa.array(["k", None]),
                headers=pa.array([[("a", "b")], []], pa.map_(pa.string(), pa.string())),
            )
        )
    )

    assert batch.values() == ("größer".encode(), b"")
    assert (batch.key(0), batch.key(1)) == ("k", None)
    assert (batch.headers(0), batch.headers(1)) == ({"a": "b"}, {})


def test_headers_come_as_a_list_of_pairs_too_and_null_is_none() -> None:
    headers = pa.array(
        [None, [("a", b"1"), ("b", None)], [], [("c", b"3")]],
        HEADER_LIST,
    )
    batch = again(from_arrow(batch_of(value=values(*[b""] * 3), headers=headers.slice(1))))

    assert [batch.headers(row) for row in range(3)] == [{"a": b"1", "b": b""}, {}, {"c": b"3"}]
    whole = again(from_arrow(batch_of(value=values(*[b""] * 4), headers=headers)))
    assert whole.headers(0) == {}
    assert whole.headers(3) == {"c": b"3"}


def test_columns_that_say_nothing_take_no_room() -> None:
    plain = from_arrow(batch_of(value=values(b"a", b"b")))
    said = from_arrow(
        batch_of(
            value=values(b"a", b"b"),
            key=pa.nulls(2, pa.binary()),
            headers=pa.array([[], None], HEADER_LIST),
            priority=pa.array([0, None], pa.int32()),
            expires_at=pa.nulls(2, TIME),
            content_type=pa.array(["", None]),
        )
    )

    assert said.body == plain.body


def test_times_are_kept_to_the_millisecond() -> None:
    times = pa.array([1_700_000_000_123_456, None, 0], TIME)
    batch = again(from_arrow(batch_of(value=values(b"", b"", b""), expires_at=times)))

    assert [batch.expiry(row) for row in range(3)] == [1_700_000_000_123, 0, 1]


def test_durations_count_from_the_append() -> None:
    batch = again(
        from_arrow(
            batch_of(
                value=values(b"", b"", b""),
                ttl=pa.array([30_000_000, None, 0], pa.duration("us")),
                delay=pa.array([None, 1_500, 0], pa.duration("ms")),
            )
        )
    )

    assert [batch.expiry(row) for row in range(3)] == [-30_000, 0, -1]
    assert [batch.deliver_at(row) for row in range(3)] == [0, -1_500, 0]
    batch.stamp(0, 1_000_000)
    assert [batch.expiry(row) for row in range(3)] == [1_030_000, 0, 1_000_001]
    assert [batch.deliver_at(row) for row in range(3)] == [0, 1_001_500, 0]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"ttl": pa.array([-1], pa.duration("s"))}, "ttl is not negative"),
        (
            {"ttl": pa.array([1], pa.duration("s")), "expires_at": pa.array([1], TIME)},
            "say the same",
        ),
    ],
)
def test_durations_that_make_no_sense_are_refused(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match=said):
        from_arrow(batch_of(value=values(b""), **columns))


def test_a_producer_and_its_sequence_are_in_the_batch() -> None:
    batch = again(from_arrow(batch_of(value=values(b"a")), producer="spark", base_sequence=7))

    assert (batch.producer, batch.base_sequence) == ("spark", 7)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": values(b"a", None)}, "the value of row 1 is null"),  # type: ignore[arg-type]
        ({"value": values(b""), "priority": pa.array([8])}, "priority is 0 to 7, not 8"),
        ({"value": values(b""), "priority": pa.array([-1])}, "priority is 0 to 7, not -1"),
        (
            {"value": values(b""), "headers": pa.array([[(None, b"")]], HEADER_LIST)},
            "a header without a name",
        ),
        ({"value": values()}, "at least one row"),
    ],
)
def test_what_no_message_can_be_is_refused(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match=said):
        from_arrow(batch_of(**columns))
