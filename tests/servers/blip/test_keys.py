"""Who comes in by BlipMQ's protocols, and what they may do: our keys, and its own list."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flintmq.errors import NotAuthenticated
from flintmq.frontends.blip.keys import listed_keys_gate
from flintmq.frontends.blip.server import BlipServer
from flintmq.net.server.slowing import Slowing
from tests.patience import jump
from tests.servers.keys import KeyedServer

from .raw import AUTH, HELLO, POLL, PUBLISH, SUBSCRIBE, RawBlip, RawFlat, publish_payload, text

Address = tuple[str, int]


@pytest.fixture
async def keyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KeyedServer]:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power is cut here
    keyed = KeyedServer(tmp_path)
    keyed.admin = keyed.add("admin", publish=">", consume=">", administer=">")
    yield keyed
    await keyed.stop()


@pytest.fixture
async def server(keyed: KeyedServer) -> AsyncIterator[BlipServer]:
    server = BlipServer(keyed.broker, gate=keyed.gate)
    yield server
    await server.close()


async def test_a_wrong_key_is_refused_a_few_times_and_then_the_connection_ends(
    address: Address, server: BlipServer
) -> None:
    """BlipMQ lets anybody try for ever (its B22)."""
    async with RawBlip(address) as client:
        await client.ask(HELLO, b"\0\2")
        for _ in range(5):
            assert await client.refused(AUTH, text("wrong")) == (401, "invalid API key")
        assert await client.is_closed()
    assert server.counters.login_failures == 5


async def test_a_right_key_is_taken_after_a_wrong_one(address: Address, keyed: KeyedServer) -> None:
    async with RawBlip(address) as client:
        await client.ask(HELLO, b"\0\1")
        assert await client.refused(AUTH, text("wrong")) == (401, "invalid API key")
        assert (await client.ask(AUTH, text(keyed.admin))).payload == bytes(8)
        await client.ping()


async def test_a_key_may_do_what_it_is_granted_and_nothing_else(
    address: Address, keyed: KeyedServer
) -> None:
    """There every key may do everything, also poll and ack what is another's (B21)."""
    writer = keyed.add("writer", publish="orders.>")
    reader = keyed.add("reader", consume="orders.>")
    other = keyed.add("other", consume="news")
    async with RawBlip(address) as one, RawBlip(address) as two, RawBlip(address) as three:
        await one.login(1, writer)
        await two.login(1, reader)
        await three.login(1, other)
        number = await two.subscribe("orders.eu", 1)

        code, why = await one.refused(SUBSCRIBE, text("orders.eu") + b"\1")
        assert code == 403
        assert "consume" in why
        for qos in (0, 1):
            payload = publish_payload("news", b"x", qos)
            assert (await one.refused(PUBLISH, payload))[0] == 403
            assert (await two.refused(PUBLISH, publish_payload("orders.eu", b"", qos)))[0] == 403
        one.publish("orders.eu", b"mine", 1)
        await one.ping()

        # Another's subscription is as if it were not there.
        assert await three.poll(number) is None
        got = await two.poll(number)
        assert got is not None
        code, _ = await three.refused(5, number.to_bytes(8, "big"), got.tag)
        assert code == 404
        two.ack(number, got.tag)
        await two.ping()


async def test_a_key_that_is_removed_takes_its_connections_with_it(
    address: Address, keyed: KeyedServer
) -> None:
    """There a change of keys needs a restart (B43)."""
    key = keyed.add("reader", consume=">")
    async with RawBlip(address) as client, RawBlip(address) as admin:
        await client.login(2, key)
        await client.subscribe("demo", 1)
        await admin.login(2, keyed.admin)
        keyed.remove("reader")
        assert await client.is_closed()
        await admin.ping()


async def test_a_permission_that_is_withdrawn_ends_the_subscription_that_needs_it(
    address: Address, keyed: KeyedServer
) -> None:
    key = keyed.add("reader", consume=">")
    async with RawBlip(address) as client:
        await client.login(2, key)
        await client.subscribe("demo", 1)
        keyed.regrant("reader", consume="other")
        assert await client.is_closed()


async def test_the_first_protocol_cannot_show_a_key_and_is_not_let_in(address: Address) -> None:
    async with RawFlat(address) as client:
        client.send(1, b"chat")
        assert await client.is_closed()


async def test_who_takes_too_long_to_say_who_they_are_is_let_go(
    address: Address, server: BlipServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RawBlip(address) as client:
        await client.ask(HELLO, b"\0\1")
        jump(monkeypatch, server.limits.handshake_seconds + 1)
        assert await client.is_closed()


async def test_there_may_be_so_many_connections(address: Address, server: BlipServer) -> None:
    """There they have no limit (B19)."""
    from flintmq.net.server.limits import Limits

    server.set_limits(Limits(connections=1))
    async with RawBlip(address) as one, RawBlip(address) as two:
        await one.ask(HELLO, b"\0\1")
        assert await two.is_closed()
    assert server.refused == 1


def test_its_own_keys_allow_everything_and_nothing_else_comes_in(tmp_path: Path) -> None:
    """All are compared, always, in the same time: there it is a lookup (B23)."""
    gate = listed_keys_gate(["dev-key", "other"], tmp_path / "keys.json", Slowing())

    access = gate.judge("dev-key", "127.0.0.1")
    assert access.may("administer", "anything")
    assert gate.still(access) is access
    for wrong in (None, "", "dev-ke", "dev-key "):
        with pytest.raises(NotAuthenticated):
            gate.judge(wrong, "127.0.0.1")
    assert gate.counters.ok == 1
    assert gate.counters.failed.total() == 4


async def test_polling_needs_the_permission_at_every_poll(
    address: Address, keyed: KeyedServer
) -> None:
    key = keyed.add("reader", consume=">", publish=">")
    async with RawBlip(address) as client:
        await client.login(1, key)
        number = await client.subscribe("demo", 1)
        client.publish("demo", b"x", 1)
        await client.ping()
        keyed.regrant("reader", consume="other")
        client.send(POLL, number.to_bytes(8, "big"))
        await client.ping()
