"""Retention by time after a long stop: what is due goes in steps, each of them short."""

from __future__ import annotations

import pytest

from flintmq.batch import BatchBuilder
from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.engine.host import durable_broker
from flintmq.engine.leading import sweeping
from flintmq.serde.codec import Codec
from flintmq.testing import ManualClock, SimulatedFileSystem

ROWS = 100


@pytest.mark.parametrize("kind", ["memory", "durable"])
@pytest.mark.parametrize("option", ["retention_age", "ttl"])
async def test_what_is_due_is_dropped_a_part_at_a_time_until_it_is_gone(
    kind: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "SWEEP_ROWS", ROWS)
    clock = ManualClock()
    broker = Broker(clock, Codec())
    if kind == "durable":
        broker = durable_broker(SimulatedFileSystem(), clock=clock, decoder=Codec())
        clock.wait_also_for(broker.settled)
    mq = await Client(broker, Codec(), auto_create=True, timeout=30)
    await mq.create_topic("t", **{option: 60})  # type: ignore[arg-type]
    for _ in range(5):
        await mq.publish_batch("t", [b"x"] * ROWS)
    await clock.advance(30)
    await mq.publish("t", b"young")
    found = broker.shard.topics["t"]
    firsts = []
    sweep = found.sweeping.drop_due

    def counted(now_ms: int) -> None:
        sweep(now_ms)
        firsts.append(found.view.first_offset)

    monkeypatch.setattr(found.sweeping, "drop_due", counted)

    await clock.advance(31)

    assert firsts == [ROWS * (step + 1) for step in range(5)]
    assert (await mq.topic_stats("t")).message_count == 1
    await mq.close()


async def test_what_is_due_for_one_reason_is_dropped_by_one_command() -> None:
    clock = ManualClock()
    broker = durable_broker(SimulatedFileSystem(), clock=clock, decoder=Codec())
    clock.wait_also_for(broker.settled)
    mq = await Client(broker, Codec(), auto_create=True, timeout=30)
    await mq.create_topic("t", retention_age=60)
    for _ in range(5):
        await mq.publish_batch("t", [b"x"] * ROWS)
    before = broker.shard.proposer.log.index

    await clock.advance(61)

    assert broker.shard.proposer.log.index == before + 1
    assert (await mq.topic_stats("t")).message_count == 0
    await mq.close()


async def test_the_first_message_with_an_expiry_of_its_own_goes_in_time_if_it_pushed_another_out(
    clock: ManualClock,
) -> None:
    broker = Broker(clock, Codec())
    await broker.create_topic("t", {"retention_count": 1, "ttl": 10})
    for expiry in (0, clock.now_ms() + 1000):
        rows = BatchBuilder()
        rows.append_row(b"x", expiry=expiry)
        await broker.publish("t", rows, qos=1, auto_create=False, timeout=None)

    await clock.advance(2)

    assert (await broker.topic_stats("t")).message_count == 0
    await broker.close()
