"""What comes in floods is told once in a while, and nothing of it is forgotten."""

from __future__ import annotations

import logging

from flintmq.observe.logs import LeftOut, Limiter

WARNING = logging.WARNING


def admit(limiter: Limiter, key: str, now: float, amount: int = 1) -> int | None:
    return limiter.admit("flintmq.x", WARNING, "login_refused", key, amount, now=now)


def test_one_event_passes_in_a_window_and_the_next_one_says_how_many_did_not() -> None:
    limiter = Limiter(seconds=10.0)

    assert admit(limiter, "a", now=0.0) == 0
    assert admit(limiter, "a", now=1.0) is None
    assert admit(limiter, "a", now=9.9, amount=5) is None
    assert admit(limiter, "a", now=10.0) == 6
    assert admit(limiter, "a", now=20.0) == 0


def test_keys_and_names_are_told_apart() -> None:
    limiter = Limiter()

    assert admit(limiter, "a", now=0.0) == 0
    assert admit(limiter, "b", now=0.0) == 0
    assert limiter.admit("flintmq.x", WARNING, "dead_letters", "a", now=0.0) == 0


def test_what_was_left_out_is_told_even_if_nothing_follows() -> None:
    limiter = Limiter(seconds=10.0)
    for _ in range(4):
        admit(limiter, "a", now=0.0)

    assert limiter.overdue(now=9.9) == []
    assert limiter.next_end() == 10.0
    assert limiter.overdue(now=10.0) == [LeftOut("flintmq.x", WARNING, "login_refused", "a", 3)]
    assert limiter.overdue(now=10.0) == []
    assert limiter.next_end() is None


def test_a_flood_of_keys_takes_no_memory_and_is_told_as_one() -> None:
    limiter = Limiter(seconds=10.0, keys_max=100)

    admitted = [admit(limiter, str(number), now=0.0) for number in range(10_000)]

    assert sum(one is not None for one in admitted) == 101
    assert len(limiter) == 101
    assert [(one.key, one.count) for one in limiter.overdue(now=10.0)] == [("others", 9_899)]
