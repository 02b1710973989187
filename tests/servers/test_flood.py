"""A flood of wrong keys: others notice nothing, and nothing is left of it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import flintmq
from benchmarks.wrong_keys import add_key, flood, latencies
from flintmq.net.server.slowing import Slowing

from ..integration.served import Served
from .keys import KeyedServer

MIB = 1024 * 1024


@pytest.mark.slow
async def test_every_wrong_key_is_counted_and_nothing_is_left_behind(keyed: KeyedServer) -> None:
    keyed.gate.slowing = Slowing(first_seconds=0.001, most_seconds=0.01)
    async with keyed.connect(keyed.admin) as mq:
        outcomes = await flood(*keyed.address, keyed.admin, rate=1000, seconds=0.3)
        await mq.publish("orders", b"x")

    counters = keyed.gate.counters
    assert counters.failed == {"wrong": 100, "unknown": 100, "malformed": 100}
    assert outcomes["answered"] + outcomes["dropped"] == 300
    assert counters.dropped == outcomes["dropped"]
    assert counters.ok == 1
    while keyed.server.connections:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert keyed.gate.slowing.kept == 0
    assert keyed.gate.slowing.addresses == 1
    assert not keyed.server.sessions


@pytest.mark.slow
async def test_the_memory_of_a_broker_under_a_flood_stays_flat(tmp_path: Path) -> None:
    key = add_key(str(tmp_path))
    broker = await Served(tmp_path).start()
    try:
        async with flintmq.connect(broker.url, api_key=key) as mq:
            await mq.create_topic("orders", storage="memory", retention_count=100)
            await asyncio.gather(
                latencies(mq, 1.0), flood(*broker.address, key, rate=200, seconds=1.0)
            )
            before = broker.memory_bytes()
            taken, outcomes = await asyncio.gather(
                latencies(mq, 2.0), flood(*broker.address, key, rate=200, seconds=2.0)
            )
            after = broker.memory_bytes()
        assert outcomes["answered"] + outcomes["dropped"] == 400
        assert len(taken) > 0
        assert after - before < 4 * MIB
        assert await broker.end(signal.SIGTERM) == 0
        said = await broker.said()
        assert 0 < said.count("refused") < 10
        assert key.split("_", 2)[2] not in said
    finally:
        await broker.leave()
