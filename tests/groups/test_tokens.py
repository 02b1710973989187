"""Notes of what was granted under which token, and what they come to."""

from __future__ import annotations

from flintmq.group_model import Ranges
from flintmq.groups.offset_set import OffsetSet
from flintmq.groups.tokens import COMPACT_AT, Tokens


def everything(start: int, stop: int) -> Ranges:
    return [(start, stop)]


def test_the_last_note_of_a_message_counts() -> None:
    tokens = Tokens(everything)
    tokens.note(1, [(0, 10)])
    tokens.note(2, [(3, 5), (3, 4)])

    assert tokens.standing() == [(1, [(0, 3), (5, 10)]), (2, [(3, 5)])]


def test_what_was_given_back_is_under_no_token() -> None:
    tokens = Tokens(everything)
    tokens.note(1, [(0, 4)])
    tokens.note(0, [(0, 2)])
    tokens.note(2, [(1, 2)])

    assert tokens.standing() == [(1, [(2, 4)]), (2, [(1, 2)])]


def test_notes_of_what_is_over_are_forgotten() -> None:
    settled = OffsetSet()
    tokens = Tokens(settled.missing)
    for offset in range(100 * COMPACT_AT):
        tokens.note(offset + 1, [(offset, offset + 1)])
        settled.add_range(offset - 5, offset - 4)
        assert len(tokens._notes) <= COMPACT_AT

    assert [token for token, _ in tokens.standing()][-3:] == [6398, 6399, 6400]
