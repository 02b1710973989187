"""A disk that runs full: publishers are told, readers and deletes go on, room is taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import flintmq
from flintmq.client.client import Client
from flintmq.engine.host import durable_broker
from flintmq.errors import StorageFull
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFileSystem

from .loop_disk import CannotMount, LoopDisk, loop_disk

BALLAST_BYTES = 40 << 20
pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    with ExitStack() as until_the_end:
        try:
            disk = until_the_end.enter_context(loop_disk(tmp_path, mebibytes=64))
        except CannotMount as reason:
            pytest.skip(f"NO FULL DISK WAS TRIED: needs root, loop devices, mkfs.ext4: {reason}")
        (disk.path / "ballast").write_bytes(bytes(BALLAST_BYTES))
        yield disk


def connect(disk: LoopDisk) -> Client:
    codec = Codec()
    broker = durable_broker(
        LocalFileSystem(disk.path / "data"),
        decoder=codec,
        checkpoint_bytes=1 << 20,
        journal_file_bytes=1 << 20,
    )
    return Client(broker, codec, auto_create=True, timeout=30)


async def fill(mq: Client, topic: str) -> int:
    """Publish until the disk is full; how many were acknowledged."""
    count = 0
    while True:
        try:
            async with asyncio.timeout(30):
                await mq.publish(topic, b"%08d" % count + bytes(100_000))
        except (StorageFull, TimeoutError):
            return count
        count += 1
        assert count < 2_000, "the disk was to run full"


async def publish_when_there_is_room(mq: Client, topic: str, value: bytes) -> flintmq.Receipt:
    async with asyncio.timeout(60):
        while True:
            try:
                return await mq.publish(topic, value)
            except StorageFull:
                await asyncio.sleep(0.05)


async def test_publishers_are_told_and_readers_go_on(disk: LoopDisk) -> None:
    async with connect(disk) as mq:
        count = await fill(mq, "t")

        with pytest.raises(StorageFull):
            await mq.publish("t", b"one more")
        async with mq.reader("t", name="r") as reader:
            numbers: list[int] = []
            while rows := reader.read_batch_nowait(10):
                numbers += [int(value[:8]) for value in rows.values]
                async with asyncio.timeout(60):
                    await reader.commit()
        assert numbers[:count] == list(range(count))
        assert len(numbers) <= count + 1
        (disk.path / "ballast").unlink()


async def test_publishing_goes_on_by_itself_when_there_is_room(disk: LoopDisk) -> None:
    async with connect(disk) as mq:
        count = await fill(mq, "t")
        (disk.path / "ballast").unlink()

        receipt = await publish_when_there_is_room(mq, "t", b"%08d" % (1 << 20))

        assert receipt.offset in (count, count + 1)
    async with connect(disk) as mq, mq.reader("t") as reader:
        numbers: list[int] = []
        while rows := reader.read_batch_nowait(10):
            numbers += [int(value[:8]) for value in rows.values]
    assert numbers[:count] == list(range(count))
    assert numbers[-1] == 1 << 20


async def test_deleting_a_topic_makes_room(disk: LoopDisk) -> None:
    async with connect(disk) as mq:
        await mq.publish("small", b"here")
        await fill(mq, "large")

        async with asyncio.timeout(60):
            await mq.delete_topic("large")
        await publish_when_there_is_room(mq, "small", b"there")

        async with mq.reader("small") as reader:
            assert list((await reader.read_batch(10)).values) == [b"here", b"there"]


async def test_a_broker_opens_on_a_full_disk(disk: LoopDisk) -> None:
    async with connect(disk) as mq:
        count = await fill(mq, "t")

    async with connect(disk) as mq, mq.reader("t") as reader:
        numbers: list[int] = []
        while rows := reader.read_batch_nowait(10):
            numbers += [int(value[:8]) for value in rows.values]
    assert numbers[:count] == list(range(count))
