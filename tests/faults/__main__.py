"""The faults F1 to F20 against real processes: what was acknowledged, lost, doubled, and how long
nothing was.

    python -m tests.faults --rounds 3 --json faults.json
    python -m tests.faults --only F1,F3 --systems flintmq

Each fault has a cluster of its own, of three nodes with a disk each; four publishers wait for each
receipt. In the end everything is read. Lost: it has a receipt and is not there. Doubled: it is
there more than once. Needs root (disks that lose their power) and strace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import flintmq
from tests.integration.loop_disk import LoopDisk, loop_disk

from .harms import ROWS, Harm, Row
from .subjects import NODES, FlintCluster, NatsCluster, Publishing, Subject

PUBLISHERS = 4
DISK_MEBIBYTES = 512
FILL_SECONDS = 3.0
"""Before the first round: so that there are segments."""
CALM_SECONDS = 2.0
STUCK_SECONDS = 60.0
LOOK_SECONDS = 0.05

SYSTEMS: dict[str, Callable[[Path, list[LoopDisk]], Subject]] = {
    "flintmq": FlintCluster,
    "nats-default": lambda place, disks: NatsCluster(place, disks, sync_always=False),
    "nats-always": lambda place, disks: NatsCluster(place, disks, sync_always=True),
}


@dataclass
class Outcome:
    fault: str
    what: str
    system: str
    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    longest_pause: float = 0.0
    notes: list[str] = field(default_factory=list)


class Ledger:
    """What publishers were told. A number is sent until it has a receipt."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.longest = 0.0
        self._last = time.monotonic()
        self._next = 0
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing: list[Publishing] = []

    async def begin(self, subject: Subject) -> None:
        for _ in range(PUBLISHERS):
            publishing = await subject.publishing()
            self._publishing.append(publishing)
            self._last = time.monotonic()  # until now they were opened, which is no pause
            self._tasks.append(asyncio.ensure_future(self._publish(publishing)))

    async def _publish(self, publishing: Publishing) -> None:
        while not self._is_over:
            number, self._next = self._next, self._next + 1
            try:
                await publishing.publish(number)
            except flintmq.FlintError:
                continue  # it may be there or not
            now = time.monotonic()
            self.longest = max(self.longest, now - self._last)
            self._last = now
            self.acknowledged.add(number)
            await asyncio.sleep(0.001)

    async def goes_on(self) -> bool:
        """Whether something is acknowledged again before long."""
        reached = len(self.acknowledged) + 20
        for _ in range(round(STUCK_SECONDS / LOOK_SECONDS)):
            if len(self.acknowledged) >= reached:
                return True
            await asyncio.sleep(LOOK_SECONDS)
        self.longest = max(self.longest, time.monotonic() - self._last)
        return False

    async def end(self) -> None:
        self._is_over = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for publishing in self._publishing:
            with suppress(Exception):
                await asyncio.wait_for(publishing.close(), 5)


async def tried(row: Row, system: str, rounds: int, seed: int) -> Outcome:
    outcome = Outcome(row.number, row.what, system)
    with tempfile.TemporaryDirectory() as name, ExitStack() as until_the_end:
        place, disks = Path(name), []
        for at in range(NODES):
            (place / f"d{at}").mkdir()
            disks.append(
                until_the_end.enter_context(loop_disk(place / f"d{at}", mebibytes=DISK_MEBIBYTES))
            )
        subject = SYSTEMS[system](place, disks)
        outcome.system = subject.name
        harm = Harm(subject, random.Random(f"{seed} {row.number}"))
        ledger = Ledger()
        try:
            await subject.open()
            await ledger.begin(subject)
            await asyncio.sleep(FILL_SECONDS)
            for _ in range(rounds):
                await row.do(harm)
                outcome.rounds += 1
                if not await ledger.goes_on():
                    harm.notes.append(f"stuck for {STUCK_SECONDS:.0f} s after it")
                    break
                await asyncio.sleep(CALM_SECONDS)
        except Exception as error:
            harm.notes.append(f"ended by {type(error).__name__}: {str(error)[:120]}")
        await ledger.end()
        try:
            read = Counter(await asyncio.wait_for(subject.read_all(), 120))
        except Exception as error:
            read = Counter()
            harm.notes.append(f"nothing could be read: {type(error).__name__}: {str(error)[:120]}")
        finally:
            with suppress(Exception):
                await subject.close()
    outcome.acknowledged = len(ledger.acknowledged)
    outcome.lost = sum(number not in read for number in ledger.acknowledged)
    outcome.doubled = sum(count > 1 for count in read.values())
    outcome.longest_pause = round(ledger.longest, 1)
    notes = Counter(harm.notes).items()
    outcome.notes = [f"{text} ({count} times)" if count > 1 else text for text, count in notes]
    return outcome


def shown(outcomes: list[Outcome]) -> str:
    """A table in Markdown."""
    lines = [
        "| fault | | cluster | rounds | acknowledged | lost | doubled | longest pause | |",
        "|---|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for one in outcomes:
        notes = "; ".join(one.notes).replace("|", "/")
        lost = f"**{one.lost:,}**" if one.lost else "0"
        lost = lost if one.rounds else "not known"
        doubled = f"**{one.doubled:,}**" if one.doubled else "0"
        lines.append(
            f"| {one.fault} | {one.what} | {one.system} | {one.rounds} | {one.acknowledged:,} "
            f"| {lost} | {doubled} | {one.longest_pause:.1f} s | {notes} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="F1,F3,...")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="of " + ", ".join(SYSTEMS))
    parser.add_argument("--json", type=Path, help="also write the outcomes there")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    outcomes: list[Outcome] = []
    for row in ROWS:
        for system in options.systems.split(","):
            if (only and row.number not in only) or (row.is_ours_alone and system != "flintmq"):
                continue
            outcomes.append(asyncio.run(tried(row, system, options.rounds, options.seed)))
            print(json.dumps(asdict(outcomes[-1])), file=sys.stderr, flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))
    print(shown(outcomes))
    ours = [one for one in outcomes if one.system == FlintCluster.name]
    return 1 if any(one.lost or one.doubled for one in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
