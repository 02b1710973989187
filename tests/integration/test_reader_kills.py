"""Readers of one name that are killed: what they had and did not commit goes to the others."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

import flintmq
from tests.integration.served import Served

pytestmark = pytest.mark.slow

READ_AND_HANG = """
import asyncio, sys, flintmq

async def main() -> None:
    async with flintmq.connect(sys.argv[1]) as mq, mq.reader("orders", name="n") as reader:
        rows = await reader.read_batch(30)
        print(len(rows), flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_what_a_killed_reader_had_goes_to_another_that_stays(tmp_path: Path) -> None:
    broker = await Served(tmp_path / "data", "--grace-seconds", "0.2").start()
    try:
        async with flintmq.connect(broker.url) as mq:
            await mq.publish_batch("orders", [b"%d" % number for number in range(100)])
            async with mq.reader("orders", name="n") as reader:
                other = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", READ_AND_HANG, broker.url, stdout=asyncio.subprocess.PIPE
                )
                assert other.stdout is not None
                assert int(await asyncio.wait_for(other.stdout.readline(), 60)) == 30
                seen = set((await reader.read_batch(50, timeout=60)).offsets)
                await reader.commit()
                other.kill()
                await other.wait()
                while len(seen) < 100:
                    seen.update((await reader.read_batch(100, timeout=60)).offsets)
                    await reader.commit()
                assert await reader.commit() == 100
        assert await broker.end(signal.SIGTERM) == 0
    finally:
        await broker.leave()
