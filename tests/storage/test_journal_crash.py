"""Power cuts: after every single change to the disk, with any part of what was not synced kept.

Whatever happened, the journal opens, has everything that was acknowledged, in order and once, has
nothing that was never written, and can be written on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.errors import FlintError, StorageFailed
from flintmq.fsync_policy import ALWAYS, FsyncPolicy
from flintmq.storage.frames import Record
from flintmq.storage.group_commit import GroupCommit
from flintmq.storage.journal import Journal
from flintmq.testing import Crashed, SimulatedFileSystem
from flintmq.testing.simulated_filesystem import Keep
from tests.storage.journals import entry, everything, indexes, open_journal

FILE_BYTES = 2048
EXHAUSTIVE_UP_TO = 256  # states of a disk after one crash; more are drawn by chance
DRAWN = 24


@dataclass
class Story:
    """One life of a journal, told by what it was given and what it acknowledged."""

    policy: FsyncPolicy = ALWAYS
    submitted: list[tuple[int, bytes]] = field(default_factory=list)
    acknowledged: int = 0
    synced: int = 0
    released: int = 0
    """No record below this index has to be there any more."""
    failure: FlintError | None = None
    journal: Journal | None = None
    commit: GroupCommit | None = None

    def open(self, disk: SimulatedFileSystem) -> None:
        self.journal = open_journal(disk, file_bytes=FILE_BYTES)
        self.commit = GroupCommit(
            self.journal,
            self.policy,
            on_durable=self._on_durable,
            on_failed=self._on_failed,
            monotonic=lambda: 0.0,
        )

    def _on_durable(self, ticket: int) -> None:
        assert self.commit is not None
        assert self.journal is not None
        self.acknowledged = self._indexes[ticket - 1]
        if self.journal.durable == self.journal.written:
            self.synced = self.acknowledged

    def _on_failed(self, error: FlintError) -> None:
        self.failure = error

    def publish(self, *sizes: int) -> None:
        """One submit of records with payloads of these sizes."""
        assert self.commit is not None
        records: list[Record] = []
        for size in sizes:
            index = len(self.submitted) + 1
            payload = (b"%d " % index * (size // 2 + 1))[:size]
            self.submitted.append((index, payload))
            records.append(Record(1, 1, index, (payload,)))
        self._indexes.append(len(self.submitted))
        self.commit.submit(records)

    def step(self) -> None:
        assert self.commit is not None
        self.commit.step()

    def release(self) -> None:
        """A checkpoint has everything that is on the disk."""
        assert self.commit is not None
        assert self.journal is not None
        if self.synced:
            self.released = self.synced
            self.commit.release_before(self.journal.position_of(1, self.synced))

    def close(self) -> None:
        assert self.journal is not None
        self.step()
        self.journal.close()
        self.synced = self.acknowledged

    def __post_init__(self) -> None:
        self._indexes: list[int] = []

    @property
    def promised(self) -> int:
        """The last index that must survive a power cut."""
        return self.acknowledged if self.policy.acknowledges_after_sync else self.synced


def scripted(story: Story, disk: SimulatedFileSystem) -> None:
    """Single and joined publishes, files that fill up, a release, recycling, a frame larger than a
    file, and a clean close."""
    story.open(disk)
    story.publish(30)
    story.step()
    story.publish(1)
    story.publish(200, 8, 300)
    story.step()
    for _ in range(6):
        story.publish(400)
        story.step()
    story.release()
    story.publish(3000)
    story.step()
    for _ in range(5):
        story.publish(500, 100)
        story.step()
    story.release()
    story.publish(700)
    story.publish(7)
    story.step()
    story.publish(1400)
    story.step()
    story.publish(1)
    story.close()


def states(disk: SimulatedFileSystem, seed: int) -> Iterator[Keep]:
    """What the disk may hold after a crash here."""
    counts = disk.unsynced()
    if prod(counts) <= EXHAUSTIVE_UP_TO:
        yield from product(*(range(count) for count in counts))
        return
    yield "nothing"
    yield "everything"
    for number in range(DRAWN):
        yield Random(f"{seed} {number}")


def check(journal: Journal, story: Story) -> int:
    """What is there is what was submitted, from the oldest needed to at least the last promised."""
    found = [(index, payload) for _, _, index, payload in everything(journal)]
    if found:
        first, last = found[0][0], found[-1][0]
        assert found == story.submitted[first - 1 : last]
        assert first <= max(story.released, 1)
        assert last >= story.promised
        return last
    assert story.promised == 0
    return 0


def run_until_crash(
    work: Callable[[Story, SimulatedFileSystem], None], story: Story, calls: int
) -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    disk.stop_after(calls)
    try:
        work(story, disk)
    except Crashed:
        pass
    else:
        pytest.fail("the work ended before the power went")
    return disk


def calls_of(work: Callable[[Story, SimulatedFileSystem], None], policy: FsyncPolicy) -> int:
    disk = SimulatedFileSystem()
    story = Story(policy)
    work(story, disk)
    assert story.failure is None
    assert story.acknowledged == len(story.submitted)
    return disk.call_count


POLICIES = [ALWAYS, FsyncPolicy.parse("every_n:4"), FsyncPolicy.parse("never")]


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_power_cut_after_any_change_loses_nothing_that_was_promised(policy: FsyncPolicy) -> None:
    for calls in range(calls_of(scripted, policy)):
        story = Story(policy)
        disk = run_until_crash(scripted, story, calls)
        for keep in states(disk, calls):
            after = disk.crash(keep)
            journal = open_journal(after, file_bytes=FILE_BYTES)
            last = check(journal, story)
            journal.append([entry(last + 1, b"after the crash")])
            journal.abandon()
            again = open_journal(after.crash("nothing"), file_bytes=FILE_BYTES)
            assert again.groups()[1].next_index == last + 2
            assert bytes(next(again.records(1, last + 1)).payload) == b"after the crash"


@pytest.mark.slow
def test_a_second_power_cut_while_the_journal_opens_changes_nothing() -> None:
    for calls in range(calls_of(scripted, ALWAYS)):
        story = Story()
        disk = run_until_crash(scripted, story, calls)
        for seed in range(2):
            for more in range(20):
                second = disk.crash(Random(f"{calls} {seed}"))
                second.stop_after(more)
                try:
                    open_journal(second, file_bytes=FILE_BYTES).abandon()
                except Crashed:
                    third = second.crash(Random(f"{calls} {seed} {more}"))
                    check(open_journal(third, file_bytes=FILE_BYTES), story)
                else:
                    break


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_process_that_is_killed_loses_nothing_that_was_acknowledged(policy: FsyncPolicy) -> None:
    for calls in range(calls_of(scripted, policy)):
        story = Story(policy)
        disk = run_until_crash(scripted, story, calls)
        story.synced = story.acknowledged  # the operating system lives on
        check(open_journal(disk.crash("everything"), file_bytes=FILE_BYTES), story)


@pytest.mark.slow
def test_a_power_cut_after_the_restart_of_a_killed_process_loses_nothing() -> None:
    for calls in range(calls_of(scripted, ALWAYS)):
        story = Story()
        disk = run_until_crash(scripted, story, calls)
        disk.end_process()
        journal = open_journal(disk, file_bytes=FILE_BYTES)
        last = check(journal, story)
        journal.append([entry(last + 1)])
        journal.abandon()
        for keep in states(disk, calls):
            again = open_journal(disk.crash(keep), file_bytes=FILE_BYTES)
            assert again.groups()[1].next_index == last + 2


@pytest.mark.parametrize("operation", ["sync", "sync_all", "sync_directory", "pwritev", "rename"])
def test_whatever_the_disk_fails_at_stops_the_journal_and_takes_nothing_back(
    operation: str,
) -> None:
    whole = SimulatedFileSystem()
    scripted(Story(), whole)
    number_of_calls = sum(call.operation == operation for call in whole.calls)
    assert number_of_calls
    for number in range(1, number_of_calls + 1):
        disk, story = SimulatedFileSystem(), Story()
        disk.fail(operation, on_call=number)
        raised: FlintError | None = None
        try:
            scripted(story, disk)
        except StorageFailed as error:  # by the call itself where the script makes it
            raised = error
        assert raised or story.failure
        disk.heal()
        for seed in range(3):
            check(open_journal(disk.crash(Random(seed)), file_bytes=FILE_BYTES), story)
        check(open_journal(disk, file_bytes=FILE_BYTES), story)


sizes = st.lists(st.sampled_from([0, 1, 7, 8, 60, 300, 500, 1500, 2500]), min_size=1, max_size=4)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), sizes),
        st.tuples(st.just("step"), st.none()),
        st.tuples(st.just("release"), st.none()),
        st.tuples(st.just("reopen"), st.none()),
    ),
    min_size=1,
    max_size=25,
)


@given(
    actions=actions,
    policy=st.sampled_from(POLICIES),
    crash_at=st.integers(0, 120),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_workload_survives_any_power_cut(
    actions: list[tuple[str, list[int] | None]], policy: FsyncPolicy, crash_at: int, seed: int
) -> None:
    any_workload(actions, policy, crash_at, seed)


@pytest.mark.slow
@given(
    actions=actions,
    policy=st.sampled_from(POLICIES),
    crash_at=st.integers(0, 120),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
def test_thousands_of_workloads_survive_any_power_cut(
    actions: list[tuple[str, list[int] | None]], policy: FsyncPolicy, crash_at: int, seed: int
) -> None:
    any_workload(actions, policy, crash_at, seed)


def any_workload(
    actions: list[tuple[str, list[int] | None]], policy: FsyncPolicy, crash_at: int, seed: int
) -> None:
    """Three lives of one disk, each ended by a power cut at some point."""
    random = Random(seed)
    disk = SimulatedFileSystem()
    story = Story(policy)
    for _ in range(3):
        disk.stop_after(crash_at)
        try:
            story.open(disk)
            for action, argument in actions:
                if action == "publish":
                    story.publish(*(argument or []))
                elif action == "reopen":
                    story.close()
                    story.open(disk)
                    story._indexes.clear()
                else:
                    getattr(story, action)()
        except Crashed:
            pass
        disk = disk.crash(random)
        journal = open_journal(disk, file_bytes=FILE_BYTES)
        last = check(journal, story)
        journal.close()
        # What was not promised may be gone; the next life goes on from what is there.
        del story.submitted[last:]
        story.acknowledged = story.synced = last
        story._indexes.clear()
        crash_at = random.randrange(120)


def test_the_journal_of_the_script_reads_the_same_by_index() -> None:
    disk, story = SimulatedFileSystem(), Story()
    scripted(story, disk)
    journal = open_journal(disk, file_bytes=FILE_BYTES)
    first = journal.groups()[1].first_index

    assert indexes(journal, first_index=first) == list(range(first, len(story.submitted) + 1))
