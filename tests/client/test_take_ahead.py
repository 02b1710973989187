"""How far ahead messages are taken: further while they are settled quickly, and no further else."""

from __future__ import annotations

import asyncio

import pytest

import flintmq
from flintmq import App
from flintmq.client.take_ahead import AHEAD_MAX, TakeAhead
from flintmq.testing import ManualClock


async def test_a_window_grows_with_the_pace_and_shrinks_with_it() -> None:
    clock, given_back = ManualClock(), []
    window = TakeAhead(clock, 8, AHEAD_MAX)
    window.on_surplus = lambda: given_back.append(window.limit)

    for _ in range(100):  # a thousand a second
        await clock.advance(0.004)
        window.settled(4)
    assert 90 <= window.limit <= 110
    for _ in range(20):  # ten a second
        await clock.advance(0.1)
        window.settled(1)

    assert window.limit == 8
    assert given_back[-1] == 8


@pytest.mark.parametrize("most", [0, 8])
async def test_a_window_without_room_to_grow_stays_as_it_is(most: int) -> None:
    clock = ManualClock()
    window = TakeAhead(clock, 8, most)

    window.settled(1000)

    assert (window.limit, window.refill_at) == (8, 4)


async def test_slow_work_is_shared_among_workers_that_come_later() -> None:
    first, second, over = App(), App(), asyncio.Event()
    begun: dict[str, list[int]] = {"first": [], "second": []}

    def add_to(app: App, name: str) -> None:
        @app.consumer("jobs", group="workers", concurrency=2)
        async def work(number: int) -> None:
            begun[name].append(number)
            await over.wait()

    add_to(first, "first")
    add_to(second, "second")
    clock = ManualClock()
    async with flintmq.connect("memory://", clock=clock) as mq:
        await mq.publish_batch("jobs", list(range(4)))
        async with first.running(mq):
            await clock.settle()
            async with second.running(mq):
                await clock.settle()
                over.set()

    assert begun == {"first": [0, 1], "second": [2, 3]}


async def test_what_was_taken_ahead_goes_back_when_work_becomes_slow() -> None:
    app, clock, over = App(), ManualClock(), asyncio.Event()

    @app.consumer("jobs", group="workers", concurrency=2)
    async def work(number: int) -> None:
        if number >= 300:
            await over.wait()

    async with flintmq.connect("memory://", clock=clock) as mq:
        await mq.publish_batch("jobs", list(range(1000)))
        async with app.running(mq):
            await clock.settle()
            held = (await mq.group_stats("jobs", "workers")).in_flight
            await clock.advance(1.1)
            stats = await mq.group_stats("jobs", "workers")
            others = await mq.poll("jobs", "workers", 10)
            over.set()

    assert held > 100, "quick work was taken far ahead"
    assert stats.in_flight == 2
    assert [one.decode() for one in others] == list(range(302, 312))
    assert {one.delivery_count for one in others} == {1}
