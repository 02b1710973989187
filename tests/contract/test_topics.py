"""Topics: made, changed, listed, deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import flintmq
from flintmq.model import Overflow
from flintmq.testing import ManualClock
from tests.conftest import Background
from tests.contract.conftest import Connect

from .queues import deleted


async def test_a_topic_has_a_name_an_id_and_options(mq: flintmq.Client) -> None:
    info = await mq.create_topic("orders", retention_count=10, overflow="reject")

    assert info.name == "orders"
    assert info.options.retention_count == 10
    assert info.options.overflow == "reject"
    assert await mq.topic_info("orders") == info


async def test_a_memory_topic_keeps_256_mib_and_drops_the_oldest_unless_told_otherwise(
    mq: flintmq.Client,
) -> None:
    options = (await mq.create_topic("orders", storage="memory")).options

    assert options.retention_bytes == 256 * 1024 * 1024
    assert options.overflow == "drop_oldest"
    assert options.retention_count is None
    assert options.retention_age is None
    assert options.ttl is None


async def test_every_option_is_kept(mq: flintmq.Client) -> None:
    wanted: dict[str, Any] = {
        "retention_count": 5,
        "retention_bytes": 1000,
        "retention_age": 60,
        "ttl": timedelta(minutes=1),
        "max_message_bytes": 100,
        "overflow": "block",
        "storage": "memory",
    }
    options = (await mq.create_topic("orders", **wanted)).options

    assert options.retention_age == 60.0
    assert options.ttl == 60.0
    for name in ("retention_count", "retention_bytes", "max_message_bytes", "overflow", "storage"):
        assert getattr(options, name) == wanted[name]


async def test_creating_a_topic_again_with_the_same_options_changes_nothing(
    mq: flintmq.Client,
) -> None:
    first = await mq.create_topic("orders", retention_count=10)
    await mq.publish("orders", b"kept")

    assert await mq.create_topic("orders", retention_count=10) == first
    assert (await mq.topic_stats("orders")).message_count == 1


async def test_only_the_options_that_are_named_have_to_agree(mq: flintmq.Client) -> None:
    first = await mq.create_topic("orders", retention_count=10, overflow="reject")

    assert await mq.create_topic("orders") == first
    assert await mq.create_topic("orders", overflow="reject") == first


async def test_other_options_on_an_existing_topic_are_an_error_that_names_them(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("orders", retention_count=10, retention_age=60, overflow="reject")

    with pytest.raises(flintmq.TopicExists) as caught:
        await mq.create_topic("orders", retention_count=20, retention_age=60, overflow="block")

    assert caught.value.differing == {
        "retention_count": (10, 20),
        "overflow": ("reject", "block"),
    }
    assert "retention_count is 10, not 20" in str(caught.value)
    assert "retention_age" not in str(caught.value)
    assert (await mq.topic_info("orders")).options.retention_count == 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retention": 5}, "unknown topic option 'retention'"),
        ({"retention_count": 0}, "retention_count"),
        ({"retention_count": -1}, "retention_count"),
        ({"retention_count": 1.5}, "retention_count"),
        ({"retention_count": True}, "retention_count"),
        ({"retention_bytes": "1 MB"}, "retention_bytes"),
        ({"retention_bytes": 0}, "retention_bytes"),
        ({"max_message_bytes": 0}, "max_message_bytes"),
        ({"retention_age": 0}, "retention_age"),
        ({"retention_age": -1}, "retention_age"),
        ({"ttl": float("nan")}, "ttl"),
        ({"ttl": float("inf")}, "ttl"),
        ({"ttl": timedelta(0)}, "ttl"),
        ({"overflow": "explode"}, "drop_oldest, drop_new, block, reject"),
        ({"overflow": None}, "overflow"),
        ({"storage": "tape"}, "storage"),
    ],
)
async def test_bad_options_are_refused_by_name(
    mq: flintmq.Client, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(flintmq.InvalidRequest, match=said):
        await mq.create_topic("orders", **options)
    assert await mq.topics() == []

    await mq.create_topic("orders")
    with pytest.raises(flintmq.InvalidRequest, match=said):
        await mq.configure_topic("orders", **options)


async def test_configuring_changes_what_is_named_and_leaves_the_rest(mq: flintmq.Client) -> None:
    before = await mq.create_topic("orders", retention_count=10, ttl=60)
    after = await mq.configure_topic("orders", retention_count=20)

    assert after.id == before.id
    assert after.options.retention_count == 20
    assert after.options.ttl == 60
    assert (await mq.configure_topic("orders", ttl=None)).options.ttl is None


async def test_a_lower_limit_takes_effect_at_once(mq: flintmq.Client) -> None:
    await mq.publish_batch("orders", [b"%d" % n for n in range(10)])
    await mq.configure_topic("orders", retention_count=3)

    stats = await mq.topic_stats("orders")
    assert (stats.first_offset, stats.next_offset, stats.message_count) == (7, 10, 3)
    assert stats.drops == {"count": 7}


@pytest.mark.parametrize("overflow", ["block", "reject", "drop_new"])
async def test_a_lower_limit_takes_nothing_unread_where_the_oldest_are_not_to_be_dropped(
    mq: flintmq.Client, overflow: Overflow
) -> None:
    await mq.create_topic("orders", overflow=overflow)
    await mq.publish_batch("orders", [b"%d" % n for n in range(10)])
    await mq.configure_topic("orders", retention_count=3)

    async with mq.reader("orders") as reader:
        assert len(await reader.read_batch()) == 10
    assert (await mq.topic_stats("orders")).drops == {}


async def test_a_ttl_set_later_counts_for_what_is_there(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("orders", b"old")
    await clock.advance(10)
    await mq.publish("orders", b"new")
    await mq.configure_topic("orders", ttl=5)

    async with mq.reader("orders") as reader:
        assert list((await reader.read_batch()).values) == [b"new"]


async def test_the_figures_of_many_topics_are_asked_for_at_once(mq: flintmq.Client) -> None:
    await mq.create_topic("parts", partitions=3)
    names = [f"topic.{number:03}" for number in range(300)]
    for name in names:
        await mq.publish(name, b"x")
    await mq.publish(names[7], b"y")

    found = await mq.stats_of([*names, "gone", "parts"])

    assert [one.name for one in found] == [*names, "parts"]
    assert [one.name for one in found if one.message_count == 2] == [names[7]]
    assert len(found[-1].partitions) == 3
    assert await mq.stats_of([]) == []


@pytest.mark.parametrize("verb", ["configure_topic", "delete_topic", "topic_info", "topic_stats"])
async def test_what_needs_a_topic_says_so_when_there_is_none(mq: flintmq.Client, verb: str) -> None:
    with pytest.raises(flintmq.TopicNotFound) as caught:
        await getattr(mq, verb)("orders")
    assert caught.value.topic == "orders"
    assert isinstance(caught.value, LookupError)


async def test_publishing_to_a_missing_topic_creates_it_with_defaults(mq: flintmq.Client) -> None:
    await mq.publish("orders", b"x")
    made = await mq.create_topic("made")
    assert (await mq.topic_info("orders")).options == made.options


async def test_reading_a_missing_topic_creates_it_too(mq: flintmq.Client) -> None:
    async with mq.reader("orders"):
        assert await mq.topics() == ["orders"]


async def test_without_auto_create_a_missing_topic_is_an_error(connect: Connect) -> None:
    mq = await connect(auto_create=False)

    with pytest.raises(flintmq.TopicNotFound):
        await mq.publish("orders", b"x")
    with pytest.raises(flintmq.TopicNotFound):
        await mq.publish_batch("orders", [b"x"])
    with pytest.raises(flintmq.TopicNotFound):
        await mq.publish_many([("orders", b"x")])
    with pytest.raises(flintmq.TopicNotFound):
        await mq.reader("orders")
    publisher = mq.publisher("orders")
    publisher.send(b"x")
    with pytest.raises(flintmq.TopicNotFound):
        await publisher.flush()
    assert await mq.topics() == []

    await mq.create_topic("orders")
    assert (await mq.publish("orders", b"x")).offset == 0


async def test_auto_create_can_be_said_call_by_call(mq: flintmq.Client, connect: Connect) -> None:
    with pytest.raises(flintmq.TopicNotFound):
        await mq.publish("orders", b"x", auto_create=False)
    with pytest.raises(flintmq.TopicNotFound):
        await mq.reader("orders", auto_create=False)

    strict = await connect(auto_create=False)
    assert (await strict.publish("orders", b"x", auto_create=True)).offset == 0


async def test_topics_are_listed_by_pattern_in_order(mq: flintmq.Client) -> None:
    for name in ("orders.us", "bills", "orders.eu", "orders.eu.fr"):
        await mq.create_topic(name)

    assert await mq.topics() == ["bills", "orders.eu", "orders.eu.fr", "orders.us"]
    assert await mq.topics("orders.*") == ["orders.eu", "orders.us"]
    assert await mq.topics("orders.>") == ["orders.eu", "orders.eu.fr", "orders.us"]
    assert await mq.topics("bills") == ["bills"]
    assert await mq.topics("none.*") == []


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "orders.eu",
        "Bestellungen für alle",
        "注文.東京",
        "a",
        "🜂",
        "with space",
        "x" * 65_535,
    ],
)
async def test_names_are_any_text(mq: flintmq.Client, name: str) -> None:
    assert (await mq.publish(name, b"x")).topic == name
    assert await mq.topics() == [name]


@pytest.mark.parametrize(
    "name",
    ["", "a*", "*", ">", "a.>", "50%", "a/b", "tab\there", "nul\0", "\x7f", "\x85", "\ud800",
     "x" * 65_536, "é" * 32_768, None, 7, b"orders"],
)  # fmt: skip
async def test_names_that_are_not_allowed_are_refused(mq: flintmq.Client, name: Any) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        await mq.create_topic(name)
    with pytest.raises(flintmq.InvalidRequest):
        await mq.publish(name, b"x")
    with pytest.raises(flintmq.InvalidRequest):
        await mq.reader(name)
    assert await mq.topics() == []


async def test_a_deleted_topic_is_gone_and_one_made_anew_is_another(mq: flintmq.Client) -> None:
    before = await mq.create_topic("orders", retention_count=5)
    await mq.publish("orders", b"x")
    await deleted(mq, "orders")

    assert await mq.topics() == []
    with pytest.raises(flintmq.TopicNotFound):
        await mq.topic_stats("orders")

    after = await mq.create_topic("orders", retention_count=7)
    assert after.id != before.id
    assert (await mq.publish("orders", b"y")).offset == 0
    async with mq.reader("orders", name="billing") as reader:
        assert list((await reader.read_batch()).values) == [b"y"]


async def test_topic_ids_are_never_used_again(mq: flintmq.Client) -> None:
    seen = set()
    for round_ in range(20):
        for name in ("a", "b", f"c{round_}"):
            seen.add((await mq.create_topic(name)).id)
        for name in ("b", "a"):
            await deleted(mq, name)
    assert len(seen) == 60


async def test_deleting_ends_readers_that_wait_and_readers_that_do_not(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.publish("orders", b"unread")
    idle = await mq.reader("orders")
    at_end = await mq.reader("orders", start="latest")
    named = await mq.reader("orders", name="billing", start="latest")
    reading = await background.waiting(at_end.read())
    batching = await background.waiting(named.read_batch(10, timeout=60))

    await deleted(mq, "orders")

    for task in (reading, batching):
        with pytest.raises(flintmq.TopicDeleted) as caught:
            await task
        assert caught.value.topic == "orders"
    for reader in (idle, at_end, named):
        with pytest.raises(flintmq.TopicDeleted):
            await reader.read(timeout=1)
        with pytest.raises(flintmq.TopicDeleted):
            (await reader.read(timeout=0))
        with pytest.raises(flintmq.TopicDeleted):
            await reader.lag()
        await reader.close()


async def test_deleting_ends_an_iteration_with_an_error(
    mq: flintmq.Client, background: Background
) -> None:
    async def loop(stream: flintmq.Reader | flintmq.Feed) -> None:
        async for _ in stream:
            pass

    await mq.create_topic("orders")
    reader, feed = await mq.reader("orders"), await mq.live("orders")
    loops = [await background.waiting(loop(stream)) for stream in (reader, feed)]

    await deleted(mq, "orders")

    for task in loops:
        with pytest.raises(flintmq.TopicDeleted):
            await task


async def test_deleting_ends_the_feeds_of_that_topic_and_leaves_those_of_patterns(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("orders.eu")
    async with mq.live("orders.eu") as own, mq.live("orders.*") as wide:
        reading = await background.waiting(own.read())
        await deleted(mq, "orders.eu")

        with pytest.raises(flintmq.TopicDeleted):
            await reading
        await mq.publish("orders.eu", b"anew")
        message = await wide.read(timeout=1)
        assert message is not None
        assert message.value == b"anew"
        with pytest.raises(flintmq.TopicDeleted):
            await own.read(timeout=1)


async def test_a_feed_hands_out_what_it_has_before_it_ends(mq: flintmq.Client) -> None:
    async with mq.live("orders") as feed:
        await mq.publish_batch("orders", [b"a", b"b"])
        await deleted(mq, "orders")

        assert list((await feed.read_batch()).values) == [b"a", b"b"]
        with pytest.raises(flintmq.TopicDeleted):
            await feed.read_batch()


async def test_deleting_ends_every_publisher_that_waits(
    mq: flintmq.Client, background: Background
) -> None:
    await mq.create_topic("orders", retention_count=1, overflow="block")
    await mq.publish("orders", b"full")
    blocked = [await background.waiting(mq.publish("orders", b"%d" % n)) for n in range(3)]

    await deleted(mq, "orders")

    for task in blocked:
        with pytest.raises(flintmq.TopicDeleted):
            await task
    assert await mq.topics() == []


async def test_each_who_hears_of_a_deletion_gets_an_error_of_their_own(
    mq: flintmq.Client, background: Background
) -> None:
    """An error object that is shared would gather the notes and the traceback of everybody."""
    await mq.create_topic("orders")
    readers = [await mq.reader("orders") for _ in range(2)]
    waiting = [await background.waiting(reader.read()) for reader in readers]
    await deleted(mq, "orders")

    errors: list[BaseException] = []
    for task in waiting:
        with pytest.raises(flintmq.TopicDeleted) as caught:
            await task
        errors.append(caught.value)
    for reader in readers:
        with pytest.raises(flintmq.TopicDeleted) as caught:
            (await reader.read(timeout=0))
        errors.append(caught.value)
    assert len(set(map(id, errors))) == 4
