"""Queue groups at the seam: members take, settle and lose messages, in memory and durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from flintmq import __compiled__
from flintmq.batch import BatchBuilder
from flintmq.broker_api import Grant, Joining, ReaderOpening, TakeMode
from flintmq.engine.broker import Broker
from flintmq.engine.commands import ConfigureTopics
from flintmq.engine.host import durable_broker
from flintmq.engine.leading.member import GroupMember
from flintmq.engine.leading.readers import LeadingReader
from flintmq.engine.letter_verbs import LetterVerbs
from flintmq.engine.state import lanes as lanes_of_topic
from flintmq.engine.state.memory_log import MemoryLog
from flintmq.errors import FilterFailed, GroupExists, LeaseLost, NotLeader, StorageFailed
from flintmq.group_model import Order, Ranges
from flintmq.model import Start, changed_options
from flintmq.serde.filters import compile_filter
from flintmq.testing import ManualClock, SimulatedFileSystem
from tests.engine.stepping import small_sizes
from tests.groups.checking import check
from tests.groups.test_costs import calls_of, counted_calls


class Desk:
    """A broker and a clock, and the few calls these tests make."""

    def __init__(self, disk: SimulatedFileSystem | None) -> None:
        self.clock = ManualClock()
        self.disk = disk
        self.broker: Broker = self._new()

    def _new(self) -> Broker:
        if self.disk is None:
            return Broker(self.clock)
        broker = durable_broker(self.disk, clock=self.clock, journal_file_bytes=2048)
        self.clock._others.clear()
        self.clock.wait_also_for(self._step)
        return broker

    async def _step(self) -> bool:
        return self.disk is not None and self.broker.host.step()

    async def open(self) -> Desk:
        await self.broker.open(threaded=False)
        return self

    async def run(self, work: Any) -> Any:
        """Begin something, and let everything happen that does not take time."""
        task = asyncio.ensure_future(work)
        await self.clock.settle()
        assert task.done(), "it waits for time to pass"
        return task.result()

    def later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        return asyncio.ensure_future(work)

    async def publish(self, topic: str, *values: bytes, **columns: Any) -> int:
        rows = BatchBuilder()
        for value in values:
            rows.append_row(value, **columns)
        receipt = await self.run(
            self.broker.publish(topic, rows, qos=1, auto_create=True, timeout=None)
        )
        return int(receipt.offset)

    async def join(self, topic: str = "t", group: str = "g", **options: Any) -> GroupMember:
        keywords = {"order": None, "filter": None, "start": None, "auto_create": True, **options}
        keywords.setdefault("holder", "me")
        member = await self.run(self.broker.join_group(Joining(topic, group, **keywords)))
        assert isinstance(member, GroupMember)
        return member

    async def take(self, member: GroupMember, count: int = 10, lease: float = 30.0) -> Grant | None:
        grant = await self.run(member.take(count, lease, 0))
        assert grant is None or isinstance(grant, Grant)
        return grant

    async def values(self, member: GroupMember, count: int = 10) -> list[bytes]:
        grant = await self.take(member, count)
        return [] if grant is None else list(grant.rows.values)

    async def crash(self) -> None:
        """The process dies with everything written and nothing else; and comes back."""
        assert self.disk is not None
        self.disk = self.disk.crash("everything")
        self.broker = self._new()
        await self.open()


@pytest.fixture(params=["memory", "durable"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    with small_sizes():
        made = Desk(SimulatedFileSystem() if request.param == "durable" else None)
        yield await made.open()


@pytest.fixture
async def durable() -> AsyncIterator[Desk]:
    with small_sizes():
        yield await Desk(SimulatedFileSystem()).open()


def whole(grant: Grant | None) -> Ranges:
    assert grant is not None
    return [(offset, offset + 1) for offset in grant.rows.offsets if offset is not None]


async def test_members_of_a_group_split_the_messages(desk: Desk) -> None:
    await desk.publish("t", b"0", b"1", b"2", b"3")
    one, other = await desk.join(holder="one"), await desk.join(holder="other")

    assert await desk.values(one, 2) == [b"0", b"1"]
    assert await desk.values(other, 10) == [b"2", b"3"]
    assert await desk.values(one) == []


async def test_who_is_asked_again_to_add_partitions_gives_them_the_groups(desk: Desk) -> None:
    """Whoever was asked first added them, and ended before it came to the groups."""
    broker, verbs = desk.broker, desk.broker._topic_verbs
    await desk.run(broker.create_topic("row", {"partitions": 1}))
    await desk.join("row/0", order="log", filter=compile_filter("priority > 3"))
    ours = verbs.find("row/0")
    wanted = changed_options(ours.options, {"partitions": 2})
    added = verbs._numbered(["row/1"])
    await desk.run(broker.shard.change(ConfigureTopics([ours.id], wanted, added)))
    assert not verbs.find("row/1").queues

    await desk.run(broker.configure_topic("row", {"partitions": 2}))

    info = verbs.find("row/1").queues["g"].info
    assert (info.order, info.filter) == ("log", "priority > 3")


async def test_every_group_sees_the_whole_topic(desk: Desk) -> None:
    await desk.publish("t", b"0", b"1")

    assert await desk.values(await desk.join(group="a")) == [b"0", b"1"]
    assert await desk.values(await desk.join(group="b")) == [b"0", b"1"]


async def test_a_group_that_waits_on_an_empty_topic_misses_nothing(desk: Desk) -> None:
    waiting, other = await desk.join(group="late"), await desk.join(group="fast")
    await desk.publish("t", b"0")
    grant = await desk.take(other)
    await desk.run(other.ack([(grant.token, whole(grant))] if grant else []))

    assert await desk.values(waiting) == [b"0"]


async def test_a_taker_that_waits_gets_what_is_published(desk: Desk) -> None:
    member = await desk.join()
    taken = desk.later(member.take(10, 30.0, None))
    await desk.clock.settle()
    await desk.publish("t", b"0", b"1")

    grant = await taken
    assert grant.rows.values == [b"0", b"1"]


async def test_takers_are_served_in_their_order(desk: Desk) -> None:
    member = await desk.join()
    first = desk.later(member.take(1, 30.0, None))
    second = desk.later(member.take(1, 30.0, None))
    await desk.clock.settle()
    await desk.publish("t", b"0")
    await desk.clock.settle()
    assert first.done()
    assert not second.done()
    await desk.publish("t", b"1")

    assert (await second).rows.values == [b"1"]


async def test_a_lead_that_is_lost_while_messages_are_handed_out_ends_who_waits(
    desk: Desk,
) -> None:
    """To ask for the lead makes missed ticks good, and those may end it."""
    member = await desk.join()
    taken = desk.later(member.take(1, 30.0, None))
    await desk.clock.settle()
    group = desk.broker.shard.topics["t"].queues["g"]

    class LosesIt:
        def check(self) -> None:
            group.end(NotLeader(1, 2))

        async def confirm(self) -> None: ...

    group.topic.lead = LosesIt()
    await desk.publish("t", b"0")
    with pytest.raises(NotLeader):
        await taken
    assert desk.broker.shard.failure is None
    assert group.queue.has_ready(), "nothing was granted by who does not lead any more"


async def test_a_lead_that_is_lost_while_a_take_that_does_not_wait_looks_ends_it(
    desk: Desk,
) -> None:
    member = await desk.join()
    await desk.publish("t", b"0")
    group = desk.broker.shard.topics["t"].queues["g"]

    class LosesIt:
        def check(self) -> None:
            group.end(NotLeader(1, 2))

        async def confirm(self) -> None: ...

    group.topic.lead = LosesIt()
    with pytest.raises(NotLeader):
        await member.take(1, 30.0, 0)
    assert group.queue.has_ready()


async def test_a_take_that_waits_in_vain_ends_with_nothing(desk: Desk) -> None:
    member = await desk.join()
    taken = desk.later(member.take(1, 30.0, 2.0))
    await desk.clock.advance(1.9)
    assert not taken.done()
    await desk.clock.advance(0.2)

    assert await taken is None


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("auto_ack", [False, True])
async def test_a_take_that_is_cancelled_at_any_turn_loses_nothing(
    desk: Desk, turns: int, auto_ack: bool
) -> None:
    member = await desk.join()
    taken = desk.later(member.take(10, 30.0, None, TakeMode(auto_ack=auto_ack)))
    await desk.clock.settle()
    rows = BatchBuilder()
    rows.append(b"0")
    published = desk.later(desk.broker.publish("t", rows, qos=1, auto_create=True, timeout=None))
    for _ in range(turns):
        await asyncio.sleep(0)
        await desk._step()
    taken.cancel()
    await desk.clock.settle()
    await published
    if taken.cancelled():
        grant = await desk.run(member.take(10, 30.0, 0, TakeMode(auto_ack=auto_ack)))
        assert grant is not None
        assert grant.counts == {}, "nobody has seen it before"
    else:
        grant = taken.result()

    assert grant.rows.values == [b"0"]


async def test_what_is_acknowledged_does_not_come_again(desk: Desk) -> None:
    await desk.publish("t", b"0", b"1", b"2")
    member = await desk.join()
    grant = await desk.take(member)
    assert grant is not None
    await desk.run(member.ack([(grant.token, [(0, 1), (2, 3)])]))
    await desk.clock.advance(31)

    assert await desk.values(member) == [b"1"]


async def test_a_lease_that_ran_out_goes_to_another_with_a_higher_token(desk: Desk) -> None:
    await desk.publish("t", b"0")
    one, other = await desk.join(holder="one"), await desk.join(holder="other")
    first = await desk.take(one)
    await desk.clock.advance(29)
    assert await desk.values(other) == []
    await desk.clock.advance(2)
    second = await desk.take(other)
    assert first is not None
    assert second is not None

    assert second.token > first.token
    assert second.counts == {0: 2}
    with pytest.raises(LeaseLost) as lost:
        await desk.run(one.ack([(first.token, [(0, 1)])]))
    assert lost.value.offsets == [0]
    await desk.run(other.ack([(second.token, [(0, 1)])]))
    assert await desk.values(one) == []


async def test_a_late_settle_counts_until_another_has_the_message(desk: Desk) -> None:
    await desk.publish("t", b"0")
    member = await desk.join()
    grant = await desk.take(member)
    assert grant is not None
    await desk.clock.advance(31)
    await desk.run(member.ack([(grant.token, [(0, 1)])]))

    assert await desk.values(member) == []


async def test_a_nacked_message_comes_again_at_once_or_when_its_delay_is_over(desk: Desk) -> None:
    await desk.publish("t", b"0", b"1")
    member = await desk.join()
    grant = await desk.take(member)
    assert grant is not None
    await desk.run(member.nack([(grant.token, [(0, 1)])], 0))
    await desk.run(member.nack([(grant.token, [(1, 2)])], 5))

    assert await desk.values(member) == [b"0"]
    await desk.clock.advance(4.9)
    assert await desk.values(member) == []
    await desk.clock.advance(0.2)
    assert await desk.values(member) == [b"1"]


async def test_an_extended_lease_lasts_longer(desk: Desk) -> None:
    await desk.publish("t", b"0")
    member = await desk.join()
    grant = await desk.take(member)
    assert grant is not None
    await desk.clock.advance(20)
    await desk.run(member.extend([(grant.token, [(0, 1)])], 30))
    await desk.clock.advance(20)
    assert await desk.values(member) == []
    await desk.clock.advance(11)

    assert await desk.values(member) == [b"0"]


async def test_a_member_that_leaves_gives_its_leases_back_at_once(desk: Desk) -> None:
    await desk.publish("t", b"0")
    one, other = await desk.join(holder="one"), await desk.join(holder="other")
    await desk.take(one)
    await desk.run(one.close())

    assert await desk.values(other) == [b"0"]


async def test_a_message_is_delivered_five_times_and_then_a_dead_letter(desk: Desk) -> None:
    await desk.publish("t", b"poison", headers={"h": "x"}, key="k")
    member = await desk.join()
    for number in range(1, 6):
        grant = await desk.take(member)
        assert grant is not None
        assert grant.counts == ({0: number} if number > 1 else {})
        await desk.run(member.nack([(grant.token, [(0, 1)])], 0))

    assert await desk.values(member) == []
    letters = await desk.run(desk.broker.dead_letters("t", "g", 10))
    assert letters.values == [b"poison"]
    (letter,) = letters
    assert letter.key == "k"
    assert letter.headers["h"] == "x"
    assert letter.headers["flint-dead-topic"] == "t"
    assert letter.headers["flint-dead-deliveries"] == "5"
    stats = await desk.run(desk.broker.group_stats("t", "g"))
    assert (stats.lag, stats.dead_letters) == (0, 1)


async def test_leases_that_run_out_end_in_dead_letters_too(desk: Desk) -> None:
    await desk.publish("t", b"poison")
    member = await desk.join()
    for _ in range(5):
        assert await desk.values(member) == [b"poison"]
        await desk.clock.advance(31)

    assert (await desk.run(desk.broker.dead_letters("t", "g", 10))).values == [b"poison"]
    assert await desk.values(member) == []


async def test_a_dead_letter_goes_back_to_its_group_alone(desk: Desk) -> None:
    await desk.publish("t", b"0", b"1")
    member, other = await desk.join(), await desk.join(group="other")
    grant = await desk.take(member)
    assert grant is not None
    await desk.run(member.reject([(grant.token, [(0, 2)])], "no"))
    assert await desk.values(other) == [b"0", b"1"]

    assert await desk.run(desk.broker.redrive("t", "g", [1], None)) == 1
    assert await desk.values(member) == [b"1"]
    assert await desk.run(desk.broker.redrive("t", "g", None, None)) == 1
    assert await desk.run(desk.broker.redrive("t", "g", None, None)) == 0
    again = await desk.take(member)
    assert again is not None
    assert again.rows.values == [b"0"]
    assert again.counts == {}
    assert again.rows[0].headers == {}
    assert await desk.values(other) == []


async def test_higher_priorities_go_first_and_the_oldest_is_not_forgotten(desk: Desk) -> None:
    await desk.publish("t", b"low")
    await desk.publish("t", b"1", b"2", b"3", b"4", b"5", priority=7)
    member = await desk.join()

    order = [(await desk.values(member, 1))[0] for _ in range(6)]
    assert order == [b"1", b"2", b"3", b"low", b"4", b"5"]


async def test_messages_of_one_key_come_one_at_a_time(desk: Desk) -> None:
    for number in range(4):
        await desk.publish("t", b"a%d" % number, key="a")
        await desk.publish("t", b"b%d" % number, key="b")
    member = await desk.join(order="key")
    grant = await desk.take(member)
    assert grant is not None
    assert grant.rows.values == [b"a0", b"b0"]
    assert await desk.values(member) == []
    await desk.run(member.ack([(grant.token, [(1, 2)])]))
    assert await desk.values(member) == [b"b1"]
    await desk.run(member.nack([(grant.token, [(0, 1)])], 0))

    assert await desk.values(member) == [b"a0"]


async def test_a_delayed_message_comes_when_it_is_due_also_to_a_group_made_later(
    desk: Desk,
) -> None:
    due = desk.clock.now_ms() + 5000
    member = await desk.join()
    await desk.publish("t", b"later", deliver_at=due)
    await desk.publish("t", b"now")
    assert await desk.values(member) == [b"now"]
    await desk.clock.advance(4.9)
    assert await desk.values(member) == []
    await desk.clock.advance(0.15)
    assert await desk.values(member) == [b"later"]

    assert await desk.values(await desk.join(group="other")) == [b"later", b"now"]


async def test_a_taker_that_waits_gets_a_delayed_message_on_time(desk: Desk) -> None:
    member = await desk.join()
    await desk.publish("t", b"later", deliver_at=desk.clock.now_ms() + 5000)
    taken = desk.later(member.take(10, 30.0, None))
    await desk.clock.advance(4.99)
    assert not taken.done()
    await desk.clock.advance(0.02)

    assert (await taken).rows.values == [b"later"]


async def test_a_cancelled_delayed_message_never_comes(desk: Desk) -> None:
    member = await desk.join()
    await desk.publish("t", b"0", b"1", deliver_at=desk.clock.now_ms() + 5000)
    assert await desk.run(desk.broker.cancel("t", [(0, 1)])) == 1
    assert await desk.run(desk.broker.cancel("t", [(0, 1)])) == 0
    await desk.clock.advance(6)

    assert await desk.values(member) == [b"1"]
    assert await desk.values(await desk.join(group="other")) == [b"1"]


async def test_expired_messages_are_not_delivered_and_are_counted(desk: Desk) -> None:
    member = await desk.join()
    await desk.publish("t", b"stays")
    await desk.publish("t", b"short", expiry=desk.clock.now_ms() + 1000)
    await desk.clock.advance(2)

    assert await desk.values(member) == [b"stays"]
    stats = await desk.run(desk.broker.group_stats("t", "g"))
    assert stats.drops == {"expired": 1}


async def test_what_the_filter_rejects_is_settled_without_delivery(desk: Desk) -> None:
    member = await desk.join(filter=compile_filter('headers.region == "eu"'))
    for region in ("eu", "us", "eu", "us"):
        await desk.publish("t", region.encode(), headers={"region": region})

    assert await desk.values(member) == [b"eu", b"eu"]
    stats = await desk.run(desk.broker.group_stats("t", "g"))
    assert stats.drops == {"filtered": 2}
    assert stats.lag == 2


async def test_options_belong_to_the_group(desk: Desk) -> None:
    await desk.join(order="log", start="latest")
    await desk.join()
    with pytest.raises(GroupExists) as told:
        await desk.join(order="key", start="earliest")

    assert set(told.value.differing) == {"order", "start"}


async def test_a_name_is_a_queue_or_a_cursor(desk: Desk) -> None:
    await desk.join(group="queue")
    await desk.run(desk.broker.open_reader(ReaderOpening("t", name="cursor", auto_create=True)))
    with pytest.raises(GroupExists):
        await desk.join(group="cursor")
    with pytest.raises(GroupExists):
        await desk.run(desk.broker.open_reader(ReaderOpening("t", name="queue", auto_create=True)))


async def test_a_rate_limit_paces_deliveries_and_a_taker_waits_for_its_token(desk: Desk) -> None:
    await desk.run(desk.broker.create_topic("t", {"rate_limit": 0.5}))
    await desk.publish("t", b"0", b"1", b"2")
    member = await desk.join()
    assert await desk.values(member) == [b"0"]
    taken = desk.later(member.take(10, 30.0, None))
    await desk.clock.advance(1.9)
    assert not taken.done()
    await desk.clock.advance(0.2)

    assert (await taken).rows.values == [b"1"]


async def test_a_paused_group_hands_nothing_out(desk: Desk) -> None:
    await desk.publish("t", b"0")
    member = await desk.join()
    await desk.run(desk.broker.pause_group("t", "g", True))
    taken = desk.later(member.take(10, 30.0, None))
    await desk.clock.advance(5)
    assert not taken.done()
    await desk.run(desk.broker.pause_group("t", "g", False))
    await desk.clock.settle()

    assert (await taken).rows.values == [b"0"]


async def test_a_group_that_is_reset_begins_anew(desk: Desk) -> None:
    await desk.publish("t", b"0", b"1", b"2")
    member = await desk.join()
    grant = await desk.take(member)
    assert grant is not None
    await desk.run(member.ack([(grant.token, [(0, 2)])]))
    await desk.run(desk.broker.reset_group("t", "g", 1))
    with pytest.raises(LeaseLost):
        await desk.run(member.ack([(grant.token, [(2, 3)])]))

    assert await desk.values(member) == [b"1", b"2"]


async def test_what_a_reset_passes_over_is_counted(desk: Desk) -> None:
    await desk.publish("t", b"0", b"1", b"2")
    member = await desk.join()
    grant = await desk.take(member, 1)
    assert grant is not None
    await desk.run(member.ack([(grant.token, [(0, 1)])]))
    await desk.run(desk.broker.reset_group("t", "g", "latest"))

    stats = await desk.run(desk.broker.group_stats("t", "g"))
    assert (stats.lag, stats.drops) == (0, {"reset": 2})


async def test_peeking_leases_nothing_and_what_is_in_flight_is_listed(desk: Desk) -> None:
    await desk.publish("t", b"0", b"1", b"2")
    member = await desk.join(holder="worker")
    await desk.take(member, 1)
    await desk.clock.advance(3)

    assert (await desk.run(desk.broker.peek("t", "g", 10))).values == [b"1", b"2"]
    (flying,) = await desk.run(desk.broker.in_flight("t", "g", 10))
    assert (flying.offset, flying.holder, flying.age, flying.expires_in) == (0, "worker", 3, 27)
    assert await desk.values(member) == [b"1", b"2"]


async def test_retention_drops_unsettled_messages_unless_the_topic_keeps_them(desk: Desk) -> None:
    for name, keeps in (("drops", False), ("keeps", True)):
        options = {"retention_count": 2, "keep_until_settled": keeps}
        await desk.run(desk.broker.create_topic(name, options))
        await desk.join(name)
        await desk.publish(name, b"0", b"1", b"2")
        await desk.publish(name, b"3")

    assert await desk.values(await desk.join("drops")) == [b"2", b"3"]
    member = await desk.join("keeps")
    grant = await desk.take(member)
    assert grant is not None
    assert grant.rows.values == [b"0", b"1", b"2", b"3"]
    await desk.run(member.ack([(grant.token, [(0, 4)])]))
    stats = await desk.run(desk.broker.topic_stats("keeps"))
    assert stats.message_count == 2


async def test_auto_ack_settles_before_handing_out(desk: Desk) -> None:
    await desk.publish("t", b"0", b"1")
    member = await desk.join()
    grant = await desk.run(member.take(1, 30.0, 0, TakeMode(auto_ack=True)))

    assert grant.rows.values == [b"0"]
    assert (await desk.run(desk.broker.group_stats("t", "g"))).lag == 1


# --- what lasts


async def crash_or_close(desk: Desk, how: str) -> None:
    if how == "crash":
        await desk.crash()
    else:
        await desk.run(desk.broker.close())
        desk.broker = desk._new()
        await desk.open()


@pytest.fixture(params=["crash", "close"])
def end(request: pytest.FixtureRequest, durable: Desk) -> Callable[[], Any]:
    return lambda: crash_or_close(durable, request.param)


async def test_what_was_settled_stays_settled(durable: Desk, end: Callable[[], Any]) -> None:
    await durable.publish("t", b"0", b"1", b"2", b"3")
    member = await durable.join(order="log")
    grant = await durable.take(member)
    assert grant is not None
    await durable.run(member.ack([(grant.token, [(0, 1), (2, 3)])]))
    await end()
    again = await durable.take(await durable.join())
    assert again is not None

    assert again.rows.values == [b"1", b"3"]
    assert again.counts == {1: 2, 3: 2}
    assert again.token > grant.token


async def test_nack_delays_and_delayed_messages_last(durable: Desk, end: Callable[[], Any]) -> None:
    await durable.publish("t", b"nacked", b"plain")
    await durable.publish("t", b"delayed", deliver_at=durable.clock.now_ms() + 8000)
    await durable.publish("t", b"cancelled", deliver_at=durable.clock.now_ms() + 8000)
    await durable.run(durable.broker.cancel("t", [(3, 4)]))
    member = await durable.join()
    grant = await durable.take(member, 1)
    assert grant is not None
    await durable.run(member.nack([(grant.token, [(0, 1)])], 5))
    await end()
    member = await durable.join()
    assert await durable.values(member) == [b"plain"]
    await durable.clock.advance(5.1)
    assert await durable.values(member) == [b"nacked"]
    await durable.clock.advance(3)

    assert await durable.values(member) == [b"delayed"]


async def test_a_process_that_dies_of_a_message_every_time_ends_with_a_dead_letter(
    durable: Desk,
) -> None:
    await durable.publish("t", b"poison")
    for _ in range(5):
        assert await durable.values(await durable.join()) == [b"poison"]
        await durable.crash()
    assert await durable.values(await durable.join()) == []

    assert (await durable.run(durable.broker.dead_letters("t", "g", 10))).values == [b"poison"]


async def test_counts_are_those_of_deliveries_also_when_their_records_come_back_late(
    durable: Desk,
) -> None:
    await durable.publish("t", b"0")
    member = await durable.join()
    for number in range(1, 4):
        grant = await durable.take(member)
        assert grant is not None
        assert grant.counts.get(0, 1) == number
        await durable.run(member.nack([(grant.token, [(0, 1)])], 0))


async def test_groups_their_options_and_their_letters_last(
    durable: Desk, end: Callable[[], Any]
) -> None:
    await durable.publish("t", b"0", b"1", headers={"region": "eu"})
    member = await durable.join(filter=compile_filter('headers.region == "eu"'), order="log")
    grant = await durable.take(member, 1)
    assert grant is not None
    await durable.run(member.reject([(grant.token, [(0, 1)])], "no"))
    await durable.run(durable.broker.pause_group("t", "g", True))
    await end()
    (info,) = await durable.run(durable.broker.groups("t"))
    assert (info.order, info.filter, info.paused) == ("log", 'headers.region == "eu"', True)
    assert await durable.values(await durable.join()) == []
    await durable.run(durable.broker.pause_group("t", "g", False))
    assert await durable.run(durable.broker.redrive("t", "g", None, None)) == 1

    assert await durable.values(await durable.join()) == [b"1", b"0"]


@pytest.mark.parametrize("priority", [0, 7])
async def test_a_nack_delay_that_ends_while_the_process_is_down_brings_the_message_once(
    durable: Desk, priority: int
) -> None:
    await durable.publish("t", b"0", b"1", b"2", priority=priority)
    member = await durable.join()
    grant = await durable.take(member)
    assert grant is not None
    await durable.run(member.nack([(grant.token, [(1, 2)])], 5))
    await durable.clock.advance(6)
    await durable.crash()
    await durable.clock.advance(0.1)
    member, other = await durable.join(), await durable.join(holder="other")

    first = await durable.take(member)
    assert first is not None
    assert first.rows.values == [b"0", b"1", b"2"]
    assert await durable.values(other) == [], "nobody else gets them"


async def test_a_cancel_behind_a_checkpoint_is_replayed_without_miscounting(durable: Desk) -> None:
    await durable.join()
    for _ in range(2):
        await durable.publish("t", b"0", deliver_at=durable.clock.now_ms() + 5_000)
    await durable.run(durable.broker.host.checkpoint())
    await durable.publish("t", b"0", deliver_at=durable.clock.now_ms() + 5_000)
    await durable.run(durable.broker.cancel("t", [(0, 1), (2, 3)]))
    await durable.crash()
    stats = await durable.run(durable.broker.group_stats("t", "g"))

    assert (stats.lag, stats.delayed) == (1, 1)


async def crash_with_everything_out(durable: Desk, times: int) -> GroupMember:
    """Take all there is and die of it, so many times; then there is a member again."""
    for _ in range(times):
        await durable.take(await durable.join())
        await durable.crash()
    return await durable.join()


async def test_what_a_process_died_with_time_and_again_is_handed_out_alone(durable: Desk) -> None:
    await durable.publish("t", b"0", b"1", b"2")
    member = await crash_with_everything_out(durable, 2)
    assert len(await durable.values(member)) == 3, "two crashes are nobody's fault"
    await durable.crash()
    member, other = await durable.join(), await durable.join(holder="other")

    first = await durable.take(member)
    assert first is not None
    assert first.rows.values == [b"0"]
    assert await durable.values(other) == [], "the others wait until it is clear"
    waiting = durable.later(other.take(10, 30.0, None))
    await durable.publish("t", b"3")
    assert (await waiting).rows.values == [b"3"], "what is new goes on"
    await durable.run(member.ack([(first.token, whole(first))]))
    assert await durable.values(other) == [b"1"]


async def test_a_suspect_that_is_nacked_is_none_any_more(durable: Desk) -> None:
    await durable.publish("t", b"0", b"1")
    member = await crash_with_everything_out(durable, 3)
    for value in (b"0", b"1"):
        grant = await durable.take(member)
        assert grant is not None
        assert grant.rows.values == [value]
        await durable.run(member.nack([(grant.token, whole(grant))], 1))
    await durable.clock.advance(1.1)

    assert await durable.values(member) == [b"0", b"1"]


async def test_the_deadly_one_goes_to_the_dead_letters_and_the_others_do_not(
    durable: Desk,
) -> None:
    await durable.publish("t", b"0", b"1", b"deadly", b"3", b"4")
    lives, done = 0, []
    while lives < 20:
        member = await durable.join()
        grant = await durable.take(member)
        if grant is None:
            break
        if b"deadly" in grant.rows.values:
            lives += 1
            await durable.crash()
        else:
            done += grant.rows.values
            await durable.run(member.ack([(grant.token, whole(grant))]))
    letters = await durable.run(durable.broker.dead_letters("t", "g", 10))

    assert lives == 5
    assert done == [b"0", b"1", b"3", b"4"]
    assert letters.values == [b"deadly"]


@pytest.mark.parametrize("how", ["its connection ends", "its leases run out"])
async def test_what_members_die_with_time_and_again_is_handed_out_alone(
    desk: Desk, how: str
) -> None:
    await desk.publish("t", b"0", b"1", b"deadly", b"3", b"4")
    lives, done = 0, []
    while lives < 20:
        member = await desk.join(holder=f"life {lives}")
        while (grant := await desk.take(member)) is not None and b"deadly" not in grant.rows.values:
            done += grant.rows.values
            await desk.run(member.ack([(grant.token, whole(grant))]))
        if grant is None:
            break
        lives += 1
        if how == "its connection ends":
            await desk.run(member.close())
        else:
            await desk.clock.advance(30.1)
    letters = await desk.run(desk.broker.dead_letters("t", "g", 10))

    assert lives == 5
    assert done == [b"0", b"1", b"3", b"4"]
    assert letters.values == [b"deadly"]


async def test_a_large_backlog_is_looked_at_in_steps_and_still_goes_by_priority(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_of_topic, "FILL_ROWS", 2)
    for number in range(20):
        await desk.publish("t", b"%d" % number, priority=1 if number < 19 else 7)
    member = await desk.join()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while not taken.done():
            await asyncio.sleep(0)
            await desk._step()
            turns += 1

    assert member.is_ready()
    taken = desk.later(member.take(1, 30.0, 0))
    await count_turns()
    assert (await taken).rows.values == [b"19"]
    assert turns > 3, "others have their turns meanwhile"


@pytest.mark.parametrize("wait", [0, 5.0, None])
async def test_whoever_waits_gets_what_it_takes_several_steps_to_find(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, wait: float | None
) -> None:
    monkeypatch.setattr(lanes_of_topic, "FILL_ROWS", 4)
    member = await desk.join()
    await desk.publish("t", *(b"%d" % number for number in range(20)), priority=3)
    taken = desk.later(member.take(20, 30.0, wait))
    await desk.clock.settle()

    assert taken.done()
    assert len(taken.result().rows.values) == 20
    assert len(await desk.run(desk.broker.peek("t", "g", 5))) == 0


# --- what a review found


async def test_a_name_that_is_becoming_a_group_is_no_readers(durable: Desk) -> None:
    """Or else a replay, which applies one after the other, would make it both."""
    await durable.publish("t", b"x")
    await durable.join(group="other")  # so that joining needs one step only
    joining = durable.later(
        durable.broker.join_group(
            Joining("t", "n", order=None, filter=None, start=None, holder="me", auto_create=True)
        )
    )
    reading = durable.later(
        durable.broker.open_reader(ReaderOpening("t", name="n", auto_create=True))
    )
    await durable.clock.settle()
    assert isinstance(joining.exception() or reading.exception(), GroupExists)
    topic = durable.broker.shard.topics["t"]
    kinds = "n" in topic.queues, "n" in topic.state.names
    await durable.crash()
    topic = durable.broker.shard.topics["t"]
    assert ("n" in topic.queues, "n" in topic.state.names) == kinds


async def test_what_could_not_be_buried_is_delivered_or_buried_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.run(desk.broker.create_topic("t", {"max_deliveries": 1}))
    await desk.publish("t", b"x")
    member = await desk.join()
    await desk.take(member)
    await desk.run(member.close())  # given back, and delivered as often as it may be

    tries = 0

    async def fail(*_: object) -> None:
        nonlocal tries
        tries += 1
        raise StorageFailed("write", "journal", "no")

    with monkeypatch.context() as patch:
        patch.setattr(LetterVerbs, "_dead_letter_topic", fail)
        other = await desk.join()
        waiting = desk.later(other.take(1, 30.0, 100))
        await desk.clock.advance(2)
        assert 1 <= tries <= 5  # it is tried again, but not all the time
        assert desk.broker.shard.topics["t"].queues["g"].unsettled() == 1
    await desk.clock.advance(2)
    waiting.cancel()
    assert (await desk.broker.group_stats("t", "g")).dead_letters == 1


async def test_what_the_log_dropped_is_not_remembered_as_cancelled_or_due(desk: Desk) -> None:
    await desk.run(desk.broker.create_topic("t", {"retention_count": 10}))
    topic = desk.broker.shard.topics["t"]
    member = await desk.join()
    for _ in range(30):
        offset = await desk.publish("t", b"x", deliver_at=desk.clock.now_ms() + 1000)
        await desk.publish("t", b"x", deliver_at=desk.clock.now_ms() + 100)
        await desk.run(desk.broker.cancel("t", [(offset, offset + 1)]))
        await desk.clock.advance(0.2)
        await desk.run(member.take(10, 30.0, 0, TakeMode(auto_ack=True)))
    assert len(topic.lanes.cancelled) <= 10
    assert sum(map(len, topic.queues["g"].queue.index._due.values())) <= 10


async def test_a_group_that_is_gone_or_began_anew_keeps_no_place_in_the_lanes(desk: Desk) -> None:
    await desk.publish("t", b"x")
    await desk.join(group="stays")
    await desk.join(group="goes")
    index = desk.broker.shard.topics["t"].queues["stays"].queue.index
    assert len(index._cursors) == 2
    await desk.run(desk.broker.delete_group("t", "goes"))
    await desk.run(desk.broker.reset_group("t", "stays", "earliest"))
    assert len(index._cursors) == 1


@pytest.mark.slow
async def test_what_groups_keep_costs_publishers_nothing(desk: Desk) -> None:
    options = {"retention_bytes": 5_000, "keep_until_settled": True}
    await desk.run(desk.broker.create_topic("t", options))
    await desk.join()
    topic = desk.broker.shard.topics["t"]
    costs = []
    for count in (20, 400):
        while topic.log.next_offset < 64 * count:
            await desk.publish("t", *[b"x" * 100] * 64)
        costs.append(calls_of(topic.state.keep_limits))
    assert topic.log.first_offset == 0
    assert costs[0] == costs[1]


async def make(broker: Broker, what: str, number: int) -> None:
    name = f"name-{number}"
    if what == "topic":
        await broker.create_topic(name, {})
    elif what == "reader name":
        await broker.open_reader(ReaderOpening("t", name=name, auto_create=True))
    else:
        await broker.join_group(
            Joining("t", name, order=None, filter=None, start=None, holder="me", auto_create=True)
        )


@pytest.mark.slow
@pytest.mark.parametrize("what", ["group", "reader name", "topic"])
async def test_making_one_more_costs_the_same_however_many_there_are(desk: Desk, what: str) -> None:
    await desk.publish("t", b"0")
    costs = []
    for number in range(200):
        with counted_calls() as calls:
            await desk.run(make(desk.broker, what, number))
        costs.append(calls.total)
    assert min(costs[-9:]) <= min(costs[:9]) + 20  # now and then the journal begins a file


@pytest.mark.slow
async def test_deleting_a_group_costs_the_same_however_many_there_are(desk: Desk) -> None:
    await desk.publish("t", b"0")
    costs = []
    for count in (20, 220):
        for number in range(count):
            await desk.run(make(desk.broker, "group", number))
        for number in range(9):
            with counted_calls() as calls:
                await desk.run(desk.broker.delete_group("t", f"name-{number}"))
            costs.append(calls.total)
    assert min(costs[-9:]) <= min(costs[:9]) + 20


async def test_an_ack_behind_a_reset_is_lost_however_long_the_disk_takes(desk: Desk) -> None:
    await desk.publish("t", b"0", b"1", b"2")
    member = await desk.join()
    grant = await desk.take(member, 2)
    assert grant is not None
    resetting = desk.later(desk.broker.reset_group("t", "g", 0))
    acking = desk.later(member.ack([(grant.token, whole(grant))]))
    taking = desk.later(member.take(10, 30.0, 100))
    await desk.clock.settle()
    assert resetting.exception() is None
    assert isinstance(acking.exception(), LeaseLost)
    assert list((await taking).rows.values) == [b"0", b"1", b"2"]
    stats = await desk.broker.group_stats("t", "g")
    assert (stats.lag, stats.in_flight) == (3, 3)


@pytest.mark.pure_python("it replaces a method of the lanes")
async def test_a_backlog_with_priorities_is_taken_in_by_steps(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_of_topic, "FILL_ROWS", 100)
    for number in range(40):
        await desk.publish("t", *[b"%d" % number] * 50, priority=number % 8)
    member, waiter = await desk.join(), await desk.join()
    topic, index = (
        desk.broker.shard.topics["t"],
        desk.broker.shard.topics["t"].queues["g"].queue.index,
    )
    steps: list[int] = []
    fill = topic.lanes.fill

    def watched(*arguments: Any) -> bool:
        before = index.end
        is_all = fill(*arguments)
        steps.append(index.end - before)
        return is_all

    monkeypatch.setattr(topic.lanes, "fill", watched)
    assert (await desk.broker.group_stats("t", "g")).lag == 2000
    waiting = desk.later(waiter.take(1, 30.0, 100))
    assert await desk.values(member, 2) == [b"7", b"7"]
    assert (await waiting).rows.values == [b"7"]
    assert sum(steps) == 2000
    assert max(steps) < 100 + 1024


# --- a pick that goes wrong


@pytest.mark.parametrize("order", ["log", "priority", "key"])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_failed_read_of_the_disk_is_told_to_the_taker_and_strands_nothing(
    desk: Desk, order: Order, waits: bool
) -> None:
    await desk.run(desk.broker.create_topic("t", {"rate_limit": 1, "rate_burst": 100}))
    member = await desk.join(order=order)
    topic = desk.broker.shard.topics["t"]
    queue = topic.queues["g"].queue
    if __compiled__ and isinstance(topic.log, MemoryLog):
        pytest.skip("NOT TESTED COMPILED: it replaces methods of the log in memory")

    def fail(*_: object) -> Any:
        raise StorageFailed("read", "segments/7", "I/O error")

    await desk.run(desk.broker.pause_group("t", "g", True))
    task = desk.later(member.take(100, 30.0, None)) if waits else None
    for key in "aab":
        await desk.publish("t", key.encode(), key=key)
    await desk.run(desk.broker.group_stats("t", "g"))  # it knows what there is by now
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic.log, "locate", fail)
        patch.setattr(topic.log, "locate_nowait", fail)
        await desk.run(desk.broker.pause_group("t", "g", False))
        with pytest.raises(StorageFailed):
            await desk.run(member.take(100, 30.0, 0) if task is None else task)

    check(queue)
    expected = [b"a", b"b"] if order == "key" else [b"a", b"a", b"b"]
    assert await desk.values(member, 100) == expected
    check(queue)


class Defective:
    """An expression that the broker runs wrongly."""

    text = "size % 2 == 0"
    uses_value = False
    fields = None

    def pick(self, *_: object) -> list[int]:
        raise TypeError("size() takes 2 arguments")


@pytest.mark.parametrize("waits", [False, True])
async def test_an_expression_that_raises_fails_its_taker_and_gives_no_message_up(
    desk: Desk, waits: bool
) -> None:
    member = await desk.join(filter=compile_filter(Defective.text))
    group = desk.broker.shard.topics["t"].queues["g"]
    sound, group.filter = group.filter, Defective()
    task = desk.later(member.take(10, 30.0, None)) if waits else None
    await desk.publish("t", b"a", b"bb", b"cccc")

    with pytest.raises(FilterFailed, match="TypeError"):
        await desk.run(member.take(10, 30.0, 0) if task is None else task)

    group.filter = sound
    assert await desk.values(member) == [b"bb", b"cccc"]
    assert (await desk.run(desk.broker.group_stats("t", "g"))).dead_letters == 0


async def test_a_fault_of_our_own_is_told_to_whoever_waits(desk: Desk) -> None:
    member = await desk.join()
    task = desk.later(member.take(10, 30.0, None))
    await desk.clock.settle()
    group = desk.broker.shard.topics["t"].queues["g"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group.picking, "pick", lambda wanted, in_turn: 1 / 0)
        await desk.publish("t", b"a")
        assert task.done(), "it would wait for ever"
    with pytest.raises(ZeroDivisionError):
        await task
    assert await desk.values(member) == [b"a"]


async def test_what_retention_took_of_a_group_does_not_come_back_after_a_kill(
    durable: Desk,
) -> None:
    options = {"retention_count": 5, "keep_until_settled": True}
    await durable.run(durable.broker.create_topic("t", options))
    member = await durable.join()
    await durable.publish("t", *[b"x"] * 20)
    await durable.run(durable.broker.purge_topic("t", 10))
    grant = await durable.take(member, 5)
    assert grant is not None
    await durable.run(member.ack([(grant.token, whole(grant))]))
    assert durable.broker.shard.topics["t"].log.first_offset == 15

    await durable.crash()

    assert durable.broker.shard.topics["t"].log.first_offset == 15


async def test_a_name_that_is_opened_while_it_is_deleted_begins_anew(durable: Desk) -> None:
    broker = durable.broker
    await durable.publish("t", *[b"x"] * 4)

    async def opened(start: Start) -> LeadingReader:
        return await broker.open_reader(
            ReaderOpening("t", name="r", start=start, auto_create=False)
        )

    reader = await durable.run(opened("earliest"))
    await durable.run(reader.commit(3))
    await reader.close()
    deleting = durable.later(broker.delete_group("t", "r"))
    opening = durable.later(opened(1))
    await durable.clock.settle()

    assert deleting.exception() is None
    assert await opening.result().position() == 1
    await durable.crash()
    topic = durable.broker.shard.topics["t"]
    assert topic.state.names == {"r": (1, None)}


async def test_a_group_that_is_joined_while_it_is_deleted_is_made_anew(durable: Desk) -> None:
    await durable.publish("t", b"0")
    assert await durable.values(await durable.join()) == [b"0"]
    deleting = durable.later(durable.broker.delete_group("t", "g"))
    member = await durable.join()

    assert deleting.exception() is None
    assert await durable.values(member) == [b"0"]


async def test_the_lag_of_a_group_leaves_out_what_retention_took(desk: Desk) -> None:
    await desk.run(desk.broker.create_topic("t", {"retention_count": 3}))
    await desk.join()
    await desk.publish("t", *[b"x"] * 10)

    assert (await desk.broker.topic_stats("t")).lag == {"g": 3}


async def test_what_is_being_cancelled_does_not_fall_due_meanwhile(durable: Desk) -> None:
    """The journal takes its time: what was decided holds from the decision on."""
    member = await durable.join()
    for _ in range(2):
        await durable.publish("t", b"0", deliver_at=durable.clock.now_ms() + 1_000)
    cancelling = asyncio.ensure_future(durable.broker.cancel("t", [(0, 1)]))
    disk, durable.clock._others = durable.clock._others, []
    await durable.clock.advance(1)  # while the disk does nothing
    durable.clock._others = disk
    assert not cancelling.done()

    grant = await durable.take(member)
    assert grant is not None
    assert grant.rows.offsets == [1]
    assert await durable.run(cancelling) == 1
    assert await durable.take(member) is None


async def test_what_could_not_be_cancelled_comes_when_it_is_due(desk: Desk) -> None:
    member = await desk.join()
    await desk.publish("t", b"0", deliver_at=desk.clock.now_ms() + 1_000)
    topic = desk.broker.shard.topics["t"]
    topic.delaying.cancels([(0, 1)])
    await desk.clock.advance(1)
    assert await desk.take(member) is None

    topic.delaying.cancels_not([(0, 1)])
    grant = await desk.take(member)
    assert grant is not None
    assert grant.rows.offsets == [0]
