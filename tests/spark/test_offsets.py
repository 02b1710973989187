"""Positions as a checkpoint keeps them. Pure."""

from __future__ import annotations

import json

import pytest

from flintmq.errors import InvalidRequest
from flintmq.spark.offsets import TopicPosition, parse_offsets, read, written


def test_the_same_positions_are_the_same_text_in_whatever_order_they_came() -> None:
    one = {"b": TopicPosition(2, {10: 1, 2: 5}), "a": TopicPosition(1, {0: 7})}
    other = {"a": TopicPosition(1, {0: 7}), "b": TopicPosition(2, {2: 5, 10: 1})}

    assert json.dumps(written(one)) == json.dumps(written(other))
    assert json.dumps(written(one)) == (
        '{"a": {"id": "1", "next": {"0": 7}}, "b": {"id": "2", "next": {"2": 5, "10": 1}}}'
    )


def test_what_was_written_is_read_again() -> None:
    positions = {"a": TopicPosition(2**62 + 1, {0: 2**40, 11: 3})}

    assert read(json.loads(json.dumps(written(positions)))) == positions


def test_a_checkpoint_of_something_else_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="did not write"):
        read({"orders": {"0": 5}})


def test_users_write_offsets_as_for_kafka() -> None:
    assert parse_offsets('{"t": {"0": 23, "1": -1, "2": -2}}', "startingOffsets") == {
        "t": {0: 23, 1: -1, 2: -2}
    }


@pytest.mark.parametrize(
    "text", ["soon", "[1]", '{"t": 5}', '{"t": {"x": 5}}', '{"t": {"0": -3}}', '{"t": {"0": "5"}}']
)
def test_what_is_no_offset_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequest, match='"orders"'):
        parse_offsets(text, "startingOffsets")


def test_nothing_ends_at_the_earliest() -> None:
    with pytest.raises(InvalidRequest, match="cannot end at -2"):
        parse_offsets('{"t": {"0": -2}}', "endingOffsets", earliest=False)
