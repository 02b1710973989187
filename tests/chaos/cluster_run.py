"""Chaos over a cluster of three: nodes are killed, paused and cut off under every verb.

    python -m tests.chaos.cluster_run --rounds 50 --seed 7
    python -m tests.chaos.cluster_run --rounds 5 --only power-cut-all
    python -m tests.chaos.cluster_run --minutes 30

A round is one fault. The clients and the judge are those of `tests.chaos.run`. In the end
everything is read twice, from different leaders.
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
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.integration.loop_disk import CannotMount, LoopDisk, loop_disk

from .checker import check
from .clients.last_look import drain, tell_everything
from .cluster import NODES, ChaosCluster
from .cluster_faults import CLUSTER_FAULTS, OF_DISKS, OF_STRACE
from .crowd import Crowd, Options
from .faults import EVERYBODY
from .run import Report, make_topics
from .story import Story

CALM_SECONDS = 3.0
DISK_MEBIBYTES = 8192
"""Of each node: half an hour of messages takes more than one GiB. The image has no more bytes than
were written."""


class ClusterRun:
    def __init__(
        self, place: Path, rounds: int, seed: int, without: frozenset[str], minutes: float = 0.0
    ) -> None:
        """So many rounds, or as many as there is time for."""
        self._place, self._rounds, self._seed = place, rounds, seed
        self._minutes = minutes
        self._usage: list[tuple[float, int, int]] = []
        """When, and the most memory and descriptors that a node had then."""
        self._left_out = dict.fromkeys(sorted(without), "left out by the caller")
        self._chance = random.Random(seed)
        self._stories = place / "stories"
        self._stories.mkdir()
        self._story = Story(self._stories / "run", "run")
        # Publishers whose clocks are wrong have a run of their own.
        self._crowd = Crowd(place, Options(0.0, seed, frozenset({"skew"})), self._chance)
        self._counts: Counter[str] = Counter()

    async def run(self) -> Report:
        began = time.monotonic()
        complaints = self._crowd.complaints
        with ExitStack() as until_the_end:
            cluster = ChaosCluster(self._place, self._disks(until_the_end), self._chance)
            await cluster.open()
            if shutil.which("strace") is None:
                self._left_out |= dict.fromkeys(OF_STRACE, "there is no strace: install it")
            kinds = [kind for kind in CLUSTER_FAULTS if kind not in self._left_out]
            until_the_end.callback(cluster.leave)
            until_the_end.callback(self._crowd.kill)
            await cluster.start()
            await make_topics(cluster.url)
            self._crowd.start((cluster.url, cluster.url))
            await self._crowd.at_work()
            await asyncio.sleep(2)
            number, end = 0, began + 60 * self._minutes
            while number < self._rounds or time.monotonic() < end:
                await self._do_harm(cluster, kinds[number % len(kinds)])
                self._note_usage(cluster)
                number += 1
            await asyncio.to_thread(self._crowd.stop)
            await drain(cluster.url, Story(self._stories / "drain", "drain"))
            await tell_everything(cluster.url, self._story, 0)
            led = await cluster.leading()
            cluster.kill()
            others = [node for at, node in enumerate(cluster.nodes) if at != led]
            await asyncio.gather(*(asyncio.to_thread(node.start) for node in others))
            await tell_everything(cluster.url, self._story, 1)
            await cluster.start()
            codes = await cluster.stop()
            if any(codes):
                complaints.append(f"nodes ended with {codes}")
            await cluster.close()
            complaints += cluster.complaints()[:20]
        return Report(
            seed=self._seed,
            seconds=time.monotonic() - began,
            faults=dict(self._counts),
            left_out=self._left_out,
            starts=cluster.starts,
            slowest_start_seconds=cluster.slowest_start_seconds,
            verdict=check(self._stories),
            complaints=complaints,
            usage=usage_by_thirds(self._usage),
        )

    def _note_usage(self, cluster: ChaosCluster) -> None:
        found = [usage for node in cluster.nodes if (usage := node.usage()) is not None]
        self._usage.append(
            (time.monotonic(), max(one[0] for one in found), max(one[1] for one in found))
        )

    def _disks(self, until_the_end: ExitStack) -> list[LoopDisk]:
        """One for each node, where that is possible and somebody needs it."""
        disks: list[LoopDisk] = []
        if self._left_out.keys() >= {*OF_DISKS}:
            return disks
        try:
            for at in range(NODES):
                place = self._place / f"disk{at + 1}"
                place.mkdir()
                disk = loop_disk(place, mebibytes=DISK_MEBIBYTES)
                disks.append(until_the_end.enter_context(disk))
        except CannotMount as reason:
            self._left_out |= dict.fromkeys(OF_DISKS, str(reason))
            return []
        return disks

    async def _do_harm(self, cluster: ChaosCluster, kind: str) -> None:
        self._story.tell("fault", kind=kind, phase="begin", targets=[EVERYBODY])
        try:
            await CLUSTER_FAULTS[kind](cluster)
            await cluster.leading()
        finally:
            self._story.tell("fault", kind=kind, phase="end", targets=[EVERYBODY])
        self._counts[kind] += 1
        await asyncio.sleep(CALM_SECONDS)


def usage_by_thirds(noted: list[tuple[float, int, int]]) -> list[tuple[int, int]]:
    """The most memory (MiB) and descriptors that any node had, in each third of the run."""
    if not noted:
        return []
    begin, length = noted[0][0], (noted[-1][0] - noted[0][0]) / 3 or 1.0
    thirds: list[list[tuple[float, int, int]]] = [[], [], []]
    for one in noted:
        thirds[min(2, int((one[0] - begin) / length))].append(one)
    return [
        (max(one[1] for one in third) >> 10, max(one[2] for one in third))
        for third in thirds
        if third
    ]


def run(
    rounds: int,
    seed: int,
    without: frozenset[str] = frozenset(),
    keep: Path | None = None,
    minutes: float = 0.0,
) -> Report:
    if keep is not None:
        keep.mkdir(parents=True)
        return asyncio.run(ClusterRun(keep, rounds, seed, without, minutes).run())
    with tempfile.TemporaryDirectory() as place:
        return asyncio.run(ClusterRun(Path(place), rounds, seed, without, minutes).run())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, help="each fault once, if no --minutes are given")
    parser.add_argument("--minutes", type=float, default=0.0, help="as many rounds as fit")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--without", default="", help=f"of {', '.join(CLUSTER_FAULTS)}")
    parser.add_argument("--only", default="", help="these faults and no others")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--keep", type=Path, help="a new directory for logs and data")
    options = parser.parse_args()
    without = frozenset(filter(None, options.without.split(",")))
    only = frozenset(filter(None, options.only.split(","))) or CLUSTER_FAULTS.keys()
    if unknown := (without | only).difference(CLUSTER_FAULTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CLUSTER_FAULTS)}")
    without |= CLUSTER_FAULTS.keys() - only
    rounds = options.rounds
    if rounds is None:
        rounds = 0 if options.minutes else len(CLUSTER_FAULTS)
    report = run(rounds, options.seed, without, options.keep, options.minutes)
    print(json.dumps(report.as_json()) if options.output == "json" else report)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
