"""BlipMQ's clients in a cluster: their subscriptions go on whoever leads, and at any node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from flintmq.broker_api import Joining
from flintmq.cluster.node import ClusterNode
from flintmq.frontends.blip import polled
from flintmq.frontends.blip.options import BlipOptions
from flintmq.frontends.blip.server import BlipServer
from flintmq.net.server.limits import Limits
from flintmq.testing import ManualClock

from ..patience import until
from ..servers.blip.raw import Delivery, RawBlip
from .nodes import Cluster, publish
from .test_seats import next_leads

pytestmark = pytest.mark.slow


@asynccontextmanager
async def served(node: ClusterNode, version: int = 1, **options: float) -> AsyncIterator[RawBlip]:
    """A client of this node's front end."""
    server = BlipServer(
        node.for_front_ends,
        options=BlipOptions(**options),  # type: ignore[arg-type]
        limits=Limits(handshake_seconds=60),
        is_shared=True,
    )
    address = await server.start("127.0.0.1", 0)
    try:
        async with RawBlip(address) as client:
            await client.login(version)
            yield client
    finally:
        await server.close()


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_subscription_goes_on_at_the_node_that_led(cluster: Cluster, qos: int) -> None:
    leader = await cluster.led()
    async with served(leader) as client:
        number = await client.subscribe("orders", qos)
        client.publish("orders", b"0", qos)
        client.publish("orders", b"1", qos)
        assert [one and one.message for one in [await client.poll(number) for _ in range(2)]] == [
            b"0", b"1",
        ]  # fmt: skip
        await publish(leader.broker, b"x", topic="other")  # what was handed out is committed

        await next_leads(cluster)

        if qos:
            client.ack(number, 1)
            client.ack(number, 2)
        await client.ping()
        assert await client.poll(number) is None
        client.publish("orders", b"2", qos)
        await client.ping()
        found = await client.poll(number)
        assert found is not None
        assert (found.qos, found.message) == (qos, b"2")
        if qos:
            stats = await leader.broker.group_stats("orders", f"blip-{number}")
            assert (stats.position, stats.in_flight) == (2, 1)


@pytest.mark.parametrize("group", [None, "workers"])
async def test_what_is_pushed_goes_on_when_another_leads(
    cluster: Cluster, group: str | None
) -> None:
    leader = await cluster.led()
    async with served(leader, version=2) as client:
        await client.subscribe("orders", 1, group=group)
        client.publish("orders", b"0", 1)
        assert (await client.delivery()).message == b"0"

        _, after = await next_leads(cluster)
        await publish(after.broker, b"1")

        assert (await client.delivery()).message == b"1"
        client.publish("orders", b"fleeting", 0)
        assert (await client.delivery()).message == b"fleeting"


async def test_a_subscription_is_polled_at_any_node(cluster: Cluster) -> None:
    one, other, _ = cluster.nodes.values()
    async with served(one) as first, served(other) as second:
        number = await first.subscribe("orders", 1)
        first.publish("orders", b"0", 1)
        first.publish("orders", b"1", 1)
        await first.ping()

        assert await second.poll(number) == Delivery(1, 1, "orders", b"0")
        assert await second.poll(number) == Delivery(1, 2, "orders", b"1")
        second.ack(number, 1)
        await second.ping()
        assert await second.poll(number + 1) is None  # nobody has that


async def test_a_subscription_that_is_polled_at_another_node_is_not_dropped(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clock = ManualClock()
    async with Cluster(tmp_path_factory.mktemp("polled"), clock=clock) as timed:
        one, other, _ = timed.nodes.values()
        async with (
            served(one, subscription_seconds=60.0) as first,
            served(other, subscription_seconds=600.0) as second,
        ):
            number = await first.subscribe("orders", 1)
            first.publish("orders", b"0", 1)
            await first.ping()
            assert await second.poll(number) is not None

            await clock.advance(61)

            second.publish("orders", b"1", 1)
            await second.ping()
            assert await second.poll(number) is not None
            groups = [info.name for info in await other.broker.groups("orders")]
            assert groups == [f"blip-{number}"]


async def test_groups_of_connections_that_ended_with_their_node_are_deleted_and_no_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polled, "LOOK_SECONDS", 0.05)
    one, other, _ = cluster.nodes.values()
    async with served(one) as client:
        number = await client.subscribe("orders", 1)
        left = await one.broker.join_group(Joining("orders", "blip-push-7", "x"))
        await left.close()
        kept = await one.broker.join_group(Joining("orders", "blip-push-8", "x"))

        async with served(other):

            async def is_gone() -> bool:
                names = {info.name for info in await one.broker.groups("orders")}
                return names == {f"blip-{number}", "blip-push-8"}

            await until(is_gone, "what nobody has any more is deleted")
        await kept.close()
