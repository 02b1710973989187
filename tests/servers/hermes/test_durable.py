"""Over a journal: what is answered is safe, ids are never given out twice, many share a sync."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flintmq.engine.broker import Broker
from flintmq.engine.host import Host, durable_broker
from flintmq.errors import StorageFailed, StorageFull
from flintmq.frontends.hermes.server import HermesServer
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFileSystem

from .client import HermesClient, Refused


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[tuple[HermesClient, Broker]]:
    broker = durable_broker(LocalFileSystem(directory), decoder=Codec())
    await broker.open()
    server = HermesServer(broker)
    client = await HermesClient.connect(await server.start("127.0.0.1", 0))
    try:
        yield client, broker
    finally:
        await client.close()
        await server.close()
        await broker.close()


@pytest.fixture(autouse=True)
def small_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "first_file_bytes", 16 * 1024)


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, _):
        for number in range(4):
            await client.produce("a/b", b"%d" % number, producer_id="p", seq=number)
        first, second, third, _ = await client.poll("a/b", "g/h")
        await client.ack("a/b", first.lease_id, "g/h")
        await client.commit("a/b", 3, "other")
    async with served(tmp_path) as (client, _):
        # An id from before counts, until what it stood for was handed out again.
        await client.ack("a/b", second.lease_id, "g/h")
        items = await client.poll("a/b", "g/h")
        await client.ack("a/b", third.lease_id, "g/h")

        assert [item.payload for item in items] == [b"2", b"3"]
        assert third.lease_id not in [item.lease_id for item in items]
        assert (await client.call("stats")).in_flight == 2
        assert await client.payloads("a/b", "other") == [b"3"]
        assert await client.produce("a/b", b"again", producer_id="p", seq=2) == 2
        assert await client.produce("a/b", b"new") == 4


async def test_w6_pipelined_requests_share_syncs(tmp_path: Path) -> None:
    """HermesMQ pays one or two syncs for each poll and each ack batch."""
    async with served(tmp_path) as (client, broker):
        await client.produce("t", b"first")

        def frames() -> int:
            figures = broker.journal_figures()
            assert figures is not None
            return figures.frames

        before = frames()
        for _ in range(200):
            client.send("produce", topic="t", payload=b"x" * 256)
        for _ in range(200):
            await client.read_ok()
        produced = frames() - before
        items = await client.poll("t", max=200)
        before = frames()
        for item in items:
            client.send("ack", topic="t", group="g", lease_id=item.lease_id)
        for _ in items:
            await client.read_ok()

        assert produced <= 40
        assert frames() - before <= 40
        stats = await client.call("stats")
        assert stats.last_log_index >= stats.last_applied > 0


async def test_auto_mode_is_settled_for_good(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, _):
        await client.produce("t", b"x")
        assert await client.payloads("t", ack_mode="auto") == [b"x"]
    async with served(tmp_path) as (client, _):
        assert await client.poll("t") == []


async def test_a_full_disk_refuses_producers_in_words_and_consumers_go_on(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, broker):
        await client.produce("t", b"x")
        broker.shard.proposer.full = StorageFull("segments/1", "No space left on device")
        with pytest.raises(Refused, match=r"internal: .*No space left on device"):
            await client.produce("t", b"y")
        (item,) = await client.poll("t")
        await client.ack("t", item.lease_id)
        assert (await client.call("stats")).messages == 0
        broker.shard.proposer.full = None

        assert await client.produce("t", b"z") == 1


async def test_a_disk_that_fails_is_told_and_nothing_is_answered_produced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as (client, broker):
        await client.produce("t", b"x")
        broker.host.on_failed = lambda error: None

        def fails(descriptor: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", fails)
            with pytest.raises(Refused, match="internal") as caught:
                await client.produce("t", b"y")

        assert "Input/output error" in caught.value.message
        with contextlib.suppress(StorageFailed):  # it has failed, and says so once more
            await broker.close()
