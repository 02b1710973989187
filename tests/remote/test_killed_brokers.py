"""A broker that is killed and started again: nothing acknowledged is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

import flintmq
from tests.patience import PATIENCE_SECONDS, free_port, until

KILLS = int(os.environ.get("FLINTMQ_KILLS", "15"))


class BrokerProcess:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"flint://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "flintmq.cli",
            "serve",
            "--data-dir",
            str(self._directory),
            "--listen",
            f"127.0.0.1:{self.port}",
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_SECONDS)
        assert b"ready" in line

    async def end(self, signal_number: int) -> int:
        assert self._process is not None
        self._process.send_signal(signal_number)
        return await self._process.wait()


@pytest.mark.slow
@pytest.mark.timeout(120 + 12 * KILLS)
async def test_a_broker_that_is_killed_again_and_again_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path / "data")
    await broker.start()
    acknowledged: dict[bytes, int] = {}
    seen: list[tuple[int, bytes]] = []
    by_name: list[bytes] = []
    done = asyncio.Event()

    async def publish(mq: flintmq.Client, writer: int) -> None:
        number = 0
        while not done.is_set():
            values = [b"%d-%d" % (writer, number + n) for n in range(20)]
            number += 20
            receipts = await asyncio.gather(*(mq.publish("orders", value) for value in values))
            for value, receipt in zip(values, receipts, strict=True):
                assert receipt.offset is not None
                acknowledged[value] = receipt.offset
            await asyncio.sleep(0.002)

    async def send(mq: flintmq.Client) -> None:
        number = 0
        async with mq.publisher("orders") as publisher:
            while not done.is_set():
                for _ in range(50):
                    publisher.send(b"p-%d" % number)
                    number += 1
                await publisher.flush()
                for n in range(number - 50, number):
                    acknowledged[b"p-%d" % n] = -1
                await asyncio.sleep(0.005)

    async def read(mq: flintmq.Client) -> None:
        async with mq.reader("orders") as reader:
            async for message in reader:
                assert message.offset is not None
                seen.append((message.offset, message.value))

    async def read_by_name(mq: flintmq.Client) -> None:
        async with mq.reader("orders", name="n") as reader:
            while True:
                by_name.extend((await reader.read_batch(500)).values)
                await reader.commit()

    settled: dict[int, int] = {}  # offsets, and the token they were settled under
    settled_again: list[int] = []
    unsure: set[int] = set()
    handed_out = 0

    async def work(mq: flintmq.Client) -> None:
        nonlocal handed_out
        async with mq.subscribe("orders", "workers", lease=20, prefetch=256) as deliveries:
            while True:
                batch = await deliveries.read_batch(64)
                tokens = {m.offset: m.token for m in batch if m.offset is not None}
                handed_out += len(tokens)
                # What another settled meanwhile may still come out of our own hands, but nothing is
                # granted once more after it was settled.
                settled_again.extend(
                    offset for offset, token in tokens.items() if token > settled.get(offset, token)
                )
                try:
                    await batch.ack()
                except flintmq.LeaseLost as error:
                    unsure.update(error.offsets)
                    for offset in error.offsets:
                        tokens.pop(offset)
                except flintmq.OutcomeUnknown:
                    unsure.update(tokens)
                    continue
                settled.update(tokens)

    def progress() -> tuple[int, int, int]:
        return len(seen), len(by_name), handed_out

    def is_beyond(before: tuple[int, int, int]) -> bool:
        return all(now > once for now, once in zip(progress(), before, strict=True))

    chance = random.Random(int(os.environ.get("FLINTMQ_KILLS_SEED", "7")))
    async with (
        flintmq.connect(broker.url, timeout=60) as one,
        flintmq.connect(broker.url, timeout=60) as two,
    ):
        writers = [
            asyncio.ensure_future(work)
            for work in (publish(one, 1), publish(two, 2), send(two), publish(one, 3))
        ]
        readers = [
            asyncio.ensure_future(consumer)
            for consumer in (read(one), read_by_name(two), work(one), work(two))
        ]
        # Some are stopped in good order, which clients must not notice either.
        ends = [signal.SIGKILL] * KILLS + [signal.SIGTERM] * (KILLS // 3)
        chance.shuffle(ends)
        for end in ends:
            await asyncio.sleep(chance.uniform(0.2, 0.5))
            before = progress()
            await broker.end(end)
            await broker.start()
            await until(
                partial(is_beyond, before),
                f"a reader or a subscription went silent: {before} {progress()}",
            )
        done.set()
        await asyncio.wait_for(asyncio.gather(*writers), 60)
        stats = await one.topic_stats("orders")
        await until(
            lambda: min(len(seen), len(by_name)) >= stats.next_offset, "not everything was read"
        )

        async def is_settled() -> bool:
            return (await one.group_stats("orders", "workers")).lag == 0

        await until(is_settled, "not everything was settled")
        # The broker knows before they do.
        await until(
            lambda: len(settled.keys() | unsure) >= stats.next_offset, "not everybody was told"
        )
        for reading in readers:
            assert not reading.done() or reading.exception() is None
            reading.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        async with one.reader("orders") as reader:
            log: list[bytes] = []
            while rows := await reader.read_batch(10_000, timeout=0):
                log += rows.values

    assert await broker.end(signal.SIGTERM) == 0
    assert len(log) == len(set(log)) == stats.message_count, "nothing comes twice"
    # Every publish has had its receipt by now, so each id is accounted for.
    assert set(acknowledged) - set(log) == set(), "nothing acknowledged is lost"
    assert set(log) - set(acknowledged) == set(), "nothing is there that nobody was told of"
    for value, offset in acknowledged.items():
        assert offset < 0 or log[offset] == value
    assert [offset for offset, _ in seen] == list(range(len(log)))
    assert [value for _, value in seen] == log
    assert sorted(set(by_name)) == sorted(log)
    assert settled_again == [], "what was settled is never delivered again"
    assert set(settled) | unsure == set(range(len(log))), "every message was worked on"
    print(
        f"{KILLS} kills and {len(ends) - KILLS} stops, {len(log)} messages, "
        f"{len(by_name) - len(log)} read again by name, "
        f"{handed_out - len(log)} delivered again, {len(unsure)} settled with an unsure outcome"
    )
