"""What a Ready has to write, and when it is done."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flintmq.cluster.writes import ReadyWrites
from flintmq.raft import HardState, RaftEntry, Ready
from flintmq.storage.frames import ENTRY, RESTART, STATE, Record, State
from flintmq.storage.group_commit import GroupCommit


class Journal:
    """Takes lots of records, and numbers them."""

    def __init__(self) -> None:
        self.lots: list[tuple[list[Record], bool]] = []

    def submit(self, records: list[Record], *, must_sync: bool, **_: Any) -> int:
        self.lots.append((records, must_sync))
        return len(self.lots)


@pytest.fixture
def journal() -> Journal:
    return Journal()


def writes(journal: Journal, done: list[Ready], *, is_behind: bool = False) -> ReadyWrites:
    commit = cast("GroupCommit", journal)
    return ReadyWrites(
        commit,
        0,
        HardState(2, 1),
        is_behind=is_behind,
        on_done=done.append,
        on_written=lambda index: None,
    )


def ready(*entries: RaftEntry, state: HardState | None = None) -> Ready:
    return Ready(0, None, state, None, list(entries), [], [], None, bool(entries), [], [])


def state_of(record: Record) -> State:
    assert record.kind == STATE
    return State.of(record.term, b"".join(record.buffers))


def test_a_vote_is_written_and_synced_whatever_the_policy_is(journal: Journal) -> None:
    done: list[Ready] = []

    assert not writes(journal, done).write(ready(state=HardState(3, 2)))

    ((records, must_sync),) = journal.lots
    assert [state_of(record)[:2] for record in records] == [(3, 2)]
    assert must_sync
    assert done == [], "nobody may hear of it before it is durable"


def test_a_commit_that_moved_is_written_beside_the_next_entries(journal: Journal) -> None:
    done: list[Ready] = []
    group = writes(journal, done)

    assert group.write(ready(state=HardState(2, 1, 7)))
    assert journal.lots == []

    group.write(ready(RaftEntry(8, 2, b"x")))
    ((records, must_sync),) = journal.lots
    assert state_of(records[0]).commit == 7
    assert [record.kind for record in records[1:]] == [ENTRY]
    assert not must_sync


def test_what_has_nothing_to_write_is_done_when_what_is_before_it_is(journal: Journal) -> None:
    done: list[Ready] = []
    group = writes(journal, done)
    first, second = ready(RaftEntry(8, 2, b"x")), ready()

    assert not group.write(first)
    assert not group.write(second)
    assert done == []

    group.durable_up_to(1)
    assert done == [first, second]
    assert group.write(ready()), "now nothing is before it"


def test_the_first_entry_behind_a_checkpoint_begins_the_log_anew(journal: Journal) -> None:
    group = writes(journal, [], is_behind=True)

    group.write(ready(RaftEntry(8, 2, b"x"), RaftEntry(9, 2, b"y")))

    ((records, _),) = journal.lots
    assert [record.kind for record in records] == [RESTART, ENTRY]
