"""Cancelling any call at any point leaves the connection usable, and nothing at the server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flintmq
from flintmq.engine.broker import Broker
from flintmq.net.server.native import NativeServer
from flintmq.net.server.streams import OpenMembership
from flintmq.serde.codec import Codec
from tests.patience import until

Verb = Callable[[flintmq.Client], Awaitable[object]]
_numbers = itertools.count()

POLLED = 2
"""Memberships that `poll` keeps from call to call: it polls two groups here."""


async def _read(mq: flintmq.Client) -> object:
    async with mq.reader("quiet", start="latest") as reader:
        return await reader.read()


async def _read_by_name(mq: flintmq.Client) -> object:
    async with mq.reader("orders", name="n") as reader:
        rows = await reader.read_batch(3)
        await reader.commit()
        await reader.seek("earliest")
        await reader.position()
        await reader.lag()
        return rows


async def _feed(mq: flintmq.Client) -> object:
    async with mq.live("quiet.>") as feed:
        return await feed.read()


async def _subscribe(mq: flintmq.Client) -> object:
    async with mq.subscribe("orders", "workers", prefetch=2) as deliveries:
        message = await deliveries.read()
        assert message is not None
        await message.nack(delay=0)
        return await deliveries.read_batch(2)


async def _send(mq: flintmq.Client) -> object:
    async with mq.publisher("sent") as publisher:
        for _ in range(5):
            publisher.send(b"x")
        await publisher.flush()
    return None


async def _stage(mq: flintmq.Client) -> object:
    writer = f"writer {next(_numbers)}"
    await mq.stage(writer, 1, "part", {"staged": [b"x"]})
    await mq.commit(writer, 1, ["part"])
    await mq.stage(writer, 2, "part", {"staged": [b"y"]})
    await mq.abort(writer, 2)
    return None


async def _settle(mq: flintmq.Client) -> object:
    found = await mq.poll("orders", "pollers", 2, lease=30)
    await mq.nack(found, delay=0)
    await mq.ack(await mq.poll("orders", "pollers", 1, wait=60))
    return None


async def _topic(mq: flintmq.Client) -> object:
    name = f"made.{next(_numbers)}"
    await mq.create_topic(name)
    await mq.configure_topic(name, ttl=60)
    await mq.delete_topic(name)
    return None


async def _group(mq: flintmq.Client) -> object:
    await mq.pause_group("orders", "pollers")
    await mq.resume_group("orders", "pollers")
    await mq.peek("orders", "pollers")
    await mq.in_flight("orders", "pollers")
    await mq.reset_group("orders", "pollers", "earliest")
    return await mq.redrive("orders", "pollers")


async def _delayed(mq: flintmq.Client) -> object:
    return await mq.cancel(await mq.publish("orders", b"x", delay=600))


VERBS: dict[str, Verb] = {
    "publish": lambda mq: mq.publish("orders", b"x"),
    "publish_keyed": lambda mq: mq.publish("row", b"x", key="k"),
    "publish_blocked": lambda mq: mq.publish("full", b"x"),
    "publish_batch": lambda mq: mq.publish_batch(
        "row", [b"x"] * 20, key=[str(n) for n in range(20)]
    ),
    "publish_many": lambda mq: mq.publish_many([("orders", b"x"), ("others", b"y")]),
    "publisher": _send,
    "reader": _read,
    "named reader": _read_by_name,
    "live": _feed,
    "subscribe": _subscribe,
    "poll": lambda mq: mq.poll("quiet", "workers", 1, wait=60),
    "settle": _settle,
    "stage": _stage,
    "topics": lambda mq: mq.topics(),
    "topic_stats": lambda mq: mq.topic_stats("orders"),
    "topic": _topic,
    "groups": lambda mq: mq.groups("orders"),
    "group": _group,
    "group_stats": lambda mq: mq.group_stats("orders", "pollers"),
    "dead_letters": lambda mq: mq.dead_letters("orders", "pollers"),
    "delayed": _delayed,
}


class World:
    """One broker, its server, one client of it; made once for many cancelled calls."""

    async def __aenter__(self) -> World:
        self.broker = Broker(None, Codec())
        self.server = NativeServer(self.broker)
        host, port = await self.server.start("127.0.0.1", 0)
        self.mq = await flintmq.connect(f"flint://{host}:{port}", timeout=60)
        for name in ("quiet", "others", "sent", "staged"):
            await self.mq.create_topic(name)
        await self.mq.create_topic("row", partitions=3)
        await self.mq.create_topic("full", retention_count=1, overflow="block")
        self.holder = await self.mq.reader("full", name="holder")
        await self.mq.publish("full", b"0")
        await self.mq.publish_batch("orders", [b"%d" % n for n in range(10)])
        await self.mq.poll("orders", "pollers", 1, lease=0.01)
        self.published = 0
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.mq.close()
        await self.server.close()
        await self.broker.close()

    async def is_usable(self) -> None:
        receipt = await asyncio.wait_for(self.mq.publish("usable", b"%d" % self.published), 60)
        assert receipt.offset == self.published, "nothing is published twice, nothing is lost"
        self.published += 1
        (session,) = self.server.sessions.values()

        def is_tidy() -> bool:
            left = len(session._tasks), len(session._takes), session.publishes.is_busy()
            members = [one for one in session.streams.values() if isinstance(one, OpenMembership)]
            readers = len(session.streams) - len(members)
            return left == (0, 0, False) and readers == 1 and len(members) <= POLLED

        await until(is_tidy, "something is left under way, or open")
        link = self.mq._broker.link  # type: ignore[attr-defined]
        assert link.reconnects == 0, "it is the same connection"
        assert not [one for one in link._waiters.by_id.values() if not one.is_parked]


async def _cancelled_after(call: Awaitable[object], turns: int) -> None:
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
        if task.done():
            break
    task.cancel()
    await asyncio.wait([task], timeout=60)
    assert task.done(), "it does not let itself be cancelled"
    if not task.cancelled():
        error = task.exception()
        assert error is None or isinstance(error, flintmq.FlintError), repr(error)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
async def test_a_verb_may_be_cancelled_after_any_number_of_turns(name: str) -> None:
    async with World() as world:
        for turns in [*range(20), *range(20, 100, 7)]:
            await _cancelled_after(VERBS[name](world.mq), turns)
            await world.is_usable()


@pytest.mark.slow
@given(
    calls=st.lists(
        st.tuples(st.sampled_from(sorted(VERBS)), st.integers(0, 40)), min_size=2, max_size=12
    )
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_verbs_at_once_may_be_cancelled_at_any_points(calls: list[tuple[str, int]]) -> None:
    async def story() -> None:
        async with World() as world:
            await asyncio.gather(
                *(_cancelled_after(VERBS[name](world.mq), turns) for name, turns in calls)
            )
            await world.is_usable()

    asyncio.run(story())


async def test_a_first_connect_that_is_cancelled_leaves_no_connection() -> None:
    async with World() as world:
        host, port = world.server._servers[0].sockets[0].getsockname()
        cancelled = 0
        for turns in range(15):
            connecting = asyncio.ensure_future(
                flintmq.connect(f"flint://{host}:{port}").__aenter__()
            )
            await _cancelled_after(connecting, turns)
            if connecting.cancelled():
                cancelled += 1
            else:
                await connecting.result().close()
        await until(lambda: len(world.server.connections) == 1, "a connection is left")
        assert cancelled > 3
        assert (await world.mq.publish("orders", b"x")).offset == 10
