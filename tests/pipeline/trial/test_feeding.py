"""Given rows as the messages that Spark reads in a test."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flintmq.pipeline.define.definition import GivenRow, Source
from flintmq.pipeline.trial.feeding import GivenFiles

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = Source(name="orders", topics=("orders",), schema="id bigint, at timestamp")


def lines(root: Path, source: Source, *batches: tuple[GivenRow, ...]) -> list[str]:
    given = GivenFiles(None, root)  # writing needs no Spark
    for rows in batches:
        given.put(source, rows, NOW)
    return [line for path in sorted(root.rglob("*.*")) for line in path.read_text().splitlines()]


def messages(root: Path, source: Source, *batches: tuple[GivenRow, ...]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(root, source, *batches)]


def value(message: dict[str, Any]) -> bytes:
    return b64decode(message["value"])


def test_rows_that_arrive_together_are_a_file_and_offsets_go_on(tmp_path: Path) -> None:
    found = messages(tmp_path, ORDERS, ({"id": 1}, {"id": 2}), (), ({"id": 3},))

    assert [json.loads(value(one)) for one in found] == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert [one["offset"] for one in found] == [0, 1, 2]
    assert len(list(tmp_path.rglob("*.json"))) == 2
    assert {one["timestamp"] for one in found} == {NOW.isoformat()}


def test_columns_with_a_line_before_them_are_those_of_the_message(tmp_path: Path) -> None:
    row = {"id": 1, "_key": "a", "_headers": {"h": "x"}, "_topic": "other", "_offset": 7}
    [first, second] = messages(tmp_path, ORDERS, (row, {"id": 2, "_topic": "other"}))

    assert json.loads(value(first)) == {"id": 1}
    assert (b64decode(first["key"]), first["topic"], first["offset"]) == (b"a", "other", 7)
    assert [(one["key"], b64decode(one["value"])) for one in first["headers"]] == [("h", b"x")]
    assert second["offset"] == 8


def test_a_text_is_a_value_as_it_is_and_times_are_written(tmp_path: Path) -> None:
    [text, row] = messages(tmp_path, ORDERS, ("not JSON", {"id": 1, "at": NOW}))

    assert value(text) == b"not JSON"
    assert json.loads(value(row)) == {"id": 1, "at": NOW.isoformat()}


def test_values_have_the_format_of_the_source(tmp_path: Path) -> None:
    source = Source(name="x", topics=("x",), schema="id bigint", format="msgpack")
    [one] = messages(tmp_path, source, ({"id": 1},))

    assert msgspec.msgpack.decode(value(one)) == {"id": 1}


def test_a_source_without_a_schema_is_given_its_messages(tmp_path: Path) -> None:
    [one] = messages(tmp_path, Source(name="x", topics=("x",)), ({"key": "k", "value": {"a": 1}},))

    assert (b64decode(one["key"]), value(one)) == (b"k", b'{"a": 1}')


@pytest.mark.parametrize(
    ("format", "line"), [("csv", "1,2026-01-01T00:00:00+00:00"), ("json", '{"id": 1}')]
)
def test_files_have_lines_of_their_own_format(tmp_path: Path, format: Any, line: str) -> None:
    source = Source(
        name="f", files="somewhere", schema="id bigint, at timestamp", file_format=format
    )
    row: GivenRow = {"id": 1, "at": NOW} if format == "csv" else {"id": 1}

    assert lines(tmp_path, source, (row, "as it is")) == [line, "as it is"]
