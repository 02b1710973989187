"""What is on the disk and not in memory is read by threads: the event loop does not wait for it."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from flintmq import Message
from flintmq.broker_api import Fetch, Joining
from flintmq.client.client import Client
from flintmq.engine.host import durable_broker
from flintmq.engine.kept import KeptShard
from flintmq.engine.leading.member import GroupMember
from flintmq.errors import Closed, StorageFailed
from flintmq.serde.codec import Codec
from flintmq.testing import ManualClock
from flintmq.testing.simulated_filesystem import SimulatedFile, SimulatedFileSystem

ROWS = 100


class Disk:
    """Tells who reads segments, and holds reads up on request."""

    def __init__(self) -> None:
        self.files = SimulatedFileSystem()
        self.loop = threading.get_ident()
        self.by_loop: list[str] = []
        self.read: list[str] = []
        self.goes = threading.Event()
        self.goes.set()

    def look(self, file: SimulatedFile) -> None:
        if "segments/" in file.name:
            self.read.append(file.name)
            if threading.get_ident() == self.loop:
                self.by_loop.append(file.name)
            else:
                assert self.goes.wait(20), "a test lets the disk go on"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    plain = SimulatedFile.pread

    def pread(self: SimulatedFile, length: int, position: int) -> bytes:
        disk.look(self)
        return plain(self, length, position)

    monkeypatch.setattr(SimulatedFile, "pread", pread)
    yield disk
    disk.goes.set()


class Place:
    def __init__(self, disk: Disk) -> None:
        self.disk, self.clock = disk, ManualClock()
        self.broker = durable_broker(disk.files, clock=self.clock, decoder=Codec())
        self.clock.wait_also_for(self.broker.settled)
        self.mq = Client(self.broker, Codec(), auto_create=True, timeout=30)

    async def fill(self, topic: str = "t", batches: int = 3, **options: object) -> list[bytes]:
        """So many batches, each in a segment of its own, and nothing of them in memory."""
        values = [f"{topic} {n}".encode() for n in range(batches * ROWS)]
        for first in range(0, len(values), ROWS):
            await self.mq.publish_batch(topic, values[first : first + ROWS], **options)  # type: ignore[arg-type]
            await self.broker.host.checkpoint()
        self.forget()
        return values

    def forget(self) -> None:
        for name in self.disk.files.list("segments"):
            self.broker.host.kept[0].store.forget(f"segments/{name}")
        self.disk.by_loop.clear()
        self.disk.read.clear()

    async def join(self) -> GroupMember:
        return await self.broker.join_group(
            Joining(
                *("t", "g"), order=None, filter=None, start=None, holder="me", auto_create=False
            )
        )

    async def is_reading(self) -> None:
        while True:
            if self.disk.read:
                return
            await asyncio.sleep(0)


@pytest.fixture
async def place(disk: Disk) -> AsyncIterator[Place]:
    place = Place(disk)
    async with place.mq:
        yield place


async def read_by_one(place: Place) -> list[bytes]:
    async with place.mq.reader("t") as reader:
        return [(await reader.read()).value for _ in range(3 * ROWS)]


async def read_in_batches(place: Place) -> list[bytes]:
    values: list[bytes] = []
    async with place.mq.reader("t", name="n") as reader:
        while rows := await reader.read_batch(max=70, timeout=0):
            values += rows.values
    return values


async def read_filtered(place: Place) -> list[bytes]:
    values: list[bytes] = []
    async with place.mq.reader("t", filter="priority == 0") as reader:
        while rows := await reader.read_batch(timeout=0):
            values += rows.values
    return values


async def fetch(place: Place) -> list[bytes]:
    fetched = await place.broker.fetch(
        Fetch("t", 0, end=None, max_rows=1000, max_bytes=1 << 20, filter=None, with_expired=False)
    )
    return list(fetched.rows.values)


def poll(order: str) -> Callable[[Place], Awaitable[list[bytes]]]:
    async def polls(place: Place) -> list[bytes]:
        values: list[bytes] = []
        while got := await place.mq.poll("t", "g", max=70, order=order):  # type: ignore[arg-type]
            values += [delivery.value for delivery in got]
            await got.ack()
        return values

    return polls


async def peek(place: Place) -> list[bytes]:
    await place.join()
    return [message.value for message in await place.mq.peek("t", "g", max=1000)]


@pytest.mark.parametrize(
    "read", [read_by_one, read_in_batches, read_filtered, fetch, poll("log"), poll("key"), peek]
)
async def test_the_loop_does_not_read_what_is_on_the_disk(
    place: Place, read: Callable[[Place], Awaitable[list[bytes]]]
) -> None:
    values = await place.fill()

    assert await read(place) == values
    assert place.disk.read
    assert place.disk.by_loop == []


async def test_the_loop_reads_no_priorities_and_expiries_from_the_disk(place: Place) -> None:
    values = await place.fill(priority=3, ttl=60)

    assert await poll("priority")(place) == values
    assert place.disk.by_loop == []


async def test_the_loop_reads_nothing_to_find_out_what_has_expired(place: Place) -> None:
    await place.fill(ttl=60)

    await place.clock.advance(61)
    while (await place.mq.topic_stats("t")).message_count:
        await place.clock.advance(1)

    assert place.disk.by_loop == []


async def test_what_falls_due_is_read_for_live_feeds_beside_the_loop_and_in_order(
    place: Place,
) -> None:
    values = await place.fill(delay=5)
    async with place.mq.live("t") as feed:
        await place.clock.advance(6)
        await place.broker.settled()

        got: list[bytes] = []
        while len(got) < len(values):
            got += (await feed.read_batch()).values

    assert got == values
    assert place.disk.by_loop == []


async def test_dead_letters_are_read_beside_the_loop(place: Place) -> None:
    values = await place.fill(batches=1)
    got = await place.mq.poll("t", "g", max=1000)
    place.forget()

    await asyncio.gather(*(delivery.reject("bad") for delivery in got))
    await place.broker.host.checkpoint()
    place.forget()
    letters = await place.mq.dead_letters("t", "g", max=1000)

    assert sorted(letter.message.value for letter in letters) == sorted(values)
    assert place.disk.by_loop == []


async def test_others_go_on_while_the_disk_reads(place: Place) -> None:
    values = await place.fill()
    place.disk.goes.clear()
    async with place.mq.reader("t") as reader:
        reading = asyncio.create_task(reader.read_batch(max=1))
        await place.is_reading()
        await place.mq.publish("elsewhere", b"meanwhile")
        async with place.mq.reader("elsewhere") as other:
            assert (await other.read()).value == b"meanwhile"
        assert not reading.done()

        place.disk.goes.set()
        assert (await reading).values == values[:1]


async def test_a_read_that_is_cancelled_while_the_disk_reads_has_taken_nothing(
    place: Place,
) -> None:
    values = await place.fill()
    place.disk.goes.clear()
    async with place.mq.reader("t", name="n") as reader:
        reading = asyncio.create_task(reader.read())
        await place.is_reading()
        reading.cancel()
        await asyncio.wait([reading])
        place.disk.goes.set()

        assert (await reader.read_batch(max=1000)).values == values


async def test_a_poll_that_is_cancelled_while_the_disk_reads_has_taken_nothing(
    place: Place,
) -> None:
    values = await place.fill()
    member = await place.join()
    place.disk.goes.clear()
    taking = asyncio.create_task(member.take(1000, 30.0, None))
    await place.is_reading()
    taking.cancel()
    await asyncio.wait([taking])
    place.disk.goes.set()

    grant = await member.take(1000, 30.0, 0)
    assert grant is not None
    assert list(grant.rows.values) == values


@pytest.mark.slow
async def test_however_little_is_held_in_memory_everybody_comes_to_the_end(place: Place) -> None:
    values = await place.fill()
    place.broker.host.kept[0].store._bytes_max = 1

    async def read() -> list[bytes]:
        got: list[bytes] = []
        async with place.mq.reader("t") as reader:
            while len(got) < len(values):
                got += (await reader.read_batch(max=30)).values
        return got

    assert await asyncio.gather(*(read() for _ in range(20))) == [values] * 20
    assert await poll("key")(place) == values


async def test_what_is_read_for_several_is_read_once(place: Place) -> None:
    await place.fill(batches=1)
    place.disk.goes.clear()

    async def first() -> Message:
        async with place.mq.reader("t") as reader:
            return await reader.read()

    reading = [asyncio.create_task(first()) for _ in range(10)]
    await place.is_reading()
    place.disk.goes.set()
    await asyncio.gather(*reading)

    assert len(place.disk.read) == 3  # the trailer, the index, the batch


@pytest.mark.parametrize("read", [read_by_one, read_in_batches, read_filtered, fetch, poll("log")])
async def test_who_reads_hears_that_too_many_files_are_open_and_later_reads_on(
    place: Place,
    read: Callable[[Place], Awaitable[list[bytes]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = await place.fill()

    def refuse(self: SimulatedFileSystem, name: str) -> SimulatedFile:
        why = OSError(errno.EMFILE, "Too many open files")
        raise StorageFailed("open", name, str(why)) from why

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedFileSystem, "open", refuse)
        with pytest.raises(StorageFailed):
            async with asyncio.timeout(5):
                await read(place)

    assert await read(place) == values


async def test_who_waits_for_the_disk_hears_that_the_broker_is_closed(place: Place) -> None:
    await place.fill()
    place.disk.goes.clear()
    reader = await place.mq.reader("t")
    reading = asyncio.create_task(reader.read())
    await place.is_reading()

    closing = asyncio.create_task(place.mq.close())
    await asyncio.sleep(0)
    place.disk.goes.set()
    await closing

    with pytest.raises(Closed):
        await reading
    assert place.disk.files.open_files == 0


@pytest.mark.parametrize(
    "read", [read_by_one, read_in_batches, read_filtered, fetch, poll("log"), poll("key"), peek]
)
async def test_whoever_waits_for_the_disk_hears_that_the_broker_is_closed(
    place: Place, read: Callable[[Place], Awaitable[list[bytes]]]
) -> None:
    await place.fill()
    place.disk.goes.clear()
    reading = asyncio.ensure_future(read(place))
    await place.is_reading()

    closing = asyncio.create_task(place.broker.close())
    while place.broker.shard.refusal is None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    place.disk.goes.set()
    await closing

    with pytest.raises(Closed):
        await reading
    assert place.disk.files.open_files == 0


async def test_who_reads_partitions_from_the_disk_hears_that_the_broker_is_closed(
    place: Place,
) -> None:
    await place.mq.create_topic("t", partitions=2)
    await place.fill()
    reader = await place.mq.reader("t")
    place.disk.goes.clear()
    reading = asyncio.create_task(reader.read())
    await place.is_reading()

    closing = asyncio.create_task(place.broker.close())
    while place.broker.shard.refusal is None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    place.disk.goes.set()
    await closing

    with pytest.raises(Closed):
        await reading
    assert place.disk.files.open_files == 0


async def test_a_broker_that_cannot_be_opened_leaves_no_file_open(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.fill(delay=3600)
    await place.mq.close()
    await place.broker.close()
    files, read = place.disk.files, list[str]()

    def failing(self: KeptShard) -> None:
        read.extend(place.disk.read)
        raise StorageFailed("remove", "segments", "the disk says no")

    monkeypatch.setattr(KeptShard, "remove_unfinished", failing)
    with pytest.raises(StorageFailed):
        await durable_broker(files, clock=ManualClock()).open()

    assert read, "segments were open by then"
    assert files.open_files == 0
