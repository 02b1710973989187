"""Publishers that are faster than the disk, and how a server holds them back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.batch import BatchBuilder
from flintmq.engine.host import durable_broker
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.net.wire.operations import Op
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFileSystem

from .test_garbage import raw

LIMIT = 50_000
CHUNK = 256 * 1024
"""What one read from a socket brings at most."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NativeServer]:
    broker = durable_broker(LocalFileSystem(tmp_path / "data"), decoder=Codec())
    await broker.open()
    server = NativeServer(broker, limits=Limits(in_flight_bytes=LIMIT))
    yield server
    await server.close()
    await broker.close()


def _most_landing(publishes: Any) -> list[int]:
    """What is on its way to the disk, noted whenever it grows."""
    noted: list[int] = []
    answer_later = publishes._answer_later

    def noting(*arguments: Any) -> None:
        answer_later(*arguments)
        noted.append(publishes._landing_bytes)

    publishes._answer_later = noting
    return noted


@pytest.mark.slow
async def test_a_publisher_faster_than_the_disk_is_not_read_from(
    address: tuple[str, int], server: NativeServer
) -> None:
    rows = BatchBuilder()
    rows.append(bytes(10_000))
    batch = rows.seal().encode()
    async with raw(address) as eager:
        await eager.open()
        eager.ask(Op.CREATE_TOPIC, 1, ["orders", {}])
        await eager.answer(1)
        (session,) = server.sessions.values()
        most = _most_landing(session.publishes)

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
        await flooding
    assert LIMIT < max(most) <= LIMIT + 2 * CHUNK


async def test_a_client_sends_no_more_than_the_server_takes(url: str, server: NativeServer) -> None:
    async with flintmq.connect(url) as mq:
        await mq.create_topic("orders")
        (session,) = server.sessions.values()
        most = _most_landing(session.publishes)
        await asyncio.gather(*(mq.publish("orders", bytes(10_000)) for _ in range(200)))
        assert (await mq.topic_stats("orders")).message_count == 200
        assert 0 < max(most) <= LIMIT + CHUNK
