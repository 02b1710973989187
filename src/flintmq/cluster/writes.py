"""The writes of a group's Readies, in the order of their tickets.

A Ready's hard state and entries go to the journal in one piece. When they are durable, and all
before them, the Ready is done: its messages may leave, and the core hears of it. One that has
nothing to write is done when those before it are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ..errors import FlintError
from ..raft import EntryKind, HardState, Ready
from ..storage.frames import ENTRY, MEMBERSHIP, RESTART, Record, State
from ..storage.group_commit import GroupCommit

LOOK_SECONDS = 1.0
"""How soon who waits for the journal looks whether that has failed."""


class ReadyWrites:
    def __init__(
        self,
        commit: GroupCommit,
        group: int,
        hard_state: HardState,
        *,
        is_behind: bool,
        on_done: Callable[[Ready], object],
        on_written: Callable[[int], object],
    ) -> None:
        """`on_done(ready)` is told once a Ready's write is durable, `on_written(index)` that
        entries up to there are written, which may be long before."""
        self._commit, self._group = commit, group
        self._stored = hard_state
        self._news: HardState | None = None
        """A commit that moved: it is written beside the next entries."""
        self.is_behind = is_behind
        """Whether the next entry begins the log anew."""
        self._on_done, self._on_written = on_done, on_written
        self.submitted = self.durable = 0
        """The last ticket, and up to which one all is durable."""
        self._readies: deque[tuple[int, Ready]] = deque()
        self._indexes: deque[tuple[int, int]] = deque()
        self._moved = asyncio.Event()
        self._must_sync = False

    def write(self, ready: Ready, *, tell_when_written: bool = False) -> bool:
        """Hand a Ready to the journal; whether it is done already, having nothing to wait for.
        Then nobody is told."""
        records = self._records(ready)
        if records:
            self.submitted = self._commit.submit(
                records, tell_when_written=tell_when_written, must_sync=self._must_sync
            )
            if tell_when_written and ready.entries:
                self._indexes.append((self.submitted, ready.entries[-1].index))
        elif self.submitted <= self.durable:
            return True
        self._readies.append((self.submitted, ready))
        return False

    def _records(self, ready: Ready) -> list[Record]:
        group, state = self._group, ready.hard_state or self._news
        self._must_sync = state is not None and (
            (state.term, state.vote) != (self._stored.term, self._stored.vote)
        )
        if not ready.entries and not self._must_sync:
            self._news = state
            return []
        records: list[Record] = []
        if state is not None:
            records.append(State(state.term, state.vote, state.commit).record(group))
            self._stored, self._news = state, None
        for entry in ready.entries:
            kind = ENTRY if entry.kind is EntryKind.NORMAL else ENTRY | MEMBERSHIP
            if self.is_behind:
                kind, self.is_behind = RESTART, False
            records.append(Record(group, entry.term, entry.index, (entry.data,), kind))
        return records

    def probe(self) -> None:
        """Write what is known already, to see whether the disk takes it."""
        state = self._stored
        record = State(state.term, state.vote, state.commit).record(self._group)
        self.submitted = self._commit.submit([record], must_sync=True)

    async def wait_quiet(self, failure: Callable[[], FlintError | None]) -> None:
        """Wait until all that was handed to the journal is durable, or it has failed."""
        while self._readies:
            if (error := failure()) is not None:
                raise error
            self._moved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._moved.wait()

    def written_up_to(self, ticket: int) -> None:
        index = 0
        while self._indexes and self._indexes[0][0] <= ticket:
            _, index = self._indexes.popleft()
        if index:
            self._on_written(index)

    def durable_up_to(self, ticket: int) -> None:
        self.durable = ticket
        self._moved.set()
        while self._readies and self._readies[0][0] <= ticket:
            _, ready = self._readies.popleft()
            self._on_done(ready)
