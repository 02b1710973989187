"""The log view, its unstable end, the storage beneath: conflicts, cursors, slices, compaction."""

from __future__ import annotations

import pytest

from flintmq.errors import InvalidRequest, LogCompacted, LogUnavailable, RaftInvariantBroken
from flintmq.raft import EntryKind, HardState, Membership, MemoryStorage, RaftEntry, RaftSnapshot
from flintmq.raft.log import RaftLog
from flintmq.raft.messages import ENTRY_OVERHEAD_BYTES
from flintmq.raft.settings import UNLIMITED
from flintmq.raft.storage import fitting
from flintmq.raft.unstable import Unstable


def entries(first: int, *terms: int) -> tuple[RaftEntry, ...]:
    return tuple(RaftEntry(index, term) for index, term in enumerate(terms, start=first))


def log_of(*terms: int, durable: int | None = None) -> RaftLog:
    """A log of these terms, the first `durable` of them in storage."""
    durable = len(terms) if durable is None else durable
    storage = MemoryStorage()
    storage.append(list(entries(1, *terms[:durable])))
    log = RaftLog(storage)
    if terms[durable:]:
        log.unstable.truncate_and_append(entries(durable + 1, *terms[durable:]))
    return log


def terms_of(log: RaftLog) -> list[int]:
    return [entry.term for entry in log.entries(log.first_index())]


# -- conflicts --------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [0, 2, 3])
@pytest.mark.parametrize(
    ("index", "term", "sent", "last_new", "after"),
    [
        (3, 2, (4,), None, (1, 2, 3)),  # the term before differs
        (4, 3, (4,), None, (1, 2, 3)),  # the index before is missing
        (3, 3, (), 3, (1, 2, 3)),
        (0, 0, (), 0, (1, 2, 3)),
        (3, 3, (4,), 4, (1, 2, 3, 4)),
        (3, 3, (4, 4), 5, (1, 2, 3, 4, 4)),
        (2, 2, (4,), 3, (1, 2, 4)),
        (1, 1, (4, 4), 3, (1, 4, 4)),
        (0, 0, (1, 2), 2, (1, 2, 3)),  # all of it is there: nothing is cut
        (0, 0, (1, 2, 3, 4), 4, (1, 2, 3, 4)),
        (1, 1, (2, 3), 3, (1, 2, 3)),
    ],
)
def test_an_append_keeps_what_agrees_and_replaces_from_the_first_conflict(
    durable: int,
    index: int,
    term: int,
    sent: tuple[int, ...],
    last_new: int | None,
    after: tuple[int, ...],
) -> None:
    """Parity: TestFindConflict, TestLogMaybeAppend, TestAppend"""
    log = log_of(1, 2, 3, durable=durable)

    assert log.append_after(index, term, entries(index + 1, *sent)) == last_new
    assert terms_of(log) == list(after)


def test_a_conflict_with_what_is_committed_stops_the_node() -> None:
    log = log_of(1, 2, 3)
    log.commit_to(2)

    with pytest.raises(RaftInvariantBroken):
        log.append_after(1, 1, entries(2, 9))


@pytest.mark.parametrize(
    ("terms", "index", "term", "found"),
    [
        ((2, 2, 5, 5, 5), 5, 5, (5, 5)),
        ((2, 2, 5, 5, 5), 5, 4, (2, 2)),
        ((2, 2, 5, 5, 5), 5, 2, (2, 2)),
        ((2, 2, 5, 5, 5), 5, 1, (0, 0)),
        ((2, 2, 5, 5, 5), 2, 9, (2, 2)),
        ((2, 2, 5, 5, 5), 9, 9, (5, 5)),
        ((), 3, 3, (0, 0)),
    ],
)
def test_the_search_by_term_finds_the_last_entry_that_could_agree(
    terms: tuple[int, ...], index: int, term: int, found: tuple[int, int]
) -> None:
    """Parity: TestFindConflictByTerm"""
    assert log_of(*terms).find_conflict_by_term(index, term) == found


def test_the_search_by_term_stops_at_the_compacted_part() -> None:
    log = log_of(1, 1, 3, 3, 3)
    assert isinstance(log.storage, MemoryStorage)
    log.storage.compact(3)

    assert log.find_conflict_by_term(5, 1) == (2, 0)


@pytest.mark.parametrize(
    ("index", "term", "fit"),
    [
        (2, 4, True),
        (3, 4, True),
        (4, 4, True),
        (2, 2, False),
        (4, 2, False),
        (2, 3, False),
        (3, 3, True),
        (4, 3, True),
    ],
)
def test_which_logs_are_up_to_date(index: int, term: int, fit: bool) -> None:
    """Parity: TestIsUpToDate"""
    assert log_of(1, 2, 3).is_up_to_date(index, term) is fit


# -- cursors ----------------------------------------------------------------------------------


def test_the_commit_moves_forward_only_and_never_past_the_end() -> None:
    """Parity: TestCommitTo"""
    log = log_of(1, 2, 3)

    assert log.commit_to(2)
    assert not log.commit_to(1)
    assert log.committed == 2
    with pytest.raises(RaftInvariantBroken):
        log.commit_to(4)


@pytest.mark.parametrize(("index", "term", "commits"), [(3, 3, True), (2, 3, False), (1, 1, True)])
def test_counting_commits_the_leaders_term_only(index: int, term: int, commits: bool) -> None:
    assert log_of(1, 2, 3).commit_counted(index, term) is commits


def test_only_durable_committed_entries_are_handed_out_once_and_within_the_limit() -> None:
    """Parity: TestHasNextCommittedEnts, TestNextCommittedEnts, TestAcceptApplying, TestAppliedTo"""
    log = log_of(1, 1, 1, 1, durable=3)
    assert not log.has_next_to_apply()
    log.commit_to(4)

    handed = log.next_to_apply()
    assert [entry.index for entry in handed] == [1, 2, 3]
    log.accept_applying(handed)
    assert log.next_to_apply() == []

    assert isinstance(log.storage, MemoryStorage)
    log.storage.append(list(entries(4, 1)))
    log.stable_to(4, 1)
    assert log.has_next_to_apply()
    assert [entry.index for entry in log.next_to_apply()] == [4]


def test_applied_never_moves_back_nor_past_the_commit() -> None:
    log = log_of(1, 1, 1)
    log.commit_to(2)
    log.applied_to(1)

    for wrong in (0, 3):
        with pytest.raises(RaftInvariantBroken):
            log.applied_to(wrong)


def test_outstanding_bytes_are_limited_until_applied() -> None:
    storage = MemoryStorage()
    storage.append([RaftEntry(index, 1, b"x" * 10) for index in range(1, 5)])
    log = RaftLog(storage, apply_bytes_max=2 * (10 + ENTRY_OVERHEAD_BYTES))
    log.commit_to(4)

    first = log.next_to_apply()
    log.accept_applying(first)
    assert [entry.index for entry in first] == [1, 2]
    second = log.next_to_apply()
    assert [entry.index for entry in second] == [3]  # what is left of the limit
    log.accept_applying(second)

    log.applied_to(3)
    assert [entry.index for entry in log.next_to_apply()] == [4]


def test_an_unapplied_membership_change_is_noticed() -> None:
    storage = MemoryStorage()
    storage.append([RaftEntry(1, 1), RaftEntry(2, 1, b"", EntryKind.MEMBERSHIP), RaftEntry(3, 1)])
    log = RaftLog(storage)

    log.commit_to(1)
    assert not log.has_unapplied_membership_change()
    log.commit_to(3)
    assert log.has_unapplied_membership_change()
    log.applied_to(2)
    assert not log.has_unapplied_membership_change()


# -- slices and compaction --------------------------------------------------------------------


def test_slices_run_across_the_durable_and_the_unstable_part() -> None:
    """Parity: TestSlice, TestTerm, TestTermWithUnstableSnapshot"""
    log = log_of(1, 2, 3, 4, 5, durable=3)

    assert [e.term for e in log.slice(1, 6)] == [1, 2, 3, 4, 5]
    assert [e.term for e in log.slice(2, 4)] == [2, 3]
    assert [e.term for e in log.slice(4, 6)] == [4, 5]
    assert log.slice(3, 3) == []
    assert [e.term for e in log.slice(2, 6, 3 * ENTRY_OVERHEAD_BYTES)] == [2, 3, 4]
    assert [e.term for e in log.slice(2, 6, 1)] == [2]
    assert [log.term(index) for index in (0, 3, 4, 5, 6)] == [0, 3, 4, 5, None]
    with pytest.raises(RaftInvariantBroken):
        log.slice(1, 7)


def test_after_compaction_the_rest_is_as_it_was() -> None:
    """Parity: TestCompaction, TestCompactionSideEffects"""
    log = log_of(1, 2, 3, 4, 5, durable=4)
    log.commit_to(3)
    storage = log.storage
    assert isinstance(storage, MemoryStorage)

    storage.compact(2)

    assert (log.first_index(), log.last_index()) == (3, 5)
    assert [log.term(index) for index in (1, 2, 3, 5)] == [None, 2, 3, 5]
    assert log.matches(2, 2)
    with pytest.raises(LogCompacted):
        log.entries(2)
    log.append_new(6, [(EntryKind.NORMAL, b"")])
    assert log.last_index() == 6


def test_a_restored_snapshot_replaces_everything() -> None:
    """Parity: TestLogRestore"""
    log = log_of(1, 2, 3, durable=2)
    log.restore(RaftSnapshot(index=9, term=4))

    assert (log.first_index(), log.last_index(), log.committed) == (10, 9, 9)
    assert (log.term(9), log.term(8), log.term(3)) == (4, None, None)
    assert log.durable_index() == 0
    assert log.next_to_apply() == []


# -- the unstable end -------------------------------------------------------------------------


def unstable(offset: int, *terms: int, in_progress: int = 0) -> Unstable:
    item = Unstable(offset)
    item.entries = list(entries(offset, *terms))
    item.in_progress = in_progress or offset
    return item


@pytest.mark.parametrize(
    ("given", "new", "offset", "terms", "in_progress"),
    [
        (unstable(5, 1), entries(6, 1, 1), 5, (1, 1, 1), 5),
        (unstable(5, 1, in_progress=6), entries(6, 1, 1), 5, (1, 1, 1), 6),
        (unstable(5, 1), entries(5, 2, 2), 5, (2, 2), 5),
        (unstable(5, 1), entries(4, 2, 2, 2), 4, (2, 2, 2), 4),
        (unstable(5, 1, in_progress=6), entries(5, 2, 2), 5, (2, 2), 5),
        (unstable(5, 1, 1, 1), entries(6, 2), 5, (1, 2), 5),
        (unstable(5, 1, 1, 1), entries(7, 2, 2), 5, (1, 1, 2, 2), 5),
        (unstable(5, 1, 1, 1, in_progress=6), entries(6, 2), 5, (1, 2), 6),
        (unstable(5, 1, 1, 1, in_progress=7), entries(6, 2), 5, (1, 2), 6),
    ],
)
def test_truncating_and_appending_moves_what_is_being_written_back(
    given: Unstable,
    new: tuple[RaftEntry, ...],
    offset: int,
    terms: tuple[int, ...],
    in_progress: int,
) -> None:
    """Parity: TestUnstableTruncateAndAppend"""
    given.truncate_and_append(new)

    assert (given.offset, given.in_progress) == (offset, in_progress)
    assert tuple(entry.term for entry in given.entries) == terms


@pytest.mark.parametrize(
    ("index", "term", "done", "offset", "left"),
    [
        (5, 1, True, 6, 1),
        (6, 2, True, 7, 0),
        (6, 1, False, 5, 2),
        (4, 1, False, 5, 2),
        (7, 2, False, 5, 2),
    ],
)
def test_a_completed_write_counts_for_the_entries_it_wrote_only(
    index: int, term: int, done: bool, offset: int, left: int
) -> None:
    """Parity: TestUnstableStableTo"""
    item = unstable(5, 1, 2, in_progress=7)

    assert item.stable_to(index, term) is done
    assert (item.offset, len(item.entries)) == (offset, left)
    assert item.in_progress == 7


def test_entries_and_snapshots_are_handed_out_for_writing_once() -> None:
    """Parity: TestUnstableNextEntries, TestUnstableNextSnapshot, TestUnstableAcceptInProgress"""
    item = unstable(5, 1, 1)
    assert len(item.next_entries()) == 2
    item.accept_in_progress()
    assert item.next_entries() == []
    item.truncate_and_append(entries(7, 1))
    assert [entry.index for entry in item.next_entries()] == [7]

    snapshot = RaftSnapshot(index=20, term=2)
    item.restore(snapshot)
    assert (item.next_snapshot(), item.next_entries(), item.last_index()) == (snapshot, [], 20)
    item.accept_in_progress()
    assert item.next_snapshot() is None
    item.stable_snapshot_to(19)
    assert item.snapshot == snapshot
    item.stable_snapshot_to(20)
    assert item.last_index() is None


def test_a_list_handed_out_does_not_change_under_its_holder() -> None:
    item = unstable(5, 1, 1, 1)
    handed = item.next_entries()

    item.truncate_and_append(entries(6, 2))

    assert [entry.term for entry in handed] == [1, 1, 1]


def test_what_is_not_held_cannot_be_sliced() -> None:
    with pytest.raises(RaftInvariantBroken):
        unstable(5, 1).slice(4, 6)


# -- the storage ------------------------------------------------------------------------------


def storage_from_3() -> MemoryStorage:
    storage = MemoryStorage()
    storage.install(RaftSnapshot(index=3, term=3))
    storage.append(list(entries(4, 4, 5)))
    return storage


def test_the_storage_knows_its_limits() -> None:
    """Parity: TestStorageTerm, TestStorageEntries, TestStorageFirstIndex, TestStorageLastIndex"""
    storage = storage_from_3()

    assert (storage.first_index(), storage.last_index()) == (4, 5)
    assert [storage.term(index) for index in (3, 4, 5)] == [3, 4, 5]
    with pytest.raises(LogCompacted):
        storage.term(2)
    with pytest.raises(LogUnavailable):
        storage.term(6)
    assert [e.term for e in storage.entries(4, 6)] == [4, 5]
    assert [e.term for e in storage.entries(4, 6, 1)] == [4]
    with pytest.raises(LogCompacted):
        storage.entries(3, 5)
    with pytest.raises(LogUnavailable):
        storage.entries(4, 7)


@pytest.mark.parametrize(
    ("new", "terms"),
    [
        (entries(2, 9, 9), [4, 5]),  # all compacted
        (entries(3, 3, 4, 5), [4, 5]),
        (entries(3, 3, 6, 5), [6, 5]),
        (entries(5, 9), [4, 9]),
        (entries(6, 5), [4, 5, 5]),
        (entries(2, 3, 3, 5), [5]),
    ],
)
def test_appending_overwrites_from_the_first_index(
    new: tuple[RaftEntry, ...], terms: list[int]
) -> None:
    """Parity: TestStorageAppend"""
    storage = storage_from_3()

    storage.append(list(new))

    assert [e.term for e in storage.entries(4, storage.last_index() + 1)] == terms


def test_a_gap_is_never_written() -> None:
    with pytest.raises(RaftInvariantBroken):
        storage_from_3().append(list(entries(7, 5)))


def test_snapshots_are_taken_compacted_behind_and_installed() -> None:
    """Parity: TestStorageCompact, TestStorageCreateSnapshot, TestStorageApplySnapshot"""
    storage = storage_from_3()
    members = Membership(voters=(1,))
    assert storage.take_snapshot(5, members).term == 5
    with pytest.raises(InvalidRequest):
        storage.take_snapshot(5, members)

    storage.compact(4)
    assert (storage.first_index(), storage.last_index()) == (5, 5)
    with pytest.raises(LogCompacted):
        storage.compact(4)

    storage.install(RaftSnapshot(index=4, term=4))  # older than ours
    assert storage.snapshot().index == 5
    storage.install(RaftSnapshot(index=9, term=6, membership=members))
    assert (storage.first_index(), storage.last_index()) == (10, 9)
    assert storage.initial_state()[1] == members


def test_a_founders_disk_begins_at_a_snapshot_that_names_the_founders() -> None:
    members = Membership(voters=(1, 2, 3))
    storage = MemoryStorage.bootstrapped(members)

    assert storage.initial_state() == (HardState(term=1, commit=1), members)
    assert (storage.first_index(), storage.last_index()) == (2, 1)


def test_at_least_one_entry_fits_and_no_more_than_the_limit() -> None:
    """Parity: TestLimitSize"""
    items = [RaftEntry(index, 1, b"x" * 10) for index in range(1, 4)]
    each = 10 + ENTRY_OVERHEAD_BYTES

    assert fitting(items, UNLIMITED) == items
    assert fitting(items, 0) == items[:1]
    assert fitting(items, each * 2) == items[:2]
    assert fitting(items, each * 3 - 1) == items[:2]
    assert fitting(items, each * 3) == items
