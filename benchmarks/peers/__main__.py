"""FlintMQ beside its peers, each driven by its Python client, in one run on this machine.

    python -m benchmarks.peers                        # installs what is missing
    python -m benchmarks.peers --only nats,redis --scenarios publish-64,consume
    python -m benchmarks.peers --quick                # does it all still run?
    python -m benchmarks.peers --kafka --json run.json --chart run.svg --write-docs
    python -m benchmarks.peers --cluster --write-docs     # clusters of three nodes, a table apart
    python -m benchmarks.peers --from-json run.json --write-docs   # the page anew, from a run

Servers run on loopback, their data in one folder of one disk (TMPDIR chooses it), all at once and
at rest but for the one that is measured. Every round measures each figure once, in turn. Prints
tables and one JSON line. Exit code: 0; 1 where a figure or a peer is missing; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from ..meters import family, machine_ticks, resident_bytes
from ..processes import DidNotStart
from ..report import machine
from .chart import picture
from .clusters import cluster_starters
from .install import Installed, install
from .modes import BARE, CLUSTER_MODES, MODES, OPTIONAL, PEERS, US, Mode
from .page import CLUSTER_BEGIN, into_page, render
from .results import Results
from .running import QUICK, CellFailed, Clients, Effort, cells_of, take_turns
from .scenarios import CLUSTER_SCENARIOS, SCENARIOS, Scenario
from .servers import ROOT, Running, starters

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "pictures" / "peers.svg"
KEPT = ROOT / "docs" / "benchmarks.json"
CLUSTER_KEPT = ROOT / "docs" / "benchmarks-cluster.json"
REST_SECONDS = 1.0
ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        if options.from_json:
            results = Results.from_json(Path(options.from_json).read_text())
        else:
            # What is shown is what is kept: figures as the JSON has them.
            results = Results.from_json(run(options).to_json())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(render(results))
    print(results.to_json())
    if options.json:
        Path(options.json).write_text(results.to_json() + "\n")
    if options.chart:
        Path(options.chart).write_text(picture(results))
    if options.write_docs:
        write_docs(results)
    return 1 if results.errors or results.missing else 0


def write_docs(results: Results) -> None:
    """The page, its picture, and the run they were made from."""
    if results.is_of_clusters:
        CLUSTER_KEPT.write_text(results.to_json() + "\n")
        PAGE.write_text(into_page(PAGE.read_text(), render(results), CLUSTER_BEGIN))
        return
    PICTURE.write_text(picture(results))
    KEPT.write_text(results.to_json() + "\n")
    PAGE.write_text(into_page(PAGE.read_text(), render(results, "pictures/peers.svg")))


def run(options: argparse.Namespace) -> Results:
    peers: list[str] = options.only
    say(f"installs what is missing of {', '.join(peers) or 'nothing'}")
    installed = install(peers, lambda text: say(f"installs {text}"))
    for peer, reason in installed.missing.items():
        print(f"MISSING: {peer}: {reason}", file=sys.stderr)
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="flintmq-peers-", ignore_cleanup_errors=True)
            )
        )
        table = CLUSTER_MODES if options.cluster else MODES
        modes = [mode for mode in table if mode.peer in (US, BARE, *installed.servers)]
        return _measure(stack, folder, modes, installed, options)


def _measure(
    stack: ExitStack,
    folder: Path,
    modes: list[Mode],
    installed: Installed,
    options: argparse.Namespace,
) -> Results:
    effort = QUICK if options.quick else Effort(seconds=options.seconds)
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    facts = _facts(installed, rounds, effort, options)
    results = Results(facts, installed.missing)
    servers: dict[str, Running] = {}
    began, before = time.monotonic(), machine_ticks()
    start = cluster_starters(installed) if options.cluster else starters(installed)
    for name in dict.fromkeys(mode.server for mode in modes):
        say(f"starts {name}")
        place = folder / name
        place.mkdir()
        try:
            servers[name] = stack.enter_context(start[name](place))
        except DidNotStart as error:
            peer = name.partition("-")[0]
            results.missing[peer] = f"it did not start: {error}"
            print(f"MISSING: {peer}: {error}", file=sys.stderr)
    modes = [mode for mode in modes if mode.server in servers]
    time.sleep(REST_SECONDS)
    for name, server in servers.items():
        results.at_rest[name] = (
            sum(resident_bytes(one) for pid in server.pids for one in family(pid)) / 2**20
        )
    clients = Clients(folder, effort)
    for number in range(rounds):
        for scenario in options.scenarios:
            _round(results, clients, scenario, modes, servers, number)
    results.facts["minutes"] = (time.monotonic() - began) / 60
    after = machine_ticks()
    if after[1] > before[1]:
        results.facts["stolen"] = (after[0] - before[0]) / (after[1] - before[1])
    say("")
    return results


def _round(
    results: Results,
    clients: Clients,
    scenario: Scenario,
    modes: list[Mode],
    servers: dict[str, Running],
    number: int,
) -> None:
    for cell in take_turns(list(cells_of(scenario, modes)), number):
        name = (scenario.name, cell.mode.key, cell.shape)
        if name in results.errors:
            continue
        say(f"round {number + 1}: {scenario.name}, {cell.mode.key}, {cell.shape}")
        try:
            figures = clients.measure(cell, servers[cell.mode.server])
            if figures.get("lost"):
                raise CellFailed(f"{figures['lost']:,.0f} messages were lost")
        except CellFailed as error:
            results.add_error(*name, str(error))
            print(f"failed: {' '.join(name)}: {error}", file=sys.stderr)
        else:
            results.add(*name, figures)


def _facts(
    installed: Installed, rounds: int, effort: Effort, options: argparse.Namespace
) -> dict[str, Any]:
    return {
        **machine(),
        "processor": _processor(),
        "versions": installed.versions,
        "rounds": rounds,
        "seconds": effort.seconds,
        "quick": options.quick,
        "cluster": options.cluster,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else ""


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="PEERS", help=f"of {', '.join(PEERS)}, by commas")
    parser.add_argument("--scenarios", metavar="NAMES", help="by commas; default: all")
    parser.add_argument("--quick", action="store_true", help="does it run? figures mean nothing")
    parser.add_argument("--cluster", action="store_true", help="three nodes of each that can")
    parser.add_argument("--kafka", action="store_true", help="Kafka as well; its jars by Maven")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"default: {ROUNDS}")
    parser.add_argument("--seconds", type=float, default=0.7, help="for each figure [0.7]")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--chart", metavar="FILE.svg")
    parser.add_argument("--write-docs", action="store_true", help=f"into {PAGE.name}")
    parser.add_argument("--from-json", metavar="FILE", help="no run: what one had found")
    options = parser.parse_args(arguments)
    known = tuple(peer for peer in PEERS if not options.cluster or _has_cluster(peer))
    default = [peer for peer in known if peer not in OPTIONAL or options.kafka]
    options.only = _chosen(parser, options.only, known, default)
    listed = CLUSTER_SCENARIOS if options.cluster else SCENARIOS
    names = [scenario.name for scenario in listed]
    chosen = _chosen(parser, options.scenarios, names, names)
    options.scenarios = [scenario for scenario in listed if scenario.name in chosen]
    return options


def _has_cluster(peer: str) -> bool:
    return any(mode.peer == peer for mode in CLUSTER_MODES)


def _chosen(
    parser: argparse.ArgumentParser, said: str | None, known: Sequence[str], default: Sequence[str]
) -> list[str]:
    if said is None:
        return list(default)
    wanted = [one for one in said.split(",") if one]
    if unknown := [one for one in wanted if one not in known]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    return [one for one in known if one in wanted]


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def say(step: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{step[:90]}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
