"""Durations and sizes as people type them, and back."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.cli.durations import Duration, Size, duration_text


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("64KiB", 65536), ("10MB", 10**7), ("2G", 2 << 30), ("1.5k", 1536), ("7b", 7)],
)
def test_a_size_is_typed_in_the_units_people_know(text: str, size: int) -> None:
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "-1", "2XB", "KiB", "0", "1e3"])
def test_what_is_no_size_is_told(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Size().convert(text, None, None)


@given(st.integers(1, 10**9).map(lambda ms: ms / 1000) | st.integers(1, 10**8).map(float))
def test_a_duration_is_shown_as_one_would_type_it(seconds: float) -> None:
    assert Duration().convert(duration_text(seconds), None, None) == pytest.approx(seconds, 1e-5)
