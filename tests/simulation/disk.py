"""A disk that syncs in order, sometimes slowly, and in a crash keeps what it likes.

What was synced is never lost. Of what was not, any subset of the sectors may survive. The log is a
chain of checksummed records, so recovery keeps the longest beginning without a hole, and of a torn
record its first entries; the hard state lives in slots of its own, of which any may survive.
"""

from __future__ import annotations

from collections import deque
from random import Random

from flintmq.raft import Membership, MemoryStorage, Ready


class SimulatedDisk:
    """`storage` is what is durable. `writes` are under way, oldest first."""

    def __init__(self, founders: Membership | None) -> None:
        self.storage = (
            MemoryStorage.bootstrapped(founders) if founders is not None else MemoryStorage()
        )
        self.writes: deque[Ready] = deque()
        self.snapshot_bytes = b""  # of the state machine, as of storage.snapshot()
        self.received_bytes: dict[int, bytes] = {}  # complete snapshots waiting to be installed
        self.busy_until = 0
        self.slow_until = 0

    def write(self, ready: Ready, now: int, random: Random, sync_us: tuple[int, int]) -> int:
        """Queue a write; returns when it will be durable. Syncs of waiting writes are shared."""
        took = random.randint(*sync_us)
        if now < self.slow_until:
            took *= 20
        self.writes.append(ready)
        if not ready.entries and ready.snapshot is None and ready.hard_state is None:
            took = 0  # nothing to write; it only waits for those before it
        self.busy_until = max(self.busy_until, now + took)
        return self.busy_until

    def complete(self, ready: Ready) -> None:
        assert self.writes[0] is ready, "syncs complete in order"
        self.writes.popleft()
        self._store_hard_state(ready)
        self._store_log(ready, len(ready.entries))

    def crash(self, random: Random) -> None:
        """The power goes. Decide what of the writes under way was on the platter."""
        hole = False
        for ready in self.writes:
            if random.random() < 0.5:
                self._store_hard_state(ready)
            if hole:
                continue
            if random.random() < 0.5:
                self._store_log(ready, len(ready.entries))
            elif ready.entries and ready.snapshot is None:
                self._store_log(ready, random.randrange(len(ready.entries)))
                hole = True
            else:
                hole = bool(ready.entries or ready.snapshot)
        self.writes.clear()
        self.received_bytes.clear()
        self.busy_until = self.slow_until = 0

    def _store_hard_state(self, ready: Ready) -> None:
        if ready.hard_state is not None:
            self.storage.set_hard_state(ready.hard_state)

    def _store_log(self, ready: Ready, entry_count: int) -> None:
        if ready.snapshot is not None:
            self.storage.install(ready.snapshot)
            self.snapshot_bytes = self.received_bytes.pop(ready.snapshot.index)
        self.storage.append(ready.entries[:entry_count])

    def holds(self, index: int, term: int) -> bool:
        """This entry, or a snapshot that contains it, is durable here."""
        storage = self.storage
        if index < storage.first_index():
            return True
        return index <= storage.last_index() and storage.term(index) == term
