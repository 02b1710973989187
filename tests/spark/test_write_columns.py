"""Which columns can be written, and what is said of those that cannot."""

from __future__ import annotations

from typing import Any

import pytest

import flintmq
from flintmq.batch.from_arrow import from_arrow
from flintmq.spark.write_columns import COLUMNS, check_columns, rows_of

pa = pytest.importorskip("pyarrow")

PAIRS = "array<struct<key:string,value:binary>>"


def test_every_column_of_a_message_is_taken() -> None:
    fields = [
        ("value", "binary"),
        ("key", "string"),
        ("headers", PAIRS),
        ("topic", "string"),
        ("partition", "int"),
        ("priority", "tinyint"),
        ("ttl", "double"),
        ("deliver_at", "timestamp"),
        ("content_type", "string"),
    ]

    assert check_columns(fields, None) == [name for name, _ in fields]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            [("value", "binary"), ("amount", "int")],
            r"column 'amount' \(int\) is not a column of a message",
        ),
        ([("value", "int")], "column 'value' is int; cast it to binary or string"),
        ([("value", "binary"), ("key", "bigint")], "column 'key' is bigint"),
        ([("value", "binary"), ("headers", "string")], "column 'headers' is string"),
        ([("value", "binary"), ("headers", "map<string,int>")], "column 'headers' is map"),
        ([("value", "binary"), ("priority", "double")], "column 'priority' is double"),
        ([("value", "binary"), ("expires_at", "bigint")], "cast it to timestamp"),
        ([("value", "binary"), ("ttl", "string")], "seconds as a number"),
        ([("value", "binary"), ("content_type", "binary")], "column 'content_type' is binary"),
        ([("value", "binary"), ("offset", "bigint")], "'offset' is set by the broker"),
        ([("value", "binary"), ("timestamp", "timestamp")], "'timestamp' is set by the broker"),
        ([("value", "binary"), ("Value", "binary")], "column 'Value'"),
        ([("key", "binary")], "needs a column 'value'; the rows have key"),
        ([], "needs a column 'value'; the rows have no columns"),
        ([("value", "binary"), ("value", "binary")], "appears twice"),
        (
            [("value", "binary"), ("ttl", "int"), ("expires_at", "timestamp")],
            "'ttl' and 'expires_at' mean the same",
        ),
    ],
)
def test_a_column_that_cannot_be_written_is_named(fields: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match=said):
        check_columns(fields, "orders")


def test_without_a_topic_nothing_can_be_written() -> None:
    with pytest.raises(flintmq.InvalidRequest, match="set the topic"):
        check_columns([("value", "binary")], None)


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_every_column_that_can_be_written_says_what_types_it_may_be_of(name: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match=f"column '{name}' is void; cast it to"):
        check_columns([(name, "void")], "orders")


def sent(column: str, items: Any, name: str) -> list[int]:
    """What a record batch says of each row, before a broker has taken it in."""
    arrow = pa.RecordBatch.from_arrays([pa.array([b""] * len(items)), items], ["value", column])
    batch = from_arrow(rows_of(arrow, ["value", column]).columns)
    return [getattr(batch, name)(row) for row in range(batch.row_count)]


def test_seconds_go_out_as_durations() -> None:
    assert sent("ttl", pa.array([1.5, None, 0]), "expiry") == [-1_500, 0, -1]
    assert sent("delay", pa.array([2, None, 0], pa.int32()), "deliver_at") == [-2_000, 0, 0]
    assert sent("ttl", pa.array([2_000_000], pa.duration("us")), "expiry") == [-2_000]


def test_times_go_out_as_times() -> None:
    times = pa.array([5_000, None], pa.timestamp("ms", "UTC"))

    assert sent("expires_at", times, "expiry") == [5_000, 0]
    assert sent("deliver_at", times, "deliver_at") == [5_000, 0]


def test_seconds_before_now_are_refused() -> None:
    with pytest.raises(flintmq.InvalidRequest, match="negative, as -1"):
        sent("ttl", pa.array([-1]), "expiry")


def test_wide_offsets_are_made_narrow() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"v"], pa.large_binary()), pa.array(["t"], pa.large_string())],
        ["value", "topic"],
    )
    rows = rows_of(batch, ["value", "topic"])

    assert rows.columns.column("value").type == pa.binary()
    assert rows.topics is not None
    assert rows.topics.type == pa.string()
