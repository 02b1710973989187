"""Dead letters: what a group gives up on is kept as it was, says why, and can go back."""

from __future__ import annotations

import pytest

import flintmq
from flintmq.testing import ManualClock

from .queues import GraceEnds, numbered, one, polled


async def _reject(mq: flintmq.Client, *reasons: str, group: str = "g") -> None:
    """Reject the next few, each for its reason."""
    for message, reason in zip(await mq.poll("orders", group, len(reasons)), reasons, strict=True):
        await message.reject(reason)


async def test_after_five_deliveries_a_message_is_a_dead_letter(mq: flintmq.Client) -> None:
    await numbered(mq, 2)
    for count in range(1, 6):
        bad, good = await mq.poll("orders", "g", order="log")
        assert (bad.delivery_count, good.delivery_count) == (count, 1)
        await bad.nack()
        await mq.publish("orders", b"next")
        await good.ack()
    assert await polled(mq) == [b"next"]
    (letter,) = await mq.dead_letters("orders", "g")
    assert (letter.message.value, letter.delivery_count) == (b"0", 5)
    assert "max_deliveries=5" in letter.reason


async def test_leases_that_run_out_count_as_deliveries(
    mq: flintmq.Client, clock: ManualClock, grace_ends: GraceEnds
) -> None:
    await mq.create_topic("orders", max_deliveries=3)
    await numbered(mq, 1)
    for count in range(1, 4):
        assert (await one(mq, lease=5)).delivery_count == count
        assert await mq.dead_letters("orders", "g") == []
        await clock.advance(5.1)
    assert await polled(mq) == []
    await grace_ends()
    assert await polled(mq) == []
    (letter,) = await mq.dead_letters("orders", "g")
    assert letter.delivery_count == 3


async def test_the_last_lease_can_still_be_settled_in_time(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", max_deliveries=1)
    await numbered(mq, 1)
    message = await one(mq, lease=5)
    await clock.advance(4.9)
    await message.ack()
    await clock.advance(10)
    assert await mq.dead_letters("orders", "g") == []


async def test_without_a_limit_a_message_comes_for_ever(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", max_deliveries=None)
    await numbered(mq, 1)
    for count in range(1, 50):
        message = await one(mq)
        assert message.delivery_count == count
        await message.nack()


async def test_a_dead_letter_keeps_everything_and_says_where_it_comes_from_why_and_when(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.publish("orders", b"first")
    await mq.publish(
        "orders", b"\x00value", key="k", headers={"a": "1", "b": b"\xff"}, priority=6,
        content_type="text/x",
    )  # fmt: skip
    await clock.advance(7)
    message = await one(mq)
    await message.reject("it is no order")

    (letter,) = await mq.dead_letters("orders", "g")
    assert (letter.topic, letter.partition, letter.offset) == ("orders", 0, 1)
    assert (letter.group, letter.reason, letter.delivery_count) == ("g", "it is no order", 1)
    assert letter.time == clock.now_ms() / 1000
    kept = letter.message
    assert (kept.value, kept.key, kept.headers) == (b"\x00value", "k", {"a": "1", "b": b"\xff"})
    assert (kept.priority, kept.content_type) == (6, "text/x")
    stats = await mq.group_stats("orders", "g")
    assert (stats.dead_lettered, stats.dead_letters, stats.lag) == (1, 1, 1)


async def test_dead_letters_are_of_one_group_and_no_other(mq: flintmq.Client) -> None:
    await numbered(mq, 2)
    await _reject(mq, "no", group="a")
    assert await polled(mq, "b") == [b"0", b"1"]
    assert await mq.dead_letters("orders", "b") == []
    assert len(await mq.dead_letters("orders", "a")) == 1


async def test_dead_letters_come_oldest_first_and_no_more_than_asked_for(
    mq: flintmq.Client,
) -> None:
    await numbered(mq, 5)
    await _reject(mq, *"abcde")
    assert [letter.reason for letter in await mq.dead_letters("orders", "g")] == list("abcde")
    assert [letter.reason for letter in await mq.dead_letters("orders", "g", 2)] == ["a", "b"]


@pytest.mark.slow
async def test_many_letters_of_one_call_are_all_kept(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", max_deliveries=1)
    await numbered(mq, 700)
    while found := await mq.poll("orders", "g"):
        await found.nack()
    assert (await mq.group_stats("orders", "g")).dead_letters == 700
    letters = await mq.dead_letters("orders", "g", 1000)
    assert [letter.message.value for letter in letters] == [b"%d" % n for n in range(700)]
    assert await mq.redrive("orders", "g") == 700
    assert (await mq.group_stats("orders", "g")).lag == 700


# --- back again


@pytest.mark.parametrize("how", ["one", "id", "many", "all", "filter"])
async def test_dead_letters_go_back(mq: flintmq.Client, how: str) -> None:
    for n in range(4):
        await mq.publish("orders", b"%d" % n, headers={"n": str(n)}, key="k")
    await _reject(mq, *"abcd")
    letters = await mq.dead_letters("orders", "g")
    if how == "one":
        assert await mq.redrive("orders", "g", letters[1]) == 1
        expected = [b"1"]
    elif how == "id":
        assert await mq.redrive("orders", "g", letters[1].id) == 1
        expected = [b"1"]
    elif how == "many":
        assert await mq.redrive("orders", "g", [letters[3], letters[0].id]) == 2
        expected = [b"0", b"3"]
    elif how == "all":
        assert await mq.redrive("orders", "g") == 4
        expected = [b"0", b"1", b"2", b"3"]
    else:
        assert await mq.redrive("orders", "g", filter='headers.n == "2"') == 1
        expected = [b"2"]

    found = await mq.poll("orders", "g")
    assert found.values == expected
    for message in found:
        assert (message.delivery_count, message.key) == (1, "k")
        assert message.headers == {"n": message.value.decode()}
    left = [letter.message.value for letter in await mq.dead_letters("orders", "g")]
    assert left == [value for value in (b"0", b"1", b"2", b"3") if value not in expected]
    stats = await mq.group_stats("orders", "g")
    assert stats.dead_letters == len(left)


async def test_what_went_back_does_not_go_back_again(mq: flintmq.Client) -> None:
    await numbered(mq, 2)
    await _reject(mq, "a", "b")
    (letter, _) = await mq.dead_letters("orders", "g")
    assert await mq.redrive("orders", "g", letter) == 1
    assert await mq.redrive("orders", "g", letter) == 0
    assert await mq.redrive("orders", "g") == 1
    assert await mq.redrive("orders", "g") == 0
    assert sorted(await polled(mq)) == [b"0", b"1"]


async def test_what_goes_back_goes_to_its_group_alone(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 1)
    await (await mq.poll("orders", "other")).ack()
    await _reject(mq, "no")
    await mq.redrive("orders", "g")
    assert await polled(mq) == [b"0"]
    assert await polled(mq, "other") == []
    stats = await mq.group_stats("orders", "other")
    assert (stats.lag, stats.settled) == (0, 1)


async def test_a_letter_that_dies_again_is_a_letter_again(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", max_deliveries=2)
    await numbered(mq, 1)
    for _ in range(3):
        for _ in range(2):
            await (await one(mq)).nack()
        (letter,) = await mq.dead_letters("orders", "g")
        assert (letter.message.value, letter.delivery_count) == (b"0", 2)
        assert letter.message.headers == {}
        assert await mq.redrive("orders", "g", letter) == 1


async def test_redrive_takes_letters_or_a_filter_not_both(mq: flintmq.Client) -> None:
    await numbered(mq, 1)
    await _reject(mq, "no")
    (letter,) = await mq.dead_letters("orders", "g")
    with pytest.raises(flintmq.InvalidRequest, match="not both"):
        await mq.redrive("orders", "g", letter, filter="priority > 3")
    for wrong in ("0", -1, 1.5):
        with pytest.raises(flintmq.InvalidRequest):
            await mq.redrive("orders", "g", wrong)  # type: ignore[arg-type]
    assert len(await mq.dead_letters("orders", "g")) == 1


async def test_nothing_dead_is_nothing_to_list_or_to_put_back(mq: flintmq.Client) -> None:
    await numbered(mq, 1)
    await polled(mq)
    assert await mq.dead_letters("orders", "g") == []
    assert await mq.redrive("orders", "g") == 0
    with pytest.raises(flintmq.TopicNotFound):
        await mq.dead_letters("missing", "g")


# --- the topic of dead letters


async def test_topics_may_share_a_dead_letter_topic_of_their_own_name(mq: flintmq.Client) -> None:
    for topic in ("orders", "bills"):
        await mq.create_topic(topic, dead_letter_topic="graveyard", max_deliveries=1)
        await mq.publish(topic, topic.encode())
        await (await one(mq, topic=topic)).nack()
        await (await one(mq, "h", topic=topic)).reject("h says no")

    assert (await mq.topic_stats("graveyard")).message_count == 4
    for topic in ("orders", "bills"):
        for group in ("g", "h"):
            (letter,) = await mq.dead_letters(topic, group)
            assert (letter.topic, letter.group) == (topic, group)
            assert letter.message.value == topic.encode()
            assert (await mq.group_stats(topic, group)).dead_letters == 1
    assert await mq.redrive("orders", "h") == 1
    assert len(await mq.dead_letters("orders", "g")) == 1
    assert await polled(mq, "h") == [b"orders"]


async def test_dead_letters_can_be_read_like_any_topic(mq: flintmq.Client) -> None:
    await mq.create_topic("orders", dead_letter_topic="graveyard")
    await mq.publish("orders", {"n": 1})
    await (await one(mq)).reject("no")
    async with mq.reader("graveyard") as reader:
        message = await reader.read(timeout=0)
    assert message is not None
    assert message.decode() == {"n": 1}
    assert message.headers["flint-dead-reason"] == "no"
    assert await polled(mq, "undertaker", topic="graveyard") == [b'{"n":1}']


async def test_dead_letters_outlive_the_retention_of_their_topic(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await mq.create_topic("orders", retention_count=2, retention_age=60, ttl=60)
    await numbered(mq, 1)
    await _reject(mq, "no")
    await clock.advance(1000)
    await mq.publish_batch("orders", [b"new"] * 5)
    (letter,) = await mq.dead_letters("orders", "g")
    assert letter.message.value == b"0"


async def test_a_long_reason_is_cut_not_refused(mq: flintmq.Client) -> None:
    await numbered(mq, 1)
    await (await one(mq)).reject("x" * 100_000)
    (letter,) = await mq.dead_letters("orders", "g")
    assert letter.reason == "x" * len(letter.reason)
    assert 100 < len(letter.reason) < 10_000


async def test_lowering_max_deliveries_counts_for_what_was_delivered_before(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    await numbered(mq, 1)
    for _ in range(3):
        await (await one(mq)).nack()
    await mq.configure_topic("orders", max_deliveries=2)
    assert await polled(mq) == []
    while not (letters := await mq.dead_letters("orders", "g")):
        await clock.settle()
    assert letters[0].delivery_count == 3


# --- what a review found


async def test_a_reason_that_is_no_utf8_is_kept_as_far_as_it_is(
    mq: flintmq.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "flintmq.client")  # the report of a test has to be UTF-8
    await numbered(mq, 2)
    first, second = await mq.poll("orders", "g", order="log")
    await first.reject("no file \udcff")
    async with second.process(retries=0):
        raise OSError("no file \udcff")
    reasons = [letter.reason for letter in await mq.dead_letters("orders", "g")]
    assert reasons == ["no file ?", "OSError: no file ?"]


async def test_a_partitioned_topic_takes_no_dead_letters(mq: flintmq.Client) -> None:
    await mq.create_topic("dead", partitions=2)
    await mq.create_topic("orders", dead_letter_topic="dead")
    await numbered(mq, 1)
    await _reject(mq, "no")
    await mq.publish_batch("dead", [b"a", b"b"], key=["a", "b"])
    assert (await mq.topic_stats("dead")).message_count == 2
    (letter,) = await mq.dead_letters("orders", "g")
    assert letter.reason == "no"
    assert (await mq.topic_stats("dead.orders.g")).message_count == 1
    assert (await mq.group_stats("orders", "g")).dead_letters == 1


async def test_a_topic_is_not_its_own_dead_letter_topic(mq: flintmq.Client) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="dead_letter_topic"):
        await mq.create_topic("orders", dead_letter_topic="orders")
    await mq.create_topic("orders")
    with pytest.raises(flintmq.InvalidRequest, match="dead_letter_topic"):
        await mq.configure_topic("orders", dead_letter_topic="orders")


async def test_nothing_is_redriven_to_a_group_that_is_gone(mq: flintmq.Client) -> None:
    await numbered(mq, 1)
    await _reject(mq, "no")
    await mq.delete_group("orders", "g")
    with pytest.raises(flintmq.GroupNotFound):
        await mq.redrive("orders", "g")
    assert len(await mq.dead_letters("orders", "g")) == 1


# --- discarded is gone


async def _discarded(mq: flintmq.Client) -> None:
    """Of five dead letters, 1 and 3 are discarded."""
    await mq.publish_batch("jobs", [b"%d" % number for number in range(5)])
    for message in await mq.poll("jobs", "g", 5):
        await message.reject("no good")
    assert await mq.discard("jobs", "g", [1, 3]) == 2


async def test_what_is_discarded_is_gone_for_every_reader(mq: flintmq.Client) -> None:
    await _discarded(mq)
    async with mq.reader("dead.jobs.g") as reader, mq.reader("dead.jobs.g", name="n") as named:
        for one in (reader, named):
            assert (await one.read_batch(10)).values == [b"0", b"2", b"4"]
        await reader.seek(1)
        message = await reader.read()
        assert message is not None
        assert message.value == b"2"


async def test_what_is_discarded_is_gone_for_groups_that_are_there_and_that_come_later(
    mq: flintmq.Client,
) -> None:
    await mq.create_topic("dead.jobs.g")
    assert not await mq.poll("dead.jobs.g", "before")
    await _discarded(mq)
    for group in ("before", "after"):
        got = await mq.poll("dead.jobs.g", group, 10)
        assert got.values == [b"0", b"2", b"4"]
        await mq.reset_group("dead.jobs.g", group, "earliest")
        assert (await mq.poll("dead.jobs.g", group, 10)).values == [b"0", b"2", b"4"]


async def test_letters_that_are_discarded_at_the_front_take_no_room(mq: flintmq.Client) -> None:
    await _discarded(mq)
    assert (await mq.topic_stats("dead.jobs.g")).first_offset == 0
    assert await mq.discard("jobs", "g", [0]) == 1
    assert await mq.discard("jobs", "g") == 2
    stats = await mq.topic_stats("dead.jobs.g")
    assert (stats.first_offset, stats.message_count) == (5, 0)
    assert await mq.dead_letters("jobs", "g") == []
