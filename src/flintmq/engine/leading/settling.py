"""Settling: what becomes of messages that were handed out, as their holders say.

Decided by the lease table (`groups.Queue`), then proposed; who asks is answered once that is
applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...errors import LeaseLost
from ...group_model import Lease, Ranges
from ...groups.ranges import count_in, offsets_in, ranges_of
from ...storage.loading import NotLoaded
from ..commands import Attempts
from ..proposer import Done
from .burying import Dead

if TYPE_CHECKING:
    from .queue_group import QueueGroup

_GIVEN_AGAIN_MAX = 4096
"""Of how many messages we know that they were given to another before they were settled."""


class Settling:
    def __init__(self, group: QueueGroup) -> None:
        self._group, self._topic, self._queue = group, group.topic, group.queue
        self._given_again: dict[int, int] = {}
        """Of late: messages that were handed out more than once, and the last token of each; END
        where they are dead letters."""
        self.void_before = 0
        """Tokens from before a reset are worth nothing."""

    async def ack(self, leases: Sequence[Lease]) -> None:
        self._group.check_open()
        mine, lost = self._finish(leases)
        if mine:
            self._group.counter["acked"] += count_in(mine)
            done = self._topic.proposer.settle(self._topic.id, self._group.name, mine)
            if done is not None:
                await done
        if lost:
            self._raise_lost(await self._not_done(lost))

    async def _not_done(self, lost: Sequence[Lease]) -> Ranges:
        """What of these is not settled, or was by another. Whoever lost its connection, or us,
        while it acked something asks again, and hears that it is done."""
        if any(self._queue.places.is_in_limbo(ranges) for _, ranges in lost):
            done = self.behind_all()
            if done is not None:
                await done
        again, is_settled = self._given_again, self._queue.places.is_settled
        return ranges_of(
            [
                offset
                for token, ranges in lost
                for offset in offsets_in(ranges)
                if token < self.void_before
                or not is_settled(offset)
                or again.get(offset, 0) > token
            ]
        )

    def behind_all(self) -> Done:
        """Done once everything that was settled so far is: one that is behind it tells its fate."""
        return self._topic.proposer.settle(self._topic.id, self._group.name, [])

    async def settle_before(self, offset: int) -> None:
        """Everything before an offset is done, whoever holds it."""
        self._group.check_open()
        with suppress(NotLoaded):  # whatever they ask for, they are settled
            self._group.look()
        floor, stop = self._queue.floor, min(offset, self._topic.log.next_offset)
        if stop > floor:
            done = self._topic.proposer.settle(self._topic.id, self._group.name, [(floor, stop)])
            if done is not None:
                await done

    async def nack(self, leases: Sequence[Lease], delay: float) -> None:
        self._group.check_open()
        topic, queue = self._topic, self._queue
        due_ms = topic.clock.now_ms() + round(delay * 1000) if delay > 0 else None
        dead: list[Dead] = []
        all_lost: Ranges = []
        given_back: Ranges = []
        nacked = 0
        for token, ranges in leases:
            last, others = self._group.burying.apart(ranges)
            if last:
                mine, lost = queue.finish(token, last)
                dead += self._group.burying.exhausted(offsets_in(mine), "nacked once too often")
                all_lost += lost
            if others:
                mine, lost = queue.nack(token, others, due_ms)
                if token < queue.in_doubt.led_from:
                    self._group.counter["reclaimed"] += count_in(mine)
                self._group.picking.suspects.remove_ranges(mine)  # whoever nacks it has survived it
                given_back += mine
                nacked += count_in(mine)
                all_lost += lost
        self._group.counter["nacked"] += len(dead) + nacked
        self._note_claimed()
        self.note_recalled()
        self._group.wake()
        self._group.arm()
        if given_back and not topic.proposer.is_instant:
            await self._note_nacked(given_back, due_ms)
        if dead:
            await self._group.burying.bury(dead)
        self._raise_lost(all_lost)

    async def _note_nacked(self, ranges: Ranges, due_ms: int | None) -> None:
        proposer = self._topic.proposer
        if due_ms is None:
            if proposer.failure is None:  # nobody waits for it
                proposer.attempts(Attempts(self._topic.id, self._group.name, [], [], 0, ranges))
            return
        delays = [(offset, due_ms) for offset in offsets_in(ranges)]
        done = proposer.attempts(Attempts(self._topic.id, self._group.name, [], delays))
        if done is not None:
            await done

    async def reject(self, leases: Sequence[Lease], reason: str) -> None:
        self._group.check_open()
        mine, lost = self._finish(leases)
        if mine:
            count_of = self._queue.count_of
            dead = [Dead(offset, reason, count_of(offset)) for offset in offsets_in(mine)]
            await self._group.burying.bury(dead)
        # What was handed out before we led may have been rejected then, as an ack may be done.
        led_from = self._queue.in_doubt.led_from
        now = [(token, ranges) for token, ranges in lost if token >= led_from]
        before = [(token, ranges) for token, ranges in lost if token < led_from]
        all_lost = [run for _, ranges in now for run in ranges]
        self._raise_lost(all_lost + (await self._not_done(before) if before else []))

    async def extend(self, leases: Sequence[Lease], seconds: float, holder: str) -> None:
        if self._topic.lead is not None:  # it is a grant
            await self._topic.lead.confirm()
        self._group.check_open()
        now = self._topic.clock.monotonic()
        all_lost: Ranges = []
        for token, ranges in leases:
            all_lost += self._queue.extend(token, ranges, holder, now=now, seconds=seconds)[1]
        self._note_claimed()
        self._group.arm()
        self._raise_lost(all_lost)

    async def release(self, leases: Sequence[Lease]) -> None:
        self._group.check_open()
        self._raise_lost(self.give_back(leases))

    def give_back(self, leases: Sequence[Lease]) -> Ranges:
        queue = self._queue
        released: Ranges = []
        all_lost: Ranges = []
        for token, ranges in leases:
            mine, lost = queue.release(token, ranges)
            released += mine
            all_lost += lost
        self._note_claimed()
        self._note_uncounted(released)
        self.note_recalled()
        self._group.wake()
        return all_lost

    def _note_uncounted(self, ranges: Ranges) -> None:
        """These were given back unseen: write down that nobody has them, and how often they were
        delivered. Nobody waits for it."""
        proposer = self._topic.proposer
        if ranges and not proposer.is_instant and proposer.failure is None:
            count_of = self._queue.count_of
            attempts = [(offset, offset + 1, count_of(offset)) for offset in offsets_in(ranges)]
            proposer.attempts(Attempts(self._topic.id, self._group.name, attempts))

    def note_recalled(self) -> None:
        """By key, what was handed out behind one that came back is its holder's no more."""
        if self._queue.recalled:
            recalled, self._queue.recalled = self._queue.recalled, []
            self.note_given_again(offsets_in(recalled), self._queue.next_token)
            self._note_uncounted(recalled)

    def _note_claimed(self) -> None:
        """What the leader before us granted, and did not live to write down."""
        claimed, proposer = self._queue.in_doubt.claimed, self._topic.proposer
        while claimed and proposer.failure is None:
            token, ranges = claimed.pop(0)
            attempts = [(start, stop, 1) for start, stop in ranges]
            proposer.attempts(Attempts(self._topic.id, self._group.name, attempts, [], token))

    def unfinish(self, ranges: Ranges) -> None:
        self._queue.unfinish(ranges)
        self.note_recalled()

    def _finish(self, leases: Sequence[Lease]) -> tuple[Ranges, list[Lease]]:
        finish, led_from = self._queue.finish, self._queue.in_doubt.led_from
        all_mine: Ranges = []
        all_lost: list[Lease] = []
        for token, ranges in leases:
            mine, lost = finish(token, ranges)
            all_mine += mine
            if token < led_from:
                self._group.counter["reclaimed"] += count_in(mine)
            if lost:
                all_lost.append((token, lost))
        if self._queue.in_doubt.claimed:
            self._queue.in_doubt.claimed.clear()  # it is settled: that says all
        return all_mine, all_lost

    def _raise_lost(self, lost: Ranges) -> None:
        if lost:
            raise LeaseLost(self._topic.name, self._group.name, list(offsets_in(lost)))

    def note_attempts(
        self, ranges: Ranges, counts: dict[int, int], token: int, future: Done, *, is_first: bool
    ) -> Done:
        """A first delivery is handed out once this is written. One that somebody may have had
        before waits until it is as durable as the policy asks: else a power cut could make the
        token of the one before count again."""
        attempts = [(start, stop, 1) for start, stop in ranges]
        attempts += [(offset, offset + 1, count) for offset, count in counts.items()]
        command = Attempts(self._topic.id, self._group.name, attempts, [], token)
        proposer = self._topic.proposer
        return (proposer.attempts if is_first else proposer.change)(command, future)

    def note_given_again(self, offsets: Iterable[int], token: int) -> None:
        again = self._given_again
        for offset in offsets:
            again.pop(offset, None)
            again[offset] = token
        while len(again) > _GIVEN_AGAIN_MAX:
            del again[next(iter(again))]
