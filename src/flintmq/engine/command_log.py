"""Command logs: what stands between a decision and its effect.

A log gives commands an order, and says when they may be applied:

    InstantLog     in memory: in the same step, and the command as it is
    JournalLog     one node: once the journal has it, as safely as the policy asks (journal_log.py)
    RaftLog        of a cluster: once most nodes have it (to come, in cluster/)

Who leads submits; the `Proposer` hears what became of it, by index and term.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from .commands import Command


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
    index: int
    """Of the last command that was submitted, here or by who led before."""
    submitted_bytes: int
    """All that was submitted since this log was opened."""

    def submit(
        self, command: Command, on_written: Callable[[], None] | None = None
    ) -> LogEntry: ...

    def begin_term(self, above: int, on_durable: Callable[[], None]) -> None:
        """Somebody begins to lead: `term` is one that nobody had before, and above a number. Told
        once that is so for good, whatever happens to this node."""


class InstantLog:
    """In memory nothing stands in between, and nothing is kept."""

    is_instant = True

    def __init__(self) -> None:
        self.term = self.index = self.submitted_bytes = 0

    def submit(self, command: Command, on_written: Callable[[], None] | None = None) -> LogEntry:
        self.index += 1
        return LogEntry(self.index, self.term, 0)

    def begin_term(self, above: int, on_durable: Callable[[], None]) -> None:
        self.term = max(self.term, above) + 1
        on_durable()
