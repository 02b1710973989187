"""HTTP takes its share of the event loop's time and no more."""

from __future__ import annotations

import asyncio
from time import thread_time

import pytest

from flintmq.frontends.http.budget import SAVED_SECONDS, Budget
from flintmq.frontends.http.turnstile import Turnstile


def test_what_is_saved_can_be_spent_at_once() -> None:
    budget = Budget(0.1, now=0.0)

    budget.spend(0.1 * SAVED_SECONDS - 0.001)

    assert budget.wait_seconds(0.0) == 0


def test_what_is_overdrawn_is_waited_for_at_the_share() -> None:
    budget = Budget(0.1, now=0.0)
    budget.spend(0.1 * SAVED_SECONDS + 0.01)

    assert budget.wait_seconds(0.0) == pytest.approx(0.1)
    assert budget.wait_seconds(0.06) == pytest.approx(0.04)
    assert budget.wait_seconds(0.101) == 0


def test_no_more_than_a_little_is_ever_saved() -> None:
    budget = Budget(0.1, now=0.0)

    assert budget.wait_seconds(1000.0) == 0
    budget.spend(0.1 * SAVED_SECONDS + 0.01)

    assert budget.wait_seconds(1000.0) == pytest.approx(0.1)


def test_a_scrape_of_very_many_topics_now_and_then_never_waits() -> None:
    budget, now = Budget(0.1, now=0.0), 0.0
    for _ in range(10):
        now += 15
        for _ in range(2000):
            assert budget.wait_seconds(now) == 0
            budget.spend(0.0005)
            now += 0.0005


def test_over_a_long_time_the_share_is_kept() -> None:
    budget, now, spent = Budget(0.2, now=0.0), 0.0, 0.0
    while now < 60 * SAVED_SECONDS:
        now += budget.wait_seconds(now) + 0.003
        budget.spend(0.003)
        spent += 0.003

    assert spent / now == pytest.approx(0.2, rel=0.05)


async def test_pieces_are_done_in_turn_one_in_each_turn_of_the_loop() -> None:
    turnstile = Turnstile(1.0)
    done: list[object] = []
    for number in range(3):
        turnstile.enter(lambda number=number: done.append(number))  # type: ignore[misc]
    for turn in range(3):
        await asyncio.sleep(0)
        done.append(f"turn {turn}")

    assert done == [0, "turn 0", 1, "turn 1", 2, "turn 2"]


async def test_over_the_budget_the_line_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([0.02])
    monkeypatch.setattr(Budget, "wait_seconds", lambda budget, now: next(waits, 0.0))
    turnstile = Turnstile(0.5)
    loop = asyncio.get_running_loop()
    began = loop.time()

    await turnstile.pause()

    assert loop.time() - began >= 0.019  # a loop's clock is no finer than a millisecond
    assert turnstile.held == 1
    assert turnstile.held_seconds >= 0.019


async def test_what_handlers_take_is_paid_for() -> None:
    turnstile = Turnstile(0.5)

    async def work() -> str:
        _burn(0.005)
        await asyncio.sleep(0)
        _burn(0.005)
        return "done"

    assert await turnstile.metered(work()) == "done"
    assert turnstile.budget.spent_seconds >= 0.01


async def test_a_metered_handler_hears_that_it_is_cancelled() -> None:
    turnstile = Turnstile(0.5)
    heard: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            await asyncio.sleep(0)  # and can tidy up
            heard.append("tidied")
            raise

    async def metered() -> None:
        await turnstile.metered(work())

    task = asyncio.create_task(metered())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == ["cancelled", "tidied"]


async def test_a_long_handler_steps_aside() -> None:
    turnstile = Turnstile(1.0)
    turns = 0

    def tick() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(tick)

    async def work() -> None:
        for _ in range(5):
            _burn(0.001)
            await turnstile.breathe()

    asyncio.get_running_loop().call_soon(tick)
    await turnstile.metered(work())
    assert turns >= 5


async def test_closing_lets_everybody_in_line_go() -> None:
    turnstile = Turnstile(0.01)
    turnstile.budget.spend(10)
    waiting = asyncio.create_task(turnstile.pause())
    await asyncio.sleep(0)

    turnstile.close()

    await asyncio.wait_for(waiting, 60)


def _burn(seconds: float) -> None:
    until = thread_time() + seconds
    while thread_time() < until:
        pass
