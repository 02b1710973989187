"""Reading without waiting: inside a process everything that is there; from afar what has come."""

from __future__ import annotations

import random

import pytest

import flintmq
from flintmq.testing import ManualClock


@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("name", [None, "n"])
async def test_everything_is_read_without_waiting_in_steps_of_any_size(
    mq: flintmq.Client, clock: ManualClock, name: str | None, partitions: int | None
) -> None:
    chance = random.Random(5)
    if partitions is not None:
        await mq.create_topic("orders", partitions=partitions)
    for n in range(60):
        await mq.publish("orders", b"%d" % n)
    got: list[int] = []
    async with mq.reader("orders", name=name) as reader:
        for _ in range(200):
            if chance.random() < 0.5:
                rows = reader.read_batch_nowait(chance.randrange(1, 9))
                got += [int(value) for value in rows.values]
            elif (message := reader.read_nowait()) is not None:
                got.append(int(message.value))
            await clock.settle()  # over a network, what was asked for comes
        assert reader.read_nowait() is None
    assert sorted(got) == list(range(60))
    if partitions is None:
        assert got == sorted(got)


async def test_a_feed_is_read_without_waiting(mq: flintmq.Client, clock: ManualClock) -> None:
    async with mq.live("orders") as feed:
        assert feed.read_nowait() is None
        await clock.settle()
        for n in range(5):
            await mq.publish("orders", b"%d" % n)
        got: list[bytes] = []
        for _ in range(10):
            got += feed.read_batch_nowait(2).values
            await clock.settle()
    assert got == [b"%d" % n for n in range(5)]
