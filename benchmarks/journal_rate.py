"""How fast the journal acknowledges, beside the bare disk.

    python -m benchmarks.journal_rate [--quick] [--directory DIR]

Publishers wait for each acknowledgement before they submit again; `in flight` is how many there
are. Right behind each run, a bare loop does what the disk had to do in it: `pwrite` of as many
bytes as the mean frame had, then `fdatasync`, on a file written with zeros. `x bare` is the
journal's rate over the bare one's: 1.00 would be a journal that costs nothing. The median of
several runs counts; nothing is asserted. The directory should be on the disk that matters: where
temporary files live in memory, the figures say nothing about it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from flintmq.errors import FlintError
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.storage.frames import Record
from flintmq.storage.group_commit import GroupCommit
from flintmq.storage.journal import Journal

from .report import machine, machine_line

MESSAGE_BYTES = 100
BARE_FILE_BYTES = 64 << 20
RELEASE_EVERY = 64
"""Frames between two releases: a checkpoint that keeps up, so that files are recycled."""


@dataclass(frozen=True, slots=True)
class Case:
    in_flight: int
    messages: int
    """How many messages one submit carries, in one record, as a published batch does."""

    @property
    def name(self) -> str:
        what = "single" if self.messages == 1 else f"batches of {self.messages}"
        return f"{self.in_flight} in flight, {what}"


CASES = (Case(1, 1), Case(64, 1), Case(512, 1), Case(1, 100), Case(64, 100), Case(512, 100))


@dataclass(frozen=True, slots=True)
class Figures:
    case: str
    acks_per_second: float
    messages_per_second: float
    syncs_per_second: float
    megabytes_per_second: float
    acks_per_sync: float
    bare_acks_per_second: float
    against_bare: float


class Publishers:
    """So many publishers, each with one submit under way."""

    def __init__(self, journal: Journal, case: Case) -> None:
        self._case = case
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._index = 0
        self._payload = (os.urandom(MESSAGE_BYTES * case.messages),)
        self.acks = 0
        self.frames = 0
        self._commit = GroupCommit(journal, on_durable=self._durable, on_failed=self._failed)

    def _durable(self, ticket: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= ticket:
            waiting.popleft()[1].set_result(None)
            self.acks += 1
        self.frames += 1
        if self.frames % RELEASE_EVERY == 0:
            self._commit.release_before(self._commit.journal.written)

    def _failed(self, error: FlintError) -> None:
        raise error

    async def _publish(self, until: float) -> None:
        while perf_counter() < until:
            self._index = index = self._index + 1
            record = Record(1, 1, index, self._payload)
            future = self._loop.create_future()
            self._waiting.append((self._commit.submit([record]), future))
            await future

    async def run(self, seconds: float) -> float:
        """Publish for so long, once to get warm and once to count; how long that took."""
        self._commit.start()
        for length in (seconds / 4, seconds):
            self.acks = self.frames = 0
            began = perf_counter()
            publishers = (self._publish(began + length) for _ in range(self._case.in_flight))
            await asyncio.gather(*publishers)
            took = perf_counter() - began
        await self._commit.close()
        return took


def bare_seconds_per_sync(directory: Path, size: int, seconds: float) -> float:
    """`pwrite` and `fdatasync` of so many bytes, one behind the other."""
    path, data = directory / "bare", os.urandom(size)
    file_bytes = max(BARE_FILE_BYTES, size)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        for position in range(0, file_bytes, 1 << 20):
            os.pwrite(descriptor, bytes(1 << 20), position)
        os.fsync(descriptor)
        position = count = 0
        began = perf_counter()
        while (now := perf_counter()) < began + seconds:
            if position + size > file_bytes:
                position = 0
            os.pwrite(descriptor, data, position)
            os.fdatasync(descriptor)
            position += size
            count += 1
        return (now - began) / count
    finally:
        os.close(descriptor)
        path.unlink()


def measure_once(case: Case, directory: Path, seconds: float) -> Figures:
    place = directory / "journal"

    async def publish() -> tuple[int, int, float]:
        publishers = Publishers(Journal.open(LocalFileSystem(place)), case)
        took = await publishers.run(seconds)
        return publishers.acks, publishers.frames, took

    acks, frames, took = asyncio.run(publish())
    shutil.rmtree(place)
    frame_bytes = 40 + (32 + MESSAGE_BYTES * case.messages + 7) // 8 * 8 * acks // frames
    bare = bare_seconds_per_sync(directory, frame_bytes, seconds / 2)
    return Figures(
        case.name,
        acks / took,
        acks * case.messages / took,
        frames / took,
        frame_bytes * frames / took / 1e6,
        acks / frames,
        acks / frames / bare,
        bare * frames / took,
    )


def measure(directory: Path, runs: int, seconds: float) -> list[Figures]:
    measured: dict[str, list[Figures]] = {case.name: [] for case in CASES}
    for _ in range(runs):
        for case in CASES:
            measured[case.name].append(measure_once(case, directory, seconds))
    return [
        Figures(
            name,
            *(
                median(list(asdict(run).values())[column] for run in lines)
                for column in range(1, 8)
            ),
        )
        for name, lines in measured.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journal_rate")
    parser.add_argument("--quick", action="store_true", help="does it still run?")
    parser.add_argument("--directory", type=Path, help="on the disk to measure")
    options = parser.parse_args()
    runs, seconds = (1, 0.2) if options.quick else (3, 1.0)
    facts = machine()
    directory = Path(tempfile.mkdtemp(prefix="flintmq-journal-", dir=options.directory))
    try:
        lines = measure(directory, runs, seconds)
    finally:
        shutil.rmtree(directory)
    print(f"The journal, fsync always, messages of {MESSAGE_BYTES} bytes; median of {runs}")
    print(machine_line(facts))
    print(
        f"{'':<32}{'acks/s':>10}{'messages/s':>12}{'syncs/s':>9}{'MB/s':>7}"
        f"{'acks/sync':>11}{'bare acks/s':>13}{'x bare':>8}"
    )
    for line in lines:
        print(
            f"{line.case:<32}{line.acks_per_second:>10,.0f}{line.messages_per_second:>12,.0f}"
            f"{line.syncs_per_second:>9,.0f}{line.megabytes_per_second:>7,.0f}"
            f"{line.acks_per_sync:>11,.1f}{line.bare_acks_per_second:>13,.0f}"
            f"{line.against_bare:>8.2f}"
        )
    rounded = [
        {name: value if isinstance(value, str) else round(value, 2) for name, value in item}
        for item in (asdict(line).items() for line in lines)
    ]
    print(
        json.dumps({"scenario": "journal_rate", "runs": runs, "machine": facts, "lines": rounded})
    )


if __name__ == "__main__":
    main()
