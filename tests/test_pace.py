"""The allowance of a turn: shared, and those who got nothing are first in the next one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.loop import pace
from flintmq.loop.disposal import let_go


class Loop:
    """Turns that are made by hand, and a processor whose time is."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._soon: list[Callable[[], None]] = []
        patch.setattr(pace, "thread_time", lambda: self.now)
        self.pace = pace.Pace(self._soon.append)

    def turn(self) -> None:
        for _ in range(2):  # what was called soon, and what that calls soon
            soon, self._soon[:] = list(self._soon), []
            for callback in soon:
                callback()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


def test_work_goes_on_until_the_allowance_of_the_turn_is_over(loop: Loop) -> None:
    allowance = loop.pace.begin()
    loop.now += pace.TURN_SECONDS / 2
    assert not allowance.is_over()
    assert loop.pace.may("another")
    loop.now += pace.TURN_SECONDS / 2
    assert allowance.is_over()
    assert not loop.pace.may("another")


def test_the_next_turn_has_an_allowance_of_its_own(loop: Loop) -> None:
    loop.pace.begin()
    loop.now += 1
    assert loop.pace.is_over()
    loop.turn()
    assert not loop.pace.is_over()
    assert loop.pace.may("anybody")


def test_whoever_cannot_wait_gets_a_little_all_the_same(loop: Loop) -> None:
    loop.pace.begin()
    loop.now += 1
    assert not loop.pace.begin().is_over()


def test_those_who_got_nothing_are_first_in_the_next_turn(loop: Loop) -> None:
    served: list[str] = []
    for _ in range(6):
        for who in ("a", "b", "c"):  # always in this order
            if loop.pace.may(who):
                served.append(who)
                loop.now += 1
        loop.turn()
    assert sorted(served) == ["a", "a", "b", "b", "c", "c"]


def test_whoever_was_first_and_never_came_keeps_nobody_out_for_long(loop: Loop) -> None:
    assert loop.pace.may("a")
    loop.now += 1
    assert not loop.pace.may("gone")
    loop.turn()
    turns = 0
    while not loop.pace.may("a"):
        loop.turn()
        turns += 1
    assert turns <= 2


def test_without_a_loop_everything_is_let_go_at_once() -> None:
    chunks = [object() for _ in range(1_000)]
    let_go(chunks)
    assert chunks == []
