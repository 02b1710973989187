"""A group's Raft log in a journal: what is read is what was written last, wherever it lies."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from flintmq.cluster.storage import JournalStorage, found, is_member
from flintmq.errors import InvalidRequest, LogCompacted, LogUnavailable
from flintmq.raft import EntryKind, HardState, Membership, RaftEntry
from flintmq.storage.frames import ENTRY, MEMBERSHIP, Record, State
from flintmq.storage.journal import Journal
from flintmq.testing import SimulatedFileSystem

UNLIMITED = 1 << 40
FOUNDERS = Membership((1, 2, 3))


class Disk:
    def __init__(self, **settings: int) -> None:
        self.settings = settings
        self.files = SimulatedFileSystem()
        self.open()

    def open(self, checkpoint: tuple[int, int] = (1, 1)) -> None:
        self.journal = Journal.open(self.files, "journal", file_bytes=4096, first_file_bytes=4096)
        self.storage = JournalStorage(self.journal, 0, checkpoint, FOUNDERS, **self.settings)

    def write(self, entries: Sequence[RaftEntry], state: State | None = None) -> None:
        records = [] if state is None else [state.record(0)]
        for entry in entries:
            kind = ENTRY | MEMBERSHIP if entry.kind is EntryKind.MEMBERSHIP else ENTRY
            records.append(Record(0, entry.term, entry.index, (entry.data,), kind))
        self.journal.append(records)
        if entries:
            self.storage.stored(list(entries))


def entries(first: int, end: int, term: int = 2, size: int = 4) -> list[RaftEntry]:
    return [
        RaftEntry(index, term, (b"%d.%d" % (index, term)).ljust(size, b"."))
        for index in range(first, end)
    ]


def test_a_founders_log_begins_behind_the_snapshot_of_the_founders() -> None:
    storage = Disk().storage

    assert storage.initial_state() == (HardState(), FOUNDERS)
    assert (storage.first_index(), storage.last_index(), storage.term(1)) == (2, 1, 1)
    with pytest.raises(LogUnavailable):
        storage.term(2)


def test_entries_are_read_from_the_disk_as_from_memory() -> None:
    disk = Disk(cache_bytes_max=200)
    disk.write(entries(2, 60, size=40))
    disk.write([RaftEntry(60, 3, b"\1\0", EntryKind.MEMBERSHIP)])

    expected = [*entries(2, 60, size=40), RaftEntry(60, 3, b"\1\0", EntryKind.MEMBERSHIP)]
    assert disk.storage.entries(2, 61, UNLIMITED) == expected
    assert disk.storage.entries(2, 61, 200) == expected[: len(disk.storage.entries(2, 61, 200))]
    assert [disk.storage.term(index) for index in (2, 59, 60)] == [2, 2, 3]


def test_a_suffix_that_was_replaced_is_gone() -> None:
    disk = Disk()
    disk.write(entries(2, 20))
    disk.write(entries(10, 12, term=3))

    assert disk.storage.last_index() == 11
    assert disk.storage.entries(8, 12, UNLIMITED) == [*entries(8, 10), *entries(10, 12, term=3)]
    with pytest.raises(LogUnavailable):
        disk.storage.entries(8, 13, UNLIMITED)


def test_the_hard_state_and_the_log_are_there_after_a_restart() -> None:
    disk = Disk()
    disk.write(entries(2, 8), State(2, vote=3, commit=5))
    disk.journal.close()

    disk.open()

    assert disk.storage.initial_state()[0] == HardState(2, 3, 5)
    assert disk.storage.entries(2, 8, UNLIMITED) == entries(2, 8)


def test_what_a_checkpoint_covers_is_kept_for_followers_up_to_a_limit() -> None:
    disk = Disk(keep_bytes=2 << 20, cache_bytes_max=1000)
    for first in range(2, 80):
        disk.write(entries(first, first + 1, size=100_000))

    kept_behind = disk.storage.compact(70)

    first = disk.storage.first_index()
    assert 50 < first <= 71
    assert kept_behind < first
    with pytest.raises(LogCompacted):
        disk.storage.entries(first - 1, 80, UNLIMITED)
    assert disk.storage.term(first - 1) == 2
    assert disk.storage.entries(first, first + 1, UNLIMITED)[0].index == first


def test_a_snapshot_that_is_needed_is_told() -> None:
    told = []
    storage = Disk().storage
    storage.on_too_far_behind = lambda: told.append(True)

    with pytest.raises(LogUnavailable):
        storage.snapshot()
    assert told


@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_is_cut_and_grown_at_random_is_read_as_it_was_written(seed: int) -> None:
    random = Random(seed)
    disk = Disk(cache_bytes_max=random.choice([50, 300, 10_000]))
    model: list[RaftEntry] = []
    term = 2
    for _ in range(60):
        if model and random.random() < 0.2:
            term += 1
            first = random.randint(2, len(model) + 2)
        else:
            first = len(model) + 2
        new = entries(first, first + random.randint(1, 6), term, random.randint(4, 60))
        model[first - 2 :] = new
        disk.write(new, State(term, commit=1))
        if random.random() < 0.1:
            disk.journal.close()
            disk.open()
        first = random.randint(2, len(model) + 1)
        end = random.randint(first + 1, len(model) + 2)
        assert disk.storage.entries(first, end, UNLIMITED) == model[first - 2 : end - 2]
        index = random.randint(2, len(model) + 1)
        assert disk.storage.term(index) == model[index - 2].term


def test_a_directory_with_other_data_is_no_founders() -> None:
    blank, used = SimulatedFileSystem(), SimulatedFileSystem()
    used.make_directory("journal")

    found(blank, FOUNDERS)
    found(blank, FOUNDERS)

    assert is_member(blank)
    with pytest.raises(InvalidRequest, match="data of a single broker"):
        found(used, FOUNDERS)


def test_how_much_of_the_log_somebody_lacks_is_known_about() -> None:
    disk = Disk(keep_bytes=16_000)  # so a mark stands behind every 1,000 bytes
    for first in range(2, 102, 5):
        disk.write(entries(first, first + 5, size=100))
    each = (disk.storage._stored_bytes) // 100

    assert disk.storage.bytes_behind(101) == 0
    for index in (20, 50, 99):
        assert abs(disk.storage.bytes_behind(index) - (101 - index) * each) <= 2_000
    sizes = [disk.storage.bytes_behind(index) for index in range(1, 102)]
    assert sizes == sorted(sizes, reverse=True)

    disk.open()
    assert disk.storage.bytes_behind(50) == 0, "what was stored before a restart is not counted"
