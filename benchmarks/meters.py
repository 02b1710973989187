"""What a piece of work cost: its time, the processor seconds of each party, and what was stolen.

Read from /proc; where there is none, only the time is told. Needs the standard library alone, for
it runs in the environments of peers, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
QUIET_SHARE = 0.05
QUIET_SECONDS = 0.3


@dataclass(frozen=True)
class Parties:
    """The processes of a measurement. Spark's Python workers are children of its Java."""

    jvm: int
    broker: int | None = None

    def seconds(self) -> dict[str, float]:
        """Processor seconds so far, by party."""
        spent = {"jvm": _own_seconds(self.jvm), "python": 0.0}
        for pid in _descendants(self.jvm):
            spent["python"] += _own_seconds(pid, with_children=True)
        if self.broker is not None:
            spent["broker"] = _own_seconds(self.broker)
        return spent


def measured(parties: Parties, work: Callable[[], int]) -> dict[str, float]:
    """Do the work, which tells how many rows it was; what it cost."""
    before, stolen_before, total_before = parties.seconds(), *machine_ticks()
    start = time.perf_counter()
    rows = work()
    seconds = time.perf_counter() - start
    after, stolen_after, total_after = parties.seconds(), *machine_ticks()
    figures = {"rows": float(rows), "seconds": seconds, "rows/s": rows / seconds}
    for party, spent in after.items():
        figures[f"{party} s"] = max(0.0, spent - before.get(party, 0.0))
    if total_after > total_before:
        figures["stolen"] = (stolen_after - stolen_before) / (total_after - total_before)
    return figures


def wait_quiet(pid: int, patience_seconds: float = 30.0) -> None:
    """Wait until a process has nothing left to do, so that it does not disturb the next."""
    give_up_at = time.monotonic() + patience_seconds
    while time.monotonic() < give_up_at:
        before = _own_seconds(pid)
        time.sleep(QUIET_SECONDS)
        if _own_seconds(pid) - before < QUIET_SHARE * QUIET_SECONDS:
            return


def resident_bytes(pid: int) -> int:
    try:
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def family(pid: int) -> list[int]:
    """A process and everything it has started."""
    return [pid, *_descendants(pid)]


def _stat(pid: int) -> list[str]:
    """The fields behind a process's name, which may hold blanks itself."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def processor_seconds(pids: list[int]) -> float:
    """What processes have used of the processors so far, all together."""
    return sum(max(_exact_seconds(pid), _own_seconds(pid)) for pid in pids)


def _exact_seconds(pid: int) -> float:
    """Of the threads that are there now, by nanoseconds. The process itself counts those that have
    ended as well, but by ticks of 10 ms."""
    spent = 0
    with suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError, IndexError):
                spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


def _own_seconds(pid: int, *, with_children: bool = False) -> float:
    """With those of children that have ended, on demand: so what a worker did is not forgotten."""
    fields = _stat(pid)
    if not fields:
        return 0.0
    ticks = sum(int(field) for field in fields[11 : 15 if with_children else 13])
    return ticks / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in PROC.iterdir() if PROC.exists() else ():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents[int(entry.name)] = int(fields[1])
    found: list[int] = []
    front = {pid}
    while front:
        front = {child for child, parent in parents.items() if parent in front}
        found.extend(front)
    return found


def machine_ticks() -> tuple[int, int]:
    """What the host took from us, and everything there was."""
    try:
        fields = [int(one) for one in (PROC / "stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return 0, 0
    return fields[7], sum(fields)
