"""Who polls over HTTP at a node goes on there, whoever leads: the node sits in the group for it."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.broker_api import Joining, MemberApi
from flintmq.client.membership import JoinOptions
from flintmq.client.polling import Asked
from flintmq.cluster.node import ClusterNode
from flintmq.frontends.http.seats import GroupSeats, LeaseName, LeasesGone
from flintmq.group_model import Lease
from flintmq.testing import ManualClock

from .nodes import Cluster, publish

pytestmark = pytest.mark.slow


def asked(wait: float = 0.0) -> Asked:
    return Asked("orders", "g", 2, 30.0, wait, False, JoinOptions())


async def polled(seats: GroupSeats, wait: float = 0.0) -> list[LeaseName]:
    return [LeaseName.of(message) for message in await seats.poll(asked(wait))]


async def ack(member: MemberApi, leases: list[Lease]) -> None:
    await member.ack(leases)


async def next_leads(cluster: Cluster) -> tuple[ClusterNode, ClusterNode]:
    """Another node leads: who did before, and who does now."""
    before = await cluster.led()
    after = next(node for node in cluster.nodes.values() if node is not before)
    before.hand_over(after.id)
    await cluster.until(after.is_leading, "another leads")
    return before, after


async def test_what_was_polled_at_the_node_that_led_is_settled_there(cluster: Cluster) -> None:
    leader = await cluster.led()
    await publish(leader.broker, *[b"%d" % number for number in range(6)])
    seats = GroupSeats(leader.for_front_ends)
    first = await polled(seats)
    await publish(leader.broker, b"6")  # what was handed out is committed before it

    await next_leads(cluster)

    await seats.settle("orders", "g", first, ack)
    second = await polled(seats)
    assert [name.offset for name in first + second] == [0, 1, 2, 3]
    await next_leads(cluster)
    assert [name.offset for name in await polled(seats)] == [4, 5]
    await seats.settle("orders", "g", second, ack)
    with pytest.raises(LeasesGone):
        await seats.settle("orders", "g", [LeaseName(0, 5, 1)], ack)
    await seats.close()


async def test_what_was_polled_is_kept_for_who_has_it_as_long_as_its_lease(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """As a native client claims what it holds when it comes back."""
    clock = ManualClock()
    async with Cluster(tmp_path_factory.mktemp("kept"), clock=clock) as cluster:
        leader = await cluster.led()
        await publish(leader.broker, b"0", b"1")
        seats = GroupSeats(leader.for_front_ends)
        first = await polled(seats)
        await publish(leader.broker, b"2")
        waiting = asyncio.ensure_future(polled(seats, wait=99.0))

        _, after = await next_leads(cluster)
        assert [name.offset for name in await waiting] == [2]
        await clock.advance(20)

        other = await after.broker.join_group(Joining("orders", "g", "other"))
        assert await other.take(10, 30.0, 0) is None
        await seats.settle("orders", "g", first, ack)
        await seats.close()


async def test_a_poll_that_waits_goes_on_at_the_next_leader(cluster: Cluster) -> None:
    leader = await cluster.led()
    await publish(leader.broker, b"0")
    seats = GroupSeats(leader.for_front_ends)
    await seats.settle("orders", "g", await polled(seats), ack)
    waiting = asyncio.ensure_future(polled(seats, wait=30.0))
    await asyncio.sleep(0)

    _, after = await next_leads(cluster)
    await publish(after.broker, b"1")

    assert [name.offset for name in await waiting] == [1]
    await seats.close()
