"""`flintmq serve --http`: a process that is watched, hammered and stopped meanwhile."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import flintmq
from tests.patience import until
from tests.servers.http.promtool import read_page
from tests.servers.http.running import Line

from .served import Served

pytestmark = pytest.mark.slow


async def test_it_is_hammered_while_messages_flow_and_stops_in_good_order(tmp_path: Path) -> None:
    broker = await Served(tmp_path / "data", "--http", "127.0.0.1:0").start()
    try:
        host, _, port = broker.http.removeprefix("http://").rpartition(":")

        async def line() -> Line:
            return Line(*await asyncio.open_connection(host, int(port)))

        pages: list[bytes] = []

        def published(page: bytes) -> float:
            counted = read_page(page.decode()).get("flintmq_topic_published_messages_total")
            return 0 if counted is None else sum(counted.samples.values())

        async def hammer() -> None:
            asking = await line()
            try:
                while True:
                    answer = await asking.ask("/metrics")
                    if answer.status == 200:  # else it is about to stop
                        pages.append(answer.body)
            except (OSError, EOFError):
                pass  # the broker is gone
            finally:
                asking.writer.close()

        async with flintmq.connect(broker.url) as mq:
            hammers = [asyncio.ensure_future(hammer()) for _ in range(8)]
            for number in range(200):
                await mq.publish(f"topic.{number % 50}", b"x")
            async with mq.reader("topic.7") as reader:
                assert len(await reader.read_batch(10, timeout=60)) == 4
            await until(lambda: len(pages) > 20 and published(pages[-1]) == 200, "not on a page")

        asking = await line()
        assert (await asking.ask("/ready")).status == 200
        asking.writer.close()
        assert await broker.end(signal.SIGTERM) == 0
        await asyncio.wait_for(asyncio.gather(*hammers), 60)

        assert published(pages[-1]) == 200
        assert await broker.complaints() == []
    finally:
        await broker.leave()
