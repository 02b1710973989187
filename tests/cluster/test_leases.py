"""Messages in work when the lead changes: kept for who works on them, handed out by one leader."""

from __future__ import annotations

import asyncio
import time

import pytest

from flintmq.broker_api import BrokerApi, Grant, Joining, MemberApi
from flintmq.cluster.lead import LeadConfirmation
from flintmq.errors import LeaseLost, NotLeader, OutcomeUnknown
from flintmq.testing import ManualClock
from flintmq.testing.manual_clock import settle

from .nodes import Cluster, publish

pytestmark = pytest.mark.slow


async def join(broker: BrokerApi, holder: str) -> MemberApi:
    return await broker.join_group(Joining("orders", "g", holder))


def offsets(grant: Grant | None) -> list[int]:
    return [] if grant is None else [message.offset or 0 for message in grant.rows]


async def test_what_is_acked_stays_so_whoever_leads(cluster: Cluster) -> None:
    leader = await cluster.led()
    await publish(leader.broker, *[b"%d" % number for number in range(10)])
    member = await join(leader.broker, "one")
    grant = await member.take(6, 30.0, 0)
    assert grant is not None
    await member.ack([(grant.token, [(0, 4)])])
    await member.release([(grant.token, [(4, 6)])])
    await publish(leader.broker, b"10")  # nobody waits for a release; it is committed before this

    await cluster.kill(leader.id)

    second = await cluster.led()
    assert sorted(offsets(await (await join(second.broker, "two")).take(20, 30.0, 0))) == [
        4, 5, 6, 7, 8, 9, 10,
    ]  # fmt: skip


async def test_who_comes_back_has_what_it_worked_on(cluster: Cluster) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"0", b"1", b"2")
    grant = await (await join(leader.broker, "one")).take(2, 30.0, 0)
    assert grant is not None
    await publish(leader.broker, b"3")  # what was handed out is committed before it

    await cluster.kill(leader.id)

    second = await cluster.led()
    other = await join(second.broker, "two")
    assert offsets(await other.take(10, 30.0, 0)) == [2, 3]
    again = await join(second.broker, "one")
    await again.extend([(grant.token, [(0, 2)])], 30.0)
    await again.ack([(grant.token, [(0, 2)])])
    assert offsets(await other.take(10, 30.0, 0)) == []


async def test_who_does_not_come_back_in_time_has_lost_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    clock = ManualClock()
    async with Cluster(tmp_path_factory.mktemp("late"), clock=clock) as cluster:
        leader = await cluster.led()
        await publish(leader.broker, b"0")
        grant = await (await join(leader.broker, "one")).take(1, 30.0, 0)
        assert grant is not None
        await publish(leader.broker, b"1")
        await cluster.kill(leader.id)
        second = await cluster.led()
        other = await join(second.broker, "two")
        assert offsets(await other.take(10, 30.0, 0)) == [1]

        await clock.advance(6)

        assert offsets(await other.take(10, 30.0, 0)) == [0]
        with pytest.raises(LeaseLost):
            await (await join(second.broker, "one")).extend([(grant.token, [(0, 1)])], 30.0)


async def test_a_leader_that_is_cut_off_hands_out_nothing(cluster: Cluster) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"0")
    member = await join(leader.local, "one")
    cluster.network.cut_off(leader.id)
    await cluster.until(lambda: not leader.host.raft.has_lease(), "its lease has run out")
    assert leader.is_leading(), "it does not know yet that nobody hears it"

    with pytest.raises(NotLeader):
        await member.take(1, 30.0, 0)

    second = await cluster.led()
    assert offsets(await (await join(second.broker, "two")).take(1, 30.0, 0)) == [0]


async def test_a_later_delivery_is_handed_out_once_most_nodes_know_of_it(cluster: Cluster) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"0")
    member = await join(leader.local, "one")
    grant = await member.take(1, 30.0, 0)
    assert grant is not None
    await member.nack([(grant.token, [(0, 1)])], 0)
    await cluster.agreed()
    cluster.network.cut_off(leader.id)

    taking = asyncio.ensure_future(member.take(1, 30.0, 0))
    await cluster.until(lambda: not leader.is_leading(), "it gives up")
    await cluster.led()
    cluster.network.heal()

    with pytest.raises((NotLeader, OutcomeUnknown)):
        await taking


async def test_a_leader_that_is_cut_off_does_not_say_where_a_topic_ends(cluster: Cluster) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"0")
    cluster.network.cut_off(leader.id)
    await cluster.until(lambda: not leader.host.raft.has_lease(), "its lease has run out")
    assert leader.is_leading(), "it does not know yet that nobody hears it"

    with pytest.raises(NotLeader):
        await leader.for_peers.extents("orders", None)


async def test_missed_ticks_are_made_good_before_the_lease_is_looked_at() -> None:
    told: list[str] = []

    def make_good() -> None:
        told.append("ticks")

    def has_lease() -> bool:
        told.append("lease")
        return True

    async def ask() -> None:
        raise AssertionError("there is a lease")

    lead = LeadConfirmation(has_lease, ask, make_good)

    lead.check()
    await lead.confirm()

    assert told == ["ticks", "lease"] * 2


async def test_a_leader_whose_machine_has_slept_has_no_lease(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"0")
    member = await join(leader.local, "one")
    cluster.stop_time()
    leader._tick_seconds, leader._ticked_at = 0.1, leader._ticking.monotonic()
    awake = time.clock_gettime

    monkeypatch.setattr(time, "clock_gettime", lambda clock: awake(clock) + 3600)

    with pytest.raises(NotLeader):
        await member.take(1, 30.0, 0)


async def test_a_follower_that_was_held_up_keeps_its_promise_to_the_leader_that_it_then_hears(
    cluster: Cluster,
) -> None:
    """The promise to elect nobody else lasts from what is heard on: time that went by before that
    does not count. The leader takes its lease from it."""
    leader = await cluster.led()
    await cluster.agreed()
    cluster.stop_time()
    leader.tick()
    await settle()
    clock = ManualClock()
    held_up, other = (node for node in cluster.nodes.values() if node is not leader)
    held_up._ticking, held_up._tick_seconds = clock, 0.1  # type: ignore[assignment]
    held_up._ticked_at = clock.monotonic()
    cluster.network.cut(leader.id, other.id)

    await clock.advance(0.95)  # its timers come late: what lines brought meanwhile is read first
    leader.tick()
    await settle()
    held_up.make_good()
    await clock.advance(0.1)
    held_up.make_good()
    term = leader.host.term
    other.host.campaign()
    await settle()

    assert leader.host.raft.has_lease()
    assert [node.host.term for node in cluster.nodes.values()] == [term] * 3


async def test_tokens_of_a_later_leader_are_higher(cluster: Cluster) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"0", b"1")
    first = await (await join(leader.broker, "one")).take(1, 30.0, 0)
    await cluster.kill(leader.id)
    second = await cluster.led()

    later = await (await join(second.broker, "two")).take(1, 30.0, 0)

    assert first is not None
    assert later is not None
    assert later.token > first.token
