"""JSON texts are cut out of a stream wherever its pieces begin and end."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.errors import InvalidRequest, MessageTooLarge
from flintmq.frontends.http.json_stream import Elements, JsonCutter, Lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def cut_of(cutter: JsonCutter, text: bytes, size: int) -> list[bytes]:
    found: list[bytes] = []
    for at in range(0, len(text), size):
        found += cutter.feed(text[at : at + size])
    return found + cutter.end()


@given(st.lists(VALUES, max_size=6), st.integers(1, 40), st.sampled_from([None, 1]))
def test_the_elements_of_an_array_are_those_that_were_written(
    values: list[object], size: int, indent: int | None
) -> None:
    text = json.dumps(values, indent=indent).encode()
    assert [json.loads(one) for one in cut_of(Elements(10_000), text, size)] == values


@given(st.lists(VALUES, max_size=6), st.integers(1, 40))
def test_lines_are_those_that_were_written(values: list[object], size: int) -> None:
    text = b"\r\n\n".join(json.dumps(value).encode() for value in values)
    assert [json.loads(one) for one in cut_of(Lines(10_000), text, size)] == values


@pytest.mark.parametrize("text", [b"", b"{}", b"[1", b'["', b"[1,]", b"[,1]", b"[1] 2", b"1, [2]"])
def test_what_is_no_array_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest):
        cut_of(Elements(100), text, 1)


@pytest.mark.parametrize("size", [1, 7, 200])
def test_one_text_is_bounded_and_their_sum_is_not(size: int) -> None:
    many = b"[" + b",".join([b'"%s"' % (b"x" * 50)] * 100) + b"]"
    assert len(cut_of(Elements(60), many, size)) == 100
    with pytest.raises(MessageTooLarge):
        cut_of(Elements(60), b'[1, "' + b"x" * 80 + b'"]', size)
    with pytest.raises(MessageTooLarge):
        cut_of(Lines(60), b"x" * 80, size)
