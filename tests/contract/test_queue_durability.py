"""file://: what groups have settled, counted, delayed and given up is there after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import flintmq
from flintmq.testing import ManualClock

from .over_cluster import NOT_OF_CLUSTERS
from .queues import numbered, one, polled
from .test_durability import Restarts


@pytest.fixture(
    params=[
        "file",
        pytest.param("file-blocking", marks=pytest.mark.slow),
        pytest.param("cluster", marks=pytest.mark.slow),
    ]
)
def way(request: pytest.FixtureRequest) -> str:
    if request.param == "cluster" and (reason := NOT_OF_CLUSTERS.get(request.node.originalname)):
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture(params=["closed", "killed"])
def ending(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def restarts(
    url: str, clock: ManualClock, ending: str, tmp_path: Path, way: str
) -> AsyncIterator[Restarts]:
    restarts = Restarts(tmp_path / "data", clock, ending, way)
    yield restarts
    await restarts.close()


@pytest.mark.parametrize("order", ["priority", "key", "log"])
async def test_what_was_settled_stays_settled_and_the_rest_comes(
    restarts: Restarts, order: str
) -> None:
    mq = await restarts.start()
    await mq.publish_batch(
        "orders", [b"%d" % n for n in range(40)], priority=[n % 3 for n in range(40)],
        key=[f"k{n}" for n in range(40)],
    )  # fmt: skip
    found = await mq.poll("orders", "g", order=order)  # type: ignore[arg-type]
    await mq.ack(message for message in found if int(message.value) % 4)
    mq = await restarts.restart()

    again = await mq.poll("orders", "g")
    left = [*range(0, 40, 4)]
    if order == "priority":
        left.sort(key=lambda n: (-(n % 3), n))
    assert [int(message.value) for message in again] == left
    await again.ack()
    stats = await mq.group_stats("orders", "g")
    assert (stats.lag, stats.position) == (0, 40)
    mq = await restarts.restart()
    assert await polled(mq) == []


async def test_leases_are_gone_counts_go_on_and_tokens_grow(restarts: Restarts) -> None:
    mq = await restarts.start()
    await numbered(mq, 3)
    tokens = []
    for count in range(1, 5):
        message, *_ = await mq.poll("orders", "g")
        # a clean end gives leases back, and what was handed out was delivered all the same
        assert message.delivery_count == count
        tokens.append(message.token)
        mq = await restarts.restart()
    assert tokens == sorted(set(tokens))


async def test_a_message_that_ends_its_process_every_time_is_a_dead_letter_in_the_end(
    restarts: Restarts, clock: ManualClock
) -> None:
    mq = await restarts.start()
    await numbered(mq, 2)
    for _ in range(5):
        assert await polled(mq, max=1) == [b"0"]
        mq = await restarts.restart()
    assert await polled(mq, max=1) == [b"1"], "it is not in the way of others"
    while not (letters := await mq.dead_letters("orders", "g")):
        await clock.settle()
    assert [(letter.message.value, letter.delivery_count) for letter in letters] == [(b"0", 5)]
    mq = await restarts.restart()
    assert len(await mq.dead_letters("orders", "g")) == 1
    assert await polled(mq) == [b"1"]


async def test_nack_delays_go_on(restarts: Restarts, clock: ManualClock) -> None:
    mq = await restarts.start()
    await mq.publish_batch("orders", [b"0", b"1", b"2"], priority=[0, 5, 0])
    high, low, other = await mq.poll("orders", "g")
    await high.nack(delay=10)
    await low.nack(delay=20)
    await other.ack()
    await clock.advance(5)
    mq = await restarts.restart()
    assert await polled(mq) == []
    assert (await mq.group_stats("orders", "g")).delayed == 2
    await clock.advance(5)
    message = await one(mq)
    assert (message.value, message.delivery_count, message.priority) == (b"1", 2, 5)
    await clock.advance(9.9)
    assert await polled(mq) == []
    await clock.advance(0.11)
    assert await polled(mq) == [b"0"]


async def test_delayed_messages_come_and_cancelled_ones_do_not(
    restarts: Restarts, clock: ManualClock
) -> None:
    mq = await restarts.start()
    await polled(mq)
    await mq.publish("orders", b"comes", delay=10, priority=2)
    receipt = await mq.publish("orders", b"cancelled", delay=10)
    await mq.publish("orders", b"comes too", delay=20)
    assert await mq.cancel(receipt) == 1
    await clock.advance(9)
    mq = await restarts.restart()
    assert await polled(mq) == []
    assert await mq.cancel(receipt) == 0
    await clock.advance(1)
    found = await mq.poll("orders", "g")
    assert found.values == [b"comes"]
    await found.ack()
    assert await polled(mq, "new") == [b"comes"]
    mq = await restarts.restart()
    assert await polled(mq) == []
    await clock.advance(10)
    assert await polled(mq) == [b"comes too"]


async def test_delays_that_ran_out_while_nobody_was_there_are_over(
    restarts: Restarts, clock: ManualClock
) -> None:
    mq = await restarts.start()
    await mq.publish("orders", b"low")
    await mq.publish("orders", b"high", priority=5)
    await (await mq.poll("orders", "g")).nack(delay=10)
    await mq.publish("orders", b"delayed", delay=10)
    if restarts.ending == "closed":
        await mq.close()
    await clock.advance(11)
    mq = await restarts.restart()
    await clock.advance(0)
    assert await polled(mq) == [b"high", b"low", b"delayed"]
    assert await polled(mq) == []


async def test_groups_keep_their_options_and_stay_paused(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.poll("orders", "g", order="log", filter="priority > 3", start="latest")
    await mq.poll("orders", "plain")
    await mq.pause_group("orders", "g")
    before = await mq.groups("orders")
    mq = await restarts.restart()
    assert await mq.groups("orders") == before
    await mq.publish("orders", b"low")
    await mq.publish("orders", b"5", priority=5)
    await mq.publish("orders", b"7", priority=7)
    assert await polled(mq) == []
    with pytest.raises(flintmq.GroupExists):
        await mq.poll("orders", "g", order="key")
    await mq.resume_group("orders", "g")
    assert await polled(mq) == [b"5", b"7"]
    mq = await restarts.restart()
    assert not (await mq.group_stats("orders", "g")).paused


async def test_a_group_on_an_empty_topic_is_there_and_misses_nothing(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders", retention_count=2, keep_until_settled=True)
    await polled(mq)
    mq = await restarts.restart()
    await numbered(mq, 5)
    await (await mq.poll("orders", "fast")).ack()
    assert await polled(mq) == [b"%d" % n for n in range(5)]


async def test_dead_letters_are_kept_and_those_that_went_back_are_not(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.publish_batch("orders", [b"0", b"1", b"2"], key="k", headers={"h": "x"})
    await polled(mq, "other")
    for message in await mq.poll("orders", "g"):
        await message.reject(f"for {message.offset}")
    letters = await mq.dead_letters("orders", "g")
    assert await mq.redrive("orders", "g", letters[1]) == 1
    mq = await restarts.restart()

    again = await mq.dead_letters("orders", "g")
    assert [(one.id, one.reason, one.offset, one.time) for one in again] == [
        (one.id, one.reason, one.offset, one.time) for one in (letters[0], letters[2])
    ]
    assert again[0].message.headers == {"h": "x"}
    message = await one(mq)
    assert (message.value, message.key, message.delivery_count) == (b"1", "k", 1)
    assert await mq.redrive("orders", "g") == 2
    assert sorted(await polled(mq)) == [b"0", b"2"]
    assert len(await polled(mq, "other")) == 3  # what was redriven is not for others
    mq = await restarts.restart()
    assert await mq.dead_letters("orders", "g") == []
    assert (await mq.group_stats("orders", "g")).lag == 3


async def test_a_reset_and_a_deletion_last(restarts: Restarts) -> None:
    mq = await restarts.start()
    await numbered(mq, 6)
    await (await mq.poll("orders", "g")).ack()
    await (await mq.poll("orders", "gone")).ack()
    await mq.reset_group("orders", "g", 4)
    await mq.delete_group("orders", "gone")
    mq = await restarts.restart()
    assert [info.name for info in await mq.groups("orders")] == ["g"]
    assert await polled(mq) == [b"4", b"5"]
    assert len(await polled(mq, "gone")) == 6


async def test_what_was_polled_with_auto_ack_is_settled(restarts: Restarts) -> None:
    mq = await restarts.start()
    await numbered(mq, 3)
    assert await polled(mq, max=2, ack="auto") == [b"0", b"1"]
    mq = await restarts.restart()
    assert await polled(mq) == [b"2"]


async def test_filtered_and_expired_messages_do_not_come_back(
    restarts: Restarts, clock: ManualClock
) -> None:
    mq = await restarts.start()
    await mq.poll("orders", "g", filter="priority < 5")
    await mq.publish("orders", b"first")
    await mq.publish("orders", b"filtered", priority=6)
    await mq.publish("orders", b"expired", ttl=5)
    await clock.advance(6)
    assert await polled(mq) == [b"first"]
    await clock.settle()
    mq = await restarts.restart()
    message = await one(mq)
    assert (message.value, message.delivery_count) == (b"first", 2)
    await message.ack()
    assert (await mq.group_stats("orders", "g")).lag == 0


@pytest.mark.slow
async def test_a_large_backlog_in_segments_goes_on_where_it_was(restarts: Restarts) -> None:
    mq = await restarts.start()
    for start in range(0, 5000, 500):
        await mq.publish_batch(
            "orders", [b"%06d" % n for n in range(start, start + 500)],
            priority=[n % 8 for n in range(500)],
        )  # fmt: skip
    done: list[int] = []
    for _ in range(4):
        for _ in range(3):
            found = await mq.poll("orders", "g", 400)
            done += [int(value) for value in found.values]
            await found.ack()
        mq = await restarts.restart()
    while found := await mq.poll("orders", "g", 1000):
        done += [int(value) for value in found.values]
        await found.ack()
    assert sorted(done) == list(range(5000))


async def test_a_backup_has_the_groups_and_what_they_have_done(
    restarts: Restarts, clock: ManualClock, tmp_path: Path
) -> None:
    mq = await restarts.start()
    await numbered(mq, 6)
    done, nacked, dead, *_ = await mq.poll("orders", "g", order="log")
    await done.ack()
    await nacked.nack(delay=10)
    await dead.reject("no")
    await mq.publish("orders", b"later", delay=10)
    await mq.backup(tmp_path / "backup")
    await mq.delete_group("orders", "g")

    async with flintmq.connect(f"file://{tmp_path}/backup", clock=clock) as copy:
        assert (await copy.groups("orders"))[0].order == "log"
        assert await polled(copy) == [b"3", b"4", b"5"]
        assert len(await copy.dead_letters("orders", "g")) == 1
        await clock.advance(10)
        assert await polled(copy) == [b"1", b"later"]


async def test_groups_of_topics_in_memory_are_gone_with_them(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders", storage="memory", max_deliveries=1)
    await numbered(mq, 2)
    await (await one(mq)).nack()
    (letter,) = await mq.dead_letters("orders", "g")
    assert (letter.message.value, await mq.redrive("orders", "g")) == (b"0", 1)
    assert await polled(mq) == [b"1", b"0"]
    mq = await restarts.restart()
    assert await polled(mq) == []


async def test_dead_letters_never_change_how_safe_they_are(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.create_topic("graveyard", storage="memory")
    await mq.create_topic("orders", dead_letter_topic="graveyard")
    await numbered(mq, 1)
    await (await one(mq)).reject("no")
    mq = await restarts.restart()
    (letter,) = await mq.dead_letters("orders", "g")
    assert letter.reason == "no"


async def test_suspects_are_not_in_the_way_of_polls_for_others(restarts: Restarts) -> None:
    mq = await restarts.start()
    await numbered(mq, 4)
    for _ in range(3):  # the process ends with these two, time and again
        assert await polled(mq, max=2) == [b"0", b"1"]
        mq = await restarts.restart()
    assert await polled(mq, max=1) == [b"0"]
    assert await polled(mq, max=1) == [b"2"], "1 waits for 0 to come to an end, others do not"
