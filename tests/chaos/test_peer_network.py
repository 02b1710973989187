"""The network of a chaos run does what it is told: else a run that finds nothing says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from flintmq.cluster.peer_frames import (
    HELLO_BYTES,
    NO_CLUSTER,
    NONCE_BYTES,
    LineKind,
    PeerHello,
    encode_hello,
)

from ..patience import until
from . import peer_network
from .peer_network import PeerNetwork


class Two:
    """A line that node 1 dials to node 2."""

    def __init__(
        self, network: PeerNetwork, here: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.network, self.here, self.writer = network, here, writer
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self.back: asyncio.StreamWriter | None = None


async def has_ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(100) == b""
    except ConnectionResetError:
        return True


def hello_of(node: int) -> bytes:
    return encode_hello(PeerHello(LineKind.MAIN, NO_CLUSTER, node, 1, 1, bytes(NONCE_BYTES)))


@asynccontextmanager
async def two_nodes() -> AsyncIterator[Two]:
    lines: list[Two] = []
    answered, ended = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines[0].back = writer
        answered.set()
        try:
            while data := await reader.read(1000):
                lines[0].arrived.put_nowait(data)
        except ConnectionResetError:
            pass
        finally:
            writer.close()
            ended.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    target = server.sockets[0].getsockname()[:2]
    network = PeerNetwork([target, target])
    doors = await network.open()
    reader, writer = await asyncio.open_connection(*doors[1])
    lines.append(Two(network, reader, writer))
    writer.write(hello_of(1))
    await answered.wait()
    assert await lines[0].arrived.get() == hello_of(1)
    try:
        yield lines[0]
    finally:
        writer.close()
        await network.close()
        await ended.wait()
        server.close()
        await asyncio.sleep(0)


def test_it_knows_where_a_hello_has_the_node() -> None:
    assert peer_network.HELLO_BYTES == HELLO_BYTES
    assert int.from_bytes(hello_of(7)[peer_network.DIALLER], "little") == 7


async def test_what_is_silent_one_way_is_heard_the_other() -> None:
    async with two_nodes() as line:
        line.network.silent.add((1, 2))
        line.writer.write(b"lost")
        assert line.back is not None
        line.back.write(b"heard")

        assert await line.here.read(100) == b"heard"
        line.network.silent.clear()
        line.writer.write(b"behind what is lost nothing comes either")
        line.back.write(b"heard")
        assert await line.here.read(100) == b"heard"
        await until(lambda: line.network.swallowed > len(b"lost"), "it swallows what comes")
        assert line.arrived.empty()


async def test_a_healed_network_ends_the_lines_that_have_lost_something() -> None:
    async with two_nodes() as line:
        line.network.silent.add((2, 1))
        line.network.heal()

        assert await has_ended(line.here)


async def test_a_refused_link_ends_and_no_other_comes_about() -> None:
    async with two_nodes() as line:
        line.network.refuse(line.network.links_of(1))
        assert await has_ended(line.here)

        reader, writer = await asyncio.open_connection(*line.network.doors[1])
        writer.write(hello_of(1))
        assert await has_ended(reader)
        writer.close()
