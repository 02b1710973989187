"""What all servers of a broker have in common: one count of connections, one way to end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.daemon.process import loop_factory
from flintmq.engine.broker import Broker
from flintmq.errors import Disconnected, QueueFull
from flintmq.frontends.blip.server import BlipServer
from flintmq.frontends.hermes.server import HermesLimits, HermesServer
from flintmq.net.server import listener, peer
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.net.server.tls import ServerTls
from flintmq.serde.codec import Codec
from flintmq.testing import ManualClock
from tests.servers.hermes.client import HermesClient
from tests.servers.hermes.schema import frame_of, request
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
        async with asyncio.timeout(60):
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
            async with flintmq.connect(f"flint://{at_native[0]}:{at_native[1]}") as more:
                await more.publish("t", b"x")
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    for server in servers:
        await server.close()

    assert native.places.taken == 0
    assert [one.connections for one in servers] == [set()] * 3
    # Who has said nothing at the shared port belongs to neither protocol yet.
    assert [one.accepted for one in servers] == [0, 1, 1]


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


# --- machines that are gone, and readers that only take their time


def _deaf(sock: socket.socket) -> None:
    """From now on everything that comes is dropped, as by a machine that is gone: a filter of the
    kernel lets nothing through."""
    nothing = (ctypes.c_uint64 * 1)(0x06)  # one instruction: keep 0 bytes
    program = struct.pack("@HxxxxxxP", 1, ctypes.addressof(nothing))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


SO_ATTACH_FILTER = 26
linux = pytest.mark.skipif(
    not peer.CAN_LOOK,
    reason="NOT TESTED: only Linux tells of a socket what this looks at (TCP_INFO)",
)


@asynccontextmanager
async def _subscribed(broker: Broker, payload: bytes) -> AsyncIterator[tuple[HermesServer, Any]]:
    """A subscriber of HermesMQ's that has read nothing, with all of its messages on the way."""
    server = HermesServer(broker)
    address = await server.start("127.0.0.1", 0)
    async with await HermesClient.connect(address) as producer:
        for _ in range(12):
            await producer.produce("t", payload)
    async with asyncio.timeout(60):
        while server.connections:  # noqa: ASYNC110
            await asyncio.sleep(0)
    sock = socket.create_connection(address)
    try:
        sock.sendall(frame_of(request("subscribe", topic="t", group="g", prefetch=100)))
        yield server, sock
    finally:
        sock.close()
        await server.close()


@linux
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_machine_that_is_gone_is_noticed_and_what_it_had_goes_to_the_next(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "GONE_SECONDS", 0.3)
    monkeypatch.setattr(listener, "GONE_SECONDS", 0.3)

    async def story() -> None:
        broker = Broker(ManualClock(), Codec())
        async with _subscribed(broker, b"x") as (server, sock):
            _deaf(sock)
            async with asyncio.timeout(60):
                while server.accepted < 2 or server.connections:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                while (await broker.group_stats("t", "g")).in_flight:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        await broker.close()

    factory = loop_factory() if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(story())


@linux
@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_who_only_does_not_read_stays_for_as_long_as_it_likes(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TCP_USER_TIMEOUT would end it, and it would lose what it has leased, over and over."""
    monkeypatch.setattr(peer, "GONE_SECONDS", 0.3)
    monkeypatch.setattr(listener, "GONE_SECONDS", 0.3)
    looks: list[bool] = []
    is_gone = peer.Peer.is_gone

    def looked(one: peer.Peer) -> bool:
        looks.append(is_gone(one))
        return looks[-1]

    monkeypatch.setattr(peer.Peer, "is_gone", looked)

    async def story() -> None:
        broker = Broker(ManualClock(), Codec())
        async with _subscribed(broker, bytes(2**20)) as (server, sock):
            async with asyncio.timeout(60):
                while len(looks) < 5:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert len(server.connections) == 1
            option = (
                server.connections.copy()
                .pop()
                ._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            )
            assert option == 0
            reader = await asyncio.to_thread(sock.makefile, "rb")
            for _ in range(12):
                length = int.from_bytes(await asyncio.to_thread(reader.read, 4), "big")
                assert len(await asyncio.to_thread(reader.read, length)) == length > 2**20
            reader.close()
        await broker.close()

    factory = loop_factory() if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(story())
    assert not any(looks)


@pytest.mark.parametrize("protocol", ["native", "hermes", "blip"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_is_written_to_a_connection_that_was_cut_off_goes_nowhere(
    protocol: str, loop: str
) -> None:
    """Where uvloop's sockets are closed, they raise; and who holds one may not know yet."""
    faults: list[dict[str, Any]] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        broker = Broker(ManualClock(), Codec())
        made = {"native": NativeServer, "hermes": HermesServer, "blip": BlipServer}[protocol]
        server: Any = made(broker)
        writer = await _comes_in(await server.start("127.0.0.1", 0))
        async with asyncio.timeout(60):
            while not server.connections:  # noqa: ASYNC110
                await asyncio.sleep(0)
        (connection,) = server.connections
        connection.abort()
        match protocol:
            case "native":
                connection.write([b"x"])
            case "hermes":
                connection.send(b"x")
            case _:
                connection.write(b"x")
        await asyncio.sleep(0.01)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        await server.close()
        await broker.close()

    with asyncio.Runner(loop_factory=loop_factory() if loop == "uvloop" else None) as runner:
        runner.run(story())
    assert faults == []
