"""Streams of a server: whoever waits for one is answered, whatever goes wrong behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import flintmq
from flintmq.client.partitioned_reader import PartitionedReader
from flintmq.errors import FlintError
from flintmq.net.wire.operations import CloseStreamRequest, Op, OpenReaderRequest
from tests.patience import PATIENCE_SECONDS

from .raw_client import RawClient, kind_of


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


async def test_who_puts_back_what_it_never_had_stops_nobody(
    url: str, address: tuple[str, int]
) -> None:
    async with flintmq.connect(url) as mq, RawClient(address) as raw:
        await mq.publish("t", b"0")
        await raw.open(None)
        assert kind_of(await raw.ask(Op.OPEN_READER, OpenReaderRequest("t", name="n"))) == "REPLY"

        shapeless: Any = [[0, 5]]
        assert (
            kind_of(await raw.ask(Op.PUT_BACK, CloseStreamRequest(1, shapeless)))
            == "InvalidRequest"
        )
        assert (
            kind_of(await raw.ask(Op.PUT_BACK, CloseStreamRequest(1, [(0, 5, 2**62)]))) == "REPLY"
        )
        async with mq.reader("t", name="n") as reader:
            assert [message.offset for message in await reader.read_batch(10)] == [0]
            assert await reader.lag() == 0
