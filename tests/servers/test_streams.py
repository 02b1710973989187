"""Streams of a server: whoever waits for one is answered, whatever goes wrong behind it."""

from __future__ import annotations

import asyncio

import pytest

import flintmq
from flintmq.client.partitioned_reader import PartitionedReader
from flintmq.errors import FlintError
from tests.patience import PATIENCE_SECONDS


async def test_a_fault_while_a_row_of_partitions_is_waited_for_is_told_to_who_waits(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: PartitionedReader, timeout: float | None) -> bool:
        raise KeyError("a fault")

    async with flintmq.connect(url) as mq:
        await mq.create_topic("parted", partitions=2)
        async with mq.reader("parted") as reader:
            monkeypatch.setattr(PartitionedReader, "wait", broken)
            with pytest.raises(FlintError):
                await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
