"""Chaos over a cluster of three: nodes are killed, paused and cut off under every verb.

    python -m tests.chaos.cluster_run --rounds 50 --seed 7

A round is one fault. The clients and the judge are those of `tests.chaos.run`.
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
from contextlib import ExitStack
from pathlib import Path

from .checker import check
from .clients.last_look import drain, tell_everything
from .cluster import CLUSTER_FAULTS, ChaosCluster
from .crowd import Crowd, Options
from .faults import EVERYBODY
from .run import Report, make_topics
from .story import Story

CALM_SECONDS = 3.0


class ClusterRun:
    def __init__(self, place: Path, rounds: int, seed: int, without: frozenset[str]) -> None:
        self._place, self._rounds, self._seed = place, rounds, seed
        self._kinds = [kind for kind in CLUSTER_FAULTS if kind not in without]
        self._chance = random.Random(seed)
        self._stories = place / "stories"
        self._stories.mkdir()
        self._story = Story(self._stories / "run", "run")
        # Publishers whose clocks are wrong have a run of their own.
        self._crowd = Crowd(place, Options(0.0, seed, frozenset({"skew"})), self._chance)
        self._counts: Counter[str] = Counter()

    async def run(self) -> Report:
        began = time.monotonic()
        cluster = ChaosCluster(self._place / "data", self._place)
        await cluster.open()
        complaints = self._crowd.complaints
        with ExitStack() as until_the_end:
            until_the_end.callback(cluster.leave)
            until_the_end.callback(self._crowd.kill)
            await cluster.start()
            await make_topics(cluster.url)
            self._crowd.start((cluster.url, cluster.url))
            await self._crowd.at_work()
            await asyncio.sleep(2)
            for number in range(self._rounds):
                await self._do_harm(cluster, self._kinds[number % len(self._kinds)])
            await asyncio.to_thread(self._crowd.stop)
            for look in range(2):
                if look == 0:
                    await drain(cluster.url, Story(self._stories / "drain", "drain"))
                await tell_everything(cluster.url, self._story, look)
                cluster.kill()
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
            left_out={},
            starts=cluster.starts,
            slowest_start_seconds=cluster.slowest_start_seconds,
            verdict=check(self._stories),
            complaints=complaints,
        )

    async def _do_harm(self, cluster: ChaosCluster, kind: str) -> None:
        self._story.tell("fault", kind=kind, phase="begin", targets=[EVERYBODY])
        try:
            await CLUSTER_FAULTS[kind](cluster, self._chance)
            await cluster.leading()
        finally:
            self._story.tell("fault", kind=kind, phase="end", targets=[EVERYBODY])
        self._counts[kind] += 1
        await asyncio.sleep(CALM_SECONDS)


def run(
    rounds: int, seed: int, without: frozenset[str] = frozenset(), keep: Path | None = None
) -> Report:
    if keep is not None:
        keep.mkdir(parents=True)
        return asyncio.run(ClusterRun(keep, rounds, seed, without).run())
    with tempfile.TemporaryDirectory() as place:
        return asyncio.run(ClusterRun(Path(place), rounds, seed, without).run())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=len(CLUSTER_FAULTS))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--without", default="", help=f"of {', '.join(CLUSTER_FAULTS)}")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--keep", type=Path, help="a new directory for logs and data")
    options = parser.parse_args()
    without = frozenset(filter(None, options.without.split(",")))
    if unknown := without.difference(CLUSTER_FAULTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CLUSTER_FAULTS)}")
    report = run(options.rounds, options.seed, without, options.keep)
    print(json.dumps(report.as_json()) if options.output == "json" else report)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
