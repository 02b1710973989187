"""Syncs on the loop: for a lone message on a quick disk only, as honest as those of the thread."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator

import pytest

from flintmq.errors import StorageFailed, StorageFull
from flintmq.fsync_policy import FsyncPolicy
from flintmq.storage import group_commit
from flintmq.storage.loop_syncs import (
    LONE_BYTES_MAX,
    LONE_LOTS_MAX,
    QUICK_RUN,
    QUICK_SECONDS,
    RECENT_SECONDS,
    LoopSyncs,
    SyncWatch,
)
from flintmq.testing import SimulatedFileSystem
from tests.storage.commits import PATIENCE, Heard, LateThread, SlowDisk
from tests.storage.journals import indexes, open_journal


@pytest.fixture
def disk() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())  # those of other tests of this process are not ours
    yield
    left = [one.name for one in set(threading.enumerate()) - before if "flintmq" in one.name]
    assert left == []


@pytest.fixture
def late_threads(monkeypatch: pytest.MonkeyPatch) -> type[LateThread]:
    """The threads of a group commit wait for `begin`."""
    monkeypatch.setattr(group_commit, "Thread", LateThread)
    return LateThread


# --- when the loop may


def quick() -> LoopSyncs:
    """Behind a run of quick syncs, the last one at 100."""
    syncs = LoopSyncs(True)
    for _ in range(QUICK_RUN):
        syncs.observe(0.0005, 100.0, False)
    return syncs


def test_a_run_of_quick_syncs_lets_the_loop_sync() -> None:
    syncs = LoopSyncs(True)
    for _ in range(QUICK_RUN):
        assert not syncs.may(1, 100, 100.0)
        syncs.observe(0.0005, 100.0, False)

    assert syncs.may(1, 100, 100.1)


def test_one_slow_sync_sends_the_loop_back_to_the_thread_until_there_is_a_run_again() -> None:
    syncs = quick()
    syncs.observe(QUICK_SECONDS, 100.1, True)
    for _ in range(QUICK_RUN):
        assert not syncs.may(1, 100, 100.2)
        syncs.observe(0.0005, 100.2, False)

    assert syncs.may(1, 100, 100.2)


def test_a_disk_that_was_not_asked_lately_is_asked_by_the_thread() -> None:
    syncs = quick()
    late = 100.0 + RECENT_SECONDS
    assert not syncs.may(1, 100, late)
    syncs.observe(0.0005, late, False)

    assert syncs.may(1, 100, late)


def test_much_is_synced_by_the_thread() -> None:
    syncs = quick()

    assert syncs.may(LONE_LOTS_MAX, LONE_BYTES_MAX, 100.0)
    assert not syncs.may(LONE_LOTS_MAX + 1, 100, 100.0)
    assert not syncs.may(1, LONE_BYTES_MAX + 1, 100.0)


def test_where_it_is_switched_off_no_run_is_long_enough() -> None:
    syncs = quick()
    syncs.is_on = False

    assert not syncs.may(1, 100, 100.0)


# --- a group commit whose thread has not begun: what is told was done by the loop


async def begun(disk: SimulatedFileSystem, *, sync_on_loop: bool = True) -> Heard:
    """One that stands behind a run of quick syncs."""
    heard = Heard(open_journal(disk, file_bytes=1 << 16), sync_on_loop=sync_on_loop)
    heard.commit.start()
    for _ in range(QUICK_RUN):
        heard.commit.loop_syncs.observe(0.0, 0.0, False)
    return heard


async def test_the_loop_syncs_a_lone_message_itself(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    heard = await begun(disk)
    heard.submit(b"x" * 100)
    await asyncio.sleep(0)

    assert heard.durable == [1]
    assert (heard.commit.synced, heard.commit.waiting_bytes) == (1, 0)
    assert indexes(open_journal(disk.crash(), file_bytes=1 << 16)) == [1]
    assert heard.commit.loop_syncs.count == 1
    late_threads.begin()
    await heard.commit.close()


async def test_a_member_of_a_cluster_never_syncs_on_the_loop(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    heard = await begun(disk, sync_on_loop=False)
    heard.submit(b"x" * 100)
    await asyncio.sleep(0)

    assert heard.durable == []
    late_threads.begin()
    await heard.until(lambda: heard.durable == [1])
    await heard.commit.close()


async def test_the_thread_syncs_until_the_disk_is_known_to_be_quick(
    disk: SimulatedFileSystem,
) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16), sync_on_loop=True)
    heard.commit.start()
    heard.commit.loop_syncs.observe(1.0, 0.0, False)
    for ticket in range(1, QUICK_RUN + 1):
        heard.submit()
        await heard.until(lambda ticket=ticket: heard.durable[-1:] == [ticket])  # type: ignore[misc]

    assert heard.commit.loop_syncs.count == 0
    await heard.commit.close()


async def test_a_slow_sync_of_the_loop_is_told_and_the_next_is_left_to_the_thread(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    now = 100.0
    journal = open_journal(disk, file_bytes=1 << 16)
    heard = Heard(journal, sync_on_loop=True, monotonic=lambda: now)
    heard.commit.start()
    for _ in range(QUICK_RUN):
        heard.commit.loop_syncs.observe(0.0, now, False)

    def take_long(name: str) -> None:
        nonlocal now
        now += 2.0

    disk.on_sync = take_long
    heard.submit()
    await asyncio.sleep(0)
    disk.on_sync = None
    for _ in range(QUICK_RUN):
        heard.commit.loop_syncs.observe(0.0, now, False)
    heard.submit()
    await asyncio.sleep(0)

    assert heard.slow == [2.0]
    assert heard.durable == [1]
    late_threads.begin()
    await heard.until(lambda: heard.durable == [1, 2])
    await heard.commit.close()


async def test_a_failed_sync_of_the_loop_is_final(disk: SimulatedFileSystem) -> None:
    heard = await begun(disk)
    heard.submit()
    await heard.until(lambda: heard.durable == [1])
    for _ in range(QUICK_RUN):
        heard.commit.loop_syncs.observe(0.0, 0.0, False)
    before = heard.commit.loop_syncs.count
    disk.fail("sync")
    heard.submit()
    await heard.until(lambda: bool(heard.failures))

    assert before == 1  # so the one that failed was the loop's too
    assert [type(error) for error in heard.failures] == [StorageFailed]
    assert heard.durable == [1]
    with pytest.raises(StorageFailed):
        heard.submit()
    await heard.commit.close()
    assert len(heard.failures) == 1
    assert indexes(open_journal(disk, file_bytes=1 << 16)) == [1]


async def test_a_sync_of_the_loop_that_finds_the_disk_full_is_a_failed_sync(
    disk: SimulatedFileSystem,
) -> None:
    heard = await begun(disk)
    disk.fail("sync", error=errno.ENOSPC)
    heard.submit()
    await heard.until(lambda: bool(heard.failures))

    assert not isinstance(heard.failures[0], StorageFull)
    assert heard.durable == []
    await heard.commit.close()


async def test_a_write_of_the_loop_that_finds_no_room_is_written_by_the_thread(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    heard = await begun(disk)
    disk.fail("pwritev", name="journal-", error=errno.ENOSPC)
    heard.submit()
    await asyncio.sleep(0)
    assert heard.durable == []
    late_threads.begin()
    await heard.until(lambda: heard.durable == [1])

    assert heard.failures == []
    await heard.commit.close()
    assert indexes(open_journal(disk, file_bytes=1 << 16)) == [1]


async def test_what_the_thread_has_not_told_yet_comes_before_what_the_loop_syncs(
    disk: SimulatedFileSystem,
) -> None:
    heard = await begun(disk)
    slow = SlowDisk(disk)
    heard.submit(b"x" * (LONE_BYTES_MAX + 1))
    await slow.begun()
    heard.submit()
    await asyncio.sleep(0)
    assert heard.durable == []
    slow.finish_all()
    await heard.until(lambda: heard.durable[-1:] == [2])

    assert heard.durable == [1, 2]
    await heard.commit.close()


# --- what can wait for its sync


async def test_the_loop_writes_what_can_wait_for_its_sync_and_the_next_sync_covers_it(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    heard = await begun(disk)
    syncs = [call.operation for call in disk.calls].count("sync")
    heard.submit(sync_can_wait=True)
    await asyncio.sleep(0)
    assert (heard.written, heard.durable) == ([1], [])
    assert indexes(open_journal(disk.crash("nothing"), file_bytes=1 << 16)) == []
    heard.submit()
    await asyncio.sleep(0)

    assert heard.durable == [2]
    assert heard.commit.waiting_bytes == 0
    assert [call.operation for call in disk.calls].count("sync") == syncs + 1
    late_threads.begin()
    await heard.commit.close()


@pytest.mark.parametrize("by", ["the loop", "the thread"])
async def test_what_can_wait_for_its_sync_is_synced_soon_all_the_same(
    disk: SimulatedFileSystem, by: str
) -> None:
    from time import monotonic

    heard = Heard(open_journal(disk, file_bytes=1 << 17), monotonic=monotonic)
    heard.commit.start()
    heard.submit(b"x" * (100 if by == "the loop" else 70_000), sync_can_wait=True)
    await heard.until(lambda: heard.durable == [1])

    assert heard.written == [1]
    assert heard.commit.synced == 1
    await heard.commit.close()


async def test_closing_tells_what_waited_for_its_sync(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    heard = await begun(disk)
    heard.submit(sync_can_wait=True)
    await asyncio.sleep(0)
    late_threads.begin()
    await heard.commit.close()

    assert heard.durable == [1]
    assert indexes(open_journal(disk.crash(), file_bytes=1 << 16)) == [1]


async def test_a_step_syncs_what_could_wait_too(disk: SimulatedFileSystem) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16))
    heard.submit(sync_can_wait=True)

    assert heard.commit.step()
    assert heard.durable == [1]
    await heard.commit.close()


async def test_with_an_interval_what_can_wait_is_durable_once_written(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16), FsyncPolicy.parse("interval:1000"))
    heard.commit.start()
    heard.submit(sync_can_wait=True)
    await asyncio.sleep(0)

    assert heard.written == heard.durable == [1]
    late_threads.begin()
    await heard.commit.close()


# --- the watch


async def test_a_sync_that_takes_long_is_told_while_the_loop_waits_for_it(
    disk: SimulatedFileSystem,
) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16), sync_on_loop=True, slow_seconds=0.0)
    heard.commit.start()
    for _ in range(QUICK_RUN):
        heard.commit.loop_syncs.observe(0.0, 0.0, False)

    def until_it_is_told(name: str) -> None:
        assert heard.is_stalled.wait(PATIENCE)

    disk.on_sync = until_it_is_told
    heard.submit()
    await heard.until(lambda: heard.durable == [1])
    disk.on_sync = None

    assert heard.stalled == [True]
    assert heard.commit.watch.stalled == 1
    await heard.commit.close()


def test_the_watch_tells_of_one_sync_once() -> None:
    told: list[bool] = []
    watch = SyncWatch(lambda seconds: True, lambda seconds, on_loop: told.append(on_loop))
    watch.begin(True)
    watch.look()
    watch.look()
    watch.end()
    watch.look()
    watch.begin(False)
    watch.look()

    assert told == [True, False]


def test_a_quick_sync_is_not_told() -> None:
    told: list[bool] = []
    watch = SyncWatch(lambda seconds: seconds > 3600, lambda seconds, on_loop: told.append(on_loop))
    watch.begin(True)
    watch.look()

    assert told == []
