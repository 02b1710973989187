"""Groups: they spring into existence, see the whole topic, split it, and keep their options."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import flintmq
from flintmq.testing import ManualClock
from tests.conftest import Background
from tests.patience import until

from .conftest import Connect
from .queues import GraceEnds, numbered, one, polled

# --- springing into existence


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_group_that_polled_before_the_topic_had_anything_misses_nothing(
    mq: flintmq.Client, is_there: bool
) -> None:
    if is_there:
        await mq.create_topic("orders", retention_count=100, keep_until_settled=True)
    assert await polled(mq, "waiting") == []
    await numbered(mq, 3)
    await (await mq.poll("orders", "fast")).ack()

    assert await polled(mq, "waiting") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("start", ["latest", "earliest"])
async def test_a_group_that_subscribed_on_an_empty_topic_misses_nothing(
    mq: flintmq.Client, start: str
) -> None:
    async with mq.subscribe("orders", "g", start=start) as deliveries:  # type: ignore[arg-type]
        await numbered(mq, 2)
        assert (await deliveries.read_batch()).values == [b"0", b"1"]


async def test_a_group_stays_when_its_members_have_gone(mq: flintmq.Client) -> None:
    async with mq.subscribe("orders", "g", start="latest"):
        pass
    await numbered(mq, 2)

    assert await polled(mq) == [b"0", b"1"]


async def test_a_missing_topic_is_not_made_where_that_is_not_allowed(connect: Connect) -> None:
    async with connect(auto_create=False) as mq:
        with pytest.raises(flintmq.TopicNotFound):
            await mq.poll("orders", "g")
        with pytest.raises(flintmq.TopicNotFound):
            await mq.subscribe("orders", "g")
        assert await mq.poll("orders", "g", auto_create=True) == []


async def test_a_group_is_listed_with_what_belongs_to_it(mq: flintmq.Client) -> None:
    await mq.poll("orders", "b", order="log", filter="priority > 3", start="latest")
    await mq.poll("orders", "a")
    async with mq.reader("orders", name="c"):
        a, b, c = await mq.groups("orders")
    assert (a.name, a.kind, a.order, a.filter, a.start) == (
        "a", "queue", "priority", None, "earliest",
    )  # fmt: skip
    assert (b.name, b.order, b.filter, b.start) == ("b", "log", "priority > 3", "latest")
    assert (c.name, c.kind, c.order) == ("c", "cursor", None)


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 6), (4, 4), (2, 2)])
async def test_a_new_group_begins_where_it_was_told(
    mq: flintmq.Client, start: str | int, first: int
) -> None:
    await numbered(mq, 6)
    await mq.poll("orders", "g", 1, start=start)  # type: ignore[arg-type]
    assert (await mq.group_stats("orders", "g")).position == first
    await numbered(mq, 1)

    stats = await mq.group_stats("orders", "g")
    assert stats.lag == 7 - first


@pytest.mark.parametrize("order", ["priority", "key", "log"])
async def test_a_group_that_begins_later_in_the_log_does_not_get_what_others_have_yet_to_look_at(
    mq: flintmq.Client, order: str
) -> None:
    assert await polled(mq, "idle") == []
    await numbered(mq, 6)
    assert await polled(mq, start="latest", order=order) == []
    assert await polled(mq, "h", 1, start=4, order=order) == [b"4"]
    await mq.publish("orders", b"new")
    assert await polled(mq) == [b"new"]
    assert await polled(mq, "h") == [b"5", b"new"]
    assert len(await polled(mq, "idle")) == 7


async def test_a_new_group_may_begin_at_a_time(mq: flintmq.Client, clock: ManualClock) -> None:
    await numbered(mq, 2)
    await clock.advance(10)
    began = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    await mq.publish("orders", b"later")

    assert await polled(mq, start=began) == [b"later"]


async def test_a_new_group_cannot_begin_at_what_it_committed(mq: flintmq.Client) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="committed"):
        await mq.poll("orders", "g", start="committed")


@pytest.mark.parametrize("name", ["", "a*", "a/b", "50%", "x\n"])
async def test_bad_names_of_groups_are_refused(mq: flintmq.Client, name: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="group"):
        await mq.poll("orders", name)
    with pytest.raises(flintmq.InvalidRequest, match="group"):
        mq.subscribe("orders", name)


# --- splitting and fanning out


async def test_each_group_sees_the_whole_topic_also_one_that_comes_late(mq: flintmq.Client) -> None:
    await numbered(mq, 4)
    for group in ("a", "b"):
        found = await mq.poll("orders", group)
        assert found.values == [b"0", b"1", b"2", b"3"]
        await found.ack()

    assert await polled(mq, "c") == [b"0", b"1", b"2", b"3"]


async def test_members_of_a_group_split_the_topic(mq: flintmq.Client) -> None:
    async with (
        mq.subscribe("orders", "g", prefetch=2) as one_member,
        mq.subscribe("orders", "g", prefetch=2) as other_member,
    ):
        await numbered(mq, 4)
        got = [*(await one_member.read_batch()).values, *(await other_member.read_batch()).values]
        assert sorted(got) == [b"0", b"1", b"2", b"3"]
        assert await polled(mq) == []
        assert (await mq.group_stats("orders", "g")).members == 3


async def test_a_hundred_polls_wait_and_exactly_one_gets_the_message(
    mq: flintmq.Client, background: Background
) -> None:
    await polled(mq)
    waiting = [background.start(mq.poll("orders", "g", 1, wait=100)) for _ in range(100)]
    await background.settle()
    assert (await mq.group_stats("orders", "g")).waiting == 100
    await mq.publish("orders", b"one")
    await background.settle()

    done = [task for task in waiting if task.done()]
    assert len(done) == 1
    assert (await done[0]).values == [b"one"]
    stats = await mq.group_stats("orders", "g")
    assert (stats.delivered, stats.in_flight, stats.waiting) == (1, 1, 99)


async def test_polls_that_wait_are_served_in_their_order(
    mq: flintmq.Client, background: Background
) -> None:
    first = await background.waiting(mq.poll("orders", "g", 2, wait=100))
    second = await background.waiting(mq.poll("orders", "g", 2, wait=100))
    await numbered(mq, 3)

    assert (await first).values == [b"0", b"1"]
    assert (await second).values == [b"2"]


async def test_a_poll_waits_for_the_first_and_never_for_more(
    mq: flintmq.Client, background: Background, clock: ManualClock
) -> None:
    waiting = await background.waiting(mq.poll("orders", "g", 10, wait=5))
    await mq.publish("orders", b"one")
    assert (await waiting).values == [b"one"]

    in_vain = await background.waiting(mq.poll("orders", "g", 10, wait=5))
    await clock.advance(4.9)
    assert not in_vain.done()
    await clock.advance(0.2)
    assert await in_vain == []


@pytest.mark.slow
async def test_a_thousand_groups_each_get_every_message(
    mq: flintmq.Client, background: Background
) -> None:
    names = [f"group-{n}" for n in range(1000)]
    for name in names[:-1]:
        await mq.poll("orders", name)
    waiting = await background.waiting(mq.poll("orders", names[-1], wait=10))
    await numbered(mq, 3)
    assert (await waiting).values == [b"0", b"1", b"2"]
    for name in names[::100]:
        found = await mq.poll("orders", name)
        assert found.values == [b"0", b"1", b"2"]
        await found.ack()
    lags = (await mq.topic_stats("orders")).lag
    assert sum(lags.values()) == 3 * (1000 - 10)


async def test_qos_0_reaches_no_group(mq: flintmq.Client) -> None:
    await polled(mq)
    await mq.publish("orders", b"gone", qos=0)
    await mq.publish("orders", b"kept")

    assert await polled(mq) == [b"kept"]


# --- options belong to the group


async def test_who_names_no_options_takes_those_of_the_group(mq: flintmq.Client) -> None:
    await mq.poll("orders", "g", order="log", filter="priority > 3", start="latest")
    await mq.publish("orders", b"low", priority=1)
    await mq.publish("orders", b"4", priority=4)
    await mq.publish("orders", b"7", priority=7)

    assert await polled(mq) == [b"4", b"7"]


async def test_who_names_other_options_hears_which_differ(mq: flintmq.Client) -> None:
    await mq.poll("orders", "g", order="log", filter="priority > 3", start="latest")
    with pytest.raises(flintmq.GroupExists) as told:
        await mq.poll("orders", "g", order="key", filter="priority > 4", start="earliest")
    assert told.value.differing == {
        "order": ("log", "key"),
        "filter": ("priority > 3", "priority > 4"),
        "start": ("latest", "earliest"),
    }
    for name in ("order", "filter", "start"):
        assert f"{name} is" in str(told.value)
    with pytest.raises(flintmq.GroupExists) as told:
        await mq.subscribe("orders", "g", order="priority", filter="priority > 3")
    assert set(told.value.differing) == {"order"}
    async with mq.subscribe("orders", "g", order="log", filter="priority > 3", start="latest"):
        pass  # the same are no others


async def test_a_name_in_use_as_a_cursor_is_refused_as_a_queue_and_the_other_way_round(
    mq: flintmq.Client,
) -> None:
    await mq.poll("orders", "queue")
    async with mq.reader("orders", name="cursor"):
        with pytest.raises(flintmq.GroupExists, match="cursor"):
            await mq.poll("orders", "cursor")
        with pytest.raises(flintmq.GroupExists, match="cursor"):
            await mq.subscribe("orders", "cursor")
        with pytest.raises(flintmq.GroupExists, match="queue"):
            await mq.reader("orders", name="queue")
    with pytest.raises(flintmq.GroupExists):  # also while nobody has the reader open
        await mq.poll("orders", "cursor")
    for call in (
        mq.pause_group, mq.peek, mq.in_flight,
    ):  # fmt: skip
        with pytest.raises(flintmq.GroupExists):
            await call("orders", "cursor")


async def test_the_same_name_on_another_topic_is_another_group(mq: flintmq.Client) -> None:
    await mq.poll("orders", "g", order="log")
    await mq.poll("bills", "g", order="key")
    async with mq.reader("letters", name="g"):
        pass


@pytest.mark.parametrize("order", ["random", "", "PRIORITY"])
async def test_orders_nobody_knows_are_refused(mq: flintmq.Client, order: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="order must be one of"):
        await mq.poll("orders", "g", order=order)  # type: ignore[arg-type]


# --- filters


async def test_what_a_filter_rejects_is_settled_without_delivery_and_counted(
    mq: flintmq.Client,
) -> None:
    await mq.poll("orders", "g", filter='headers.region == "eu"')
    for n in range(6):
        await mq.publish("orders", b"%d" % n, headers={"region": "eu" if n % 3 == 0 else "us"})
    found = await mq.poll("orders", "g")
    assert found.values == [b"0", b"3"]
    await found.ack()
    assert await polled(mq) == []

    stats = await mq.group_stats("orders", "g")
    assert (stats.lag, stats.position) == (0, 6)
    assert (stats.drops, stats.settled, stats.delivered) == ({"filtered": 4}, 2, 2)


async def test_a_poll_that_waits_passes_over_what_the_filter_rejects(
    mq: flintmq.Client, background: Background, grace_ends: GraceEnds
) -> None:
    waiting = await background.waiting(mq.poll("orders", "g", wait=99, filter="value.amount > 100"))
    await mq.publish("orders", {"amount": 5})
    await background.settle()
    assert not waiting.done()
    await mq.publish("orders", {"amount": 500})
    for _ in range(2):
        await background.settle()
        if not waiting.done():
            await grace_ends()

    assert [message.decode() for message in await waiting] == [{"amount": 500}]


async def test_a_rare_match_is_found_behind_thousands_that_are_none(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish_batch("orders", [b"x"] * 9000)
    await mq.publish("orders", b"rare", priority=1)
    await mq.publish_batch("orders", [b"x"] * 10)

    assert await polled(mq, order="log", filter="priority == 1") == [b"rare"]
    await clock.settle()
    assert (await mq.group_stats("orders", "g")).drops["filtered"] >= 9000


async def test_a_message_a_filter_raises_on_becomes_a_dead_letter(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", storage="memory")  # where a filter may be a function
    await numbered(mq, 3)
    found = await mq.poll("orders", "g", filter=lambda message: 10 // int(message.value) > 4)
    assert found.values == [b"1", b"2"]

    async def is_there() -> bool:  # the poll does not wait for the disk that they are on
        return bool(await mq.dead_letters("orders", "g"))

    await until(is_there, "it became none")
    (letter,) = await mq.dead_letters("orders", "g")
    assert (letter.message.value, letter.offset, letter.delivery_count) == (b"0", 0, 0)
    assert "ZeroDivisionError" in letter.reason


async def test_a_function_may_be_a_filter_of_a_group_in_memory_only(
    mq: flintmq.Client, way: str
) -> None:
    def is_short(message: flintmq.Message) -> bool:
        return len(message.value) < 3

    if way.startswith(("file", "cluster")):
        with pytest.raises(flintmq.InvalidRequest, match="durable"):
            await mq.poll("orders", "g", filter=is_short)
        return
    await mq.publish_batch("orders", [b"a", b"long", b"b"])
    assert await polled(mq, filter=is_short) == [b"a", b"b"]
    with pytest.raises(flintmq.GroupExists):
        await mq.poll("orders", "g", filter=lambda message: True)
    assert await polled(mq, filter=is_short) == []


# --- values


async def test_values_come_through_groups_as_they_do_through_readers(mq: flintmq.Client) -> None:
    await mq.create_topic("things", format="msgpack", compression="gzip")
    await mq.publish("things", {"n": 1}, key="k", headers={"h": "x"}, content_type=None)
    message = await one(mq, topic="things")
    assert message.decode() == {"n": 1}
    assert (message.key, message.headers, message.group) == ("k", {"h": "x"}, "g")
    assert (message.topic, message.offset, message.partition) == ("things", 0, 0)
    assert (message.delivery_count, message.priority) == (1, 0)
    assert message.timestamp is not None


async def test_objects_go_through_groups_by_reference_in_memory(
    mq: flintmq.Client,
) -> None:
    thing = object()
    await mq.create_topic("things", format="object", max_deliveries=1)
    await mq.publish("things", thing)
    message = await one(mq, topic="things")
    assert message.value is thing
    await message.nack()
    (letter,) = await mq.dead_letters("things", "g")
    assert letter.message.value is thing
    assert await mq.redrive("things", "g") == 1
    assert (await one(mq, topic="things")).value is thing


async def test_what_is_committed_from_a_stage_reaches_groups_that_wait(
    mq: flintmq.Client, background: Background
) -> None:
    waiting = await background.waiting(mq.poll("orders", "g", wait=100))
    await mq.stage("job", 1, 0, {"orders": [b"a", b"b"]})
    await background.settle()
    assert not waiting.done()
    await mq.commit("job", 1, [0])
    assert (await waiting).values == [b"a", b"b"]


async def test_a_duplicate_publish_is_delivered_once(mq: flintmq.Client) -> None:
    for _ in range(2):
        await mq.publish("orders", b"once", producer="p", sequence=7)
    assert await polled(mq) == [b"once"]


async def test_a_subscription_is_an_iterator_that_ends_when_it_is_closed(
    mq: flintmq.Client,
) -> None:
    await numbered(mq, 20)
    got = []
    async with mq.subscribe("orders", "g", prefetch=3) as deliveries:
        async for message in deliveries:
            async with message.process():
                got.append(int(message.value))
            if len(got) == 20:
                await deliveries.close()
    assert got == list(range(20))
    assert (await mq.group_stats("orders", "g")).lag == 0


async def test_a_subscription_holds_no_more_than_its_prefetch(
    mq: flintmq.Client, background: Background
) -> None:
    await numbered(mq, 10)
    async with mq.subscribe("orders", "g", prefetch=3) as deliveries:
        found = await deliveries.read_batch()
        assert len(found) == 3
        assert (await mq.group_stats("orders", "g")).in_flight == 3
        waiting = await background.waiting(deliveries.read())
        await found[0].ack()
        message = await waiting
        assert message is not None
        assert message.value == b"3"
