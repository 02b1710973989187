"""Runs the simulator: `python -m tests.simulation --seeds A:B [--nodes N] [--trace]`.

With `--engine`, three nodes of the whole engine instead of the Raft core with a toy machine.

Prints what happened in sum and ends with exit code 0; at the first seed that breaks a promise it
prints the seed and what it broke, and ends with 1. `--keep-going` collects all of them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections import Counter

from tests.simulation.engine_world import EngineReport, simulate_engine
from tests.simulation.world import Report, SimulationFailed, simulate


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Clusters from one seed each, through crashes, partitions and lost disks.",
        epilog="example: python -m tests.simulation --seeds 0:200 --nodes 5",
    )
    parser.add_argument("--seeds", default="0:100", metavar="A:B", help="from A up to, not with, B")
    parser.add_argument("--nodes", type=int, metavar="N", help="founders, 1 to 7; else by seed")
    parser.add_argument(
        "--engine", action="store_true", help="three nodes of the engine, on simulated disks"
    )
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failed seed")
    parser.add_argument("--json", action="store_true", help="the sums as one line of JSON")
    options = parser.parse_args(arguments)
    if options.nodes is not None and not 1 <= options.nodes <= 7:
        parser.error("--nodes takes 1 to 7")
    if options.nodes is not None and options.engine:
        parser.error("--engine has three nodes: leave --nodes out")
    try:
        first, end = (int(part) for part in options.seeds.split(":"))
    except ValueError:
        parser.error("--seeds takes two numbers, as in 0:200")

    def run(seed: int) -> Report | EngineReport:
        if options.engine:
            return simulate_engine(seed, trace=options.trace)
        return simulate(seed, node_count=options.nodes, trace=options.trace)

    if options.engine:  # what its nodes log of crashes and lost leads is no news here
        logging.getLogger("flintmq").addHandler(logging.NullHandler())
    counts: Counter[str] = Counter()
    failed: list[int] = []
    began = time.perf_counter()
    for seed in range(first, end):
        try:
            report = run(seed)
        except SimulationFailed as failure:
            failed.append(seed)
            print("\n".join([*failure.trace, f"FAILED {failure}"]), flush=True)
            if not options.keep_going:
                break
            continue
        counts.update(report.counts)
        counts["seeds"] += 1
        if options.trace:
            print("\n".join(report.trace))
    seconds = time.perf_counter() - began
    _print_sums(counts, seconds, as_json=options.json)
    if failed:
        print(f"failed seeds: {' '.join(map(str, failed))}")
    return 1 if failed else 0


def _print_sums(counts: Counter[str], seconds: float, *, as_json: bool) -> None:
    rate = int(counts["events"] / seconds) if seconds else 0
    if as_json:
        sums = {**dict(sorted(counts.items())), "seconds": round(seconds, 1), "events/s": rate}
        print(json.dumps(sums))
        return
    for name, count in sorted(counts.items()):
        print(f"{name:<28}{count:>14,}")
    print(f"{'seconds':<28}{seconds:>14,.1f}\n{'events per second':<28}{rate:>14,}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
