"""Readers of one name share one position: no duplicates, no gaps, and a place to come back to."""

from __future__ import annotations

import asyncio
import random

import pytest

import flintmq
from tests.conftest import Background


async def _ten(mq: flintmq.Client) -> None:
    await mq.publish_batch("orders", [b"%d" % n for n in range(10)])


async def test_readers_of_one_name_split_the_messages(mq: flintmq.Client) -> None:
    await _ten(mq)
    async with mq.reader("orders", name="n") as a, mq.reader("orders", name="n") as b:
        got_a = list((await a.read_batch(3)).values)
        got_b = list((await b.read_batch(3)).values)
        got_a += (await a.read_batch(100)).values
        assert (await b.read(timeout=0)) is None
        assert got_a + got_b == [b"%d" % n for n in (0, 1, 2, 6, 7, 8, 9, 3, 4, 5)]
        assert await a.position() == await b.position() == 10


async def test_readers_of_other_names_and_topics_do_not_care(mq: flintmq.Client) -> None:
    await _ten(mq)
    await mq.publish("bills", b"bill")
    async with (
        mq.reader("orders", name="n") as one,
        mq.reader("orders", name="m") as two,
        mq.reader("bills", name="n") as three,
    ):
        await one.read_batch()
        assert await two.position() == 0
        assert await three.position() == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_many_tasks_of_one_name_get_each_message_once_and_in_order(
    mq: flintmq.Client, seed: int
) -> None:
    chance = random.Random(seed)
    got: list[list[int]] = []

    async def consume() -> None:
        mine: list[int] = []
        got.append(mine)
        async with mq.reader("orders", name="shared") as reader:
            while sum(map(len, got)) < 1000:
                way = chance.randrange(4)
                if way == 0 or way == 1:
                    rows = list(await reader.read_batch(chance.randrange(1, 20), timeout=0))
                else:
                    message = await reader.read(timeout=0)
                    rows = [] if message is None else [message]
                mine += [int(message.value) for message in rows]
                await asyncio.sleep(0)
            await reader.commit()  # else the others get what this one had

    async def produce() -> None:
        n = 0
        while n < 1000:
            count = min(chance.choice((1, 2, 70)), 1000 - n)
            await mq.publish_batch("orders", [b"%d" % i for i in range(n, n + count)])
            n += count
            await asyncio.sleep(0)

    async with mq.reader("orders", name="shared"):
        await asyncio.gather(produce(), *(consume() for _ in range(6)))
    assert sorted(n for mine in got for n in mine) == list(range(1000))
    assert all(mine == sorted(mine) for mine in got)


async def test_readers_that_wait_are_all_woken_and_share_what_came(
    mq: flintmq.Client, background: Background
) -> None:
    async with mq.reader("orders", name="n") as a, mq.reader("orders", name="n") as b:
        reading = [await background.waiting(reader.read()) for reader in (a, b)]
        await mq.publish("orders", b"first")
        await background.settle()
        assert sum(task.done() for task in reading) == 1
        await mq.publish("orders", b"second")
        values = {message.value for task in reading if (message := await task)}
        assert values == {b"first", b"second"}


# --- start counts once


@pytest.mark.parametrize(("start", "first"), [(None, 0), ("earliest", 0), ("latest", 10), (4, 4)])
async def test_start_counts_for_a_new_name(
    mq: flintmq.Client, start: str | int | None, first: int
) -> None:
    await _ten(mq)
    async with mq.reader("orders", name="new", start=start) as reader:  # type: ignore[arg-type]
        assert await reader.position() == first


async def test_committed_means_earliest_for_a_name_that_committed_nothing(
    mq: flintmq.Client,
) -> None:
    await _ten(mq)
    async with mq.reader("orders", name="new", start="committed") as reader:
        assert await reader.position() == 0


@pytest.mark.parametrize("start", ["latest", "earliest", "committed", 2])
async def test_a_known_name_goes_on_where_it_stands(mq: flintmq.Client, start: str | int) -> None:
    await _ten(mq)
    async with mq.reader("orders", name="n") as first:
        await first.read_batch(5)
        async with mq.reader("orders", name="n", start=start) as second:  # type: ignore[arg-type]
            assert await second.position() == 5
        await first.commit()
    async with mq.reader("orders", name="n", start=start) as third:  # type: ignore[arg-type]
        assert await third.position() == 5


async def test_a_known_name_that_waits_at_the_end_does_not_start_again(mq: flintmq.Client) -> None:
    async with mq.reader("orders", name="n", start="latest"):
        pass
    await _ten(mq)
    async with mq.reader("orders", name="n", start="latest") as reader:
        assert len(await reader.read_batch()) == 10


async def test_only_seek_moves_a_known_name_and_moves_it_for_all(mq: flintmq.Client) -> None:
    await _ten(mq)
    async with mq.reader("orders", name="n") as a, mq.reader("orders", name="n") as b:
        await a.read_batch()
        await b.seek(8)
        assert await a.position() == 8
        assert list((await a.read_batch()).values) == [b"8", b"9"]
        await a.seek("committed")
        assert await b.position() == 0
        await b.commit(3)
        await a.seek("committed")
        assert await b.position() == 3


# --- what stays when the last has closed


async def test_a_name_at_rest_goes_on_from_what_was_committed(mq: flintmq.Client) -> None:
    await _ten(mq)
    async with mq.reader("orders", name="n") as reader:
        await reader.read_batch(3)
        assert await reader.commit() == 3
        await reader.read_batch(4)
    assert (await mq.topic_stats("orders")).lag == {"n": 7}
    async with mq.reader("orders", name="n") as reader:
        assert await reader.position() == 3
        assert list((await reader.read_batch(1)).values) == [b"3"]


@pytest.mark.parametrize(("start", "began"), [("earliest", 0), (4, 4), ("latest", 10)])
async def test_a_name_that_committed_nothing_goes_on_from_where_it_first_began(
    mq: flintmq.Client, start: str | int, began: int
) -> None:
    await _ten(mq)
    async with mq.reader("orders", name="n", start=start) as reader:  # type: ignore[arg-type]
        await _ten(mq)
        await reader.read_batch()
        await reader.seek(15)
    async with mq.reader("orders", name="n", start="earliest") as reader:
        assert await reader.position() == began


async def test_a_name_goes_back_only_when_the_last_of_its_readers_has_closed(
    mq: flintmq.Client,
) -> None:
    await _ten(mq)
    a, b = await mq.reader("orders", name="n"), await mq.reader("orders", name="n")
    await a.read_batch(6)
    await a.close()
    assert await b.position() == 6
    await b.close()
    async with mq.reader("orders", name="n") as reader:
        assert await reader.position() == 0


async def test_commit_takes_a_message_an_offset_or_nothing(mq: flintmq.Client) -> None:
    await _ten(mq)
    async with mq.reader("orders", name="n") as reader:
        rows = await reader.read_batch(6)
        assert await reader.commit(rows[2]) == 3
        assert await reader.commit(5) == 5
        assert await reader.commit(0) == 0  # going back is allowed
        assert await reader.commit() == 6
        assert await reader.commit(10) == 10
        for bad in (-1, 11):
            with pytest.raises(flintmq.InvalidRequest, match="commit"):
                await reader.commit(bad)
        assert await reader.position() == 6  # committing does not move the reader
    async with mq.reader("orders", name="n") as reader:
        assert await reader.position() == 10


async def test_a_committed_message_is_not_read_again(mq: flintmq.Client) -> None:
    await _ten(mq)
    async with mq.reader("orders", name="n") as reader:
        async for message in reader:
            await reader.commit(message)
            if message.offset == 4:
                break
    async with mq.reader("orders", name="n") as reader:
        message5 = await reader.read()
        assert message5 is not None
        assert message5.offset == 5


# --- what a reader holds and has not committed


async def test_what_a_reader_held_and_did_not_commit_goes_to_the_others(mq: flintmq.Client) -> None:
    await _ten(mq)
    a, b = await mq.reader("orders", name="n"), await mq.reader("orders", name="n")
    await a.read_batch(3)
    assert (await b.read_batch(4)).offsets == [3, 4, 5, 6]
    await a.close()
    assert await b.lag() == 6
    assert await b.commit() == 0  # not behind what nobody has done
    assert (await b.read_batch(2)).offsets == [0, 1]
    assert [message.offset for message in [await b.read(), await b.read()] if message] == [2, 7]
    assert (await b.read_batch()).offsets == [8, 9]
    assert await b.commit() == 10
    await b.close()
    async with mq.reader("orders", name="n") as reader:
        assert await reader.position() == 10


async def test_what_a_reader_has_committed_goes_to_nobody(mq: flintmq.Client) -> None:
    await _ten(mq)
    a, b = await mq.reader("orders", name="n"), await mq.reader("orders", name="n")
    rows = await a.read_batch(5)
    await a.commit(rows[2])
    await a.close()
    async with b:
        assert (await b.read_batch(2)).offsets == [3, 4]
        assert (await b.read_batch()).offsets == [5, 6, 7, 8, 9]


async def test_nobody_commits_what_another_reader_holds(mq: flintmq.Client) -> None:
    await _ten(mq)
    a, b = await mq.reader("orders", name="n"), await mq.reader("orders", name="n")
    await a.read_batch(3)
    rows = await b.read_batch(7)
    assert await b.commit(rows[6]) == 0
    assert await b.commit() == 0
    assert await a.commit() == 10
    await a.read_batch(timeout=0)
    await a.close()
    await b.close()
    async with mq.reader("orders", name="n") as reader:
        assert await reader.read(timeout=0) is None


async def test_an_offset_that_is_committed_counts_whoever_holds_what_is_before_it(
    mq: flintmq.Client,
) -> None:
    await _ten(mq)
    a, b = await mq.reader("orders", name="n"), await mq.reader("orders", name="n")
    await a.read_batch(5)
    assert await b.commit(3) == 3
    await a.close()
    async with b:
        assert (await b.read_batch(10)).offsets[:2] == [3, 4]


async def test_who_waits_at_the_end_gets_what_another_held(
    mq: flintmq.Client, background: Background
) -> None:
    await _ten(mq)
    a, b = await mq.reader("orders", name="n"), await mq.reader("orders", name="n")
    await a.read_batch()
    reading = await background.waiting(b.read_batch())
    await a.close()
    assert (await reading).offsets == list(range(10))
    await b.close()


async def test_what_another_held_is_filtered_and_may_be_gone(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=8)
    a = await mq.reader("orders", name="n", filter="offset % 2 == 0")
    b = await mq.reader("orders", name="n")
    await mq.publish_batch("orders", [b"x"] * 6)
    assert (await a.read_batch()).offsets == [0, 2, 4]
    await mq.publish_batch("orders", [b"x"] * 4)
    await a.close()
    got: list[int | None] = []
    while len(got) < 4:
        got += (await b.read_batch()).offsets
    assert got == [2, 4, 6, 8]
    await b.close()


async def test_what_another_held_and_retention_took_is_told_as_missed(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=10)
    a, b = await mq.reader("orders", name="n"), await mq.reader("orders", name="n")
    await mq.publish_batch("orders", [b"x"] * 10)
    assert (await a.read_batch(4)).offsets == [0, 1, 2, 3]
    assert (await b.read_batch(6)).offsets == [4, 5, 6, 7, 8, 9]
    await a.close()
    await mq.publish_batch("orders", [b"x"] * 3)
    assert await b.commit() == 3

    rows = await b.read_batch(1)
    assert rows.gap == flintmq.Missed("orders", 0, 3, 3)
    assert rows.offsets == [3]
    assert (await b.read_batch(3)).offsets == [10, 11, 12]
    assert b.missed == 3
    assert await b.commit() == 13
    await b.close()
    assert (await mq.topic_stats("orders")).missed == {"n": 3}


async def test_what_another_held_and_nobody_came_to_counts_as_missed(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=10)
    a, b = await mq.reader("orders", name="n"), await mq.reader("orders", name="n")
    await mq.publish_batch("orders", [b"x"] * 10)
    await a.read_batch(4)
    await b.read_batch(6)
    await b.commit()
    await a.close()
    await mq.publish_batch("orders", [b"x"] * 3)
    await b.close()
    assert (await mq.topic_stats("orders")).missed == {"n": 3}


async def test_a_seek_forgets_what_readers_held(mq: flintmq.Client) -> None:
    await _ten(mq)
    a, b = await mq.reader("orders", name="n"), await mq.reader("orders", name="n")
    await a.read_batch(5)
    await b.seek(8)
    await a.close()
    async with b:
        assert (await b.read_batch()).offsets == [8, 9]
        assert await b.commit() == 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_readers_that_come_and_go_have_committed_every_message(
    mq: flintmq.Client, seed: int
) -> None:
    """Whatever is read and not committed is read by another."""
    chance = random.Random(seed)
    await mq.publish_batch("orders", [b"%d" % n for n in range(300)])
    done: set[int] = set()
    readers = [await mq.reader("orders", name="n") for _ in range(3)]
    hands: dict[flintmq.Reader, list[int]] = {reader: [] for reader in readers}
    while len(done) < 300:
        reader = chance.choice(list(hands))
        way = chance.randrange(10)
        if way < 6:
            rows = await reader.read_batch(chance.randrange(1, 30), timeout=0)
            hands[reader] += [int(message.value) for message in rows]
        elif way < 9:
            committed = await reader.commit()
            done.update(hands[reader])
            hands[reader].clear()
            assert set(range(committed)) <= done
        elif len(hands) > 1:
            del hands[reader]
            await reader.close()
            fresh = await mq.reader("orders", name="n")
            hands[fresh] = []
    for reader in hands:
        await reader.close()


# --- missed, by name


async def test_missed_is_counted_by_name(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=4)
    async with mq.reader("orders", name="fast") as fast, mq.reader("orders", name="slow") as slow:
        await mq.publish_batch("orders", [b"x"] * 3)
        await fast.read_batch()
        await mq.publish_batch("orders", [b"x"] * 4)
        assert (await mq.topic_stats("orders")).missed == {"fast": 0, "slow": 3}
        await slow.read_batch(1)
        assert (await mq.topic_stats("orders")).missed == {"fast": 0, "slow": 3}
        assert (slow.missed, fast.missed) == (3, 0)


async def test_one_of_a_name_hears_of_a_gap_and_all_can_count_it(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=2)
    async with mq.reader("orders", name="n") as a, mq.reader("orders", name="n") as b:
        await mq.publish_batch("orders", [b"x"] * 5)
        assert (await a.read_batch(1)).missed == 3
        assert (await b.read_batch(1)).missed == 0
        assert a.missed == b.missed == 3


async def test_a_name_at_rest_can_miss_messages_too(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", retention_count=5)
    await _ten(mq)
    async with mq.reader("orders", name="n") as reader:
        await reader.read_batch(1)
        await reader.commit()
    await _ten(mq)
    stats = await mq.topic_stats("orders")
    assert (stats.lag, stats.missed) == ({"n": 5}, {"n": 9})
    async with mq.reader("orders", name="n") as reader:
        assert (await reader.read_batch()).gap == flintmq.Missed("orders", 6, 15, 9)


async def test_what_was_read_or_counted_is_not_missed_again_after_a_rest(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", retention_count=5)
    async with mq.reader("orders", name="n") as reader:
        await _ten(mq)
        assert (await reader.read_batch()).missed == 5
    assert (await mq.topic_stats("orders")).missed == {"n": 5}
    async with mq.reader("orders", name="n") as reader:
        rows = await reader.read_batch()
        assert rows.offsets == [5, 6, 7, 8, 9]  # read again: nothing was committed
        assert rows.missed == 0
        assert reader.missed == 5


async def test_a_gap_nobody_heard_of_is_told_to_the_next_reader_of_the_name(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", retention_count=5)
    async with mq.reader("orders", name="n"):
        await _ten(mq)
    async with mq.reader("orders", name="n") as reader:
        assert (await reader.read_batch()).gap == flintmq.Missed("orders", 0, 5, 5)


# --- names


@pytest.mark.parametrize("name", ["", "a*", "a/b", "50%", "x\n"])
async def test_bad_names_are_refused(mq: flintmq.Client, name: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="reader"):
        await mq.reader("orders", name=name)


@pytest.mark.parametrize("name", ["#1", "1", "latest", "a.b", "读者"])
async def test_any_other_name_is_a_name_and_no_reader_without_one_is_taken_for_it(
    mq: flintmq.Client, name: str
) -> None:
    await _ten(mq)
    async with mq.reader("orders", name=name) as named, mq.reader("orders") as unnamed:
        await named.read_batch(4)
        await unnamed.read_batch(7)
        async with mq.reader("orders", name=name) as other:
            assert await other.position() == 4
        assert sorted((await mq.topic_stats("orders")).lag.values()) == [3, 6]
