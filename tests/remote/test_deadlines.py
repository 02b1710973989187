"""A broker that says nothing: every call ends in its own time all the same."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import flintmq
from flintmq.net.remote import link
from flintmq.testing import ManualClock

from ..integration.served import Served
from ..patience import until
from .proxy import Proxy

PATIENCE = 30.0
SLACK = 0.1
"""How much later than its deadline a call may end."""

NO_ANSWER = (flintmq.OutcomeUnknown, flintmq.Disconnected, flintmq.QueueFull)


class Using:
    """A client with one of everything open."""

    def __init__(self, mq: flintmq.Client) -> None:
        self.mq = mq
        self.reader = mq.reader("orders", name="n")
        self.feed = mq.live("orders")
        self.publisher = mq.publisher("orders")
        self.subscription = mq.subscribe("orders", "subscribers")
        self.polled = flintmq.Deliveries()
        self.polled_of_row = flintmq.Deliveries()

    async def open(self) -> None:
        mq = self.mq
        await mq.create_topic("row", partitions=3)
        await mq.publish_batch("orders", [b"x"] * 10)
        await mq.publish_batch("row", [b"x"] * 10)
        await self.reader
        await self.feed
        await self.subscription
        self.polled = await mq.poll("orders", "workers", 4, lease=3600)
        self.polled_of_row = await mq.poll("row", "workers", 4, lease=3600)
        assert await self.subscription.read(timeout=60) is not None
        for consumer in (self.reader, self.feed):
            await consumer.read_batch(100, timeout=0)


Verb = Callable[[Using], Awaitable[object]]


async def _flush(using: Using, timeout: float | None = None) -> None:
    using.publisher.send(b"x")
    await using.publisher.flush(timeout)


async def _subscribe(using: Using) -> None:
    await using.mq.subscribe("orders", "others")


VERBS: dict[str, tuple[float, Verb]] = {
    "publish": (1, lambda u: u.mq.publish("orders", b"x", timeout=1)),
    "publish_by_default": (PATIENCE, lambda u: u.mq.publish("orders", b"x")),
    "publish_at_once": (PATIENCE, lambda u: u.mq.publish("orders", b"x", timeout=0)),
    "publish_batch": (1, lambda u: u.mq.publish_batch("orders", [b"x"] * 100, timeout=1)),
    "publish_batch_compressed": (
        1,
        lambda u: u.mq.publish_batch("row", [b"x"] * 9, timeout=1, batch_compression="lz4"),
    ),
    "publish_to_partitions": (1, lambda u: u.mq.publish_batch("row", [b"x"] * 9, timeout=1)),
    "publish_many": (1, lambda u: u.mq.publish_many([("a", b"x"), ("b", b"x")], timeout=1)),
    "flush": (1, lambda u: _flush(u, 1)),
    "flush_by_default": (PATIENCE, _flush),
    "poll": (1, lambda u: u.mq.poll("orders", "workers", wait=1)),
    "poll_at_once": (PATIENCE, lambda u: u.mq.poll("orders", "workers")),
    "poll_of_a_new_group": (1, lambda u: u.mq.poll("orders", "new", wait=1)),
    "poll_of_partitions": (1, lambda u: u.mq.poll("row", "workers", wait=1)),
    "ack": (PATIENCE, lambda u: u.polled[0].ack()),
    "nack": (PATIENCE, lambda u: u.mq.nack(u.polled[1])),
    "ack_of_partitions": (PATIENCE, lambda u: u.mq.ack(u.polled_of_row)),
    "extend": (PATIENCE, lambda u: u.polled[3].extend(60)),
    "subscribe": (PATIENCE, _subscribe),
    "read": (1, lambda u: u.reader.read(timeout=1)),
    "read_at_once": (PATIENCE, lambda u: u.reader.read(timeout=0)),
    "read_of_a_feed": (1, lambda u: u.feed.read_batch(timeout=1)),
    "commit": (PATIENCE, lambda u: u.reader.commit()),
    "seek": (PATIENCE, lambda u: u.reader.seek(0)),
    "position": (PATIENCE, lambda u: u.reader.position()),
    "lag": (PATIENCE, lambda u: u.reader.lag()),
    "open_reader": (PATIENCE, lambda u: u.mq.reader("orders", name="m").__aenter__()),
    "open_reader_of_partitions": (PATIENCE, lambda u: u.mq.reader("row").__aenter__()),
    "live": (PATIENCE, lambda u: u.mq.live("orders").__aenter__()),
    "stage": (PATIENCE, lambda u: u.mq.stage("w", 1, "p", {"orders": [b"x"]})),
    "commit_stage": (PATIENCE, lambda u: u.mq.commit("w", 1, ["p"])),
    "topics": (PATIENCE, lambda u: u.mq.topics()),
    "topic_stats": (PATIENCE, lambda u: u.mq.topic_stats("orders")),
    "create_topic": (PATIENCE, lambda u: u.mq.create_topic("new")),
    "purge_topic": (PATIENCE, lambda u: u.mq.purge_topic("orders")),
    "group_stats": (PATIENCE, lambda u: u.mq.group_stats("orders", "workers")),
    "peek": (PATIENCE, lambda u: u.mq.peek("orders", "workers")),
    "dead_letters": (PATIENCE, lambda u: u.mq.dead_letters("orders", "workers")),
    "redrive": (PATIENCE, lambda u: u.mq.redrive("orders", "workers")),
}
ENDS_WITH_NOTHING = {
    "poll",
    "poll_of_a_new_group",
    "poll_of_partitions",
    "read",
    "read_of_a_feed",
}
"""What waits for messages and gets none: a broker that is away for a moment has none either."""


async def test_a_block_does_not_wait_for_a_broker_that_says_nothing_but_tells_of_it(
    url: str, proxy: Proxy
) -> None:
    clock = ManualClock()
    told: list[flintmq.NotSettled] = []
    async with _silenced(url, proxy, clock) as using:
        using.mq.on_not_settled(told.append)
        async with using.polled[2].process():
            pass
        await clock.advance(PATIENCE - 0.01)
        assert told == []
        await clock.advance(0.01 + SLACK)
        assert [(one.how, len(one.offsets)) for one in told] == [("ack", 1)]
        assert isinstance(told[0].error, NO_ANSWER)
        assert using.mq.not_settled == 1


async def _ends_as_it_should(name: str, call: Awaitable[object]) -> None:
    if name in ENDS_WITH_NOTHING:
        assert not await call
    else:
        with pytest.raises(NO_ANSWER):
            await call


@asynccontextmanager
async def _silenced(url: str, proxy: Proxy, clock: ManualClock) -> AsyncIterator[Using]:
    async with flintmq.connect(url, timeout=PATIENCE, clock=clock) as mq:
        using = Using(mq)
        await using.open()
        proxy.silent.add("down")
        yield using
        proxy.silent.clear()
        proxy.cut()


@pytest.mark.parametrize("name", VERBS)
async def test_a_call_to_a_broker_that_says_nothing_ends_at_its_deadline(
    url: str, proxy: Proxy, name: str
) -> None:
    clock = ManualClock()
    seconds, verb = VERBS[name]
    async with _silenced(url, proxy, clock) as using:
        call = asyncio.ensure_future(verb(using))
        await clock.advance(seconds - 0.01)
        assert not call.done()
        await clock.advance(0.01 + SLACK)
        assert call.done()
        await _ends_as_it_should(name, call)


async def test_what_is_published_to_a_broker_that_says_nothing_is_bounded(
    url: str, proxy: Proxy
) -> None:
    clock = ManualClock()
    value = bytes(1024 * 1024)
    async with _silenced(url, proxy, clock) as using:
        for _ in range(3):
            calls = [asyncio.ensure_future(using.mq.publish("a", value)) for _ in range(20)]
            await clock.advance(PATIENCE + SLACK)
            await asyncio.wait(calls, timeout=5)
            errors = [call.exception() for call in calls]
        assert all(isinstance(error, flintmq.QueueFull) for error in errors)
        assert "has not acknowledged" in str(errors[0])


async def test_polls_that_are_answered_by_nobody_for_too_long_say_so(
    url: str, proxy: Proxy
) -> None:
    clock = ManualClock()
    async with _silenced(url, proxy, clock) as using:
        poll = using.mq.poll
        for _ in range(2):
            call = asyncio.ensure_future(poll("orders", "workers", wait=10))
            await clock.advance(10 + SLACK)
            assert not await call
        call = asyncio.ensure_future(poll("orders", "workers", wait=10))
        await clock.advance(10 + SLACK)
        with pytest.raises(NO_ANSWER):
            await call


async def test_what_comes_too_late_for_a_poll_is_given_back(url: str, proxy: Proxy) -> None:
    clock = ManualClock()
    async with flintmq.connect(url, clock=clock) as mq, flintmq.connect(url) as other:
        await mq.publish_batch("jobs", [b"%d" % number for number in range(5)])
        assert len(await mq.poll("jobs", "g", 1, ack="auto")) == 1
        proxy.silent.add("down")
        call = asyncio.ensure_future(mq.poll("jobs", "g", 10, lease=3600, wait=1))
        await clock.advance(1 + SLACK)
        assert not await call
        proxy.silent.clear()
        proxy.cut()  # and the session is resumed
        assert len(await asyncio.wait_for(other.poll("jobs", "g", 10, wait=60), 60)) == 4


@pytest.mark.parametrize("count", [1, 2])
async def test_a_connect_ends_in_its_own_time(count: int) -> None:
    gone: list[asyncio.StreamWriter] = []

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.gather(reader.read(), return_exceptions=True)
        writer.transport.abort()
        gone.append(writer)

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        url = "flint://" + ",".join([f"127.0.0.1:{port}"] * count)
        with pytest.raises(flintmq.Disconnected, match="did not answer within"):
            await asyncio.wait_for(flintmq.connect(url, timeout=0.05).__aenter__(), 5)
        await until(lambda: len(gone) == count, "it holds on to connections")


async def test_closing_does_not_wait_for_a_broker_that_says_nothing(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "CLOSE_SECONDS", 0.05)
    monkeypatch.setattr("flintmq.net.remote.requests.CLOSE_SECONDS", 0.05)
    monkeypatch.setattr("flintmq.client.intake.GIVE_BACK_SECONDS", 0.05)
    using = Using(await flintmq.connect(url, timeout=PATIENCE))
    await using.open()
    proxy.silent.add("down")
    async with asyncio.timeout(5):  # in the task that has read: it does not wait for itself
        await using.mq.close()


@pytest.mark.slow
async def test_a_broker_that_is_stopped_holds_up_nobody_for_longer_than_they_wait(
    tmp_path: Path,
) -> None:
    """`kill -STOP`: the kernel goes on to take connections and bytes, and nobody answers."""
    broker = await Served(tmp_path / "data").start()
    guard = 5.0  # every call has one second
    try:
        using = Using(await flintmq.connect(broker.url, timeout=1))
        await using.open()
        blocking = await asyncio.to_thread(flintmq.connect_sync, broker.url, timeout=1)
        broker.process.send_signal(signal.SIGSTOP)
        connecting = (
            flintmq.connect(broker.url, timeout=1).__aenter__(),
            asyncio.to_thread(flintmq.connect_sync, broker.url, timeout=1),
        )
        for attempt in connecting:
            with pytest.raises(flintmq.Disconnected):
                await asyncio.wait_for(attempt, guard)
        calls = {
            name: asyncio.ensure_future(verb(using))
            for name, (_, verb) in VERBS.items()
            if name not in ("seek", "purge_topic")
        }
        calls["poll"] = asyncio.ensure_future(
            asyncio.to_thread(blocking.poll, "orders", "workers", wait=1)
        )
        calls["topic_stats"] = asyncio.ensure_future(
            asyncio.to_thread(blocking.topic_stats, "orders")
        )
        _, late = await asyncio.wait(calls.values(), timeout=guard)
        assert not [name for name, call in calls.items() if call in late]
        for call in calls.values():
            assert isinstance(call.exception(), NO_ANSWER) or not call.result()
        async with asyncio.timeout(guard):
            await using.mq.close()
        broker.process.send_signal(signal.SIGCONT)
        stats = await asyncio.to_thread(blocking.topic_stats, "orders")
        assert stats.message_count >= 10
        broker.process.send_signal(signal.SIGSTOP)
        await asyncio.wait_for(asyncio.to_thread(blocking.close), guard)
        broker.process.send_signal(signal.SIGCONT)
        assert await broker.end(signal.SIGTERM) == 0
    finally:
        await broker.leave()
