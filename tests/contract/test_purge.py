"""Purging a topic drops its messages and nothing else; dead letters can be let go."""

from __future__ import annotations

from pathlib import Path

import pytest

import flintmq

from .queues import numbered, one, polled


async def _values(mq: flintmq.Client, topic: str = "orders") -> list[bytes]:
    async with mq.reader(topic) as reader:
        return list((await reader.read_batch(1000, timeout=0)).values)


async def test_everything_goes_and_the_topic_stays(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=100)
    await numbered(mq, 3)

    assert await mq.purge_topic("orders") == 3

    assert await _values(mq) == []
    stats = await mq.topic_stats("orders")
    assert (stats.first_offset, stats.next_offset, stats.message_count) == (3, 3, 0)
    assert (stats.byte_count, stats.drops) == (0, {"purged": 3})
    assert (await mq.topic_info("orders")).options.retention_count == 100
    assert (await mq.publish("orders", b"next")).offset == 3
    assert await _values(mq) == [b"next"]


async def test_what_lies_before_an_offset_goes(mq: flintmq.Client) -> None:
    await numbered(mq, 5)

    assert await mq.purge_topic("orders", 3) == 3
    assert await mq.purge_topic("orders", before=2) == 0
    assert await _values(mq) == [b"3", b"4"]
    assert await mq.purge_topic("orders", 1_000_000) == 2
    assert (await mq.topic_stats("orders")).next_offset == 5


async def test_groups_and_readers_go_on_behind_what_is_gone(mq: flintmq.Client) -> None:
    await numbered(mq, 4)
    held = await one(mq)
    async with mq.reader("orders", name="r") as reader:
        await reader.read(timeout=0)
        await mq.purge_topic("orders")
        await mq.publish("orders", b"next")
        await held.ack()

        assert await polled(mq) == [b"next"]
        rows = await reader.read_batch(10, timeout=0)
        assert (list(rows.values), reader.missed) == ([b"next"], 3)
    assert (await mq.group_stats("orders", "g")).drops == {"retention": 3}


async def test_even_what_groups_keep_goes(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", keep_until_settled=True, retention_count=2)
    await numbered(mq, 2)
    assert await polled(mq, max=1) == [b"0"]

    assert await mq.purge_topic("orders") == 2
    assert await polled(mq) == []


async def test_a_publisher_that_waits_for_room_gets_it(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=2, overflow="reject")
    await numbered(mq, 2)
    with pytest.raises(flintmq.TopicFull):
        await mq.publish("orders", b"2")

    await mq.purge_topic("orders")

    assert (await mq.publish("orders", b"2")).offset == 2


async def test_partitions_are_purged_together_or_one_by_one(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", partitions=3)
    await mq.publish_batch("orders", [b"x"] * 9)
    for number in range(3):
        await mq.publish("orders", b"y", partition=number)
    stored = (await mq.topic_stats("orders")).partitions

    with pytest.raises(flintmq.InvalidRequest, match="its own offsets"):
        await mq.purge_topic("orders", 1)
    assert await mq.purge_topic("orders/1", 1) == 1
    assert await mq.purge_topic("orders/1") == stored[1].message_count - 1
    assert await mq.purge_topic("orders") == sum(stored[n].message_count for n in (0, 2))
    assert (await mq.topic_stats("orders")).message_count == 0


@pytest.mark.parametrize("before", [-1, 2**63, "3", 1.0, True])
async def test_before_is_an_offset(mq: flintmq.Client, before: object) -> None:
    await numbered(mq, 1)
    with pytest.raises(flintmq.InvalidRequest):
        await mq.purge_topic("orders", before)  # type: ignore[arg-type]
    assert await _values(mq) == [b"0"]


async def test_a_topic_that_is_not_there_is_not_purged(mq: flintmq.Client) -> None:
    with pytest.raises(flintmq.TopicNotFound):
        await mq.purge_topic("orders")


async def test_what_was_purged_is_gone_after_a_restart(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/data"
    async with flintmq.connect(url) as mq:
        await numbered(mq, 5)
        assert await mq.purge_topic("orders", 3) == 3
    async with flintmq.connect(url) as mq:
        assert await _values(mq) == [b"3", b"4"]
        assert (await mq.publish("orders", b"5")).offset == 5


# --- dead letters


async def _dead(mq: flintmq.Client, count: int, group: str = "g") -> None:
    for message in await mq.poll("orders", group, count, order="log"):
        await message.reject("no order")


async def test_dead_letters_can_be_let_go(mq: flintmq.Client) -> None:
    await numbered(mq, 4)
    await _dead(mq, 4)
    first, second, third, fourth = await mq.dead_letters("orders", "g")

    assert await mq.discard("orders", "g", [first, third.id]) == 2
    assert [one.id for one in await mq.dead_letters("orders", "g")] == [second.id, fourth.id]
    assert (await mq.group_stats("orders", "g")).dead_letters == 2
    assert await mq.discard("orders", "g", first) == 0
    assert await mq.redrive("orders", "g") == 2
    assert await polled(mq) == [b"1", b"3"]


async def test_dead_letters_are_let_go_by_a_filter_or_all_at_once(mq: flintmq.Client) -> None:
    for region in ("eu", "us", "eu"):
        await mq.publish("orders", b"x", headers={"region": region})
    await _dead(mq, 3)

    assert await mq.discard("orders", "g", filter='headers.region == "us"') == 1
    assert await mq.discard("orders", "g") == 2
    assert await mq.dead_letters("orders", "g") == []
    assert await mq.redrive("orders", "g") == 0


async def test_the_dead_letters_of_other_groups_stay(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", dead_letter_topic="graves")
    await numbered(mq, 2)
    await _dead(mq, 2, "g")
    await _dead(mq, 2, "h")

    assert await mq.discard("orders", "g") == 2
    assert len(await mq.dead_letters("orders", "h")) == 2


async def test_dead_letters_are_looked_through_page_by_page(mq: flintmq.Client) -> None:
    await numbered(mq, 5)
    await _dead(mq, 5)

    page = await mq.dead_letters("orders", "g", 2)
    rest = await mq.dead_letters("orders", "g", first=page[-1].id + 1)
    assert [one.message.value for one in (*page, *rest)] == [b"%d" % n for n in range(5)]
    with pytest.raises(flintmq.InvalidRequest):
        await mq.dead_letters("orders", "g", first=-1)
