"""A disk whose syncs take their time: readers do not notice, publishers wait and are bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.engine.host import durable_broker
from flintmq.errors import QueueFull
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFile, LocalFileSystem

SYNC_SECONDS = 0.2


class SlowFile(LocalFile):
    gate: Gate

    def sync(self) -> None:
        self.gate.wait()
        super().sync()

    def sync_all(self) -> None:
        self.gate.wait()
        super().sync_all()


class Gate:
    """Where syncs wait: as long as it is shut, and so many seconds each."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.seconds = 0.0
        self.waiting = threading.Event()

    def shut(self) -> None:
        self.waiting.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def wait(self) -> None:
        if not self._open.is_set():
            self.waiting.set()
        assert self._open.wait(60), "the test forgot the gate"
        if self.seconds:
            threading.Event().wait(self.seconds)


class SlowFileSystem(LocalFileSystem):
    def __init__(self, root: Path, gate: Gate) -> None:
        super().__init__(root)
        self._gate = gate

    def _open(self, operation: str, name: str, flags: int) -> LocalFile:
        file = super()._open(operation, name, flags)
        slow = SlowFile(file.name, file._descriptor)
        slow.gate = self._gate
        return slow

    def sync_directory(self, directory: str = "") -> None:
        self._gate.wait()
        super().sync_directory(directory)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def mq(tmp_path: Path, gate: Gate) -> AsyncIterator[Client]:
    codec = Codec()
    broker = durable_broker(
        SlowFileSystem(tmp_path / "data", gate), decoder=codec, checkpoint_bytes=256 << 10
    )
    async with Client(broker, codec, auto_create=True, timeout=30) as mq:
        yield mq
        gate.seconds = 0
        gate.open()


def broker_of(mq: Client) -> Broker:
    assert isinstance(mq._broker, Broker)
    return mq._broker


async def shut(gate: Gate, mq: Client) -> asyncio.Task[object]:
    """Shut the gate, and have a publish of which we know that its sync waits there."""
    gate.shut()
    stuck = asyncio.ensure_future(mq.publish("other", b"stuck"))
    await asyncio.to_thread(gate.waiting.wait, 30)
    return stuck


async def test_readers_of_what_is_there_do_not_wait_for_a_sync(mq: Client, gate: Gate) -> None:
    await mq.publish_batch("t", [b"%d" % n for n in range(5_000)])
    stuck = await shut(gate, mq)

    async with mq.reader("t") as reader:
        rows = await reader.read_batch(5_000, timeout=0)

    assert [int(value) for value in rows.values] == list(range(5_000))
    assert not stuck.done()
    gate.open()
    await stuck


async def test_live_feeds_without_storage_do_not_wait_for_a_sync(mq: Client, gate: Gate) -> None:
    await mq.publish("t", b"made")
    stuck = await shut(gate, mq)

    async with mq.live("t") as feed:
        await mq.publish("t", b"passing", qos=0)
        message = await feed.read(timeout=60)

    assert message is not None
    assert message.value == b"passing"
    assert not stuck.done()
    gate.open()
    await stuck


async def test_memory_topics_do_not_wait_for_a_sync(mq: Client, gate: Gate) -> None:
    await mq.create_topic("t", storage="memory")
    stuck = await shut(gate, mq)

    receipt = await mq.publish("t", b"value")

    assert receipt.durability == "memory"
    assert not stuck.done()
    gate.open()
    await stuck


async def test_nobody_sees_a_message_before_its_sync(mq: Client, gate: Gate) -> None:
    await mq.publish("t", b"first")
    await shut(gate, mq)
    waiting = asyncio.ensure_future(mq.publish("t", b"second"))

    async with mq.reader("t") as reader:
        seen = list((await reader.read_batch(10, timeout=0)).values)
        assert not await reader.read_batch(10, timeout=0)
        assert not waiting.done()
        gate.open()
        await waiting
        later = list((await reader.read_batch(10, timeout=60)).values)

    assert (seen, later) == ([b"first"], [b"second"])


Change = Callable[[Client], Coroutine[Any, Any, Any]]


async def ack(mq: Client) -> Any:
    (message,) = await mq.poll("t", "acking")
    return message.ack


async def reject(mq: Client) -> Any:
    (message,) = await mq.poll("t", "rejecting")
    return partial(message.reject, "no such customer")


async def commit_of_a_reader(mq: Client) -> Any:
    reader = await mq.reader("t", name="r")
    await reader.read()
    return reader.commit


async def stage(mq: Client) -> Any:
    return partial(mq.stage, "w", 1, "part", {"t": [b"staged"]})


async def commit_of_staged_writes(mq: Client) -> Any:
    await mq.stage("w", 1, "part", {"t": [b"staged"]})
    return partial(mq.commit, "w", 1, ["part"])


async def cancel(mq: Client) -> Any:
    return partial(mq.cancel, await mq.publish("t", b"later", delay=3600))


async def create(mq: Client) -> Any:
    return partial(mq.create_topic, "new")


async def configure(mq: Client) -> Any:
    return partial(mq.configure_topic, "t", retention_count=10)


async def purge(mq: Client) -> Any:
    return partial(mq.purge_topic, "t")


async def delete(mq: Client) -> Any:
    return partial(mq.delete_topic, "t")


@pytest.mark.parametrize(
    "change",
    [ack, reject, commit_of_a_reader, stage, commit_of_staged_writes, cancel, create, configure,
     purge, delete],
)  # fmt: skip
async def test_every_change_is_answered_after_its_sync(
    mq: Client, gate: Gate, change: Change
) -> None:
    await mq.publish("t", b"first")
    begin = await change(mq)
    stuck = await shut(gate, mq)

    answered = asyncio.ensure_future(begin())
    for _ in range(100):
        await asyncio.sleep(0)

    assert not answered.done()
    gate.open()
    await answered
    await stuck


@pytest.mark.slow
async def test_publishers_wait_in_bounded_memory(mq: Client, gate: Gate) -> None:
    broker_of(mq).shard.proposer.queue_bytes_max = 1 << 20
    await mq.publish("t", b"made")
    stuck = await shut(gate, mq)
    value = bytes(64 << 10)

    publishing = [asyncio.ensure_future(mq.publish("t", value)) for _ in range(200)]
    for _ in range(50):
        await asyncio.sleep(0)

    assert broker_of(mq).host._commit.waiting_bytes <= (1 << 20) + 2 * len(value)
    assert not any(task.done() for task in publishing)
    gate.open()
    receipts = await asyncio.gather(*publishing)
    assert sorted(receipt.offset or 0 for receipt in receipts) == list(range(1, 201))
    await stuck


async def test_a_publisher_that_ran_out_of_time_has_published_nothing(
    mq: Client, gate: Gate
) -> None:
    broker_of(mq).shard.proposer.queue_bytes_max = 1 << 20
    await mq.publish("t", b"made")
    stuck = await shut(gate, mq)
    filling = asyncio.ensure_future(mq.publish("t", bytes(2 << 20)))
    await asyncio.sleep(0.01)

    with pytest.raises(QueueFull, match="the disk is slower"):
        await mq.publish("t", b"late", timeout=0.01)

    gate.open()
    await asyncio.gather(stuck, filling)
    assert (await mq.topic_stats("t")).next_offset == 2


@pytest.mark.slow
async def test_a_sync_of_200_ms_is_shared_by_all_who_wait(mq: Client, gate: Gate) -> None:
    """A thousand publishes at once take a few syncs, not a thousand: with a checkpoint between."""
    await mq.publish("t", b"made")
    gate.seconds = SYNC_SECONDS

    async with asyncio.timeout(60):
        await asyncio.gather(*(mq.publish("t", bytes(500)) for _ in range(1_000)))

    async with mq.reader("t") as reader:
        assert len(await reader.read_batch(2_000)) == 1_001
