"""A broker with keys: HermesMQ's clients have none, so the front end has one for them, or nobody
is served."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flintmq.frontends.hermes.server import HermesServer
from tests.servers.keys import KeyedServer

from .client import HermesClient, Refused


@asynccontextmanager
async def front_end(keyed: KeyedServer, key: str | None) -> AsyncIterator[HermesClient]:
    server = HermesServer(keyed.broker, gate=keyed.gate, credential=key)
    client = await HermesClient.connect(await server.start("127.0.0.1", 0))
    try:
        yield client
    finally:
        await client.close()
        await server.close()


@pytest.mark.parametrize("key", [None, "flint_0000000000000000_wrong"])
async def test_without_a_key_of_its_own_the_front_end_is_refused(
    keyed: KeyedServer, key: str | None
) -> None:
    async with front_end(keyed, key) as client:
        for kind in ("produce", "poll", "stats", "create_topic"):
            with pytest.raises(Refused, match="hermes_key_file") as caught:
                await client.call(kind)
            assert caught.value.code == "internal"
        client.send("subscribe", topic="t", group="g")
        with pytest.raises(Refused, match="no permission to consume"):
            await client.read_ok()
        assert await client.is_closed()

    assert await keyed.broker.topics(">") == []


async def test_its_clients_may_do_what_its_key_may(keyed: KeyedServer) -> None:
    key = keyed.add("hermes", publish="orders.>", consume="orders.>")
    async with front_end(keyed, key) as client:
        assert await client.produce("orders.eu", b"x") == 0
        assert await client.payloads("orders.eu") == [b"x"]
        for kind in ("create_topic", "delete_topic", "set_rate_limit", "set_retention"):
            with pytest.raises(Refused, match="administer"):
                await client.call(kind, topic="orders.eu")
        for kind in ("produce", "poll", "ack", "nack", "commit"):
            with pytest.raises(Refused, match=r"internal: .*bills"):
                await client.call(kind, topic="bills")
        with pytest.raises(Refused, match="administer"):
            await client.call("bootstrap", nodes=[(1, "a")])


async def test_a_key_that_is_taken_away_ends_what_it_allowed(keyed: KeyedServer) -> None:
    key = keyed.add("hermes", publish=">", consume=">")
    async with front_end(keyed, key) as client:
        await client.produce("t", b"x")
        client.send("subscribe", topic="t", group="g", prefetch=1)
        await client.pushed()
        keyed.remove("hermes")

        assert await client.is_closed()


async def test_the_first_key_closes_a_front_end_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power is cut here
    keyed = KeyedServer(tmp_path)
    async with front_end(keyed, None) as client:
        await client.produce("t", b"x")
        keyed.add("somebody", publish=">")
        with pytest.raises(Refused, match="hermes_key_file"):
            await client.produce("t", b"x")
    await keyed.stop()
