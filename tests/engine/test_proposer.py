"""What becomes of a proposal is told by its index and term, whoever leads in the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.engine.command_log import LogEntry
from flintmq.engine.commands import Attempts, BeginEpoch, Command, Settle
from flintmq.engine.proposer import Proposer
from flintmq.errors import Closed, FlintError, NotLeader, OutcomeUnknown


class Log:
    """Takes commands and says nothing."""

    is_instant = False

    def __init__(self, term: int) -> None:
        self.index = self.submitted_bytes = 0
        self.term = term
        self.can_wait: list[bool] = []

    def submit(
        self,
        command: Command,
        on_written: Callable[[], None] | None = None,
        *,
        sync_can_wait: bool = False,
    ) -> LogEntry:
        self.index += 1
        self.can_wait.append(sync_can_wait)
        return LogEntry(self.index, self.term, 10)

    def hold(self) -> None: ...
    def go(self) -> None: ...

    def begin_term(self, above: int, on_durable: Callable[[], None]) -> None:
        raise AssertionError("nobody begins to lead here")


class Told:
    """Who proposed something."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def applied(self) -> None:
        self.heard.append("applied")

    def failed(self, error: BaseException) -> None:
        self.heard.append(type(error))


class Story:
    def __init__(self, term: int = 2) -> None:
        self.applied: list[Command] = []
        self.log = Log(term)
        self.proposer = Proposer(self.log, self.applied.append, "synced", self.fault)

    def fault(self, where: str, error: Exception) -> None:
        raise error

    def propose(self, number: int) -> Told:
        told = Told()
        self.proposer.propose(BeginEpoch(number), (told,))
        return told


def test_what_is_committed_is_applied_in_its_order_and_answered() -> None:
    story = Story()
    first, second, third = (story.propose(number) for number in (1, 2, 3))

    story.proposer.committed(2)

    assert story.applied == [BeginEpoch(1), BeginEpoch(2)]
    assert (first.heard, second.heard, third.heard) == (["applied"], ["applied"], [])
    assert story.proposer.queued_bytes == 10


def test_an_entry_that_was_proposed_here_is_answered_though_another_leads_by_now() -> None:
    story = Story()
    told = story.propose(1)

    story.proposer.take(1, 2, BeginEpoch(1))

    assert told.heard == ["applied"]
    assert story.applied == [BeginEpoch(1)]


def test_an_entry_of_another_term_in_its_place_says_that_it_was_surely_not_done() -> None:
    story = Story()
    first, second, third = (story.propose(number) for number in (1, 2, 3))

    story.proposer.take(1, 2, BeginEpoch(1))
    story.proposer.take(2, 3, BeginEpoch(9))

    assert first.heard == ["applied"]
    assert second.heard == third.heard == [NotLeader]
    assert story.applied == [BeginEpoch(1), BeginEpoch(9)]
    assert (story.proposer.applied, story.proposer.queued_bytes) == (2, 0)
    assert story.proposer.is_quiet()


def test_entries_that_nobody_here_proposed_are_applied() -> None:
    story = Story()

    story.proposer.take(1, 1, BeginEpoch(5))
    story.proposer.take(2, 1, Settle(1, "g", [(0, 1)]))

    assert story.applied == [BeginEpoch(5), Settle(1, "g", [(0, 1)])]
    assert story.proposer.applied == 2


def test_what_a_snapshot_covers_may_or_may_not_have_happened() -> None:
    story = Story()
    first, second = story.propose(1), story.propose(2)

    story.proposer.covered(1)

    assert first.heard == [OutcomeUnknown]
    assert second.heard == []
    assert story.proposer.applied == 1


def test_what_is_not_heard_of_in_time_may_or_may_not_have_happened() -> None:
    story = Story()
    told = story.propose(1)

    story.proposer.unknown("the lead was lost")

    assert told.heard == [OutcomeUnknown]
    story.propose(2)


def test_what_was_never_proposed_is_surely_not_done_and_what_was_waits() -> None:
    story = Story()
    first, second = story.propose(1), story.propose(2)

    story.proposer.lost(2)

    assert first.heard == []
    assert second.heard == [NotLeader]


def test_when_the_log_stops_nobody_knows_and_nothing_more_is_taken() -> None:
    story = Story()
    told = story.propose(1)

    story.proposer.fail(Closed("the journal"))

    assert told.heard == [OutcomeUnknown]
    with pytest.raises(Closed):
        story.propose(2)


async def test_what_was_gathered_and_not_proposed_is_surely_not_done() -> None:
    story = Story()
    done = story.proposer.settle(1, "g", [(0, 1)])
    assert done is not None

    story.proposer.give_up(NotLeader(0, 0))
    story.proposer.end_turn()

    assert isinstance(done.exception(), NotLeader)
    assert story.log.index == 0


async def test_settles_of_one_turn_share_a_command_and_come_before_the_next_change() -> None:
    story = Story()
    some = story.proposer.settle(1, "g", [(0, 1)])
    more = story.proposer.settle(1, "g", [(3, 5)])
    changed = story.proposer.change(BeginEpoch(1))

    story.proposer.committed(2)

    assert story.applied == [Settle(1, "g", [(0, 1), (3, 5)]), BeginEpoch(1)]
    assert all(done is not None and done.done() for done in (some, more, changed))


def test_each_who_waits_hears_an_error_of_its_own() -> None:
    story = Story()
    heard: list[BaseException] = []

    class Waiter:
        def applied(self) -> None: ...
        def failed(self, error: BaseException) -> None:
            heard.append(error)

    story.proposer.propose(BeginEpoch(1), (Waiter(), Waiter()))
    story.proposer.lost(1)

    assert len({id(error) for error in heard}) == 2
    assert all(isinstance(error, FlintError) for error in heard)


async def test_delivery_counts_wait_for_no_sync_unless_an_ack_goes_with_them() -> None:
    story = Story()
    story.proposer.attempts(Attempts(1, "workers", [(0, 1, 1)]))
    story.proposer.propose_groups()
    story.proposer.attempts(Attempts(1, "workers", [(1, 2, 1)]))
    story.proposer.settle(1, "workers", [(0, 1)])
    story.proposer.propose_groups()
    story.proposer.settle(1, "workers", [(1, 2)])
    story.proposer.propose_groups()

    assert story.log.can_wait == [True, False, False]


def test_what_became_of_proposals_is_counted() -> None:
    story = Story()
    for number in range(5):
        story.propose(number)
    assert story.proposer.fates() == {"applied": 0, "not_done": 0, "unknown": 0}

    story.proposer.committed(2)
    story.proposer.lost(5)
    story.proposer.unknown("the lead was lost")

    assert story.proposer.fates() == {"applied": 2, "not_done": 1, "unknown": 2}
