"""Publishers that are faster than the disk, and how a server holds them back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import flintmq
from flintmq.batch import BatchBuilder
from flintmq.engine.durable_broker import DurableBroker
from flintmq.serde.codec import Codec
from flintmq.servers.limits import Limits
from flintmq.servers.native import NativeServer
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.wire.operations import Op

from .test_garbage import raw

LIMIT = 50_000
CHUNK = 256 * 1024
"""What one read from a socket brings at most."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NativeServer]:
    broker = DurableBroker(LocalFileSystem(tmp_path / "data"), decoder=Codec())
    await broker.open()
    server = NativeServer(broker, limits=Limits(in_flight_bytes=LIMIT))
    yield server
    await server.close()
    await broker.close()


async def test_a_publisher_faster_than_the_disk_is_not_read_from(
    address: tuple[str, int], server: NativeServer
) -> None:
    rows = BatchBuilder()
    rows.append(bytes(10_000))
    batch = rows.seal().encode()
    most = 0
    async with raw(address) as eager:
        await eager.open()
        eager.ask(Op.CREATE_TOPIC, 1, ["orders", {}])
        await eager.answer(1)
        (session,) = server.sessions.values()

        async def flood() -> None:
            for id in range(2, 1002):
                eager.ask(Op.PUBLISH, id, ["orders"], batch)
                if id % 50 == 0:
                    await eager._writer.drain()

        flooding = asyncio.ensure_future(flood())
        answered = 0
        while answered < 1000:
            frame = await eager.frame()
            assert frame.op == Op.REPLY
            answered += 1
            most = max(most, session.publishes._landing_bytes)
        await flooding
    assert LIMIT < most <= LIMIT + 2 * CHUNK


async def test_a_client_sends_no_more_than_the_server_takes(url: str, server: NativeServer) -> None:
    async with flintmq.connect(url) as mq:
        await mq.create_topic("orders")
        (session,) = server.sessions.values()
        most = 0

        async def publish(number: int) -> None:
            nonlocal most
            await mq.publish("orders", bytes(10_000))
            most = max(most, session.publishes._landing_bytes)

        await asyncio.gather(*(publish(n) for n in range(200)))
        assert (await mq.topic_stats("orders")).message_count == 200
        assert most <= LIMIT + CHUNK
