"""Reading by offset over the network: the same, and within what a frame may have."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from flintmq.broker_api import Fetch, ReaderOpening
from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.errors import FlintError, InvalidRequest, TopicNotFound, TopicReplaced
from flintmq.net.remote.broker import RemoteBroker
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.net.server.requests import HANDLERS
from flintmq.net.wire.operations import Op
from flintmq.serde.codec import Codec


class Far:
    """A broker behind a socket, and the one that is there."""

    def __init__(self, limits: Limits) -> None:
        codec = Codec()
        self.near = Broker(None, codec)
        self.mq = Client(self.near, codec, auto_create=True, timeout=30.0)
        self.server = NativeServer(self.near, limits=limits)

    async def open(self) -> None:
        host, port = await self.server.start("127.0.0.1", 0)
        self.broker = RemoteBroker(f"flint://{host}:{port}")
        await self.broker.open()

    async def close(self) -> None:
        await self.broker.close()
        await self.server.close()
        await self.near.close()


@pytest.fixture
def limits() -> Limits:
    return Limits(frame_bytes=2 * 1024 * 1024)


@pytest.fixture
async def far(limits: Limits) -> AsyncIterator[Far]:
    far = Far(limits)
    await far.open()
    yield far
    await far.close()


async def all_of(far: Far, topic: str, **wanted: int) -> list[bytes]:
    position, values = 0, []
    while True:
        fetched = await far.broker.fetch(
            Fetch(
                topic,
                position,
                end=None,
                max_rows=100_000,
                max_bytes=wanted.get("max_bytes", 0),
                filter=None,
                with_expired=False,
            )
        )
        values += fetched.rows.values
        position = fetched.position
        if position >= fetched.next_offset:
            return values


async def test_everything_comes_in_replies_that_fit_a_frame(far: Far) -> None:
    for number in range(20):
        await far.mq.publish_batch("orders", [b"%03d" % number * 100] * 1000)

    values = await all_of(far, "orders", max_bytes=1 << 30)

    assert values == [b"%03d" % number * 100 for number in range(20) for _ in range(1000)]


async def test_a_batch_that_is_larger_than_a_frame_comes_in_parts(far: Far) -> None:
    sent = [b"%d" % number * 100_000 for number in range(10)] * 5
    await far.mq.publish_batch("orders", sent)

    assert await all_of(far, "orders") == sent


async def test_a_topic_that_was_made_anew_is_told_apart(far: Far) -> None:
    await far.mq.publish("orders", b"old")
    (extent,) = await far.broker.extents("orders", None)
    await far.mq.delete_topic("orders")
    await far.mq.publish("orders", b"new")

    with pytest.raises(TopicReplaced) as caught:
        await far.broker.fetch(Fetch(
            "orders", 0, end=1, max_rows=1, max_bytes=0, filter=None, with_expired=False,
            topic_id=extent.id,
        ))  # fmt: skip
    assert caught.value.known_id == extent.id


async def test_extents_of_several_topics_are_asked_for_at_once(far: Far) -> None:
    await far.mq.publish("a", b"x")
    await far.mq.create_topic("b", partitions=2)

    found = await far.broker.extents_of(["a", "b", "nowhere"])

    assert isinstance(found["nowhere"], TopicNotFound)
    a, b = found["a"], found["b"]
    assert isinstance(a, list)
    assert isinstance(b, list)
    assert [(part.topic, part.next_offset) for part in [*a, *b]] == [
        ("a", 1),
        ("b/0", 0),
        ("b/1", 0),
    ]


async def test_waiting_beyond_an_offset_over_the_network(far: Far) -> None:
    await far.mq.publish("a", b"x")

    assert await far.broker.wait_beyond({"a": 0}, 5) is True
    assert await far.broker.wait_beyond({"a": 1}, 0.01) is False


async def test_a_fault_of_the_broker_is_heard_and_not_waited_for_for_ever(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that was received and never answered would not be sent again after a resume."""
    monkeypatch.setitem(HANDLERS, Op.WAIT_BEYOND, ())

    with pytest.raises(FlintError, match="internal error of the broker: ValueError"):
        await far.broker.wait_beyond({"a": 0}, 0)

    await far.mq.publish("a", b"x")
    assert (await far.broker.extents("a", None))[0].next_offset == 1, "the connection is fine"


async def test_small_ranges_of_many_partitions_come_in_one_reply(far: Far) -> None:
    await far.mq.create_topic("wide", partitions=100)
    for number in range(100):
        await far.mq.publish_batch(
            "wide", [b"%d.%d" % (number, n) for n in range(5)], partition=number
        )
    parts = await far.broker.extents("wide", None)

    wanted = [Fetch(one.topic, 1, end=3, topic_id=one.id) for one in parts]
    found = await far.broker.fetch_many(wanted, 0)

    assert [one.rows.values for one in found] == [
        [b"%d.1" % number, b"%d.2" % number] for number in range(100)
    ]
    assert {(one.position, one.next_offset) for one in found} == {(3, 5)}


async def test_a_reply_that_is_full_has_the_first_ranges(far: Far) -> None:
    for name in "abc":
        await far.mq.publish_batch(name, [b"x" * 1000] * 10)
    wanted = [Fetch(name, 0, end=10) for name in "abc"]

    found = await far.broker.fetch_many(wanted, 15_000)
    assert [len(one.rows) for one in found] == [10, 10], "what was begun is sent, one at least"
    with pytest.raises(TopicNotFound):
        await far.broker.fetch_many([*wanted[:1], Fetch("nowhere", 0, end=1)], 0)


async def test_a_row_is_opened_and_committed_at_an_offset_for_each_partition(far: Far) -> None:
    await far.mq.create_topic("wide", partitions=150)
    for number in range(150):
        await far.mq.publish_batch("wide", [b"%d" % n for n in range(5)], partition=number)
    starts = {number: number % 5 for number in range(150)}

    opening = ReaderOpening("wide", name="g", starts=starts, partitions=list(starts))
    reader = await far.broker.open_row(opening)
    assert await reader.positions() == starts
    await reader.commit_each(dict.fromkeys(range(100), 4))
    await reader.close()

    stats = await far.mq.group_stats("wide", "g")
    assert stats.lag == 100 * 1 + sum(5 - starts[number] for number in range(100, 150))
    with pytest.raises(InvalidRequest, match="offsets by partition"):
        await far.broker.open_reader(ReaderOpening("wide/0", starts={0: 1}))
