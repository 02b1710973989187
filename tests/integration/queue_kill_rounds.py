"""Kill a process that publishes and consumes, again and again, and see that its queues kept faith.

python -m tests.integration.queue_kill_rounds --rounds 500
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from flintmq.client.client import Client

from .kill_child import connect
from .kill_rounds import PATIENCE_SECONDS, ROOT, ChildFailed, _read_until
from .queue_kill_child import DELAY_MAX, GROUPS, LONG_LEASE, ORDERS, now_ms, value_of

VERIFY_EVERY = 10
DRAIN_SECONDS = 60.0
assert DRAIN_SECONDS < LONG_LEASE, "a lease that survived must not run out before it is missed"
CLOCK_MS = 2
"""What rounding may make of a time."""
EVERYTHING = 65_536

FAULTS = (
    "lost",
    "invented",
    "came_again",
    "invisible",
    "counts_went_back",
    "too_early",
    "disordered",
    "buried_twice",
)


@dataclass
class Told:
    """What was told of one topic and its group."""

    begun: Counter[str] = field(default_factory=Counter)
    """Behind the last number that a worker was about to publish."""
    places: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Offset to what a receipt says is there."""
    counts: dict[int, int] = field(default_factory=dict)
    """Offset to how often it was delivered, as it was last told."""
    due_ms: dict[int, int] = field(default_factory=dict)
    of_key: dict[str, dict[int, int]] = field(default_factory=dict)
    """Of each key, the tokens under which its messages were delivered last."""
    settling: set[int] = field(default_factory=set)
    """An ack, a reject or a cancel was begun; it may have been carried out or not."""
    acked: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    cancelled: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    """Seen among the dead letters."""


@dataclass
class Result:
    rounds: int = 0
    killed_while_opening: int = 0
    published: int = 0
    stored: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    rejected: int = 0
    cancelled: int = 0
    dead: int = 0
    dead_unseen: int = 0
    """Dead letters that nobody was ever told to have got: taken ahead, and killed each time."""
    drained: int = 0
    slowest_open_seconds: float = 0.0
    lost: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    came_again: list[str] = field(default_factory=list)
    invisible: list[str] = field(default_factory=list)
    counts_went_back: list[str] = field(default_factory=list)
    too_early: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    buried_twice: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not any(getattr(self, fault) for fault in FAULTS)

    def __str__(self) -> str:
        lines = [
            f"{self.rounds} rounds, {self.killed_while_opening} killed while opening",
            f"{self.published:,} published with a receipt, {self.stored:,} stored, "
            f"{self.delivered:,} deliveries ({self.redelivered:,} not the first), "
            f"{self.acked:,} acked, {self.nacked:,} nacked, {self.rejected:,} rejected, "
            f"{self.cancelled:,} cancelled, {self.dead:,} dead letters "
            f"({self.dead_unseen:,} never seen), {self.drained:,} left for the end",
            ", ".join(f"{len(getattr(self, fault))} {fault}" for fault in FAULTS),
            f"slowest open {self.slowest_open_seconds:.3f} s",
        ]
        lines += [f"{fault}: {text}" for fault in FAULTS for text in getattr(self, fault)[:5]]
        return "\n".join(lines)


class QueueRounds:
    def __init__(self, directory: Path, seed: int, *, delays_last: float = 1.5 * DELAY_MAX) -> None:
        self._directory, self._delays_last = directory, delays_last
        self._chance = random.Random(seed)
        self._told: dict[str, Told] = {topic: Told() for topic in GROUPS}
        self.result = Result()

    def run(self, rounds: int) -> Result:
        for life in range(1, rounds + 1):
            self._one(life)
            if life % VERIFY_EVERY == 0 or life == rounds:
                asyncio.run(self._verify(is_end=life == rounds))
        return self.result

    # --- a life

    def _one(self, life: int) -> None:
        child = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.queue_kill_child", str(self._directory),
             str(life)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        self.result.rounds += 1
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            head = b""
            if self._chance.random() < 0.9:
                while b"\n" not in head and (part := child.stdout.read(65536)):
                    head += part
                seconds = self._chance.random() * 0.3
            else:
                seconds = self._chance.random() * 0.4
            output = head + _read_until(child.stdout.fileno(), time.monotonic() + seconds)
            if child.poll() is not None:
                raise ChildFailed(child.stderr.read().decode())
        finally:
            child.kill()
            rest, _ = child.communicate(timeout=PATIENCE_SECONDS)
        output += rest
        if not output:
            self.result.killed_while_opening += 1
        for line in output.decode().split("\n")[:-1]:  # behind the last newline: a torn line
            self._hear(line.split(" "))

    def _hear(self, words: list[str]) -> None:
        result = self.result
        match words:
            case ["O", seconds]:
                result.slowest_open_seconds = max(result.slowest_open_seconds, float(seconds))
            case ["S", topic, _, in_flight]:
                if int(in_flight):
                    result.invisible.append(f"{topic}: {in_flight} in flight when it was opened")
            case ["p", topic, worker, first, count]:
                self._told[topic].begun[worker] = int(first) + int(count)
            case ["P", topic, worker, first, count, offset]:
                result.published += int(count)
                for at in range(int(count)):
                    self._told[topic].places[int(offset) + at] = (worker, int(first) + at)
            case ["D", topic, offset, count, ms, token, worker, number, key, not_before_ms]:
                told = self._told[topic]
                what = f"{topic} offset {offset} (delivery {count})"
                if int(number) >= told.begun[worker]:
                    result.invented.append(f"{what}: {worker} {number}")
                if int(ms) < int(not_before_ms) - CLOCK_MS:
                    result.too_early.append(f"{what}: at {ms}, published for {not_before_ms}")
                numbers = int(offset), int(count), int(ms), int(token)
                self._delivered(topic, told, *numbers, key)
            case [("a" | "r" | "c"), topic, offsets]:
                self._told[topic].settling.update(map(int, offsets.split(",")))
            case ["A", topic, offsets]:
                done = set(map(int, offsets.split(",")))
                self._told[topic].acked |= done
                result.acked += len(done)
            case ["R", topic, offset]:
                self._told[topic].rejected.add(int(offset))
                result.rejected += 1
            case ["C", topic, offset]:
                self._told[topic].cancelled.add(int(offset))
                result.cancelled += 1
            case ["n", *_]:
                pass
            case ["N", topic, offsets, due_ms]:
                due = dict.fromkeys(map(int, offsets.split(",")), int(due_ms))
                self._told[topic].due_ms |= due
                result.nacked += len(due)
            case _:
                raise AssertionError(f"the child said {words}")

    def _delivered(
        self, topic: str, told: Told, offset: int, count: int, ms: int, token: int, key: str
    ) -> None:
        result = self.result
        what = f"{topic} offset {offset} (delivery {count})"
        result.delivered += 1
        result.redelivered += count > 1
        for fate in ("acked", "rejected", "cancelled", "dead"):
            if offset in getattr(told, fate):
                result.came_again.append(f"{what}: it was {fate}")
        before = told.counts.get(offset, 0)
        # By key, what was handed out behind one that came back goes back uncounted.
        is_by_key = ORDERS[topic] == "key"
        if count < before or (count == before and not is_by_key):
            result.counts_went_back.append(f"{what}: delivery {before} was handed out before")
        told.counts[offset] = count
        due_ms = told.due_ms.pop(offset, 0)
        if ms < due_ms - CLOCK_MS:
            result.too_early.append(f"{what}: at {ms}, nacked until {due_ms}")
        if is_by_key:
            tokens = told.of_key.setdefault(key, {})
            since = tokens.get(offset, 0)
            # What was granted with it may be younger; nothing came ahead of it since.
            ahead = [other for other, at in tokens.items() if other > offset and at > since]
            if ahead:
                result.disordered.append(f"{what}: {key} had {ahead} before")
            tokens[offset] = token

    # --- what is there

    async def _verify(self, *, is_end: bool) -> None:
        """Leases are gone with their process: whatever is not settled is there to be had."""
        async with connect(self._directory) as mq:
            await asyncio.sleep(self._delays_last)  # what is delayed is due by then
            for topic, told in self._told.items():
                if topic not in await mq.topics():
                    self.result.lost += [f"{topic} as a whole"] if told.places else []
                    continue
                stored = await self._stored(mq, topic, told)
                await self._look_at_letters(mq, topic, told, stored)
                await self._look_at_ready(mq, topic, told, stored)
                if is_end:
                    drained = await self._drain(mq, topic)
                    await self._look_at_letters(mq, topic, told, stored)
                    self._settle(topic, told, stored, drained)

    async def _stored(self, mq: Client, topic: str, told: Told) -> dict[int, str]:
        stored: dict[int, str] = {}
        numbers: set[tuple[str, int]] = set()
        async with mq.reader(topic, start=0) as reader:
            while rows := reader.read_batch_nowait(1000):
                for message in rows:
                    assert message.offset is not None
                    stored[message.offset] = message.value.decode()
        for offset, text in stored.items():
            worker, number, key, not_before_ms = text.split(" ")
            place = worker, int(number)
            assert text == value_of(*place, key, int(not_before_ms))
            if place in numbers or place[1] >= told.begun[worker]:
                self.result.invented.append(f"{topic} offset {offset}: {text}")
            numbers.add(place)
            if told.places.get(offset, place) != place:
                self.result.lost.append(f"{topic} offset {offset}: {text} is there instead")
        for offset, place in told.places.items():
            if offset not in stored:
                self.result.lost.append(f"{topic} offset {offset}: {place} had a receipt")
        return stored

    async def _look_at_letters(
        self, mq: Client, topic: str, told: Told, stored: dict[int, str]
    ) -> None:
        result = self.result
        letters = await mq.dead_letters(topic, GROUPS[topic], max=EVERYTHING)
        offsets = [letter.offset for letter in letters]
        for letter in letters:
            if letter.message.value.decode() != stored[letter.offset]:
                result.invented.append(f"{topic} offset {letter.offset} is dead as another")
        for offset, times in Counter(offsets).items():
            if times > 1:
                result.buried_twice.append(f"{topic} offset {offset}: {times} times")
        for offset in told.acked.intersection(offsets):
            result.buried_twice.append(f"{topic} offset {offset}: acked, and dead")
        for offset in (told.dead | told.rejected).difference(offsets):
            result.lost.append(f"{topic} offset {offset}: it was among the dead letters")
        told.dead = set(offsets)

    async def _look_at_ready(
        self, mq: Client, topic: str, told: Told, stored: dict[int, str]
    ) -> None:
        if not any(group.name == GROUPS[topic] for group in await mq.groups(topic)):
            return
        ready = (await mq.peek(topic, GROUPS[topic], max=EVERYTHING)).offsets
        settled = told.acked | told.dead | told.cancelled
        for offset in sorted(set(stored).difference(settled, told.settling, ready)):
            self.result.invisible.append(f"{topic} offset {offset}: {stored[offset]}")
        for offset in settled.intersection(ready):
            self.result.came_again.append(f"{topic} offset {offset} is ready again")

    async def _drain(self, mq: Client, topic: str) -> set[int]:
        """Settle everything that is left."""
        group, drained = GROUPS[topic], set[int]()
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline and (await mq.group_stats(topic, group)).lag:
            found = await mq.poll(topic, group, max=100, lease=LONG_LEASE, wait=0.2)
            for message in found:
                facts = [
                    "D",
                    topic,
                    message.offset,
                    message.delivery_count,
                    now_ms(),
                    message.token,
                ]
                self._hear([*map(str, facts), *message.value.decode().split(" ")])
            await found.ack()
            drained.update(message.offset or 0 for message in found)
        if lag := (await mq.group_stats(topic, group)).lag:
            self.result.invisible.append(f"{topic}: {lag} were not to be had")
        self.result.drained += len(drained)
        return drained

    def _settle(self, topic: str, told: Told, stored: dict[int, str], drained: set[int]) -> None:
        result = self.result
        result.stored += len(stored)
        result.dead += len(told.dead)
        result.dead_unseen += len(told.dead.difference(told.counts))
        settled = told.acked | told.settling | told.dead | drained
        for offset in sorted(set(stored) - settled):
            result.lost.append(f"{topic} offset {offset}: settled by nobody: {stored[offset]}")
        for offset in told.dead & drained:
            result.buried_twice.append(f"{topic} offset {offset}: acked at the end, and dead")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        rounds = QueueRounds(Path(directory) / "data", options.seed)
        try:
            result = rounds.run(options.rounds)
        finally:
            print(rounds.result)
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
