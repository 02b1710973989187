"""Several groups in one journal: hard states, terms, and what a power cut leaves of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import prod
from random import Random

import pytest

from flintmq.errors import Corrupt, InvalidRequest
from flintmq.fsync_policy import ALWAYS, NEVER, FsyncPolicy
from flintmq.storage.frames import MEMBERSHIP, RESTART, STATE, FileSeed, Record, State
from flintmq.storage.group_commit import GroupCommit
from flintmq.storage.journal import Journal
from flintmq.storage.journal_files import HEADER_BYTES, encode_header
from flintmq.storage.journal_scan import scan_journal
from flintmq.testing import Crashed, SimulatedFileSystem
from flintmq.testing.simulated_filesystem import Keep
from tests.storage.journals import (
    DIRECTORY,
    entry,
    everything,
    indexes,
    journal_files,
    open_journal,
    restart,
)

FILE_BYTES = 2048


def reopened(disk: SimulatedFileSystem) -> Journal:
    return open_journal(disk.crash("nothing"), file_bytes=FILE_BYTES)


def test_a_record_of_hard_state_is_drawn_as_it_is_written() -> None:
    record = State(term=7, vote=3, commit=9, level=2, flags=1).record(5)

    assert (record.group, record.term, record.index, record.kind) == (5, 7, 0, STATE)
    assert bytes(record.payload).hex() == ("03000000000000000900000000000000" + "0200000001000000")
    assert State.of(7, record.payload) == State(7, 3, 9, 2, 1)
    with pytest.raises(Corrupt):
        State.of(7, b"short")


def test_the_last_state_of_each_group_counts_and_is_no_entry() -> None:
    disk = SimulatedFileSystem()
    journal = open_journal(disk)
    journal.append([State(1, vote=2).record(1), entry(1), State(4).record(2)])
    journal.append([State(2, vote=3, commit=1).record(1), entry(2, term=2)])

    for one in (journal, reopened(disk)):
        assert one.states() == {1: State(2, 3, 1), 2: State(4)}
        assert indexes(one) == [1, 2]
        assert [row[:3] for row in everything(one)] == [(1, 1, 1), (1, 2, 2)]
        assert set(one.groups()) == {1}
    with pytest.raises(InvalidRequest):
        journal.prepare([Record(1, 1, 5, (b"",), STATE)])


def test_entries_of_membership_are_told_from_others() -> None:
    disk = SimulatedFileSystem()
    journal = open_journal(disk)
    journal.append([entry(1), Record(1, 1, 2, (b"members",), MEMBERSHIP), entry(3)])

    kinds = [record.kind for record in reopened(disk).records(1, 1)]
    assert kinds == [0, MEMBERSHIP, 0]


def test_the_term_of_every_record_is_known_by_its_index() -> None:
    disk = SimulatedFileSystem()
    journal = open_journal(disk, file_bytes=FILE_BYTES)
    terms = [1, 1, 1, 2, 2, 5, 5, 5, 9]
    for index, term in enumerate(terms, 1):
        journal.append([entry(index, bytes(400), term=term)])

    for one in (journal, reopened(disk)):
        assert [one.term(1, index) for index in range(11)] == [None, *terms, None]
        assert one.term(2, 1) is None
    journal.append([entry(4, term=10), entry(5, term=10)])
    assert [journal.term(1, index) for index in range(1, 7)] == [1, 1, 1, 10, 10, None]
    journal.release_before(journal.position_of(1, 5))
    first = journal.groups()[1].first_index
    assert first > 1
    assert journal.term(1, first - 1) is None
    assert journal.term(1, first) == 10
    journal.append([restart(50, term=11)])
    assert [journal.term(1, index) for index in (5, 49, 50, 51)] == [None, None, 11, None]


def test_every_file_begins_with_the_states_of_all_groups_so_that_recycling_loses_none() -> None:
    disk = SimulatedFileSystem()
    journal = open_journal(disk, file_bytes=FILE_BYTES)
    journal.append([State(3, vote=1).record(group) for group in range(4)])
    for index in range(1, 30):
        journal.append([entry(index, bytes(500), group=1)])
    journal.release_before(journal.needed_from({1: 29}))

    assert journal.file_count == 1
    assert reopened(disk).states() == {group: State(3, 1) for group in range(4)}
    journal.close()
    assert reopened(disk).states() == {group: State(3, 1) for group in range(4)}


def test_the_slowest_group_says_what_is_released_and_an_idle_one_keeps_nothing() -> None:
    journal = open_journal(SimulatedFileSystem(), file_bytes=FILE_BYTES)
    for index in range(1, 12):
        journal.append([entry(index, bytes(500), group=1), entry(index, group=2)])

    assert journal.needed_from({1: 11, 2: 3}) == journal.position_of(2, 4)
    journal.release_before(journal.needed_from({1: 11, 2: 3}))
    assert 4 in indexes(journal, 2, 4)
    assert journal.needed_from({1: 11, 2: 11, 7: 0}) == journal.written + 1


def test_who_needs_what_lies_before_the_first_record_needs_all_there_is() -> None:
    """As a founder of a cluster, whose log begins behind a snapshot."""
    journal = open_journal(SimulatedFileSystem(), file_bytes=FILE_BYTES)
    first = entry(2, bytes(500), group=1)
    journal.append([Record(1, first.term, 2, first.buffers, RESTART)])
    for index in range(3, 12):
        journal.append([entry(index, bytes(500), group=1)])

    assert journal.release_before(journal.needed_from({1: 0})) == 0
    assert indexes(journal, 1, 2) == list(range(2, 12))


def test_a_file_of_version_1_is_read_and_written_on_but_has_no_states() -> None:
    disk = SimulatedFileSystem()
    journal = open_journal(disk, file_bytes=FILE_BYTES)
    journal.append([entry(1)])
    journal.abandon()
    (name,) = journal_files(disk)
    path = f"{DIRECTORY}/{name}"
    data = disk.contents(path)
    salt = int.from_bytes(data[32:40], "little")
    file = disk.open(path, writable=True)
    file.pwritev([encode_header(FileSeed(1, salt), 1, FILE_BYTES, version=1)], 0)
    file.sync_all()
    file.close()

    journal = open_journal(disk, file_bytes=FILE_BYTES)
    journal.append([entry(2)])
    assert journal_files(disk) == [name]
    journal.append([State(2, vote=1).record(1), entry(3, term=2)])
    assert len(journal_files(disk)) == 2
    assert disk.contents(path)[4] == 1
    again = reopened(disk)
    assert indexes(again) == [1, 2, 3]
    assert again.states() == {1: State(2, 1)}
    assert scan_journal(disk, DIRECTORY).problems == []


# --- power cuts


@dataclass
class Groups:
    """Three groups over one journal: what each was given, and what was told as safe."""

    policy: FsyncPolicy
    told: int = 0
    submits: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """Group, next index, term, and whether it had to be synced."""

    def run(self, disk: SimulatedFileSystem) -> None:
        self.journal = open_journal(disk, file_bytes=FILE_BYTES)
        self.commit = GroupCommit(
            self.journal,
            self.policy,
            on_durable=self._tell,
            on_failed=lambda error: None,
            monotonic=lambda: 0.0,
        )
        random = Random(5)
        next_index, term = {1: 1, 2: 1, 3: 1}, {1: 1, 2: 1, 3: 1}
        for turn in range(24):
            for group in random.sample([1, 2, 3], 2):
                votes, count = random.random() < 0.4, random.randrange(3)
                records = []
                if votes:
                    term[group] += 1
                    records.append(State(term[group], vote=group, commit=turn).record(group))
                    if next_index[group] > 3 and random.random() < 0.5:
                        next_index[group] -= 2  # another leader replaces the suffix
                        count = max(count, 1)
                for _ in range(count):
                    size = random.choice([0, 90, 400])
                    payload = b"%d" % term[group] + bytes(size)
                    records.append(entry(next_index[group], payload, group=group, term=term[group]))
                    next_index[group] += 1
                if records:
                    self.submits.append((group, next_index[group], term[group], votes))
                    self.commit.submit(records, must_sync=votes)
            self.commit.step()
            if turn in (10, 18):
                ends = {group: next - 1 for group, next in next_index.items()}
                safe = {group: max(0, end - 4) for group, end in ends.items()}
                self.commit.release_before(self.journal.needed_from(safe))
        self.journal.close()

    def _tell(self, ticket: int) -> None:
        self.told = ticket

    def check(self, journal: Journal) -> None:
        """Under any policy no vote that was told is lost, and what is there fits together; under
        `always` nothing that was told is."""
        states, groups = journal.states(), journal.groups()
        for group in (1, 2, 3):
            told = [s for s in self.submits[: self.told] if s[0] == group]
            voted = [s[2] for s in told if s[3]]
            if voted:
                assert states[group].term >= voted[-1]
                assert states[group].vote == group
            if group not in groups:
                assert self.policy is not ALWAYS or all(s[1] == 1 for s in told)
                continue
            known = groups[group]
            if self.policy is ALWAYS and told:
                later = {s[1] for s in self.submits[self.told :] if s[0] == group}
                assert known.next_index in {told[-1][1], *later}
            found = list(journal.records(group, known.first_index))
            assert [r.index for r in found] == list(range(known.first_index, known.next_index))
            assert [journal.term(group, r.index) for r in found] == [r.term for r in found]
            assert all(bytes(r.payload).startswith(b"%d" % r.term) for r in found)
            assert [r.term for r in found] == sorted(r.term for r in found)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [ALWAYS, NEVER, FsyncPolicy.parse("every_n:5")], ids=str)
def test_after_a_power_cut_at_any_write_every_group_has_what_it_was_promised(
    policy: FsyncPolicy,
) -> None:
    whole = SimulatedFileSystem()
    Groups(policy).run(whole)
    assert len(journal_files(whole)) > 1
    for calls in range(whole.call_count):
        disk, groups = SimulatedFileSystem(), Groups(policy)
        disk.stop_after(calls)
        with pytest.raises(Crashed):
            groups.run(disk)
        counts = disk.unsynced()
        keeps: list[Keep] = (
            list(product(*(range(count) for count in counts)))
            if prod(counts) <= 64
            else ["nothing", "everything", *(Random(f"{calls} {n}") for n in range(10))]
        )
        for keep in keeps:
            after = disk.crash(keep)
            journal = open_journal(after, file_bytes=FILE_BYTES)
            groups.check(journal)
            states = journal.states()
            journal.append([State(99, vote=2).record(2)])
            journal.abandon()
            again = reopened(after)
            groups.check(again)
            assert again.states() == {**states, 2: State(99, 2)}


def test_a_vote_is_told_after_its_sync_whatever_the_policy() -> None:
    disk = SimulatedFileSystem()
    told: list[tuple[int, bool]] = []
    journal = open_journal(disk)
    commit = GroupCommit(
        journal,
        NEVER,
        on_durable=lambda ticket: told.append((ticket, journal.durable == journal.written)),
        on_failed=lambda error: None,
    )
    commit.submit([entry(1)])
    commit.step()
    commit.submit([State(2, vote=1).record(1)], must_sync=True)
    commit.step()
    commit.submit([entry(2, term=2)])
    commit.step()

    assert told == [(1, False), (2, True), (3, False)]
    assert disk.contents(f"{DIRECTORY}/{journal_files(disk)[0]}")[HEADER_BYTES:]
    assert open_journal(disk.crash("nothing")).states() == {1: State(2, 1)}


def test_a_file_with_a_state_stays_until_the_next_has_repeated_it_on_the_disk() -> None:
    disk = SimulatedFileSystem()
    journal = open_journal(disk, file_bytes=FILE_BYTES)
    journal.append([State(2, vote=1).record(1)])
    for index in (1, 2):
        journal.write([journal.prepare([entry(index, bytes(1_200))])])
    assert len(journal_files(disk)) == 2

    assert journal.release_before(journal.needed_from({1: 2})) == 0
    assert reopened(disk).states() == {1: State(2, 1)}
    journal.sync()
    assert journal.release_before(journal.needed_from({1: 2})) == 1
    assert reopened(disk).states() == {1: State(2, 1)}
