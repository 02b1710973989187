"""The store of open segments: what is read beside the loop, and what is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from flintmq.batch import BatchBuilder, RecordBatch
from flintmq.errors import FlintError, StorageFailed
from flintmq.storage.loading import Load, NotLoaded
from flintmq.storage.segment_store import SegmentStore
from flintmq.storage.segments import Segment, SegmentWriter
from flintmq.testing import SimulatedFileSystem
from flintmq.testing.simulated_filesystem import SimulatedFile

TOPIC = 1


class HeldPool(Executor):
    """A pool whose threads work when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    async def work(self) -> None:
        while self.waiting:
            future, read = self.waiting.pop(0)
            if future.set_running_or_notify_cancel():
                future.set_result(read())
            await asyncio.sleep(0)

    async def cancel(self) -> None:
        for future, _ in self.waiting:
            future.cancel()
            future.set_running_or_notify_cancel()
        self.waiting.clear()
        await asyncio.sleep(0)


def batch(base: int, value: bytes) -> RecordBatch:
    rows = BatchBuilder()
    rows.append_row(value)
    sealed = rows.seal()
    sealed.stamp(base, 1_000)
    return sealed


def disk_of(*names: str, batches: int = 1, size: int = 1_000) -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    for name in names:
        writer = SegmentWriter(disk, name)
        for number in range(batches):
            writer.add(TOPIC, batch(number, bytes(size)))
        writer.seal()
    return disk


def beside_the_loop(
    disk: SimulatedFileSystem, *, files_max: int = 64, bytes_max: int = 16 << 20
) -> tuple[SegmentStore, HeldPool]:
    store, pool = SegmentStore(disk, files_max=files_max, bytes_max=bytes_max), HeldPool()
    store.read_aside(pool)
    return store, pool


async def opened(store: SegmentStore, pool: HeldPool, name: str) -> Segment:
    with pytest.raises(NotLoaded):
        store.segment(name, False)
    await pool.work()
    return store.segment(name, False)


def begin(store: SegmentStore, name: str, segment: Segment, at: int = 0) -> Load:
    with pytest.raises(NotLoaded) as missing:
        store.read(name, segment.entries(TOPIC)[at], False)
    return missing.value.load


async def test_a_segment_that_was_driven_out_is_closed_although_its_load_was_cancelled() -> None:
    disk = disk_of("a", "b")
    store, pool = beside_the_loop(disk, files_max=1)
    begin(store, "a", await opened(store, pool, "a"))
    held, pool.waiting = pool.waiting, []
    await opened(store, pool, "b")
    assert disk.open_files == 2, "a thread is still to read the first"

    pool.waiting = held
    await pool.cancel()
    store.close()

    assert disk.open_files == 0


async def test_a_segment_that_was_driven_out_is_closed_once_nothing_reads_it() -> None:
    disk = disk_of("a", "b", batches=2)
    store, pool = beside_the_loop(disk, files_max=1)
    first = await opened(store, pool, "a")
    begin(store, "a", first)
    held, pool.waiting = pool.waiting, []
    await opened(store, pool, "b")
    pool.waiting = held
    await pool.work()

    assert disk.open_files == 1
    assert store.read("a", first.entries(TOPIC)[0], False).base_offset == 0


async def test_what_was_being_read_of_a_forgotten_segment_is_not_kept() -> None:
    disk = disk_of("a")
    store, pool = beside_the_loop(disk)
    segment = await opened(store, pool, "a")
    load = begin(store, "a", segment)
    store.forget("a")
    await pool.work()

    assert load.is_done
    assert disk.open_files == 0
    await opened(store, pool, "a")
    begin(store, "a", segment)


async def test_a_segment_that_was_forgotten_while_it_was_being_opened_is_closed() -> None:
    disk = disk_of("a")
    store, pool = beside_the_loop(disk)
    with pytest.raises(NotLoaded):
        store.segment("a", False)
    store.forget("a")
    await pool.work()

    assert disk.open_files == 0


async def test_a_failure_that_nobody_waited_for_is_not_heard_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = disk_of("a")
    store, pool = beside_the_loop(disk)
    segment = await opened(store, pool, "a")
    begin(store, "a", segment)  # and whoever asked has gone
    with monkeypatch.context() as patched:
        patched.setattr(SimulatedFile, "pread", failing)
        await pool.work()
    load = begin(store, "a", segment)
    load.then(lambda: None)
    with monkeypatch.context() as patched:
        patched.setattr(SimulatedFile, "pread", failing)
        await pool.work()

    with pytest.raises(StorageFailed):
        store.read("a", segment.entries(TOPIC)[0], False)
    begin(store, "a", segment)


def failing(self: SimulatedFile, length: int, position: int) -> bytes:
    raise StorageFailed("read", self.name, "the disk says no")


async def test_what_nobody_waits_for_counts_as_any_other_batch_in_memory() -> None:
    disk = disk_of("a", batches=64, size=10_000)
    store, pool = beside_the_loop(disk, bytes_max=50_000)
    segment = await opened(store, pool, "a")
    for at in range(0, 64, 8):
        begin(store, "a", segment, at)  # and whoever asked has gone
    await pool.work()

    in_memory = 0
    for at in range(64):
        try:
            store.read("a", segment.entries(TOPIC)[at], False)
            in_memory += 1
        except NotLoaded:
            await pool.cancel()
    assert in_memory <= 5


async def test_readers_that_are_gone_and_loads_that_failed_do_not_shrink_the_read_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = disk_of("a", batches=200, size=10_000)
    store, pool = beside_the_loop(disk, bytes_max=1 << 20)
    segment = await opened(store, pool, "a")
    read: list[int] = []
    pread = SimulatedFile.pread

    def counting(self: SimulatedFile, length: int, position: int) -> bytes:
        read.append(position)
        return pread(self, length, position)

    monkeypatch.setattr(SimulatedFile, "pread", counting)
    begin(store, "a", segment)
    await pool.work()
    at_first = len(read)
    for at in range(40, 140, 10):
        begin(store, "a", segment, at)
        await pool.cancel()
    read.clear()
    begin(store, "a", segment, 150)
    await pool.work()

    assert at_first > 10
    assert len(read) >= at_first // 2, "one reader beside another gets half of it, not a twentieth"


async def test_all_who_wait_for_a_load_are_called_back_though_one_of_them_raises() -> None:
    heard: list[str] = []

    def raises() -> None:
        raise FlintError("a fault of ours")

    load = Load()
    load.then(lambda: heard.append("first"))
    load.then(raises)
    load.then(lambda: heard.append("last"))
    with pytest.raises(FlintError, match="a fault of ours"):
        load.done()

    assert heard == ["first", "last"]
