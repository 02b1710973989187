"""A publish with a producer and a sequence may be repeated: it happens once."""

from __future__ import annotations

import asyncio

import pytest

import flintmq


async def values_of(mq: flintmq.Client, topic: str) -> list[bytes]:
    async with mq.reader(topic) as reader:
        return list((await reader.read_batch(10_000, timeout=0)).values)


async def test_a_repeat_returns_the_first_receipt_and_says_so(mq: flintmq.Client) -> None:
    first = await mq.publish("orders", b"1", producer="p", sequence=7)
    await mq.publish("orders", b"other")

    again = await mq.publish("orders", b"1", producer="p", sequence=7)

    assert first.offset == 0
    assert (again.offset, again.duplicate) == (0, True)
    assert await values_of(mq, "orders") == [b"1", b"other"]


async def test_sequences_come_in_any_order_with_gaps(mq: flintmq.Client) -> None:
    for place, sequence in enumerate((2**64 - 1, 0, 10, 5)):
        receipt = await mq.publish("orders", b"x", producer="p", sequence=sequence)
        assert receipt.offset == place
    for place, sequence in enumerate((2**64 - 1, 0, 10, 5)):
        receipt = await mq.publish("orders", b"x", producer="p", sequence=sequence)
        assert (receipt.offset, receipt.duplicate) == (place, True)


async def test_a_batch_counts_on_from_its_sequence(mq: flintmq.Client) -> None:
    batch = [b"a", b"b", b"c"]
    await mq.publish_batch("orders", batch, producer="p", sequence=100)

    again = await mq.publish_batch("orders", batch, producer="p", sequence=100)
    part = await mq.publish_batch("orders", [b"b", b"c"], producer="p", sequence=101)

    assert (again.offset, again.count, again.duplicate) == (0, 3, True)
    assert (part.offset, part.count, part.duplicate) == (1, 2, True)
    with pytest.raises(flintmq.InvalidRequest, match="overlap"):
        await mq.publish_batch("orders", batch, producer="p", sequence=102)
    assert await values_of(mq, "orders") == batch


async def test_a_repeat_of_what_was_dropped_in_part_says_what_was_dropped(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("small", retention_count=4, overflow="drop_new")
    await mq.publish("small", b"0")
    batch = [b"1", b"2", b"3", b"4", b"5"]
    first = await mq.publish_batch("small", batch, producer="p", sequence=10)
    again = await mq.publish_batch("small", batch, producer="p", sequence=10)

    assert (first.offset, first.count, first.dropped) == (1, 3, 2)
    assert (again.offset, again.count, again.dropped, again.duplicate) == (1, 3, 2, True)
    assert await values_of(mq, "small") == [b"0", b"1", b"2", b"3"]


async def test_a_repeat_of_what_was_dropped_in_part_is_not_taken_in_where_there_is_room(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("small", retention_count=2, overflow="drop_new")
    batch = [b"1", b"2", b"3"]
    await mq.publish_batch("small", batch, producer="p", sequence=10)
    async with mq.reader("small", name="r") as reader:
        assert list((await reader.read_batch(10)).values) == [b"1", b"2"]
        await reader.commit()
        again = await mq.publish_batch("small", batch, producer="p", sequence=10)
        later = await mq.publish("small", b"4", producer="p", sequence=13)

        assert (again.offset, again.count, again.dropped) == (0, 2, 1)
        assert later.offset == 2
        assert list((await reader.read_batch(10, timeout=0)).values) == [b"4"]


async def test_producers_and_topics_are_told_apart(mq: flintmq.Client) -> None:
    for topic in ("orders", "other"):
        for place, producer in enumerate(("p", "q")):
            receipt = await mq.publish(topic, b"x", producer=producer, sequence=1)
            assert receipt.offset == place


async def test_a_first_publish_is_not_called_a_repeat(mq: flintmq.Client) -> None:
    receipt = await mq.publish("orders", b"x", producer="p", sequence=1)
    assert not receipt.duplicate


async def test_repeats_that_are_under_way_together_happen_once(mq: flintmq.Client) -> None:
    receipts = await asyncio.gather(
        *(mq.publish("orders", b"x", producer="p", sequence=1) for _ in range(10))
    )

    assert {receipt.offset for receipt in receipts} == {0}
    assert await values_of(mq, "orders") == [b"x"]


async def test_of_repeats_that_are_under_way_together_one_is_the_first(mq: flintmq.Client) -> None:
    receipts = await asyncio.gather(
        *(mq.publish("orders", b"x", producer="p", sequence=1) for _ in range(10))
    )

    assert sum(not receipt.duplicate for receipt in receipts) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"producer": "p"},
        {"sequence": 1},
        {"producer": "", "sequence": 1},
        {"producer": "p", "sequence": -1},
        {"producer": "p", "sequence": 2**64},
        {"producer": "p", "sequence": 1.5},
        {"producer": "p", "sequence": 1, "qos": 0},
    ],
    ids=str,
)
async def test_what_is_no_identity_is_said(mq: flintmq.Client, wrong: dict[str, object]) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        await mq.publish("orders", b"x", **wrong)  # type: ignore[arg-type]


async def test_over_partitions_an_identified_batch_goes_to_one(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", partitions=4)
    with pytest.raises(flintmq.InvalidRequest, match="one partition"):
        await mq.publish_batch(
            "orders", [b"x"] * 9, key=list("abcdefghi"), producer="p", sequence=1
        )

    for _ in range(2):
        receipt = await mq.publish("orders", b"x", key="a", producer="p", sequence=1)
    assert receipt.duplicate
