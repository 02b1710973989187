"""A fault in a broker that is served: its clients are told, and the process ends with one line."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import flintmq
from flintmq.errors import Disconnected, FlintError, OutcomeUnknown
from tests.integration.served import Served
from tests.patience import PATIENCE_SECONDS

FAULTY = """
import sys
from flintmq.cli import main
from flintmq.engine.state.topic import TopicState

whole = TopicState.append_rows

def broken(self, offset, values, *more):
    if b"poison" in values:
        raise KeyError("a fault")
    whole(self, offset, values, *more)

TopicState.append_rows = broken
sys.argv[0] = "flintmq"
main()
"""


@pytest.mark.slow
async def test_a_fault_in_apply_is_told_to_clients_and_ends_the_process(tmp_path: Path) -> None:
    program = tmp_path / "faulty.py"
    program.write_text(FAULTY)
    broker = Served(
        tmp_path / "data", "--drain-seconds", "60", program=[sys.executable, str(program)]
    )
    await broker.start()
    try:
        async with flintmq.connect(broker.url) as mq:
            await mq.publish("orders", b"safe")
            outcomes = await asyncio.wait_for(
                asyncio.gather(
                    mq.publish("orders", b"poison", timeout=PATIENCE_SECONDS),
                    mq.publish("bills", b"beside it", timeout=PATIENCE_SECONDS),
                    return_exceptions=True,
                ),
                2 * PATIENCE_SECONDS,
            )
            assert isinstance(outcomes[0], OutcomeUnknown | Disconnected), outcomes
            assert isinstance(outcomes[1], FlintError | flintmq.Receipt), outcomes
            assert await broker.wait() == 1
        told = (await broker.said()).splitlines()
        assert "flintmq: " in told[-1]
        assert "an internal error while applying Append" in told[-1]
        assert "restart it" in told[-1]
    finally:
        await broker.leave()

    again = await Served(tmp_path / "data").start()
    try:
        async with flintmq.connect(again.url) as mq, mq.reader("orders") as reader:
            kept = [message.value for message in await reader.read_batch(10)]
            assert kept[0] == b"safe"
            await mq.publish("orders", b"and on")
    finally:
        await again.leave()
