"""Queues over bad networks: leases outlive a connection for a while, and no longer."""

from __future__ import annotations

import asyncio

import pytest

import flintmq
from flintmq.broker_api import Joining
from flintmq.net.server.native import NativeServer

from ..patience import until
from .proxy import Proxy


async def _resumed(mq: flintmq.Client, times: int) -> None:
    link = mq._broker.link  # type: ignore[attr-defined]
    await until(lambda: link.is_up and link.reconnects >= times, "it did not come back")


async def test_a_lease_is_kept_while_a_connection_comes_back(url: str, proxy: Proxy) -> None:
    async with flintmq.connect(url) as mq, flintmq.connect(url) as other:
        await mq.publish_batch("jobs", [b"0", b"1"])
        found = await mq.poll("jobs", "workers", 1)
        for cut in range(3):
            proxy.cut()
            await _resumed(mq, cut + 1)
        assert (await other.poll("jobs", "workers", 10)).values == [b"1"]

        await found.ack()
        stats = await mq.group_stats("jobs", "workers")
        assert (stats.position, stats.redelivered, stats.in_flight) == (1, 0, 1)


async def test_a_nack_whose_answer_was_lost_is_done(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("jobs", b"0")
        (found,) = await mq.poll("jobs", "workers", 1)
        proxy.silent.add("down")
        nacking = asyncio.create_task(found.nack(delay=3600))

        async def is_nacked() -> bool:
            return (await server.broker.group_stats("jobs", "workers")).delayed == 1

        await until(is_nacked, "the broker was not asked")
        for session in list(server.sessions.values()):
            session.end()  # as another leader, it knows nothing of what it has answered
        proxy.silent.clear()
        proxy.cut()

        await nacking
        assert await is_nacked()


async def test_who_stays_away_longer_loses_its_leases(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("jobs", b"0")
        found = await mq.poll("jobs", "workers", 1)
        proxy.refusing = True
        for session in list(server.sessions.values()):
            session.end()  # as the grace time does
        proxy.cut()

        other = await server.broker.join_group(
            Joining(
                "jobs",
                "workers",
                order=None,
                filter=None,
                start=None,
                holder="o",
                auto_create=False,
            )
        )
        grant = await other.take(1, 60.0, 60.0)
        assert grant is not None
        assert (grant.rows.values, grant.counts) == ([b"0"], {0: 2})
        proxy.refusing = False
        await _resumed(mq, 1)
        with pytest.raises(flintmq.LeaseLost):
            await found.ack()
        await other.ack([(grant.token, [(0, 1)])])


async def test_who_stays_away_longer_keeps_what_nobody_else_was_given(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("jobs", b"0")
        found = await mq.poll("jobs", "workers", 1)
        for session in list(server.sessions.values()):
            session.end()
        proxy.cut()
        await _resumed(mq, 1)
        assert (await mq.poll("jobs", "workers", 1)).values == []
        await found.ack()

        stats = await mq.group_stats("jobs", "workers")
        assert (stats.lag, stats.redelivered) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("forgets", [False, True])
async def test_a_subscription_goes_on_through_cuts_and_settles_everything_once(
    url: str, proxy: Proxy, server: NativeServer, forgets: bool
) -> None:
    done: list[int] = []
    unsure = 0

    async def work(mq: flintmq.Client) -> None:
        nonlocal unsure
        async with mq.subscribe("jobs", "workers", prefetch=20) as deliveries:
            async for message in deliveries:
                try:
                    await message.ack()
                    done.append(int(message.value))
                except flintmq.LeaseLost:
                    unsure += 1

    async with flintmq.connect(url) as mq, flintmq.connect(url) as other:
        working = asyncio.ensure_future(work(mq))
        for start in range(0, 600, 20):
            values = [b"%d" % n for n in range(start, start + 20)]
            await other.publish_batch("jobs", values)
            if start % 60 == 0:
                if forgets:
                    for session in list(server.sessions.values()):
                        session.end()
                proxy.cut()
            await asyncio.sleep(0.01)

        async def is_settled() -> bool:
            return (await other.group_stats("jobs", "workers")).lag == 0

        await until(is_settled, "not everything was settled")
        # The broker knows before the consumer does.
        await until(lambda: len(done) + unsure >= 600, "not everything was told")
        assert not working.done()
        working.cancel()
        await asyncio.wait([working])
    if forgets:
        assert set(done) <= set(range(600))
    else:
        assert done == list(range(600)), "nothing is delivered again where the session is resumed"


async def test_filters_are_expressions_over_the_network(url: str) -> None:
    async with flintmq.connect(url) as mq:
        async with mq.live("orders", filter="priority > 3") as feed:
            for n in range(10):
                await mq.publish(
                    "orders", {"n": n}, priority=n % 8, headers={"region": "eu" if n % 2 else "us"}
                )
            assert [m.decode()["n"] for m in await feed.read_batch(10)] == [4, 5, 6, 7]
        async with mq.reader("orders", filter='headers.region == "eu" and value.n > 2') as reader:
            assert [m.decode()["n"] for m in await reader.read_batch(10)] == [3, 5, 7, 9]
        with pytest.raises(flintmq.InvalidRequest, match="expression"):
            await mq.reader("orders", filter=lambda message: True)
        with pytest.raises(flintmq.InvalidRequest):
            await mq.reader("orders", filter="import os")


async def test_topics_that_others_configure_are_known_at_once(
    url: str, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq, flintmq.connect(url) as other:
        await mq.create_topic("orders", partitions=3, format="msgpack")
        await other.topics()  # what came before it has come
        receipt = await other.publish("orders", {"a": 1}, key="k")
        async with mq.reader("orders") as reader:
            message = await reader.read()
            assert message is not None
            assert (message.partition, message.decode()) == (receipt.partition, {"a": 1})
        await server.broker.delete_topic("orders")  # not by way of the server
        await mq.topics()
        assert mq._broker.known_options("orders") is None
        assert (await mq.publish("orders", b"plain")).partition == 0
