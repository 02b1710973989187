"""Kill a process that publishes, again and again, and see that its receipts were true.

python -m tests.integration.kill_rounds --rounds 500
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import select
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .kill_child import ONCE, READER, connect, value_of

ROOT = Path(__file__).parents[2]
VERIFY_EVERY = 20
PATIENCE_SECONDS = 60


@dataclass
class Told:
    """What was told of one topic, and not yet verified."""

    begun: dict[str, int] = field(default_factory=dict)
    """Behind the last number that a worker was about to publish."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Behind the last number that a worker has a receipt for."""
    places: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Offset to what a receipt says is there."""


@dataclass
class Seen:
    """How far a topic has been verified."""

    next_offset: int = 0
    checksum: int = 0
    numbers: dict[str, int] = field(default_factory=dict)


@dataclass
class Result:
    rounds: int = 0
    killed_while_opening: int = 0
    acknowledged: int = 0
    stored: int = 0
    unacknowledged_but_stored: int = 0
    repeats_recognized: int = 0
    commits: int = 0
    lost: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    positions_wrong: list[str] = field(default_factory=list)
    slowest_open_seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not (
            self.lost or self.invented or self.doubled or self.disordered or self.positions_wrong
        )

    def __str__(self) -> str:
        faults = ("lost", "invented", "doubled", "disordered", "positions_wrong")
        lines = [
            f"{self.rounds} rounds, {self.killed_while_opening} killed while opening",
            f"{self.acknowledged:,} acknowledged, {self.stored:,} stored, "
            f"{self.unacknowledged_but_stored:,} stored without a receipt, "
            f"{self.repeats_recognized:,} repeats recognized, {self.commits:,} commits",
            ", ".join(f"{len(getattr(self, fault))} {fault}" for fault in faults),
            f"slowest open {self.slowest_open_seconds:.3f} s",
        ]
        lines += [f"{fault}: {text}" for fault in faults for text in getattr(self, fault)[:5]]
        return "\n".join(lines)


class ChildFailed(Exception):
    """It ended by itself."""


class Rounds:
    """`before_kill` and `after_kill` do more harm: they may cut the power of the disk."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        before_kill: Callable[[], None] = lambda: None,
        after_kill: Callable[[], None] = lambda: None,
    ) -> None:
        self._directory = directory
        self._before_kill, self._after_kill = before_kill, after_kill
        self._chance = random.Random(seed)
        self._told: dict[str, Told] = {}
        self._seen: dict[str, Seen] = {}
        self._once_next = 0
        self._once_open: dict[int, int] = {}
        self._committed = 0
        self._commit_begun = 0
        self.result = Result()

    def run(self, rounds: int) -> Result:
        for life in range(1, rounds + 1):
            self._one(life)
            if life % VERIFY_EVERY == 0 or life == rounds:
                asyncio.run(self._verify())
        asyncio.run(self._verify_again())
        return self.result

    # --- a life

    def _one(self, life: int) -> None:
        first, counts = self._unheard()
        child = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.kill_child", str(self._directory), str(life),
             str(first), *map(str, counts)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        self.result.rounds += 1
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            head = b""
            if self._chance.random() < 0.85:
                while b"\n" not in head and (part := child.stdout.read(65536)):
                    head += part
                seconds = self._chance.random() * 0.35
            else:
                seconds = self._chance.random() * 0.4
            # Reading on is what lets the child go on: a full pipe would hold it up.
            deadline = time.monotonic() + seconds
            output = head + _read_until(child.stdout.fileno(), deadline)
            if child.poll() is not None:
                raise ChildFailed(child.stderr.read().decode())
            self._before_kill()
        finally:
            child.kill()
            rest, _ = child.communicate(timeout=PATIENCE_SECONDS)
        self._after_kill()
        output += rest
        if not output:
            self.result.killed_while_opening += 1
        for line in output.decode().split("\n")[:-1]:  # behind the last newline: a torn line
            self._hear(line.split(" "))

    def _unheard(self) -> tuple[int, list[int]]:
        """Where the idempotent publisher has to go on, and the batches it has to repeat."""
        counts, number = [], self._once_next
        while number in self._once_open:
            counts.append(self._once_open[number])
            number += counts[-1]
        return self._once_next, counts

    def _hear(self, words: list[str]) -> None:
        match words:
            case ["O", seconds]:
                self.result.slowest_open_seconds = max(
                    self.result.slowest_open_seconds, float(seconds)
                )
            case ["T", topic, worker, first, count]:
                told = self._told.setdefault(topic, Told())
                behind = int(first) + int(count)
                told.begun[worker] = max(behind, told.begun.get(worker, 0))
                if topic == ONCE:
                    self._once_open[int(first)] = int(count)
            case ["A", topic, worker, first, count, offset, duplicate]:
                self._acknowledged(topic, worker, int(first), int(count), int(offset))
                self.result.repeats_recognized += int(duplicate)
            case ["N", offset]:
                if not self._committed <= int(offset) <= max(self._commit_begun, self._committed):
                    self.result.positions_wrong.append(
                        f"opened at {offset}; {self._committed} was committed, "
                        f"{self._commit_begun} perhaps"
                    )
                self._committed = int(offset)
            case ["t", offset]:
                self._commit_begun = int(offset)
            case ["c", offset]:
                self._committed = int(offset)
                self.result.commits += 1
            case _:
                raise AssertionError(f"the child said {words}")

    def _acknowledged(self, topic: str, worker: str, first: int, count: int, offset: int) -> None:
        told = self._told[topic]
        told.acknowledged[worker] = first + count
        self.result.acknowledged += count
        if offset >= 0:
            for at in range(count):
                told.places[offset + at] = (worker, first + at)
        if topic == ONCE:
            self._once_next = first + count
            self._once_open.pop(first, None)

    # --- what is there

    async def _verify(self) -> None:
        """Compare what came since the last time with what was told."""
        async with connect(self._directory) as mq:
            for topic, told in self._told.items():
                seen = self._seen.setdefault(topic, Seen())
                if topic not in await mq.topics():
                    self.result.lost += [f"{topic} as a whole"] if told.acknowledged else []
                    continue
                verified_before = seen.next_offset
                async with mq.reader(topic, start=verified_before) as reader:
                    while rows := reader.read_batch_nowait(1000):
                        for message in rows:
                            assert message.offset is not None
                            self._look_at(topic, told, seen, message.offset, message.value)
                self._settle(topic, told, seen, verified_before)
            if "singles" in await mq.topics():
                async with mq.reader("singles", name=READER) as named:
                    self._hear(["N", str(await named.position())])

    def _look_at(self, topic: str, told: Told, seen: Seen, offset: int, value: bytes) -> None:
        result = self.result
        what = f"{topic} offset {offset}"
        if offset != seen.next_offset:
            result.lost.append(f"{what}: {seen.next_offset} was to come")
        seen.next_offset = offset + 1
        seen.checksum = zlib.crc32(value, seen.checksum)
        result.stored += 1
        worker, _, rest = value.decode().partition(" ")
        number = int(rest.partition(" ")[0])
        if value != value_of(worker, number) or number >= told.begun.get(worker, 0):
            result.invented.append(f"{what}: {value[:60]!r}")
            return
        due = seen.numbers.get(worker, 0)
        if number < due:
            result.doubled.append(f"{what}: {worker} {number} came before")
        elif number > due:
            # A worker waits for each receipt, so that its numbers come without a gap.
            result.disordered.append(f"{what}: {worker} {number} where {due} was to come")
        seen.numbers[worker] = number + 1
        place = told.places.pop(offset, None)
        if place is None and number >= told.acknowledged.get(worker, 0):
            result.unacknowledged_but_stored += 1
        if place is not None and place != (worker, number):
            result.lost.append(f"{what}: {place} was acknowledged, {worker} {number} is there")

    def _settle(self, topic: str, told: Told, seen: Seen, verified_before: int) -> None:
        for offset, place in told.places.items():
            # Verified without a receipt, then sent again: the topic has nothing but these, so that
            # numbers are offsets.
            if offset < verified_before and topic == ONCE and place == (ONCE, offset):
                continue
            self.result.lost.append(f"{topic} offset {offset}: {place} was acknowledged")
        for worker, behind in told.acknowledged.items():
            if seen.numbers.get(worker, 0) < behind:
                self.result.lost.append(
                    f"{topic}: {worker} up to {behind} acknowledged, "
                    f"{seen.numbers.get(worker, 0)} are there"
                )
        told.places.clear()
        told.acknowledged.clear()
        # Workers of former lives are never heard of again; `once` goes on.
        for numbers in (told.begun, seen.numbers):
            for worker in [worker for worker in numbers if worker != ONCE]:
                del numbers[worker]

    async def _verify_again(self) -> None:
        """Everything from the beginning: what was verified once has to be there still."""
        async with connect(self._directory) as mq:
            for topic, seen in self._seen.items():
                checksum = count = 0
                async with mq.reader(topic, start=0) as reader:
                    while rows := reader.read_batch_nowait(1000):
                        count += len(rows)
                        for value in rows.values:
                            checksum = zlib.crc32(value, checksum)
                if (count, checksum) != (seen.next_offset, seen.checksum):
                    self.result.lost.append(f"{topic}: {count} of {seen.next_offset}, or others")


def _read_until(descriptor: int, deadline: float) -> bytes:
    return b"".join(_parts(descriptor, deadline))


def _parts(descriptor: int, deadline: float) -> Iterator[bytes]:
    while (left := deadline - time.monotonic()) > 0:
        if select.select([descriptor], [], [], left)[0]:
            if not (part := os.read(descriptor, 1 << 16)):
                return
            yield part


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        rounds = Rounds(Path(directory) / "data", options.seed)
        try:
            result = rounds.run(options.rounds)
        finally:
            print(rounds.result)
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
