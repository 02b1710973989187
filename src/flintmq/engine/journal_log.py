"""The command log of one node: what is in its journal is committed.

The term is raised by a hard state in the journal whenever somebody begins to lead, at each start
too. What is submitted under it lies behind that, so an entry is never there without its term; what
leaves this node without an entry, a lease token, waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from ..storage.frames import ENTRY, RESTART, Record, State
from ..storage.group_commit import GroupCommit
from .command_log import Callback, LogEntry
from .commands import Command, decode_command, encode_command


class JournalLog:
    """The commands of one group in the journal of this node. Many groups may share it."""

    is_instant = False
    leads_alone = True
    members = b""

    def __init__(self, group: int = 0) -> None:
        self._commit: GroupCommit
        self._on_committed: Callable[[int], None]
        self._on_due: Callable[[], object]
        self.bytes_due: float = inf
        self.group, self.term, self.index = group, 0, 0
        self._is_behind = False
        self._tickets: deque[tuple[int, int]] = deque()
        self._on_written: deque[tuple[int, Callback]] = deque()
        self._on_term: deque[tuple[int, Callable[[], None]]] = deque()
        self.submitted_bytes = 0

    def write_to(
        self, commit: GroupCommit, on_committed: Callable[[int], None], on_due: Callable[[], object]
    ) -> None:
        self._commit, self._on_committed, self._on_due = commit, on_committed, on_due

    def go_on_behind(self, index: int, term: int, *, is_behind: bool) -> None:
        self.index, self.term, self._is_behind = index, term, is_behind

    def committed_in(self, state: State) -> int | None:
        return None

    def command_of(self, record: Record) -> Command | None:
        # What is read is a view of a large buffer; what is kept is a copy of its own.
        return decode_command(bytes(record.payload))

    def needed_behind(self, checkpoint: int) -> int:
        return checkpoint

    def begin_term(self, above: int, on_durable: Callable[[], None]) -> None:
        self.term = max(self.term, above) + 1
        state = State(self.term, commit=self.index)
        ticket = self._commit.submit([state.record(self.group)], must_sync=True)
        self._on_term.append((ticket, on_durable))

    def submit(
        self, command: Command, on_written: Callback | None = None, *, sync_can_wait: bool = False
    ) -> LogEntry:
        """`on_written` is called once it is written, which may be long before it is synced; not at
        all if the journal stops."""
        buffers = tuple(encode_command(command))
        index = self.index + 1
        kind = RESTART if self._is_behind else ENTRY
        ticket = self._commit.submit(
            [Record(self.group, self.term, index, buffers, kind)],
            tell_when_written=on_written is not None,
            sync_can_wait=sync_can_wait,
        )
        if on_written is not None:
            self._on_written.append((ticket, on_written))
        self._is_behind = False
        self.index = index
        self._tickets.append((ticket, index))
        size = sum(map(len, buffers))
        self.submitted_bytes += size
        return LogEntry(index, self.term, size)

    def hold(self) -> None:
        self._commit.hold()

    def go(self) -> None:
        self._commit.go()

    def written_up_to(self, ticket: int) -> None:
        while self._on_written and self._on_written[0][0] <= ticket:
            self._on_written.popleft()[1]()

    def durable_up_to(self, ticket: int) -> None:
        while self._on_term and self._on_term[0][0] <= ticket:
            self._on_term.popleft()[1]()
        index = 0
        tickets = self._tickets
        while tickets and tickets[0][0] <= ticket:
            _, index = tickets.popleft()
        if index:
            self._on_committed(index)
            if self.submitted_bytes >= self.bytes_due:
                self._on_due()
