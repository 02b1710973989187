"""Giving up the lead and taking it again: nothing is lost, nothing is done twice, all are told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.batch import BatchBuilder
from flintmq.broker_api import Fetch, Joining, ReaderOpening
from flintmq.engine.commands import CreateGroup
from flintmq.engine.leading.member import GroupMember
from flintmq.engine.leading.readers import LeadingReader
from flintmq.errors import InvalidRequest, NotLeader, TopicNotFound
from flintmq.testing import SimulatedFileSystem
from tests.engine.stepping import Life, small_sizes


@pytest.fixture(autouse=True, scope="module")
def sizes() -> Iterator[None]:
    with small_sizes():
        yield


@pytest.fixture
async def life() -> Life:
    life = await Life(SimulatedFileSystem()).open()
    await life.run(life.broker.create_topic("orders", {}))
    return life


def rows(*values: bytes, **columns: Any) -> BatchBuilder:
    builder = BatchBuilder()
    for value in values:
        builder.append_row(value, **columns)
    return builder


async def lead_again(life: Life, reclaim_seconds: float = 0.0) -> None:
    await life.run(life.broker.shard.take_lead(reclaim_seconds=reclaim_seconds))


async def joined(life: Life, topic: str = "orders") -> GroupMember:
    member = await life.run(
        life.broker.join_group(
            Joining(
                topic,
                "g",
                order=None,
                filter=None,
                start="earliest",
                holder="me",
                auto_create=False,
            )
        )
    )
    assert isinstance(member, GroupMember)
    return member


async def reader_of(life: Life, name: str | None = None) -> LeadingReader:
    reader = await life.run(
        life.broker.open_reader(ReaderOpening("orders", name=name, auto_create=False))
    )
    assert isinstance(reader, LeadingReader)
    return reader


async def test_what_was_gathered_in_this_turn_is_surely_not_done(life: Life) -> None:
    publishing = asyncio.ensure_future(life.publishing("orders", b"never"))
    await asyncio.sleep(0)  # decided, and not proposed before the turn is over
    life.broker.shard.give_up_lead()

    with pytest.raises(NotLeader):
        await life.run(asyncio.wait_for(publishing, None))
    await lead_again(life)
    assert life.messages("orders") == []
    assert (await life.publish("orders", b"first")).offset == 0


async def test_what_was_proposed_learns_its_fate(life: Life) -> None:
    publishing = asyncio.ensure_future(life.publishing("orders", b"on its way"))
    for _ in range(3):
        await asyncio.sleep(0)
    life.broker.shard.give_up_lead()
    assert not publishing.done()

    life.broker.host.step()

    assert (await publishing).offset == 0
    await lead_again(life)
    assert life.messages("orders") == [(0, b"on its way")]
    assert (await life.publish("orders", b"next")).offset == 1


async def test_who_leads_again_waits_for_what_was_proposed_before(life: Life) -> None:
    publishing = asyncio.ensure_future(life.publishing("orders", b"on its way"))
    for _ in range(3):
        await asyncio.sleep(0)
    life.broker.shard.give_up_lead()

    await lead_again(life)

    assert publishing.done()
    assert (await life.publish("orders", b"next")).offset == 1


async def test_whoever_waits_is_told(life: Life) -> None:
    await life.run(life.broker.create_topic("small", {"retention_count": 1, "overflow": "block"}))
    await life.publish("small", b"x")
    reader, member = await reader_of(life), await joined(life)
    feed = await life.run(
        life.broker.open_feed("orders", capacity=10, overflow="drop_new", filter=None)
    )

    async def give_up() -> None:
        await asyncio.sleep(0)
        life.broker.shard.give_up_lead()

    outcomes = await life.do(
        reader.wait(None),
        member.take(1, 30.0, None),
        feed.wait(None),
        life.publishing("small", b"y"),
        give_up(),
    )

    assert [type(outcome) for outcome in outcomes[:2]] == [NotLeader, NotLeader]
    assert isinstance(outcomes[3], NotLeader)
    with pytest.raises(NotLeader):
        feed.take(1)
    with pytest.raises(NotLeader):
        reader.take(1)
    with pytest.raises(NotLeader):
        await member.ack([(1, [(0, 1)])])


async def test_every_verb_is_refused_while_another_leads(life: Life) -> None:
    broker = life.broker
    broker.shard.give_up_lead()

    outcomes = await life.do(
        broker.publish("orders", rows(b"x"), qos=1, auto_create=True, timeout=None),
        broker.publish("new", rows(b"x"), qos=0, auto_create=True, timeout=None),
        broker.create_topic("new", {}),
        broker.configure_topic("orders", {"ttl": 1}),
        broker.delete_topic("orders"),
        broker.purge_topic("orders", None),
        broker.topics("*"),
        broker.topic_info("orders"),
        broker.topic_stats("orders"),
        broker.open_reader(ReaderOpening("orders", name="r", auto_create=True)),
        broker.fetch(
            Fetch("orders", 0, end=None, max_rows=1, max_bytes=1, filter=None, with_expired=False)
        ),
        broker.extents("orders", None),
        broker.wait_beyond({"orders": 0}, 1),
        broker.open_feed("*", capacity=1, overflow="block", filter=None),
        broker.join_group(
            Joining(
                "orders", "g", order=None, filter=None, start=None, holder="me", auto_create=True
            )
        ),
        broker.groups("orders"),
        broker.group_stats("orders", "g"),
        broker.pause_group("orders", "g", True),
        broker.reset_group("orders", "g", 0),
        broker.delete_group("orders", "g"),
        broker.redrive("orders", "g", None, None),
        broker.cancel("orders", [(0, 1)]),
        broker.stage("job", 1, "0", [("orders", rows(b"x"))], auto_create=True),
        broker.commit("job", 1, ["0"]),
        broker.abort("job", 1),
    )

    assert {type(outcome) for outcome in outcomes} == {NotLeader}
    assert broker.publish_value_nowait("orders", b"x") is None
    await lead_again(life)
    assert await life.run(broker.topics("*")) == ["orders"]


async def test_what_was_leased_keeps_its_token_and_new_ones_are_beyond_it(life: Life) -> None:
    await life.publish("orders", b"0", b"1", b"2")
    member = await joined(life)
    grant = await life.run(member.take(2, 30.0, 0))
    life.broker.shard.give_up_lead()
    await lead_again(life, reclaim_seconds=60)

    member = await joined(life)
    rest = await life.run(member.take(10, 30.0, 0))
    assert rest.rows.offsets == [2]
    assert rest.token >> 40 > grant.token >> 40, "a token begins with who leads"
    await life.run(member.ack([(grant.token, [(0, 2)])]))
    assert (await life.run(life.broker.group_stats("orders", "g"))).position == 2


async def test_what_nobody_comes_back_for_is_handed_out_again_and_counted(life: Life) -> None:
    await life.publish("orders", b"0")
    await life.run((await joined(life)).take(1, 30.0, 0))
    life.broker.shard.give_up_lead()
    await lead_again(life)

    grant = await life.run((await joined(life)).take(1, 30.0, 0))

    assert grant.rows.offsets == [0]
    assert grant.counts == {0: 2}


async def test_attempts_are_applied_by_who_follows(life: Life) -> None:
    await life.publish("orders", b"0")
    member = await joined(life)
    taking = asyncio.ensure_future(member.take(1, 30.0, 0))
    await asyncio.sleep(0)
    life.broker.shard.give_up_lead()
    await life.run(life.broker.settled())
    taking.cancel()
    await lead_again(life)

    grant = await life.run((await joined(life)).take(1, 30.0, 0))

    assert grant.counts == {0: 2}


async def test_names_of_readers_go_on_where_they_committed(life: Life) -> None:
    await life.publish("orders", b"0", b"1", b"2")
    reader = await reader_of(life, "r")
    reader.take(2)
    await life.run(reader.commit(1))
    life.broker.shard.give_up_lead()
    await lead_again(life)

    again = await reader_of(life, "r")
    assert again.take(10).values == [b"1", b"2"]


async def test_a_name_that_was_being_made_is_there_if_it_was_proposed(life: Life) -> None:
    opening = asyncio.ensure_future(
        life.broker.open_reader(ReaderOpening("orders", name="r", auto_create=False))
    )
    await asyncio.sleep(0)
    life.broker.shard.give_up_lead()
    await lead_again(life)

    with pytest.raises(NotLeader):
        (await opening).take(1)
    assert "r" in life.broker.shard.state.topics["orders"].names


async def test_delayed_messages_fall_due_whoever_leads_by_then(life: Life) -> None:
    now_ms = life.clock.now_ms()
    await life.publish("orders", b"soon", deliver_at=now_ms + 1_000)
    await life.publish("orders", b"later", deliver_at=now_ms + 5_000)
    await life.publish("orders", b"never", deliver_at=now_ms + 1_500)
    member = await joined(life)
    assert await life.run(member.take(1, 30.0, 0)) is None
    await life.run(life.broker.cancel("orders", [(2, 3)]))
    life.broker.shard.give_up_lead()
    await life.clock.advance(2)
    await lead_again(life)

    member = await joined(life)
    assert (await life.run(member.take(9, 30.0, 0))).rows.offsets == [0]
    await life.clock.advance(3)
    assert (await life.run(member.take(9, 30.0, 0))).rows.offsets == [1]


async def test_what_has_had_its_time_is_dropped_by_who_leads_then(life: Life) -> None:
    await life.run(life.broker.create_topic("short", {"retention_age": 10}))
    await life.publish("short", b"x")
    life.broker.shard.give_up_lead()
    await life.clock.advance(20)
    assert life.clock.pending() == 0, "who follows has no timers"
    assert life.broker.shard.state.topics["short"].log.first_offset == 0
    await lead_again(life)

    await life.clock.advance(1)
    life.broker.host.step()

    assert life.messages("short") == []


async def test_what_is_staged_can_be_committed_by_who_leads_then(life: Life) -> None:
    await life.run(
        life.broker.stage("job", 1, "0", [("orders", rows(b"staged"))], auto_create=False)
    )
    life.broker.shard.give_up_lead()
    await lead_again(life)

    (receipt,) = await life.run(life.broker.commit("job", 1, ["0"]))

    assert receipt.offset == 0
    assert life.messages("orders") == [(0, b"staged")]


async def test_a_repeat_is_known_to_who_leads_then(life: Life) -> None:
    first = await life.publish("orders", b"x", producer="p", sequence=7)
    life.broker.shard.give_up_lead()
    await lead_again(life)

    again = await life.publish("orders", b"x", producer="p", sequence=7)

    assert (again.offset, again.duplicate) == (first.offset, True)


async def test_topics_in_memory_are_empty_when_somebody_begins_to_lead(life: Life) -> None:
    await life.run(life.broker.create_topic("quick", {"storage": "memory"}))
    await life.run(life.broker.publish("quick", rows(b"x"), qos=1, auto_create=False, timeout=None))
    life.broker.shard.give_up_lead()
    await lead_again(life)

    stats = await life.run(life.broker.topic_stats("quick"))
    assert (stats.next_offset, stats.message_count) == (0, 0)
    assert stats.id == life.broker.shard.state.topics["quick"].id


async def test_a_topic_that_is_deleted_while_nobody_leads_is_gone(life: Life) -> None:
    deleting = asyncio.ensure_future(life.broker.delete_topic("orders"))
    for _ in range(3):
        await asyncio.sleep(0)
    life.broker.shard.give_up_lead()
    await lead_again(life)
    assert deleting.done()

    with pytest.raises(TopicNotFound):
        await life.run(life.broker.topic_info("orders"))


async def test_a_filter_that_this_version_does_not_know_keeps_nobody_from_following(
    life: Life,
) -> None:
    """It is compiled by who leads, when somebody takes: applying the group does not need it."""
    await life.publish("orders", b"0")
    shard, topic = life.broker.shard, life.broker.shard.topics["orders"]
    made = CreateGroup(topic.id, "g", "priority", "no ( filter", "earliest", 0)
    shard.proposer.propose(made)
    await life.run(life.broker.settled())
    assert "g" in shard.state.topics["orders"].groups

    with pytest.raises(InvalidRequest):
        await life.run((await joined(life)).take(1, 30.0, 0))
    shard.give_up_lead()
    await lead_again(life)
    assert (await life.publish("orders", b"1")).offset == 1


async def test_what_was_let_in_before_a_topic_was_deleted_was_in_it(life: Life) -> None:
    deleting = asyncio.ensure_future(life.broker.delete_topic("orders"))
    for _ in range(3):
        await asyncio.sleep(0)
    publishing = asyncio.ensure_future(life.publishing("orders", b"in the old one"))
    await asyncio.sleep(0)  # gathered, and not proposed before the turn is over
    life.broker.host.step()  # which deletes the topic

    assert (await life.run(asyncio.wait_for(publishing, None))).offset == 0
    await life.run(asyncio.wait_for(deleting, None))
