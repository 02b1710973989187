"""A standing chaos run: a real broker under every verb, with faults, judged by its clients' logs.

    python -m tests.chaos.run --seconds 600 --seed 7
    python -m tests.chaos.run --seconds 30 --without power-cut,skew --output json

Client processes tell what they do and see; a checker that shares no code with the broker reads that
at the end. The exit code is 1 if a rule was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.loop_disk import CannotMount, LoopDisk, loop_disk
from tests.remote.proxy import Proxy

from .broker import ChaosBroker
from .checker import Verdict, check
from .clients.common import BRIEF, EVENTS, GROUPS, LEDGERS, ONCE, RING, RING_COUNT, VAULT, connected
from .clients.last_look import drain, tell_everything
from .crowd import Crowd, Options
from .faults import FAULTS, NEED_DISK, NEED_STRACE, Harm
from .story import Story

KINDS = (*FAULTS, "skew", "reader-kill")
"""Every fault by name. Two are none by themselves: clients with skewed clocks, and that client-kill
may hit readers."""
DISK_MEBIBYTES = 768
CALM_SECONDS = 10.0
"""After each round of faults; leases can be judged only where nothing took them."""


@dataclass
class Report:
    seed: int
    seconds: float
    faults: dict[str, int]
    left_out: dict[str, str]
    starts: int
    slowest_start_seconds: float
    verdict: Verdict
    complaints: list[str] = field(default_factory=list)
    usage: list[tuple[int, int]] = field(default_factory=list)
    """Of a cluster: the most MiB and descriptors that a node had, in each third of the run."""

    @property
    def is_good(self) -> bool:
        broken = {one.name for one in self.verdict.checks if one.failures}
        return not broken and not self.complaints

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "good": self.is_good,
            "verbs": self.verdict.verbs,
            "faults": self.faults,
            "left_out": self.left_out,
            "broker_starts": self.starts,
            "slowest_start_seconds": round(self.slowest_start_seconds, 2),
            "checks": [
                {"name": one.name, "judged": one.judged, "failures": one.failures}
                for one in self.verdict.checks
            ],
            "complaints": self.complaints,
            "usage": self.usage,
        }

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.seconds:.0f} s, {self.starts} starts of the broker, "
                 f"the slowest took {self.slowest_start_seconds:.2f} s", ""]  # fmt: skip
        lines += _table(
            ("verb", "done", "failed"),
            [
                (verb, counts["done"], counts["failed"])
                for verb, counts in self.verdict.verbs.items()
            ],
        )
        lines += _table(("fault", "times"), sorted(self.faults.items()))
        lines += _table(
            ("check", "judged", "failures"),
            [(one.name, one.judged, len(one.failures)) for one in self.verdict.checks],
        )
        lines += [
            f"third {at} of the run: at most {memory} MiB and {descriptors} descriptors of a node"
            for at, (memory, descriptors) in enumerate(self.usage, 1)
        ]
        lines += [f"NOT TRIED: {kind}: {why}" for kind, why in self.left_out.items()]
        lines += [f"COMPLAINT: {text}" for text in self.complaints]
        for one in self.verdict.checks:
            lines += [f"FAILED: {one.name}: {text}" for text in one.failures[:5]]
        lines.append("nothing was found" if self.is_good else "RULES WERE BROKEN")
        return "\n".join(lines)


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    cells = [head, *(tuple(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row)
                     for row in rows)]  # fmt: skip
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = []
    for row in cells:
        first, *rest = (
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join((first, *rest)).rstrip())
    return [*lines, ""]


class ChaosRun:
    def __init__(self, place: Path, options: Options) -> None:
        self._place, self._options = place, options
        self._chance = random.Random(options.seed)
        self._stories = place / "stories"
        self._stories.mkdir()
        self._story = Story(self._stories / "run", "run")
        self._crowd = Crowd(place, options, self._chance)
        self._complaints = self._crowd.complaints
        self._round = 0

    async def run(self) -> Report:
        began = time.monotonic()
        with ExitStack() as until_the_end:
            disk, no_disk_because = self._disk(until_the_end)
            directory = disk.path if disk is not None else self._place
            broker = ChaosBroker(directory / "data", self._place / "broker.log")
            until_the_end.callback(broker.leave)
            broker.start()
            until_the_end.callback(self._crowd.kill)
            proxy = Proxy(broker.address)
            proxy_address = await proxy.start()
            proxied_url = "flint://{}:{}".format(*proxy_address)
            await make_topics(broker.url)
            self._crowd.start((broker.url, proxied_url))
            harm = Harm(
                broker,
                proxy,
                self._crowd.proxied(),
                disk,
                self._chance,
                self._story,
                self._crowd.kill_one,
                self._crowd.pause_one,
            )
            left_out = dict.fromkeys(sorted(self._options.without), "left out by the caller")
            if disk is None:
                left_out |= dict.fromkeys(NEED_DISK, no_disk_because)
            if shutil.which("strace") is None:
                left_out |= dict.fromkeys(NEED_STRACE, "there is no strace: install it")
            await self._do_harm(harm, [kind for kind in FAULTS if kind not in left_out])
            await asyncio.to_thread(self._crowd.stop)
            for look in range(2):
                if look == 0:
                    await drain(broker.url, Story(self._stories / "drain", "drain"))
                await tell_everything(broker.url, self._story, look)
                broker.kill()
                await asyncio.to_thread(broker.start)
            code = broker.stop()
            if code:
                self._complaints.append(f"the broker ended with {code}")
            await proxy.close()
            self._complaints += broker.complaints(was_damaged="damage" in harm.counts)[:20]
        verdict = check(self._stories)
        return Report(
            seed=self._options.seed,
            seconds=time.monotonic() - began,
            faults=harm.counts,
            left_out=left_out,
            starts=broker.starts,
            slowest_start_seconds=broker.slowest_start_seconds,
            verdict=verdict,
            complaints=self._complaints,
        )

    def _disk(self, until_the_end: ExitStack) -> tuple[LoopDisk | None, str]:
        if self._options.without.issuperset(NEED_DISK) and "failing-sync" in self._options.without:
            return None, "left out by the caller"
        try:
            return until_the_end.enter_context(loop_disk(self._place, mebibytes=DISK_MEBIBYTES)), ""
        except CannotMount as reason:
            return None, str(reason)

    # --- faults

    async def _do_harm(self, harm: Harm, kinds: list[str]) -> None:
        await self._crowd.at_work()
        end = time.monotonic() + self._options.seconds
        await asyncio.sleep(min(2.0, self._options.seconds / 4))
        todo: list[str] = []
        while time.monotonic() < end:
            if not todo:  # each kind before any comes again
                if self._round:
                    await asyncio.sleep(CALM_SECONDS)
                self._round += 1
                todo = list(kinds)
                self._chance.shuffle(todo)
            if todo:
                await harm.do(todo.pop())
            await asyncio.sleep(0.3 + self._chance.random() * 1.5)


async def make_topics(url: str) -> None:
    async with connected(url) as mq:
        for topic in (EVENTS, VAULT, ONCE, BRIEF, *LEDGERS, *GROUPS):
            await mq.create_topic(topic, retention_bytes=None)
        await mq.create_topic(RING, retention_bytes=None, retention_count=RING_COUNT)
        for topic, group in GROUPS.items():
            await mq.poll(topic, group, order="key" if topic == "keyed" else "priority")


def run(options: Options, keep: Path | None = None) -> Report:
    """One run in a directory that is gone afterwards, unless it is to be kept."""
    if keep is not None:
        keep.mkdir(parents=True)
        return asyncio.run(ChaosRun(keep, options).run())
    with tempfile.TemporaryDirectory() as place:
        return asyncio.run(ChaosRun(Path(place), options).run())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument(
        "--without",
        default="",
        help=f"faults to leave out, with commas between; there are {', '.join(KINDS)}",
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--keep", type=Path, help="a new directory for logs and data")
    options = parser.parse_args()
    without = frozenset(filter(None, options.without.split(",")))
    if unknown := without.difference(KINDS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    if options.output == "table":
        print(f"seed {options.seed}", flush=True)
    report = run(Options(options.seconds, options.seed, without), options.keep)
    print(json.dumps(report.as_json()) if options.output == "json" else report)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
