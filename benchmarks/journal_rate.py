"""How fast the journal acknowledges, beside the bare disk.

    python -m benchmarks.journal_rate [--quick] [--directory DIR]

Publishers wait for each acknowledgement before they submit again; `in flight` is how many there
are. A bare loop does what the disk had to do: `pwrite` of as many bytes as the mean frame had, then
`fdatasync`, on a file written with zeros. The two take turns of a quarter of a second, because a
shared disk is now fast and now slow. `x bare` is the journal's rate over the bare one's: 1.00
would be a journal that costs nothing, and an event loop that answers in no time. The median of
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
from flintmq.storage.frames import FRAME_BYTES, RECORD_BYTES, Record
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

    def start(self) -> None:
        self._commit.start()

    async def turn(self, seconds: float) -> tuple[int, int, float]:
        """Publish for so long: acknowledgements, syncs, and how long it took in the end."""
        self.acks = self.frames = 0
        began = perf_counter()
        publishers = (self._publish(began + seconds) for _ in range(self._case.in_flight))
        await asyncio.gather(*publishers)
        return self.acks, self.frames, perf_counter() - began

    async def close(self) -> None:
        await self._commit.close()


class BareDisk:
    """A file of zeros, written over and over."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._position = 0
        for position in range(0, BARE_FILE_BYTES, 1 << 20):
            os.pwrite(self._descriptor, bytes(1 << 20), position)
        os.fsync(self._descriptor)

    def seconds_per_sync(self, size: int, seconds: float) -> float:
        """`pwrite` and `fdatasync` of so many bytes, one behind the other."""
        data, count = os.urandom(size), 0
        began = perf_counter()
        while (now := perf_counter()) < began + seconds or not count:
            if self._position + size > BARE_FILE_BYTES:
                self._position = 0
            os.pwrite(self._descriptor, data, self._position)
            os.fdatasync(self._descriptor)
            self._position += size
            count += 1
        return (now - began) / count

    def close(self) -> None:
        os.close(self._descriptor)


async def measure_once(case: Case, directory: Path, turns: int, seconds: float) -> Figures:
    place = directory / "journal"
    bare = BareDisk(directory / "bare")
    publishers = Publishers(Journal.open(LocalFileSystem(place)), case)
    publishers.start()
    await publishers.turn(seconds * 2)  # warm: the first files are small
    acks = syncs = 0
    took = bare_took = written = 0.0
    for _ in range(turns):
        turn_acks, turn_syncs, turn_took = await publishers.turn(seconds)
        acks, syncs, took = acks + turn_acks, syncs + turn_syncs, took + turn_took
        record_bytes = RECORD_BYTES + (MESSAGE_BYTES * case.messages + 7) // 8 * 8
        frame_bytes = FRAME_BYTES + record_bytes * turn_acks // turn_syncs
        written += frame_bytes * turn_syncs
        bare_took += bare.seconds_per_sync(frame_bytes, seconds) * turn_syncs
    await publishers.close()
    bare.close()
    shutil.rmtree(place)
    return Figures(
        case.name,
        acks / took,
        acks * case.messages / took,
        syncs / took,
        written / took / 1e6,
        acks / syncs,
        acks / bare_took,
        bare_took / took,
    )


def measure(directory: Path, runs: int, turns: int, seconds: float) -> list[Figures]:
    measured: dict[str, list[Figures]] = {case.name: [] for case in CASES}
    for _ in range(runs):
        for case in CASES:
            measured[case.name].append(asyncio.run(measure_once(case, directory, turns, seconds)))
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
    runs, turns, seconds = (1, 1, 0.1) if options.quick else (5, 6, 0.25)
    facts = machine()
    directory = Path(tempfile.mkdtemp(prefix="flintmq-journal-", dir=options.directory))
    try:
        lines = measure(directory, runs, turns, seconds)
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
