"""Command logs: what stands between a decision and its effect.

A log gives commands an order, and says when they may be applied:

    InstantLog     in memory: in the same step, and the command as it is
    JournalLog     one node: once the journal has it, as safely as the policy asks (journal_log.py)
    ReplicatedLog  of a cluster: once most nodes have it (cluster/replicated_log.py)

Who leads submits; the `Proposer` hears what became of it, by index and term.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ..storage.frames import Record, State
from ..storage.group_commit import GroupCommit
from .commands import Command

Callback = Callable[[], None]


class LogEntry(NamedTuple):
    """Where a command is in its log. Another may be at that index in the end, if another led
    meanwhile: the term tells them apart."""

    at: int
    """Its index."""
    term: int
    size: int


class CommandLog(Protocol):
    """`submit` puts a command behind all others. Every log then tells its proposer, in order:

    committed(index)   what was submitted is to be applied up to there
    lost(index)        from there on, others' commands have taken the place of ours
    """

    is_instant: bool
    """Whether a command is committed in the step that submits it."""
    term: int
    """Under which commands are submitted."""

    @property
    def index(self) -> int:
        """Of the last command that was submitted, here or by who led before."""
        ...

    @property
    def submitted_bytes(self) -> int:
        """All that was submitted since this log was opened."""
        ...

    def submit(
        self, command: Command, on_written: Callback | None = None, *, sync_can_wait: bool = False
    ) -> LogEntry:
        """`on_written` is told once it is written. With `sync_can_wait` nobody waits for more."""
        ...

    def hold(self) -> None:
        """What is submitted from now on goes together, when `go` is called: once this turn of the
        event loop is over. It is for a log that would wait for the end of the turn by itself."""

    def go(self) -> None: ...

    def begin_term(self, above: int, on_durable: Callable[[], None]) -> None:
        """Somebody begins to lead: `term` is one that nobody had before, and above a number. Told
        once that is so for good, whatever happens to this node."""


class KeptLog(CommandLog, Protocol):
    """A log in the journal of this node, as its host sees it."""

    leads_alone: bool
    """Whether whoever has the directory open leads; in a cluster that is voted on."""
    members: bytes
    """Who keeps copies of it, for the manifest; empty where nobody else does."""
    bytes_due: float
    """When it is time for a checkpoint, by `submitted_bytes`."""

    def write_to(
        self, commit: GroupCommit, on_committed: Callable[[int], None], on_due: Callable[[], object]
    ) -> None:
        """What is submitted goes there. `on_committed(index)` is told what may be applied,
        `on_due()` that it is time for a checkpoint."""

    def committed_in(self, state: State) -> int | None:
        """Up to where the journal may be applied at a start, by its last hard state; None: all."""

    def command_of(self, record: Record) -> Command | None:
        """What a record of the journal says; None where that is nothing for the shard."""

    def go_on_behind(self, index: int, term: int, *, is_behind: bool) -> None:
        """The log was applied up to `index`, the last term is `term`. If the journal itself ends
        before that, `is_behind`, it begins anew there."""

    def needed_behind(self, checkpoint: int) -> int:
        """Behind which index the journal has to be kept, if that is the last checkpoint."""
        ...

    def written_up_to(self, ticket: int) -> None: ...
    def durable_up_to(self, ticket: int) -> None: ...


class InstantLog:
    """In memory nothing stands in between, and nothing is kept."""

    is_instant = True

    def __init__(self) -> None:
        self.term = self.index = self.submitted_bytes = 0

    def submit(
        self, command: Command, on_written: Callback | None = None, *, sync_can_wait: bool = False
    ) -> LogEntry:
        self.index += 1
        return LogEntry(self.index, self.term, 0)

    def hold(self) -> None: ...
    def go(self) -> None: ...

    def begin_term(self, above: int, on_durable: Callable[[], None]) -> None:
        self.term = max(self.term, above) + 1
        on_durable()
