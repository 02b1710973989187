"""A broker whose loop syncs lone messages itself: what it acknowledges lasts, and a disk that fails
stops it as ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from flintmq.batch import BatchBuilder
from flintmq.engine.broker import Broker
from flintmq.engine.host import durable_broker
from flintmq.errors import FlintError, OutcomeUnknown, StorageFailed
from flintmq.storage import loop_syncs, lot_writer
from flintmq.storage.loop_syncs import QUICK_RUN, LoopSyncs
from flintmq.testing import SimulatedFileSystem

TOPIC = "orders"


@pytest.fixture(autouse=True)
def any_sync_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_syncs, "QUICK_SECONDS", 1000.0)
    monkeypatch.setattr(lot_writer, "QUICK_SECONDS", 1000.0)


@asynccontextmanager
async def opened(
    disk: SimulatedFileSystem, *, sync_on_loop: bool = True
) -> AsyncIterator[tuple[Broker, LoopSyncs]]:
    """One whose disk is known to be quick, and whose thread rests."""
    broker = durable_broker(disk, sync_on_loop=sync_on_loop)
    await broker.open()
    try:
        await broker.create_topic(TOPIC, {})
        syncs = broker.host._commit.loop_syncs
        for _ in range(QUICK_RUN):
            syncs.observe(0.0, monotonic(), False)
        with broker.host._commit._writing:  # the thread has told all, and is about to rest
            pass
        yield broker, syncs
    finally:
        await broker.close()


async def publish(broker: Broker, value: bytes) -> None:
    rows = BatchBuilder()
    rows.append(value)
    publishing = broker.publish(TOPIC, rows, qos=1, auto_create=False, timeout=None)
    await asyncio.wait_for(publishing, 20)


async def stored(disk: SimulatedFileSystem) -> int:
    broker = durable_broker(disk)
    await broker.open(threaded=False)
    found = broker.shard.topics[TOPIC].log.next_offset
    await broker.close()
    return found


@pytest.mark.slow
async def test_what_the_loop_has_synced_survives_a_power_cut() -> None:
    disk = SimulatedFileSystem()
    async with opened(disk) as (broker, syncs):
        for number in range(1, 11):
            await publish(broker, b"x" * number)
            assert await stored(disk.crash("nothing")) == number

        assert syncs.count >= 5  # the thread may still be busy with the topic


async def test_switched_off_the_thread_syncs() -> None:
    disk = SimulatedFileSystem()
    async with opened(disk, sync_on_loop=False) as (broker, syncs):
        await publish(broker, b"x")

        assert syncs.count == 0
        assert await stored(disk.crash("nothing")) == 1


async def test_a_failed_sync_of_the_loop_stops_the_broker() -> None:
    disk = SimulatedFileSystem()
    told: list[FlintError] = []
    async with opened(disk) as (broker, syncs):
        while not syncs.count:  # the thread may still be busy with the topic
            await publish(broker, b"x")
        broker.host.on_failed = told.append
        before, published = syncs.count, broker.shard.topics[TOPIC].log.next_offset
        disk.fail("sync", name="journal")
        with pytest.raises(OutcomeUnknown):
            await publish(broker, b"perhaps")
        with pytest.raises(StorageFailed):
            await publish(broker, b"never")

        assert before >= 1
        assert [type(error) for error in told] == [StorageFailed]
    disk.heal()
    assert await stored(disk.crash("nothing")) == published
