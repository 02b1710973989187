"""Names of protocols that allow any text: escaped reversibly, and names like any other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.errors import InvalidRequest
from flintmq.patterns import check_name, escape_name, unescape_name


@given(st.text(max_size=40))
def test_any_text_becomes_a_name_and_comes_back(text: str) -> None:
    escaped = escape_name(text)

    assert check_name(escaped) == escaped
    assert unescape_name(escaped) == text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("", "%"),
        ("orders.eu", "orders.eu"),
        ("a/b", "a%2Fb"),
        ("100%", "100%25"),
        ("%", "%25"),
        ("%2F", "%252F"),
        ("a>*", "a%3E%2A"),
        ("\n", "%0A"),
        ("\x85", "%C2%85"),
        ("größe", "größe"),
    ],
)
def test_what_no_name_may_hold_is_escaped(text: str, escaped: str) -> None:
    assert escape_name(text) == escaped
    assert unescape_name(escaped) == text


@pytest.mark.parametrize("name", ["100%", "%2", "%2f", "%%", "a%b", "%GG"])
def test_a_percent_sign_that_escapes_nothing_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="contains '%'"):
        check_name(name)
