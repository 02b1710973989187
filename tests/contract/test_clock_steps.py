"""The machine's clock is set while a broker runs: time goes on as if nothing had been.

The broker's time follows by 1 %: so that much longer than asked is not late.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import flintmq
from flintmq.model import Seconds
from flintmq.testing import ManualClock

from .queues import one, polled
from .test_durability import Restarts

HOUR = 3600
STEPS = [-HOUR, HOUR]


async def values(mq: flintmq.Client) -> list[bytes]:
    async with mq.reader("orders") as reader:
        return list((await reader.read_batch(100, timeout=0)).values)


async def test_what_has_expired_does_not_come_back(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.publish_batch("orders", [b"stays", b"short"], ttl=[None, 5])
    await clock.advance(6)
    assert await values(mq) == [b"stays"]
    clock.step(-HOUR)
    assert await values(mq) == [b"stays"]
    await clock.advance(60)
    assert await values(mq) == [b"stays"]
    assert await polled(mq) == [b"stays"]


@pytest.mark.parametrize("step", STEPS)
async def test_a_ttl_takes_as_long_as_it_says(
    mq: flintmq.Client, clock: ManualClock, step: int
) -> None:
    await mq.create_topic("orders", ttl=100)
    await mq.publish_batch("orders", [b"its own", b"the topic's"], ttl=[50, None])
    clock.step(step)
    await clock.advance(49)
    assert await values(mq) == [b"its own", b"the topic's"]
    await clock.advance(2)
    assert await values(mq) == [b"the topic's"]
    await clock.advance(51)
    assert await values(mq) == []


async def test_what_a_ttl_has_ended_is_counted(mq: flintmq.Client, clock: ManualClock) -> None:
    await mq.create_topic("orders", ttl=100)
    await mq.publish_batch("orders", [b"its own", b"the topic's"], ttl=[50, None])
    await clock.advance(102)
    assert (await mq.topic_stats("orders")).drops == {"expired": 2}


@pytest.mark.parametrize("step", STEPS)
async def test_a_delay_takes_as_long_as_it_says(
    mq: flintmq.Client, clock: ManualClock, step: int
) -> None:
    await mq.publish("orders", b"before", delay=50)
    clock.step(step)
    await mq.publish("orders", b"after", delay=50)
    await clock.advance(49)
    assert await polled(mq) == []
    await clock.advance(2)
    assert await polled(mq) == [b"before", b"after"]


@pytest.mark.parametrize("step", STEPS)
async def test_a_delay_takes_as_long_for_live_feeds(
    mq: flintmq.Client, clock: ManualClock, step: int
) -> None:
    async with mq.live("orders") as feed:
        await mq.publish("orders", b"before", delay=50)
        await mq.publish("orders", b"not stored", delay=50, qos=0)
        clock.step(step)
        await mq.publish("orders", b"after", delay=50)
        await clock.advance(49)
        assert (await feed.read_batch(10, timeout=0)).values == []
        await clock.advance(2)
        found = sorted((await feed.read_batch(10, timeout=0)).values)
        while len(found) < 3:
            found = sorted([*found, *(await feed.read_batch(10)).values])
        assert found == [b"after", b"before", b"not stored"]


@pytest.mark.parametrize("step", STEPS)
async def test_what_was_given_back_comes_again_in_time(
    mq: flintmq.Client, clock: ManualClock, step: int
) -> None:
    await mq.publish("orders", b"again")
    await (await one(mq)).nack(delay=50)
    clock.step(step)
    await clock.advance(49)
    assert await polled(mq) == []
    await clock.advance(2)
    assert await polled(mq) == [b"again"]


async def test_a_wrong_clock_that_is_put_right_holds_nothing_back(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    clock.step(HOUR)
    await clock.advance(1)
    await mq.publish("orders", b"later", delay=50)
    clock.step(-HOUR)
    await mq.publish("orders", b"next")
    await clock.advance(51)
    assert sorted(await polled(mq)) == [b"later", b"next"]


@pytest.mark.parametrize("step", STEPS)
async def test_retention_by_age_is_not_misled(
    mq: flintmq.Client, clock: ManualClock, step: int
) -> None:
    await mq.create_topic("orders", retention_age=100)
    await mq.publish("orders", b"a")
    clock.step(step)
    await clock.advance(98)
    assert await values(mq) == [b"a"]
    await clock.advance(4)
    assert await values(mq) == []


async def test_times_of_messages_never_go_back(mq: flintmq.Client, clock: ManualClock) -> None:
    for step in (0, -HOUR, HOUR, HOUR, -3 * HOUR):
        clock.step(step)
        await mq.publish("orders", b"x")
        await clock.advance(10)
    async with mq.reader("orders") as reader:
        times = [message.timestamp for message in await reader.read_batch(10, timeout=0)]
    assert times == sorted(times)
    assert all(9.9 <= later - time <= 10.1 for time, later in pairwise(times))


# --- and set while it is down


restarted = pytest.mark.parametrize("way", ["file"], indirect=True)


@pytest.fixture(params=["closed", "killed"])
async def restarts(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Restarts:
    return Restarts(tmp_path / "restarted", clock, request.param)


@restarted
async def test_after_a_step_back_and_a_restart_time_goes_on(
    restarts: Restarts, clock: ManualClock
) -> None:
    mq = await restarts.start()
    await mq.publish("orders", b"stays")
    await mq.publish("orders", b"short", ttl=5)
    await mq.publish("orders", b"later", delay=50)
    await clock.advance(6)
    await mq.publish("orders", b"a stamp")
    clock.step(-HOUR)

    mq = await restarts.restart()
    assert await values(mq) == [b"stays", b"later", b"a stamp"]
    assert sorted(await polled(mq, ack="auto")) == [b"a stamp", b"stays"]
    await clock.advance(46)
    assert await polled(mq) == [b"later"]
    await restarts.close()


@restarted
@pytest.mark.parametrize("restarts", ["closed"], indirect=True)
async def test_a_clean_stop_remembers_its_time_without_a_stamp(
    restarts: Restarts, clock: ManualClock
) -> None:
    mq = await restarts.start()
    await mq.publish_batch("orders", [b"stays", b"short"], ttl=[None, HOUR])
    await clock.advance(HOUR + 1)
    clock.step(-2 * HOUR)
    mq = await restarts.restart()
    assert await values(mq) == [b"stays"]
    await restarts.close()


@restarted
async def test_after_a_step_forward_and_a_restart_the_time_has_passed(
    restarts: Restarts, clock: ManualClock
) -> None:
    mq = await restarts.start()
    await mq.publish_batch("orders", [b"stays", b"short"], ttl=[None, 50])
    await mq.publish("orders", b"later", delay=50)
    clock.step(HOUR)
    mq = await restarts.restart()
    assert await values(mq) == [b"stays", b"later"]
    assert sorted(await polled(mq)) == [b"later", b"stays"]
    await restarts.close()


@restarted
async def test_durations_count_from_the_append_also_out_of_a_segment(
    restarts: Restarts, clock: ManualClock
) -> None:
    """A batch that is large enough to be kept as it was sent."""
    mq = await restarts.start()
    await clock.advance(100)
    count = 100
    sent = [b"%d" % n for n in range(count)]
    ttl: list[Seconds | None] = [None, 50] * (count // 2)
    delay: list[Seconds | None] = [20 if n % 4 == 0 else None for n in range(count)]
    await mq.publish_batch("orders", sent, ttl=ttl, delay=delay)
    first = clock.now_ms() / 1000
    await clock.advance(10)

    mq = await restarts.restart()
    async with mq.reader("orders") as reader:
        found = list(await reader.read_batch(1000, timeout=0))
    assert [message.expires_at for message in found] == [None, first + 50] * (count // 2)
    assert [message.deliver_at for message in found] == [
        None if seconds is None else first + 20 for seconds in delay
    ]
    due = [value for value, seconds in zip(sent, delay, strict=True) if seconds is None]
    assert sorted(await polled(mq, ack="auto")) == sorted(due)
    await clock.advance(10)
    assert sorted(await polled(mq, ack="auto")) == sorted(set(sent) - set(due))
    await clock.advance(30)
    assert await values(mq) == sent[::2]
    await restarts.close()
