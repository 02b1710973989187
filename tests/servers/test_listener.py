"""What all servers of a broker have in common: one count of connections, one way to end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import flintmq
from flintmq.engine.broker import Broker
from flintmq.errors import Disconnected, QueueFull
from flintmq.serde.codec import Codec
from flintmq.servers.blip.server import BlipServer
from flintmq.servers.hermes.server import HermesLimits, HermesServer
from flintmq.servers.limits import Limits
from flintmq.servers.native import NativeServer
from flintmq.servers.tls import ServerTls
from flintmq.testing import ManualClock
from tests.tls.throw_away import Authority

Address = tuple[str, int]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = Broker(ManualClock(), Codec())
    yield broker
    await broker.close()


async def _comes_in(address: Address) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection(*address)
    return writer


async def _is_turned_away(address: Address) -> bool:
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(5):
            return await reader.read(1) == b""
    except ConnectionError:
        return True
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_max_connections_counts_those_of_all_protocols_together(broker: Broker) -> None:
    """Each port for itself, the broker would run out of files for its journal."""
    limits = Limits(connections=3)
    native = NativeServer(broker, limits=limits)
    hermes = HermesServer(
        broker, limits=HermesLimits().with_those_of_all(limits), native=native, places=native.places
    )
    blip = BlipServer(broker, limits=limits, places=native.places)
    servers = (hermes, blip, native)
    at_hermes, at_blip, at_native = [await one.start("127.0.0.1", 0) for one in servers]
    writers = [await _comes_in(at_hermes), await _comes_in(at_blip)]
    async with flintmq.connect(f"flint://{at_hermes[0]}:{at_hermes[1]}") as mq:
        await mq.publish("t", b"by the port of another protocol")
        assert native.places.taken == 3
        assert await _is_turned_away(at_hermes)
        assert await _is_turned_away(at_blip)
        with pytest.raises((QueueFull, Disconnected), match="connections"):
            async with flintmq.connect(f"flint://{at_native[0]}:{at_native[1]}", timeout=1) as more:
                await more.publish("t", b"x")
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    for server in servers:
        await server.close()

    assert native.places.taken == 0
    assert [(one.accepted, one.connections) for one in servers] == [(1, set())] * 3


@pytest.mark.parametrize("protocol", ["hermes", "blip"])
async def test_who_does_not_go_on_with_a_tls_handshake_is_let_go(
    broker: Broker, protocol: str, tmp_path: Path
) -> None:
    pair = Authority(tmp_path).pair()
    tls = ServerTls(pair.cert, pair.key)
    server = (
        HermesServer(broker, limits=HermesLimits(handshake_seconds=0.05), tls=tls)
        if protocol == "hermes"
        else BlipServer(broker, limits=Limits(handshake_seconds=0.05), tls=tls)
    )
    try:
        assert await _is_turned_away(await server.start("127.0.0.1", 0))
    finally:
        await server.close()
