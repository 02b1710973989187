"""The command line: which scenarios, how often, on which loops, and how it is shown."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from .report import json_line, machine, machine_line, table
from .runs import PartFailed, run_scenario
from .scenario import Settings, load, scenario_names
from .worker import LoopName, has_uvloop

EXAMPLES = """\
examples:
  python -m benchmarks                             everything, five runs each, on both loops
  python -m benchmarks --list                      what there is
  python -m benchmarks batches wake_up --runs 3    two scenarios, three runs each
  python -m benchmarks overflow --runs 1 --seconds 60
  python -m benchmarks --quick                     does everything still run? (figures mean nothing)
  python -m benchmarks --json-only > figures.jsonl

exit code: 0, or 1 if a scenario failed, 2 for a wrong command line, 130 after Ctrl-C
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    names = scenario_names()
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(names)}")
    if options.list:
        for name in options.names or names:
            print(f"{name:16} {load(name).title}")
        return 0
    try:
        return _run(options.names or names, options)
    except KeyboardInterrupt:
        _progress("")
        print("interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures FlintMQ: one table and one JSON line per scenario.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios (default: all)")
    parser.add_argument("--list", action="store_true", help="show the scenarios and stop")
    parser.add_argument("--runs", type=_runs, metavar="N", help="runs per case (default: 5)")
    parser.add_argument("--quick", action="store_true", help="tiny workloads, one run")
    parser.add_argument(
        "--loop",
        choices=("asyncio", "uvloop", "both"),
        default="both",
        help="the event loop (default: both, where uvloop is installed)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="S",
        help="how long scenarios that run for a time do so (default: 3)",
    )
    parser.add_argument("--json-only", action="store_true", help="no tables")
    return parser


def _runs(text: str) -> int:
    runs = int(text)
    if runs < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return runs


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 86_400:
        raise argparse.ArgumentTypeError("more than 0, less than a day")
    return seconds


def _loops(choice: str) -> list[LoopName]:
    if choice == "asyncio":
        return ["asyncio"]
    if not has_uvloop():
        if choice == "uvloop":
            sys.exit("uvloop is not installed; it comes with the extra flintmq[uvloop]")
        print("uvloop is not installed: measuring asyncio alone", file=sys.stderr)
        return ["asyncio"]
    return ["uvloop"] if choice == "uvloop" else ["asyncio", "uvloop"]


def _run(names: Sequence[str], options: argparse.Namespace) -> int:
    runs = options.runs or (1 if options.quick else 5)
    seconds = options.seconds or (0.1 if options.quick else 3.0)
    settings = Settings(quick=options.quick, seconds=seconds)
    loops = _loops(options.loop)
    facts = machine()
    if not options.json_only:
        print(machine_line(facts))
    failed = False
    for name in names:
        scenario = load(name)
        if scenario.prepare is not None and not settings.quick:
            _progress(f"{name}: builds what it is compared with")
            why_not = scenario.prepare()
            scenario = replace(scenario, notes=(*scenario.notes, *([why_not] if why_not else [])))
        lines = run_scenario(
            name,
            scenario,
            loops=loops,
            runs=runs,
            settings=settings,
            on_progress=_progress,
            on_failure=_failure,
        )
        _progress("")
        if not options.json_only:
            print(f"\n{table(name, scenario, lines, runs)}\n")
        line = json_line(name, scenario, lines, runs=runs, settings=settings, facts=facts)
        print(line, flush=True)
        failed = failed or any(line.error is not None for line in lines)
    return 1 if failed else 0


def _progress(step: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{step[:90]}", end="", file=sys.stderr, flush=True)


def _failure(step: str, error: PartFailed) -> None:
    _progress("")
    print(f"{step} failed: {error}\n{error.output}", file=sys.stderr)
