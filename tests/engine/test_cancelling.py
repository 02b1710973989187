"""Delayed messages that are taken back: each batch is looked at once, wherever it is."""

from __future__ import annotations

import pytest

from flintmq.client.client import Client
from flintmq.engine.host import durable_broker
from flintmq.serde.codec import Codec
from flintmq.storage.segments import Segment
from flintmq.testing import ManualClock, SimulatedFileSystem

ROWS = 500


async def test_a_batch_in_a_segment_is_read_once_to_cancel_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    broker = durable_broker(SimulatedFileSystem(), clock=clock, decoder=Codec())
    mq = await Client(broker, Codec(), auto_create=True, timeout=30)
    receipt = await mq.publish_batch("t", [b"x"] * ROWS, delay=3600)
    await broker.host.checkpoint()
    reads = []
    read_control = Segment.read_control

    def counted(self: Segment, entry: object) -> object:
        reads.append(entry)
        return read_control(self, entry)  # type: ignore[arg-type]

    monkeypatch.setattr(Segment, "read_control", counted)

    assert await mq.cancel(receipt) == ROWS
    assert len(reads) <= 4, "once to decide, once to apply"
    assert await mq.cancel(receipt) == 0
    await mq.close()
