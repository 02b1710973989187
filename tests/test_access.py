"""Permissions by pattern: what a grant covers, for certain."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from flintmq.access import EVERYTHING, KNOWN_MAX, Access, TopicGrant
from flintmq.errors import InvalidRequest, PermissionDenied
from flintmq.patterns import check_pattern, covers, matches

NAMES = [".".join(words) for length in (1, 2, 3, 4) for words in product("abx", repeat=length)]


def patterns() -> list[str]:
    found = [".".join(words) for length in (1, 2, 3) for words in product("ab*>", repeat=length)]
    return [pattern for pattern in found if ">" not in pattern[:-1]]


def test_a_pattern_covers_another_if_and_only_if_no_name_tells_them_apart() -> None:
    matched = {
        pattern: frozenset(name for name in NAMES if matches(pattern, name))
        for pattern in patterns()
    }
    for wide, narrow in product(matched, repeat=2):
        assert covers(wide, narrow) == (matched[narrow] <= matched[wide]), (wide, narrow)


def test_a_name_is_a_pattern_that_covers_itself_alone() -> None:
    for pattern, name in product(patterns(), NAMES[:20]):
        assert covers(pattern, name) == matches(pattern, name)


def test_grants_add_up_and_say_nothing_of_other_topics() -> None:
    access = Access(
        "k", (TopicGrant.of("a.*", ["publish"]), TopicGrant.of("a.b", ["consume"])), "id"
    )

    assert access.permissions_on("a.b") == {"publish", "consume"}
    assert access.permissions_on("a.c") == {"publish"}
    assert access.permissions_on("a.b.c") == access.permissions_on("a") == frozenset()
    assert access.sees("a.c")
    assert not access.sees("b")
    assert not access.may("administer", "a.b")


def test_a_partition_is_its_topics() -> None:
    access = Access("k", (TopicGrant.of("orders", ["publish"]),))

    assert access.may("publish", "orders/7")
    assert not access.may("publish", "orders.x/7")


def test_all_of_a_pattern_has_to_be_in_one_grant() -> None:
    access = Access("k", (TopicGrant.of("a.>", ["consume"]), TopicGrant.of("a", ["consume"])))

    access.require_all_of("consume", "a.*")
    with pytest.raises(PermissionDenied):
        access.require_all_of("consume", ">")
    with pytest.raises(PermissionDenied):
        access.require_all_of("publish", "a.b")


def test_refusals_name_what_was_asked_for() -> None:
    access = Access("k", ())
    cases: list[tuple[Callable[[], None], str]] = [
        (lambda: access.require("publish", "t"), "this key may not publish on topic 't'"),
        (lambda: access.require_sees("t"), "this key may not see topic 't'"),
        (
            lambda: access.require_one_of(("consume", "administer"), "t"),
            "this key may not consume or administer on topic 't'",
        ),
    ]
    for refuse, text in cases:
        with pytest.raises(PermissionDenied) as caught:
            refuse()
        assert str(caught.value) == text


def test_what_is_remembered_is_bounded_and_tells_nothing_wrong() -> None:
    access = Access("k", (TopicGrant.of("a.>", ["publish"]),))
    for number in range(2 * KNOWN_MAX + 10):
        assert access.may("publish", f"a.{number}")
        assert not access.may("publish", f"b.{number}")
    assert len(access._known) <= KNOWN_MAX
    assert access.may("publish", "a." + "x" * 10_000)
    assert max(map(len, access._known)) < 300


def test_everything_is_everything() -> None:
    for name in NAMES:
        assert EVERYTHING.permissions_on(name) == {"publish", "consume", "administer"}
    EVERYTHING.require_all_of("administer", ">")


@pytest.mark.parametrize("pattern", ["", "a>", "a.*b", ">.a", "a/b", "a%"])
def test_patterns_that_are_none_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest):
        check_pattern(pattern)
    with pytest.raises(InvalidRequest):
        TopicGrant.of(pattern, ["publish"])
