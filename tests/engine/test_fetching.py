"""Reading by offset in bulk: what comes, where to go on, and that nobody notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from flintmq.broker_api import Fetch, Fetched
from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.errors import InvalidRequest, TopicFull, TopicNotFound
from flintmq.serde.codec import Codec
from flintmq.serde.filters import compile_filter
from flintmq.testing import ManualClock


class Desk:
    def __init__(self) -> None:
        codec = Codec()
        self.clock = ManualClock()
        self.broker = Broker(self.clock, codec)
        self.mq = Client(self.broker, codec, auto_create=True, timeout=30.0)

    async def fetch(self, offset: int = 0, **wanted: Any) -> Fetched:
        defaults: dict[str, Any] = {
            "end": None, "max_rows": 1000, "max_bytes": 1 << 20, "filter": None,
            "with_expired": False,
        }  # fmt: skip
        return await self.broker.fetch(Fetch("orders", offset, **{**defaults, **wanted}))


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    await desk.broker.close()


def offsets(fetched: Fetched) -> list[int | None]:
    return fetched.rows.offsets


async def test_rows_come_from_the_offset_up_to_before_the_end(desk: Desk) -> None:
    await desk.mq.publish_batch("orders", [b"%d" % n for n in range(10)])

    fetched = await desk.fetch(3, end=7)

    assert offsets(fetched) == [3, 4, 5, 6]
    assert (fetched.position, fetched.next_offset) == (7, 10)


async def test_at_the_end_there_is_nothing_and_the_position_stays(desk: Desk) -> None:
    await desk.mq.publish("orders", b"x")

    fetched = await desk.fetch(1)

    assert (offsets(fetched), fetched.position) == ([], 1)


async def test_whole_batches_come_until_the_bytes_are_used_up_and_one_at_least(desk: Desk) -> None:
    for _ in range(4):
        await desk.mq.publish_batch("orders", [b"x" * 100] * 100)

    one = await desk.fetch(max_bytes=1)
    two = await desk.fetch(max_bytes=25_000)

    assert [run.row_count for run in one.rows.runs] == [100]
    assert [run.row_count for run in two.rows.runs] == [100, 100]
    assert two.position == 200


async def test_what_is_only_fetched_was_read_by_nobody(desk: Desk) -> None:
    await desk.mq.create_topic("orders", retention_count=5, overflow="reject")
    await desk.mq.publish_batch("orders", [b"x"] * 5)

    assert len((await desk.fetch()).rows) == 5

    with pytest.raises(TopicFull):
        await desk.mq.publish("orders", b"one more")
    stats = await desk.mq.topic_stats("orders")
    assert (stats.first_offset, stats.lag, stats.subscribers) == (0, {}, 0)


async def test_what_retention_took_is_told(desk: Desk) -> None:
    await desk.mq.create_topic("orders", retention_count=4)
    await desk.mq.publish_batch("orders", [b"x"] * 10)

    fetched = await desk.fetch(2)

    gap = fetched.rows.gap
    assert gap is not None
    assert (gap.first, gap.next, gap.count) == (2, 6, 4)
    assert offsets(fetched) == [6, 7, 8, 9]


async def test_of_a_range_that_is_gone_altogether_only_that_is_told(desk: Desk) -> None:
    await desk.mq.create_topic("orders", retention_count=4)
    await desk.mq.publish_batch("orders", [b"x"] * 10)

    fetched = await desk.fetch(2, end=4)

    assert fetched.rows.missed == 2
    assert (offsets(fetched), fetched.position) == ([], 4)


async def test_a_filter_looks_at_so_many_rows_and_says_how_far_it_came(desk: Desk) -> None:
    for _ in range(40):
        await desk.mq.publish_batch("orders", [b"x"] * 1000)
    await desk.mq.publish("orders", b"rare", priority=7)
    rare = compile_filter("priority == 7")
    position, found, calls = 0, [], 0

    while position < 40_001:
        fetched = await desk.fetch(position, filter=rare, max_rows=100_000)
        assert fetched.position > position
        position = fetched.position
        found += offsets(fetched)
        calls += 1

    assert found == [40_000]
    assert calls > 1


async def test_expired_rows_come_only_where_they_are_asked_for(desk: Desk) -> None:
    await desk.mq.publish_batch("orders", [b"a", b"b", b"c"], ttl=[60, 1, None])
    await desk.clock.advance(5)

    assert offsets(await desk.fetch()) == [0, 2]
    assert offsets(await desk.fetch(with_expired=True)) == [0, 1, 2]


async def test_extents_say_where_each_partition_begins_and_ends(desk: Desk) -> None:
    await desk.mq.create_topic("orders", partitions=2, retention_count=3)
    await desk.mq.publish_batch("orders", [b"x"] * 5, partition=1)

    zero, one = await desk.broker.extents("orders", None)

    assert (zero.topic, zero.partition, zero.first_offset, zero.next_offset) == (
        "orders/0",
        0,
        0,
        0,
    )
    assert (one.topic, one.partition, one.first_offset, one.next_offset) == ("orders/1", 1, 2, 5)
    assert one.byte_count == 3
    assert zero.id != one.id


async def test_extents_say_which_offset_a_time_is_at(desk: Desk) -> None:
    await desk.mq.publish("orders", b"early")
    await desk.clock.advance(10)
    border = datetime.fromtimestamp(desk.clock.now_ms() / 1000, UTC)
    await desk.mq.publish("orders", b"late")

    (extent,) = await desk.broker.extents("orders", border)

    assert extent.at == 1


async def test_waiting_ends_when_one_of_the_topics_has_more(desk: Desk) -> None:
    await desk.mq.publish("a", b"x")
    await desk.mq.publish("b", b"x")
    waiting = asyncio.create_task(desk.broker.wait_beyond({"a": 1, "b": 1}, None))
    await asyncio.sleep(0)
    assert not waiting.done()

    await desk.mq.publish("b", b"y")

    assert await waiting is True


async def test_waiting_ends_when_the_time_is_up_or_a_topic_is_gone(desk: Desk) -> None:
    await desk.mq.publish("a", b"x")
    late = asyncio.create_task(desk.broker.wait_beyond({"a": 1}, 5))
    await asyncio.sleep(0)
    await desk.clock.advance(6)
    assert await late is False

    gone = asyncio.create_task(desk.broker.wait_beyond({"a": 1}, None))
    await asyncio.sleep(0)
    await desk.mq.delete_topic("a")
    assert await gone is True
    assert await desk.broker.wait_beyond({"nowhere": 0}, None) is True


async def test_what_makes_no_sense_is_refused(desk: Desk) -> None:
    with pytest.raises(TopicNotFound):
        await desk.fetch()
    await desk.mq.publish("orders", b"x")
    with pytest.raises(InvalidRequest):
        await desk.fetch(-1)
    with pytest.raises(InvalidRequest):
        await desk.fetch(max_rows=0)
