"""Staged writes: laid ready part by part, then there all at once, exactly once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import flintmq
from flintmq.testing import ManualClock

from .conftest import Connect
from .queues import deleted


async def values(mq: flintmq.Client, topic: str) -> list[Any]:
    async with mq.reader(topic) as reader:
        return list((await reader.read_batch(10_000, timeout=0)).values)


def places(receipts: list[flintmq.Receipt]) -> list[tuple[str, int | None, int]]:
    return [(receipt.topic, receipt.offset, receipt.count) for receipt in receipts]


async def test_nobody_sees_what_is_staged_before_it_is_committed(mq: flintmq.Client) -> None:
    await mq.stage("job", 1, 0, {"orders": [b"a", b"b"]})
    assert await values(mq, "orders") == []

    await mq.commit("job", 1, [0])
    assert await values(mq, "orders") == [b"a", b"b"]


async def test_a_commit_says_where_its_messages_went(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"before")
    await mq.stage("job", 1, 0, {"orders": [b"a", b"b"], "bills": [b"x"]})
    await mq.stage("job", 1, 1, [("orders", [b"c"])])

    receipts = await mq.commit("job", 1, [0, 1])

    assert places(receipts) == [("orders", 1, 3), ("bills", 0, 1)]
    assert await values(mq, "orders") == [b"before", b"a", b"b", b"c"]
    assert await values(mq, "bills") == [b"x"]


async def test_parts_are_appended_in_the_order_in_which_the_commit_names_them(
    mq: flintmq.Client,
) -> None:
    for part in ("x", "y", "z"):
        await mq.stage("job", 1, part, {"orders": [part]})

    await mq.commit("job", 1, ["z", "x", "y"])

    assert await values(mq, "orders") == [b"z", b"x", b"y"]


async def test_only_the_named_parts_are_appended_and_the_others_are_dropped(
    mq: flintmq.Client,
) -> None:
    await mq.stage("job", 1, "old", {"orders": [b"old"]})
    await mq.stage("job", 2, "first try", {"orders": [b"1"]})
    await mq.stage("job", 2, "second try", {"orders": [b"2"]})
    await mq.stage("job", 3, "next", {"orders": [b"3"]})

    await mq.commit("job", 2, ["second try"])
    assert await values(mq, "orders") == [b"2"]

    assert await mq.commit("job", 1, ["old"]) == []
    await mq.commit("job", 3, ["next"])
    assert await values(mq, "orders") == [b"2", b"3"]


async def test_the_same_part_again_takes_the_place_of_the_first(mq: flintmq.Client) -> None:
    await mq.stage("job", 1, 0, {"orders": [b"wrong"], "bills": [b"wrong"]})
    await mq.stage("job", 1, 0, {"orders": [b"right"]})

    await mq.commit("job", 1, [0])

    assert await values(mq, "orders") == [b"right"]
    assert await values(mq, "bills") == []


async def test_a_repeated_commit_changes_nothing_and_answers_as_the_first(
    mq: flintmq.Client,
) -> None:
    await mq.stage("job", 7, 0, {"orders": [b"a"]})
    first = await mq.commit("job", 7, [0])

    await mq.stage("job", 7, 0, {"orders": [b"again"]})
    await mq.abort("job", 7)
    again = await mq.commit("job", 7, [0])

    assert places(again) == places(first)
    assert [receipt.duplicate for receipt in first + again] == [False, True]
    assert await values(mq, "orders") == [b"a"]


async def test_a_commit_that_is_repeated_before_it_is_answered_happens_once(
    mq: flintmq.Client,
) -> None:
    await mq.stage("job", 1, 0, {"orders": [b"a"]})

    answers = await asyncio.gather(*(mq.commit("job", 1, [0]) for _ in range(5)))

    assert {tuple(places(receipts)) for receipts in answers} == {(("orders", 0, 1),)}
    assert await values(mq, "orders") == [b"a"]


async def test_a_commit_of_what_is_not_there_commits_nothing(mq: flintmq.Client) -> None:
    await mq.stage("job", 1, "there", {"orders": [b"a"]})

    with pytest.raises(flintmq.NotStaged, match="'missing' under number 1") as caught:
        await mq.commit("job", 1, ["there", "missing"])

    assert caught.value.parts == ["missing"]
    assert await values(mq, "orders") == []
    assert places(await mq.commit("job", 1, ["there"])) == [("orders", 0, 1)]


async def test_an_empty_commit_only_moves_the_number(mq: flintmq.Client) -> None:
    await mq.stage("job", 1, 0, {"orders": [b"a"]})

    assert await mq.commit("job", 1, []) == []
    assert await mq.commit("job", 1, [0]) == []
    assert await values(mq, "orders") == []


async def test_what_was_aborted_is_gone_and_can_be_staged_anew(mq: flintmq.Client) -> None:
    await mq.stage("job", 1, 0, {"orders": [b"a"]})
    await mq.stage("job", 2, 0, {"orders": [b"next"]})
    await mq.abort("job", 1)
    await mq.abort("job", 1)

    with pytest.raises(flintmq.NotStaged):
        await mq.commit("job", 1, [0])
    await mq.stage("job", 1, 0, {"orders": [b"b"]})
    await mq.commit("job", 1, [0])
    await mq.commit("job", 2, [0])

    assert await values(mq, "orders") == [b"b", b"next"]


async def test_writers_do_not_touch_each_other(mq: flintmq.Client) -> None:
    await mq.stage("a", 5, 0, {"orders": [b"a"]})
    await mq.stage("b", 1, 0, {"orders": [b"b"]})

    await mq.commit("a", 5, [0])
    await mq.commit("b", 1, [0])

    assert await values(mq, "orders") == [b"a", b"b"]


async def test_what_is_never_committed_is_dropped_after_an_hour(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.stage("job", 1, 0, {"orders": [b"a"]})
    await clock.advance(3000)
    await mq.stage("job", 1, 1, {"orders": [b"b"]})  # the writer is still at it
    await mq.stage("job", 2, 0, {"orders": [b"c"]})
    await clock.advance(3000)
    await mq.stage("job", 2, 1, {"orders": [b"d"]})
    await clock.advance(601)

    with pytest.raises(flintmq.NotStaged):
        await mq.commit("job", 1, [0, 1])
    await mq.commit("job", 2, [0, 1])
    assert await values(mq, "orders") == [b"c", b"d"]


async def test_values_are_encoded_as_the_topic_says(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", format="json")
    await mq.stage("job", 1, 0, {"orders": [{"id": 1}]})
    await mq.commit("job", 1, [0])

    async with mq.reader("orders") as reader:
        message = await reader.read(timeout=0)
        assert message is not None
        assert message.decode() == {"id": 1}


async def test_a_builder_brings_keys_and_headers(mq: flintmq.Client) -> None:
    rows = flintmq.BatchBuilder()
    rows.append_row(b"a", key="k", headers={"region": "eu"})
    await mq.stage("job", 1, 0, {"orders": rows})
    await mq.commit("job", 1, [0])

    async with mq.reader("orders") as reader:
        message = await reader.read(timeout=0)
        assert message is not None
        assert (message.key, message.headers) == ("k", {"region": "eu"})


async def test_a_partitioned_topic_gets_a_receipt_for_each_partition(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", partitions=4)
    rows = flintmq.BatchBuilder()
    for number in range(100):
        rows.append_row(b"%d" % number, key=str(number))
    await mq.stage("job", 1, 0, {"orders": rows})

    receipts = await mq.commit("job", 1, [0])

    assert sorted(receipt.partition for receipt in receipts) == [0, 1, 2, 3]
    assert sum(receipt.count for receipt in receipts) == 100
    assert (await mq.topic_stats("orders")).message_count == 100


async def test_a_full_topic_refuses_the_whole_commit(mq: flintmq.Client) -> None:
    await mq.create_topic("small", retention_count=2, overflow="reject")
    await mq.stage("job", 1, 0, {"large": [b"1"], "small": [b"1", b"2", b"3"]})

    with pytest.raises(flintmq.TopicFull):
        await mq.commit("job", 1, [0])

    assert await values(mq, "large") == []
    await mq.configure_topic("small", retention_count=3)
    assert places(await mq.commit("job", 1, [0])) == [("large", 0, 1), ("small", 0, 3)]


async def test_commits_and_publishes_share_the_offsets(mq: flintmq.Client) -> None:
    async def publish() -> list[int | None]:
        return [(await mq.publish("orders", b"p")).offset for _ in range(20)]

    async def write() -> list[int | None]:
        offsets: list[int | None] = []
        for number in range(20):
            await mq.stage("job", number, 0, {"orders": [b"s", b"s"]})
            (receipt,) = await mq.commit("job", number, [0])
            assert receipt.offset is not None
            offsets += [receipt.offset, receipt.offset + 1]
        return offsets

    published, committed = await asyncio.gather(publish(), write())

    assert sorted([*published, *committed], key=lambda offset: offset or 0) == list(range(60))
    found = await values(mq, "orders")
    assert [offset for offset, value in enumerate(found) if value == b"p"] == published


async def test_live_feeds_hear_of_a_commit(mq: flintmq.Client) -> None:
    async with mq.live("orders") as feed:
        await mq.stage("job", 1, 0, {"orders": [b"a", b"b"]})
        await mq.commit("job", 1, [0])

        assert list((await feed.read_batch(10, timeout=1)).values) == [b"a", b"b"]


async def test_a_commit_into_a_topic_that_was_deleted_is_refused(mq: flintmq.Client) -> None:
    await mq.stage("job", 1, 0, {"orders": [b"a"], "bills": [b"b"]})
    await deleted(mq)
    await mq.publish("orders", b"another topic of that name")

    with pytest.raises(flintmq.TopicDeleted):
        await mq.commit("job", 1, [0])
    assert await values(mq, "bills") == []


async def test_staging_makes_topics_only_where_it_may(mq: flintmq.Client) -> None:
    with pytest.raises(flintmq.TopicNotFound):
        await mq.stage("job", 1, 0, {"orders": [b"a"]}, auto_create=False)


@pytest.mark.parametrize(
    ("writer", "number", "part"),
    [("", 1, 0), (None, 1, 0), ("w" * 2000, 1, 0), ("w", -1, 0), ("w", 1.5, 0), ("w", True, 0),
     ("w", 2**63, 0), ("w", 1, ""), ("w", 1, None), ("w", 1, 1.5), ("\ud800", 1, 0)],
)  # fmt: skip
async def test_a_call_that_is_wrong_says_what_is_allowed(
    mq: flintmq.Client, writer: Any, number: Any, part: Any
) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        await mq.stage(writer, number, part, {"orders": [b"a"]})


@pytest.mark.parametrize("batches", [{"orders": b"a"}, [b"a"], ["orders"], {"orders": "abc"}])
async def test_batches_are_lists_of_values_by_topic(mq: flintmq.Client, batches: Any) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        await mq.stage("job", 1, 0, batches)


async def test_parts_are_a_list_without_repeats(mq: flintmq.Client) -> None:
    await mq.stage("job", 1, 0, {"orders": [b"a"]})
    wrong: list[Any] = ["0", [0, "0"]]
    for parts in wrong:
        with pytest.raises(flintmq.InvalidRequest):
            await mq.commit("job", 1, parts)


async def test_topics_of_objects_cannot_be_staged_for(connect: Connect) -> None:
    async with connect() as mq:
        await mq.create_topic("things", format="object")
        with pytest.raises(flintmq.InvalidRequest, match="objects"):
            await mq.stage("job", 1, 0, {"things": [object()]})


async def test_a_closed_connection_stages_nothing(connect: Connect) -> None:
    async with connect() as mq:
        pass
    with pytest.raises(flintmq.Closed):
        await mq.stage("job", 1, 0, {"orders": [b"a"]})
    with pytest.raises(flintmq.Closed):
        await mq.commit("job", 1, [0])
    with pytest.raises(flintmq.Closed):
        await mq.abort("job", 1)
