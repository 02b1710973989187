"""Group commit: shared syncs, honest acknowledgements, one failure for all, nothing left behind."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from flintmq.errors import Closed, InvalidRequest, StorageFailed, StorageFull
from flintmq.fsync_policy import NEVER, FsyncPolicy
from flintmq.storage import group_commit
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.storage.group_commit import GroupCommit
from flintmq.storage.lot_writer import HERE_BYTES_MAX
from flintmq.testing import SimulatedFileSystem
from tests.storage.commits import PATIENCE, Heard, LateThread, SlowDisk
from tests.storage.journals import entry, everything, indexes, journal_files, open_journal


@pytest.fixture
def late_threads(monkeypatch: pytest.MonkeyPatch) -> type[LateThread]:
    """The threads of a group commit wait for `begin`."""
    monkeypatch.setattr(group_commit, "Thread", LateThread)
    return LateThread


@pytest.fixture
def disk() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
async def started(disk: SimulatedFileSystem) -> AsyncIterator[Heard]:
    heard = Heard(open_journal(disk, file_bytes=1 << 16))
    heard.commit.start()
    yield heard
    disk.on_sync = None
    await heard.commit.close()


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())  # those of other tests of this process are not ours
    yield
    left = [one.name for one in set(threading.enumerate()) - before if "flintmq" in one.name]
    assert left == []


# --- with threads


async def test_everything_submitted_is_acknowledged_in_order_and_stored(tmp_path: Path) -> None:
    disk = LocalFileSystem(tmp_path)
    heard = Heard(open_journal(disk, file_bytes=1 << 16))
    heard.commit.start()
    for turn in range(200):
        for _ in range(turn % 7 + 1):
            heard.submit(b"x" * (turn * 13 % 900))
        await asyncio.sleep(0)
    last = heard.commit.submitted
    await heard.until(lambda: bool(heard.durable) and heard.durable[-1] == last)

    assert heard.durable == sorted(set(heard.durable))
    assert heard.commit.waiting_bytes == 0
    assert heard.commit.synced == last
    await heard.commit.close()
    again = open_journal(disk, file_bytes=1 << 16)
    assert indexes(again) == list(range(1, last + 1))
    assert again.recovered.torn_tail is None
    again.close()
    assert heard.failures == []


async def test_what_gathers_during_a_sync_shares_the_next_one(
    disk: SimulatedFileSystem, started: Heard
) -> None:
    slow = SlowDisk(disk)
    started.submit()
    await slow.begun()
    for _ in range(100):
        started.submit()
    assert started.durable == []
    slow.finish_one()
    await slow.begun()
    slow.finish_one()
    await started.until(lambda: len(started.durable) == 2)

    assert started.durable == [1, 101]
    slow.finish_all()


async def test_submits_of_one_turn_of_the_loop_go_together(
    disk: SimulatedFileSystem, started: Heard
) -> None:
    async def publish() -> None:
        started.submit()

    await asyncio.gather(*(publish() for _ in range(50)))
    await started.until(lambda: bool(started.durable))

    assert started.durable == [50]


async def test_what_is_held_goes_together_in_the_turn_that_lets_it_go(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16), FsyncPolicy("never"))
    heard.commit.start()
    heard.commit.hold()
    heard.submit()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    heard.submit()
    assert heard.durable == []

    heard.commit.go()

    assert heard.durable == [2]
    heard.submit()
    heard.commit.hold()
    heard.commit.go()
    assert heard.durable == [2, 3]
    heard.commit.hold()
    heard.commit.go()  # nothing was submitted
    heard.submit()
    await heard.until(lambda: heard.durable[-1] == 4)
    late_threads.begin()
    await heard.commit.close()


async def test_nothing_is_acknowledged_before_its_sync(
    disk: SimulatedFileSystem, started: Heard
) -> None:
    slow = SlowDisk(disk)
    started.submit(tell_when_written=True)
    await slow.begun()
    await started.until(lambda: bool(started.written))

    assert started.written == [1]
    assert started.durable == []
    assert everything(open_journal(disk.crash(), file_bytes=1 << 16)) == []
    slow.finish_all()
    await started.until(lambda: started.durable == [1])


async def test_what_waits_is_counted_until_it_is_told(disk: SimulatedFileSystem) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16))
    slow = SlowDisk(disk)
    heard.commit.start()
    heard.submit(b"x" * 600)
    first = heard.commit.waiting_bytes
    heard.submit(b"x" * 600)
    assert 600 < first < 1200 < heard.commit.waiting_bytes
    slow.finish_all()
    await heard.until(lambda: heard.durable[-1:] == [2])

    assert heard.commit.waiting_bytes == 0
    await heard.commit.close()


async def test_one_write_takes_no_more_than_its_share(disk: SimulatedFileSystem) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16), frame_bytes_max=500)
    for size in (100, 100, 2000, 100):
        heard.submit(b"x" * size)
    heard.commit.start()
    await heard.until(lambda: heard.durable[-1:] == [4])

    assert heard.durable == [2, 3, 4]
    await heard.commit.close()


async def test_a_failed_sync_fails_everything_that_waits_and_is_final(
    disk: SimulatedFileSystem, started: Heard
) -> None:
    started.submit()
    await started.until(lambda: started.durable == [1])
    slow = SlowDisk(disk)
    disk.fail("sync")
    started.submit()
    await slow.begun()
    started.submit()
    slow.finish_all()
    await started.until(lambda: bool(started.failures))

    assert len(started.failures) == 1
    assert isinstance(started.failures[0], StorageFailed)
    with pytest.raises(StorageFailed):
        started.submit()
    await started.commit.close()
    assert started.durable == [1]
    assert len(started.failures) == 1
    assert [call.operation for call in disk.calls].count("sync") <= 2 + 1
    assert indexes(open_journal(disk, file_bytes=1 << 16)) == [1]


async def test_a_failed_write_is_final_too(disk: SimulatedFileSystem, started: Heard) -> None:
    disk.fail("pwritev", name="journal-")
    started.submit()
    await started.until(lambda: bool(started.failures))

    assert started.durable == []


async def test_a_bug_in_the_thread_is_told_as_a_failure(
    started: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(lots: object) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr(started.commit.journal, "write", write)
    started.submit()
    await started.until(lambda: bool(started.failures))

    assert "RuntimeError: a bug" in str(started.failures[0])


async def test_a_failure_while_files_are_made_is_final(disk: SimulatedFileSystem) -> None:
    disk.fail("sync_all", name="spare", on_call=3)
    heard = Heard(open_journal(disk, file_bytes=2048))
    heard.commit.start()
    heard.submit()
    for _ in range(20):
        if heard.failures:
            break
        heard.submit(b"x" * 1000)
        await heard.until(
            lambda: heard.durable[-1:] == [heard.commit.submitted] or bool(heard.failures)
        )
    await heard.until(lambda: bool(heard.failures))
    await heard.commit.close()


async def test_a_full_disk_makes_submits_wait_and_loses_none(
    disk: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.storage.group_commit.RETRY_SECONDS", 0.001)
    monkeypatch.setattr("flintmq.storage.file_chores.RETRY_SECONDS", 0.001)
    heard = Heard(open_journal(disk, file_bytes=2048), frame_bytes_max=1)
    disk.size_max = 4096
    heard.commit.start()
    for _ in range(10):
        heard.submit(b"x" * 700)
    await heard.until(lambda: "full" in heard.room)
    assert "no space left" in str(heard.commit.full)
    assert heard.commit.waiting_bytes > 0

    disk.size_max = None
    await heard.until(lambda: heard.durable[-1:] == [10] and heard.room[-1:] == ["room"])

    assert heard.commit.full is None
    assert heard.failures == []
    await heard.commit.close()
    assert indexes(open_journal(disk, file_bytes=2048)) == list(range(1, 11))


async def test_releasing_files_makes_room_on_a_full_disk(disk: SimulatedFileSystem) -> None:
    heard = Heard(open_journal(disk, file_bytes=2048))
    heard.commit.start()

    def is_done() -> bool:
        return heard.durable[-1:] == [heard.commit.submitted]

    for _ in range(12):
        heard.submit(b"x" * 700)
        await heard.until(is_done)
    disk.size_max = sum(disk.size_of(f"journal/{name}") for name in disk.list("journal"))
    while not heard.room:
        heard.submit(b"x" * 700)
        await heard.until(lambda: is_done() or bool(heard.room))
    heard.submit(b"x" * 700)
    heard.submit(b"x" * 700)

    heard.commit.release_before(heard.commit.journal.written)
    await heard.until(lambda: is_done() and heard.room[-1] == "room")

    assert len(journal_files(disk)) < 7
    await heard.commit.close()


async def test_closing_a_full_disk_tells_what_could_not_be_written(
    disk: SimulatedFileSystem,
) -> None:
    heard = Heard(open_journal(disk, file_bytes=2048))
    disk.size_max = 2048
    heard.commit.start()
    for _ in range(5):
        heard.submit(b"x" * 700)
    await heard.until(lambda: bool(heard.room))
    await heard.commit.close()

    assert [type(error) for error in heard.failures] == [StorageFull]
    kept = indexes(open_journal(disk.crash(), file_bytes=2048))
    assert kept == list(range(1, heard.durable[-1] + 1 if heard.durable else 1))


async def test_closing_writes_what_waits_and_takes_nothing_more(
    disk: SimulatedFileSystem,
) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16), NEVER)
    heard.commit.start()
    for _ in range(10):
        heard.submit()
    await heard.commit.close()
    await heard.commit.close()

    assert heard.durable[-1] == 10
    assert heard.commit.synced == 10
    with pytest.raises(Closed):
        heard.submit()
    assert len(everything(open_journal(disk.crash(), file_bytes=1 << 16))) == 10


async def test_a_loop_that_is_closed_under_the_threads_harms_nobody(
    disk: SimulatedFileSystem,
) -> None:
    journal = open_journal(disk, file_bytes=1 << 16)
    left: list[GroupCommit] = []

    def elsewhere() -> None:
        async def main() -> None:
            heard = Heard(journal)
            heard.commit.start()
            heard.submit()
            left.append(heard.commit)

        asyncio.run(main())

    await asyncio.to_thread(elsewhere)
    commit = left[0]
    with commit._changed:
        commit._closing = True
        commit._changed.notify()
    for thread in commit._threads:
        await asyncio.to_thread(thread.join, PATIENCE)
    assert indexes(open_journal(disk, file_bytes=1 << 16)) == [1]


async def test_where_no_sync_is_waited_for_the_loop_writes_a_little_itself(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16), NEVER)
    heard.commit.start()
    for ticket in range(1, 4):
        heard.submit(b"x" * 100)
        await asyncio.sleep(0)
        assert heard.durable == heard.written == list(range(1, ticket + 1))

    assert heard.commit.waiting_bytes == 0
    late_threads.begin()
    await heard.commit.close()
    assert indexes(open_journal(disk, file_bytes=1 << 16)) == [1, 2, 3]


async def test_where_a_sync_is_waited_for_the_loop_writes_nothing(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16))
    heard.commit.start()
    heard.submit(b"x" * 100, tell_when_written=True)
    await asyncio.sleep(0)

    assert heard.written == []
    late_threads.begin()
    await heard.until(lambda: heard.durable == [1])
    await heard.commit.close()


@pytest.mark.parametrize(
    ("sizes", "by_the_loop"),
    [([HERE_BYTES_MAX + 1], 0), ([60_000, 60_000, 60_000], 2)],
    ids=["much", "the next file"],
)
async def test_what_is_much_or_needs_the_next_file_is_left_to_the_thread(
    disk: SimulatedFileSystem, late_threads: type[LateThread], sizes: list[int], by_the_loop: int
) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 17, first_file_bytes=1 << 17), NEVER)
    heard.commit.start()
    for size in sizes:
        heard.submit(b"x" * size)
        await asyncio.sleep(0)

    assert heard.durable == list(range(1, by_the_loop + 1))
    late_threads.begin()
    await heard.until(lambda: heard.durable[-1:] == [len(sizes)])
    await heard.commit.close()
    again = open_journal(disk, file_bytes=1 << 17)
    assert indexes(again) == list(range(1, len(sizes) + 1))


async def test_after_a_slow_write_the_loop_leaves_the_disk_to_the_thread_for_a_while(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    time = 0.0
    journal = open_journal(disk, file_bytes=1 << 16)
    heard = Heard(journal, NEVER, monotonic=lambda: time)
    write = journal.write

    def slow_write(lots: Any) -> int:
        nonlocal time
        time += 0.01
        return write(lots)

    journal.write = slow_write  # type: ignore[method-assign]
    heard.commit.start()
    for _ in range(2):
        heard.submit()
        await asyncio.sleep(0)
    assert heard.durable == [1]
    time += 1.0
    heard.submit()
    await asyncio.sleep(0)

    assert heard.durable == [1, 3]  # the two of them together
    late_threads.begin()
    await heard.commit.close()


async def test_the_thread_syncs_in_time_what_the_loop_has_written(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    heard = Heard(
        open_journal(disk, file_bytes=1 << 16),
        FsyncPolicy.parse("interval:1"),
        monotonic=monotonic,
    )
    heard.commit.start()
    heard.submit()
    await asyncio.sleep(0)
    assert (heard.durable, heard.commit.synced) == ([1], 0)

    synced = threading.Event()
    disk.on_sync = lambda name: synced.set() if "journal-" in name else None
    late_threads.begin()
    assert await asyncio.to_thread(synced.wait, PATIENCE)
    disk.on_sync = None
    await heard.commit.close()


async def test_a_write_of_the_loop_that_fails_is_final_too(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16), NEVER)
    heard.commit.start()
    disk.fail("pwritev", name="journal-")
    heard.submit()
    await asyncio.sleep(0)
    assert heard.durable == []
    late_threads.begin()
    await heard.until(lambda: bool(heard.failures))

    assert isinstance(heard.failures[0], StorageFailed)
    assert heard.durable == []
    await heard.commit.close()


async def test_a_bug_in_a_write_of_the_loop_is_told_as_a_failure(
    disk: SimulatedFileSystem, late_threads: type[LateThread]
) -> None:
    journal = open_journal(disk, file_bytes=1 << 16)
    heard = Heard(journal, NEVER)
    heard.commit.start()
    write = journal.write

    def broken_once(lots: Any) -> int:
        journal.write = write  # type: ignore[method-assign]
        raise ZeroDivisionError("a bug")

    journal.write = broken_once  # type: ignore[method-assign]
    heard.submit()
    await asyncio.sleep(0)
    late_threads.begin()
    await heard.until(lambda: bool(heard.failures))

    assert "ZeroDivisionError: a bug" in str(heard.failures[0])
    await heard.commit.close()


async def test_an_interval_is_kept_by_the_thread(disk: SimulatedFileSystem) -> None:
    synced = threading.Event()
    policy = FsyncPolicy.parse("interval:1")
    import time

    heard = Heard(open_journal(disk, file_bytes=1 << 16), policy, monotonic=time.monotonic)
    heard.commit.start()
    disk.on_sync = lambda name: synced.set() if "journal-" in name else None
    heard.submit()

    assert await asyncio.to_thread(synced.wait, PATIENCE)
    await heard.commit.close()


# --- step by step


def syncs(disk: SimulatedFileSystem) -> int:
    return sum(call.operation == "sync" for call in disk.calls)


async def test_a_step_writes_and_syncs_everything_that_waits(disk: SimulatedFileSystem) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16))
    heard.submit()
    heard.submit()
    before = syncs(disk)

    assert heard.commit.step()
    assert heard.durable == [2]
    assert syncs(disk) == before + 1
    assert not heard.commit.step()
    await heard.commit.close()


async def test_every_n_syncs_after_so_many_records(disk: SimulatedFileSystem) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16), FsyncPolicy.parse("every_n:3"))
    done: list[int] = []
    for _ in range(7):
        heard.submit()
        heard.commit.step()
        done.append(heard.commit.synced)

    assert heard.durable == [1, 2, 3, 4, 5, 6, 7]
    assert done == [0, 0, 3, 3, 3, 6, 6]


async def test_interval_syncs_when_its_time_has_come(disk: SimulatedFileSystem) -> None:
    now = 100.0
    heard = Heard(
        open_journal(disk, file_bytes=1 << 16),
        FsyncPolicy.parse("interval:20"),
        monotonic=lambda: now,
    )
    heard.submit()
    heard.commit.step()
    assert (heard.durable, heard.commit.synced) == ([1], 0)
    now += 0.019
    assert not heard.commit.step()
    now += 0.002
    assert heard.commit.step()
    assert heard.commit.synced == 1
    assert not heard.commit.step()


async def test_never_syncs_only_at_the_end(disk: SimulatedFileSystem) -> None:
    heard = Heard(open_journal(disk, file_bytes=1 << 16), NEVER)
    before = syncs(disk)
    heard.submit(tell_when_written=True)
    heard.commit.step()

    assert heard.durable == heard.written == [1]
    assert syncs(disk) == before
    await heard.commit.close()
    assert indexes(open_journal(disk.crash(), file_bytes=1 << 16)) == [1]


async def test_a_full_disk_is_tried_again_at_the_next_step(disk: SimulatedFileSystem) -> None:
    heard = Heard(open_journal(disk, file_bytes=2048))
    disk.size_max = 2048
    for _ in range(5):
        heard.submit(b"x" * 700)
        heard.commit.step()
    assert heard.room == ["full"]
    acknowledged = list(heard.durable)
    assert not heard.commit.step()
    assert heard.durable == acknowledged

    disk.size_max = None
    while heard.durable[-1:] != [5]:
        assert heard.commit.step()
    assert heard.room == ["full", "room"]
    assert heard.failures == []
    await heard.commit.close()


async def test_a_write_that_finds_no_room_is_tried_again_whole(disk: SimulatedFileSystem) -> None:
    heard = Heard(open_journal(disk))
    disk.fail("pwritev", name="journal-", error=errno.ENOSPC)
    heard.submit()

    assert not heard.commit.step()
    assert heard.commit.step()
    assert heard.durable == [1]
    await heard.commit.close()
    assert indexes(open_journal(disk)) == [1]


async def test_a_wrong_submit_harms_nobody_else(disk: SimulatedFileSystem) -> None:
    heard = Heard(open_journal(disk))
    heard.submit()
    with pytest.raises(InvalidRequest):
        heard.commit.submit([entry(9)])
    heard.submit()
    heard.commit.step()

    assert heard.durable == [2]
    await heard.commit.close()


async def test_a_failure_ends_the_steps(disk: SimulatedFileSystem) -> None:
    heard = Heard(open_journal(disk))
    disk.fail("sync")
    heard.submit()

    assert not heard.commit.step()
    assert not heard.commit.step()
    assert len(heard.failures) == 1
    await heard.commit.close()


@pytest.mark.parametrize("policy", ["every_n:1000", "interval:3600000", "never"])
async def test_whatever_the_policy_the_file_before_the_current_one_survives_a_power_cut(
    disk: SimulatedFileSystem, policy: str
) -> None:
    heard = Heard(open_journal(disk, file_bytes=2048), FsyncPolicy.parse(policy))
    while len(journal_files(disk)) < 2:
        heard.submit(b"x" * 300)
        heard.commit.step()

    again = open_journal(disk.crash("nothing"), file_bytes=2048)

    assert indexes(again) == list(range(1, heard.commit.submitted))
