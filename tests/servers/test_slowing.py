"""How failed logins are slowed: bounded, forgotten in time, and never for others."""

from __future__ import annotations

import asyncio
import logging

import pytest

import flintmq
from flintmq.net.server import slowing
from flintmq.net.server.slowing import Slowing, address_of
from flintmq.observe.logs import forget_limits

from .keys import KeyedServer


def test_the_wait_grows_with_failures_up_to_a_bound_and_is_forgotten() -> None:
    slow = Slowing(first_seconds=0.1, most_seconds=5.0)
    waits = []
    for _ in range(12):
        slow.failed("10.0.0.1", now=0.0)
        waits.append(slow.seconds("10.0.0.1", now=0.0))

    assert waits[:3] == pytest.approx([0.1, 0.2, 0.4])
    assert waits == sorted(waits)
    assert waits[-1] == 5.0
    assert slow.seconds("10.0.0.1", now=600.0) < 0.1
    assert slow.seconds("10.0.0.2", now=0.0) == 0.0


def test_no_more_addresses_are_known_than_there_is_room_for() -> None:
    slow = Slowing()
    for number in range(slowing.ADDRESSES_MAX * 2):
        slow.failed(f"host{number}", now=0.0)

    assert slow.addresses == slowing.ADDRESSES_MAX
    assert slow.seconds("host0", now=0.0) == 0.0


def test_no_more_answers_are_kept_than_there_is_room_for() -> None:
    slow = Slowing(kept_max=10, kept_per_address_max=4)
    assert [slow.keep("a", 0.0) is None for _ in range(6)] == [False] * 4 + [True] * 2
    assert [slow.keep(f"b{n}", 0.0) is None for n in range(8)] == [False] * 6 + [True] * 2
    slow.let_go("a")
    assert slow.keep("a", 0.0) is not None
    for address in ("a",) * 4 + tuple(f"b{n}" for n in range(6)):
        slow.let_go(address)
    assert slow.kept == 0
    assert not slow._kept


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    assert address_of("2001:db8:1:2::1") == address_of("2001:db8:1:2:ffff::9")
    assert address_of("2001:db8:1:2::1") != address_of("2001:db8:1:3::1")
    assert address_of("::ffff:10.0.0.1") == address_of("10.0.0.1") == "10.0.0.1"
    assert address_of("fe80::1%eth0") == "fe80::/64"
    assert address_of("local") == "local"


async def test_a_wrong_key_waits_for_its_answer_and_a_right_one_does_not(
    keyed: KeyedServer,
) -> None:
    keyed.gate.slowing = Slowing(first_seconds=60.0, most_seconds=60.0)
    wrong = [asyncio.ensure_future(_enter(keyed, "nonsense")) for _ in range(3)]
    while keyed.gate.slowing.kept < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)

    async with keyed.connect(keyed.admin) as mq:  # from the same address
        await mq.publish("orders", b"x")
    assert not any(task.done() for task in wrong)
    for task in wrong:
        task.cancel()
    await asyncio.gather(*wrong, return_exceptions=True)


async def _enter(keyed: KeyedServer, key: str) -> None:
    await keyed.connect(key)


async def test_those_who_wait_take_one_timer_each_and_no_more_than_so_many_wait(
    keyed: KeyedServer,
) -> None:
    keyed.gate.slowing = Slowing(first_seconds=60.0, most_seconds=60.0, kept_per_address_max=5)
    tasks_before = len(asyncio.all_tasks())
    clients = [asyncio.ensure_future(_enter(keyed, "nonsense")) for _ in range(20)]
    while sum(task.done() for task in clients) < 15:  # noqa: ASYNC110
        await asyncio.sleep(0.001)

    assert keyed.gate.slowing.kept == 5
    assert keyed.gate.counters.dropped == 15
    assert len(keyed.server.connections) == 5
    assert len(asyncio.all_tasks()) <= tasks_before + 2 * 5, "the clients' own: two to connect"
    for task in clients:
        task.cancel()
    for outcome in await asyncio.gather(*clients, return_exceptions=True):
        assert isinstance(outcome, flintmq.Disconnected | asyncio.CancelledError)
    while keyed.server.connections:
        for connection in list(keyed.server.connections):
            connection.abort()
        await asyncio.sleep(0)
    assert keyed.gate.slowing.kept == 0


async def test_many_refused_logins_are_one_line(
    keyed: KeyedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    forget_limits()
    for _ in range(20):
        with pytest.raises(flintmq.NotAuthenticated):
            await keyed.connect("nonsense")

    [record] = caplog.records
    assert "127.0.0.1 failed: malformed key" in record.getMessage()
    assert keyed.gate.counters.failed["malformed"] == 20


async def test_a_front_end_that_waits_for_the_gate_is_slowed_by_it(keyed: KeyedServer) -> None:
    assert (await keyed.gate.enter(keyed.admin, "10.0.0.1")).name == "admin"
    with pytest.raises(flintmq.NotAuthenticated):
        await keyed.gate.enter("nonsense", "10.0.0.1")
    keyed.gate.slowing = Slowing(first_seconds=60.0)
    entering = asyncio.ensure_future(keyed.gate.enter("nonsense", "10.0.0.1"))
    await asyncio.sleep(0)
    assert keyed.gate.slowing.kept == 1
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert keyed.gate.slowing.kept == 0
