"""Tests on the real engine, in memory: no broker to start, no sleeping."""

import asyncio

from shipping import app

from flintmq.testing import run


def test_a_parcel_is_weighed() -> None:
    async def main() -> None:
        async with run(app) as t:
            await t.publish("parcels", {"id": 1, "kilograms": 2.5})
            await t.publish("parcels", {"id": 2, "kilograms": 99})
            await t.idle()
            assert [one.decode() for one in await t.mq.poll("weighed", "test")] == [1]
            assert [one.decode() for one in await t.mq.poll("too-heavy", "test")] == [{"id": 2}]

    asyncio.run(main())


def test_scales_that_show_nothing_are_asked_three_times_more() -> None:
    async def main() -> None:
        async with run(app, raises=False) as t:
            await t.publish("parcels", {"id": 3, "kilograms": 0})
            for _ in range(4):
                await t.advance(3600)
            assert len(t.errors) == 4
            (letter,) = await t.mq.dead_letters("parcels", "scales")
            assert "nothing for parcel 3" in letter.reason

    asyncio.run(main())


def test_the_day_is_closed_at_six() -> None:
    async def main() -> None:
        async with run(app) as t:
            await t.advance(24 * 3600)
            assert len(await t.mq.poll("days", "test")) == 1

    asyncio.run(main())
