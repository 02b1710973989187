"""Which message is next: priorities with a reserved part for the oldest, keys, or the log."""

from __future__ import annotations

import asyncio

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background

from .queues import numbered, one, polled

# --- priorities


async def test_the_worked_example_of_the_reference(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"low")
    await mq.publish_batch("orders", [b"%d" % n for n in range(1, 6)], priority=7)

    offsets = [(await one(mq)).offset for _ in range(6)]
    assert offsets == [1, 2, 3, 0, 4, 5]


RESERVED = {
    1: (0, 0, 0, 1),
    3: (0, 0, 0, 1),
    4: (1, 1, 1, 2),
    5: (1, 1, 1, 2),
    8: (2, 2, 2, 3),
    10: (2, 2, 2, 3),
    16: (4, 4, 4, 5),
    64: (16, 16, 16, 17),
    256: (64, 64, 64, 65),
}


@pytest.mark.parametrize("max", RESERVED)
async def test_a_part_of_every_poll_is_reserved_for_the_oldest(
    mq: flintmq.Client, max: int
) -> None:
    await mq.publish_batch("orders", [b"low"] * 300)
    await mq.publish_batch("orders", [b"high"] * 4 * max, priority=7)

    for poll, reserved in enumerate(RESERVED[max]):
        values = await polled(mq, max=max)
        assert values.count(b"low") == reserved, f"poll {poll}"
        assert values == sorted(values), "the higher priority comes first all the same"


async def test_a_poll_that_finds_nothing_does_not_move_the_reserved_turn(
    mq: flintmq.Client,
) -> None:
    for _ in range(3):
        assert await polled(mq) == []
    await mq.publish("orders", b"low")
    await mq.publish_batch("orders", [b"high"] * 5, priority=7)

    assert [(await one(mq)).value for _ in range(4)] == [b"high"] * 3 + [b"low"]


async def test_eight_priorities_come_highest_first_and_each_in_the_order_of_offsets(
    mq: flintmq.Client,
) -> None:
    await mq.publish_batch(
        "orders", [b"%d" % n for n in range(64)], priority=[n % 8 for n in range(64)]
    )
    found = await mq.poll("orders", "g")
    expected = sorted(range(64), key=lambda n: (-(n % 8), n))
    assert [message.offset for message in found] == expected
    assert [message.priority for message in found] == [n % 8 for n in expected]


async def test_a_higher_priority_published_later_overtakes(mq: flintmq.Client) -> None:
    await numbered(mq, 3)
    assert await polled(mq, max=1) == [b"0"]
    await mq.publish("orders", b"urgent", priority=5)
    await mq.publish("orders", b"more so", priority=6)

    assert await polled(mq, max=3) == [b"more so", b"urgent", b"1"]


async def test_what_is_given_back_keeps_its_priority_and_its_place(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish_batch("orders", [b"%d" % n for n in range(6)], priority=[0, 3, 0, 3, 7, 7])
    found = await mq.poll("orders", "g")
    assert found.values == [b"4", b"5", b"1", b"3", b"0", b"2"]
    await found[2].nack()
    await found[4].nack(delay=1)
    await found[1].nack(delay=1)
    await mq.publish("orders", b"new", priority=3)
    await clock.advance(1)
    assert await polled(mq) == [b"5", b"1", b"new", b"0"]
    await clock.advance(100)  # and what expired

    assert await polled(mq) == [b"4", b"5", b"1", b"3", b"new", b"0", b"2"]


async def test_the_low_ones_are_not_starved_by_a_stream_of_high_ones(mq: flintmq.Client) -> None:
    await mq.publish_batch("orders", [b"low"] * 10)
    served = 0
    for _ in range(40):
        await mq.publish("orders", b"high", priority=7)
        message = await one(mq)
        served += message.value == b"low"
        await message.ack()
    assert served == 10


@pytest.mark.parametrize("priority", [-1, 8, 2.5, True])
async def test_there_are_eight_priorities(mq: flintmq.Client, priority: int) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        await mq.publish("orders", b"x", priority=priority)


# --- by the log


async def test_order_log_does_not_look_at_priorities(mq: flintmq.Client) -> None:
    await mq.publish_batch("orders", [b"%d" % n for n in range(8)], priority=[*range(8)])
    found = await mq.poll("orders", "g", 5, order="log")
    assert found.values == [b"0", b"1", b"2", b"3", b"4"]
    await found[1].nack()

    assert await polled(mq) == [b"1", b"5", b"6", b"7"]


# --- by key


async def _keyed(mq: flintmq.Client, keys: str) -> None:
    await mq.publish_batch(
        "orders", [f"{key}{n}".encode() for n, key in enumerate(keys)], key=list(keys)
    )


async def test_a_subscription_has_one_message_of_a_key_at_a_time_and_keys_go_in_parallel(
    mq: flintmq.Client,
) -> None:
    await _keyed(mq, "aabbca")
    async with mq.subscribe("orders", "g", order="key") as deliveries:
        found = await deliveries.read_batch()
        assert found.values == [b"a0", b"b2", b"c4"]
        assert await polled(mq) == []
        await found[0].ack()
        await found[2].ack()
        assert (await deliveries.read()).value == b"a1"
        await found[1].ack()
        assert (await deliveries.read()).value == b"b3"


async def test_who_settles_each_message_before_the_next_is_given_several_of_a_key_at_once(
    mq: flintmq.Client,
) -> None:
    await _keyed(mq, "aabab")
    got: list[bytes] = []
    async with mq.subscribe("orders", "g", order="key") as deliveries:
        async for message in deliveries:
            got.append(message.value)
            assert await polled(mq) == []  # all of them are ours
            await message.ack()
            if len(got) == 5:
                break
    assert got == [b"a0", b"a1", b"b2", b"a3", b"b4"]


async def test_who_reads_on_before_it_settles_has_one_message_of_a_key_from_then_on(
    mq: flintmq.Client,
) -> None:
    await _keyed(mq, "aaabb")
    async with mq.subscribe("orders", "g", order="key") as deliveries:
        first = await deliveries.read()
        await first.ack()
        second = await deliveries.read()
        third = await deliveries.read()
        assert (second.value, third.value) == (b"a1", b"b3")
        assert await deliveries.read(timeout=0) is None
        await third.ack()
        assert (await deliveries.read()).value == b"b4"
        await second.ack()
        assert (await deliveries.read()).value == b"a2"


async def test_what_was_asked_for_to_be_worked_on_in_turn_is_not_handed_out_at_once(
    mq: flintmq.Client, background: Background
) -> None:
    await _keyed(mq, "a")
    async with mq.subscribe("orders", "g", order="key") as deliveries:
        first = await deliveries.read()
        reading = await background.waiting(deliveries.read())
        await _keyed(mq, "aabb")
        assert (await reading).value == b"b2"
        await first.ack()
        assert (await deliveries.read()).value == b"a0"


async def test_a_subscription_goes_back_to_the_first_of_a_key_that_was_not_done(
    mq: flintmq.Client,
) -> None:
    await _keyed(mq, "aaaba")
    got: list[tuple[bytes, int]] = []
    async with mq.subscribe("orders", "g", order="key") as deliveries:
        async for message in deliveries:
            got.append((message.value, message.delivery_count))
            await (message.nack() if len(got) == 2 else message.ack())
            if len(got) == 6:
                break
    of_a = [one for one in got if one[0].startswith(b"a")]
    assert of_a == [(b"a0", 1), (b"a1", 1), (b"a1", 2), (b"a2", 1), (b"a4", 1)]
    assert [one for one in got if one not in of_a] == [(b"b3", 1)]


async def test_a_handler_that_works_on_one_message_at_a_time_gets_each_key_in_order(
    mq: flintmq.Client, background: Background
) -> None:
    await _keyed(mq, "ab" * 20)
    got: list[bytes] = []
    failed: set[bytes] = set()
    done = asyncio.Event()
    deliveries = mq.subscribe("orders", "g", order="key")

    async def work(message: flintmq.Delivery) -> None:
        if message.value.endswith(b"7") and message.value not in failed:
            failed.add(message.value)
            raise ValueError(message.value)
        got.append(message.value)
        if len(got) == 40:
            done.set()

    running = background.start(deliveries.run(work, concurrency=1, backoff=0))
    await done.wait()
    await deliveries.close()
    await running
    for key in (b"a", b"b"):
        offsets = [int(value[1:]) for value in got if value.startswith(key)]
        assert offsets == sorted(offsets)
        assert len(offsets) == 20


async def test_a_poll_has_the_messages_of_a_key_together_and_nobody_else_has_any(
    mq: flintmq.Client,
) -> None:
    await _keyed(mq, "aabbca")
    found = await mq.poll("orders", "g", max=4, order="key")
    assert found.values == [b"a0", b"a1", b"b2", b"b3"]
    assert await polled(mq) == [b"c4"]
    await found[0].ack()
    assert await polled(mq) == []
    await found[1].ack()
    assert await polled(mq) == [b"a5"]


async def test_what_comes_back_takes_those_of_its_key_behind_it_along(mq: flintmq.Client) -> None:
    await _keyed(mq, "aabaa")
    found = await mq.poll("orders", "g", order="key")
    await found[0].ack()
    await found[3].ack()  # ahead of its turn: whoever has it has done it
    await found[1].nack()
    await found[2].ack()
    with pytest.raises(flintmq.LeaseLost):
        await found[4].ack()
    again = await mq.poll("orders", "g")
    assert [(m.value, m.delivery_count) for m in again] == [(b"a1", 2)]
    await again.ack()
    assert [(m.value, m.delivery_count) for m in await mq.poll("orders", "g")] == [(b"a4", 1)]


async def test_who_waits_gets_the_next_of_a_key_as_soon_as_it_is_free(
    mq: flintmq.Client, background: Background
) -> None:
    await _keyed(mq, "aa")
    first = await one(mq, order="key")
    waiting = await background.waiting(mq.poll("orders", "g", wait=100))
    await first.ack()
    assert (await waiting).values == [b"a1"]


@pytest.mark.parametrize("way_back", ["nack", "delay", "expiry", "close", "release"])
async def test_a_key_stays_in_order_when_its_message_comes_back(
    mq: flintmq.Client, clock: ManualClock, way_back: str
) -> None:
    await _keyed(mq, "abaab")
    await mq.poll("orders", "other", order="key")
    if way_back in ("close", "release"):
        async with mq.subscribe("orders", "g", order="key") as deliveries:
            if way_back == "close":
                await deliveries.read_batch()
    else:
        found = await mq.poll("orders", "g", order="key", lease=10)
        assert found.values == [b"a0", b"b1", b"a2", b"a3", b"b4"]
        if way_back == "nack":
            await found.nack()
        elif way_back == "delay":
            await found.nack(delay=5)
            assert await polled(mq) == []  # the others of the key wait for it
        await clock.advance(11 if way_back == "expiry" else 5.1)
    got = []
    while found := await mq.poll("orders", "g"):
        got += found.values
        await found.ack()
    assert [value for value in got if value.startswith(b"a")] == [b"a0", b"a2", b"a3"]
    assert [value for value in got if value.startswith(b"b")] == [b"b1", b"b4"]


async def test_a_key_goes_on_when_its_message_is_dead(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", max_deliveries=2)
    await _keyed(mq, "aa")
    for _ in range(2):
        message = await one(mq, order="key")
        assert message.value == b"a0"
        await message.nack()
    assert await polled(mq) == [b"a1"]


async def test_a_key_goes_on_when_its_message_has_expired(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("orders", b"short", key="a", ttl=5)
    await mq.publish("orders", b"long", key="a")
    message = await one(mq, order="key", lease=3)
    assert message.value == b"short"
    await clock.advance(6)

    assert await polled(mq) == [b"long"]


async def test_messages_without_a_key_wait_for_nobody(mq: flintmq.Client) -> None:
    await numbered(mq, 5)
    assert await polled(mq, order="key") == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_delayed_message_holds_its_key_up_only_once_it_is_due(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("orders", b"later", key="a", delay=5)
    await mq.publish("orders", b"now", key="a")
    message = await one(mq, order="key")
    assert message.value == b"now"
    await clock.advance(5.1)
    assert await polled(mq) == []  # one at a time
    await message.ack()
    assert await polled(mq) == [b"later"]


async def test_members_share_keys_and_never_one_key_at_once(mq: flintmq.Client) -> None:
    await _keyed(mq, "abcd" * 20)
    out: dict[str, bytes] = {}
    seen: dict[str, list[int]] = {key: [] for key in "abcd"}
    held: list[flintmq.Delivery] = []
    async with (
        mq.subscribe("orders", "g", prefetch=1, order="key") as one_member,
        mq.subscribe("orders", "g", prefetch=2, order="key") as other,
    ):
        while sum(map(len, seen.values())) < 80:
            for member in (one_member, other):
                message = await member.read(timeout=0)
                if message is None:
                    continue
                key = str(message.key)
                assert key not in out
                out[key] = message.value
                held.append(message)
            for message in held[:2]:
                del out[str(message.key)]
                seen[str(message.key)].append(message.offset or 0)
                await message.ack()
            del held[:2]
    assert all(offsets == sorted(offsets) for offsets in seen.values())
