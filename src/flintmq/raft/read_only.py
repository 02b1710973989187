"""Reads that wait until the leader knows it still led when they were asked (Raft 6.4).

A read belongs to a round. The round's number travels in heartbeats; an answer confirms that round
and all before it, so one heartbeat confirms every read that was asked before it left. Pure
bookkeeping; the leader sends and counts.
"""

from __future__ import annotations

from collections import deque

import msgspec


class PendingRead(msgspec.Struct, frozen=True):
    round: int
    index: int  # committed when the read was asked
    asker: int
    context: bytes


class ReadRounds:
    """Every broadcast of heartbeats is a round. Invariant: rounds in `_pending` never decrease."""

    def __init__(self) -> None:
        self.round = 0
        self._round_left = True  # heartbeats of the current round are on their way
        self._pending: deque[PendingRead] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def ask(self, index: int, asker: int, context: bytes) -> bool:
        """Add a read. True when no heartbeats wait to leave, so that a round must begin for it."""
        needs_round = self._round_left
        number = self.round + 1 if needs_round else self.round
        self._pending.append(PendingRead(number, index, asker, context))
        return needs_round

    def begin_round(self) -> int:
        self.round += 1
        self._round_left = False
        return self.round

    def heartbeats_left(self) -> None:
        """What was queued is being sent: a later read can no longer join its round."""
        self._round_left = True

    def confirmed(self, round_number: int) -> list[PendingRead]:
        """The reads a quorum has confirmed with this round; they are forgotten here."""
        done: list[PendingRead] = []
        while self._pending and self._pending[0].round <= round_number:
            done.append(self._pending.popleft())
        return done
