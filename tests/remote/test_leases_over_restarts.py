"""Leases and a broker that is killed and comes back: what nobody else was given is still yours."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

import flintmq
from tests.integration.served import Served
from tests.patience import free_port, until

from .proxy import Proxy

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("FLINTMQ_LOOP_KILLS", "3"))
Serve = Callable[..., Served]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    made: list[Served] = []
    listen = f"127.0.0.1:{free_port()}"

    def make(*arguments: str) -> Served:
        made.append(Served(tmp_path / "data", *arguments, listen=listen))
        return made[-1]

    yield make
    for broker in made:
        await broker.leave()


async def test_what_another_settled_after_a_restart_is_not_handed_out_of_the_prefetch(
    serve: Serve,
) -> None:
    broker = await serve("--grace-seconds", "0.2").start()
    proxy = Proxy(broker.address)
    host, port = await proxy.start()
    async with (
        flintmq.connect(f"flint://{host}:{port}") as a,
        flintmq.connect(broker.url) as b,
    ):
        await b.publish_batch("jobs", [b"%d" % n for n in range(15)])
        async with a.subscribe("jobs", "workers", prefetch=15) as deliveries:
            await until(lambda: deliveries._opened is not None, "it was not opened")

            async def is_out() -> bool:
                return (await b.group_stats("jobs", "workers")).in_flight == 15

            await until(is_out, "it has not taken ahead")
            proxy.refusing = True
            await broker.end(signal.SIGKILL)
            await broker.start()
            taken = 0
            while taken < 15:
                found = await b.poll("jobs", "workers", 15, wait=10)
                await b.ack(found)
                taken += len(found)
            assert deliveries.read_batch_nowait() == [], "nobody knows whose these are"

            proxy.refusing = False
            await b.publish("jobs", b"the next")
            message = await deliveries.read(timeout=30)

            assert message is not None
            assert message.value == b"the next"
            await message.ack()
    await proxy.close()


async def test_a_member_that_comes_back_in_time_keeps_what_it_has_in_work(serve: Serve) -> None:
    broker = await serve().start()
    async with flintmq.connect(broker.url) as mq, flintmq.connect(broker.url) as other:
        await mq.publish_batch("jobs", [b"0", b"1", b"2"])
        polled = await mq.poll("jobs", "workers", 1, lease=60)
        async with mq.subscribe("jobs", "workers", prefetch=2) as deliveries:
            first = await deliveries.read()
            assert first is not None
            await broker.end(signal.SIGKILL)
            await broker.start()

            await first.ack()
            second = await deliveries.read()
            assert second is not None
            assert second.delivery_count == 1
            stats = await other.group_stats("jobs", "workers")
            assert (stats.in_flight, stats.ready) == (2, 0)
            await second.ack()
        await polled.ack()

        stats = await other.group_stats("jobs", "workers")
        assert (stats.lag, stats.redelivered) == (0, 0)


async def test_what_another_was_given_after_a_restart_is_lost(serve: Serve) -> None:
    broker = await serve("--grace-seconds", "0.2").start()
    proxy = Proxy(broker.address)
    host, port = await proxy.start()
    async with (
        flintmq.connect(f"flint://{host}:{port}") as a,
        flintmq.connect(broker.url) as b,
    ):
        await b.publish("jobs", b"0")
        found = await a.poll("jobs", "workers", 1, lease=60)
        proxy.refusing = True
        await broker.end(signal.SIGKILL)
        await broker.start()
        given = await b.poll("jobs", "workers", 1, wait=10)
        assert [message.delivery_count for message in given] == [2]
        proxy.refusing = False

        with pytest.raises(flintmq.LeaseLost):
            await found.ack()
        await given.ack()
    await proxy.close()


async def test_what_was_in_work_at_a_stop_in_good_order_can_be_settled_after_it(
    serve: Serve,
) -> None:
    broker = await serve("--drain-seconds", "0").start()
    async with flintmq.connect(broker.url) as mq:
        await mq.publish("jobs", b"0")
        found = await mq.poll("jobs", "workers", 1, lease=60)
        assert await broker.end(signal.SIGTERM) == 0
        await broker.start()

        await found.ack()
        assert (await mq.group_stats("jobs", "workers")).lag == 0


@pytest.mark.timeout(120 + 20 * KILLS)
async def test_the_loop_people_write_lives_on_while_the_broker_is_killed_again_and_again() -> None:
    with tempfile.TemporaryDirectory(prefix="flintmq-loops-") as directory:
        print(await loops_over_kills(Path(directory), KILLS, seed=7))


async def loops_over_kills(directory: Path, kills: int, seed: int) -> str:
    """Three loops that ack, none of which catches anything; what was seen, in a line."""
    broker = await Served(directory, listen=f"127.0.0.1:{free_port()}").start()
    published: set[int] = set()
    settled: set[int] = set()
    handed_out = 0
    again: list[int] = []
    done = asyncio.Event()
    chance = random.Random(seed)

    async def publish(mq: flintmq.Client) -> None:
        while not done.is_set():
            values = [b"%d" % n for n in range(20)]
            for receipt in await asyncio.gather(*(mq.publish("jobs", value) for value in values)):
                assert receipt.offset is not None
                published.add(receipt.offset)
            await asyncio.sleep(0.01)

    async def work(mq: flintmq.Client) -> None:
        nonlocal handed_out
        async with mq.subscribe("jobs", "workers", prefetch=64) as subscription:
            async for message in subscription:
                assert message.offset is not None
                handed_out += 1
                if message.offset in settled:
                    again.append(message.offset)
                await message.ack()
                settled.add(message.offset)

    try:
        async with (
            flintmq.connect(broker.url, timeout=60) as one,
            flintmq.connect(broker.url, timeout=60) as two,
        ):
            publishing = asyncio.ensure_future(publish(one))
            loops = [asyncio.ensure_future(work(mq)) for mq in (one, two, two)]
            for number in range(kills):
                await asyncio.sleep(chance.uniform(0.2, 0.6))
                before = len(settled)
                await broker.end(signal.SIGKILL)
                await broker.start()
                await until(
                    lambda before=before: (
                        len(settled) > before or any(loop.done() for loop in loops)
                    ),  # type: ignore[misc]
                    f"nothing is settled any more after kill {number + 1}",
                )
                assert not any(loop.done() for loop in loops), [
                    loop.exception() for loop in loops if loop.done()
                ]
            done.set()
            await asyncio.wait_for(publishing, 60)
            await until(lambda: published <= settled, "not everything was settled")
            assert not any(loop.done() for loop in loops)
            stats = await one.group_stats("jobs", "workers")
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
        assert again == [], "what was settled came again"
        assert stats.lag == 0
        assert await broker.end(signal.SIGTERM) == 0
    finally:
        await broker.leave()
    return (
        f"{kills} kills, {len(published)} messages published and settled, "
        f"{handed_out - len(settled)} handed out more than once, no loop ended"
    )
