"""Builds of FlintMQ in turns, beside Redis, NATS, tokio-memq and HermesMQ, in one run.

    scripts/bench-builds                      # an old commit, the sources, and compiled: all of it
    python -m benchmarks.builds --build old=OTHER/src --build new=src
    python -m benchmarks.builds --build new=src --rows publish-1,parked --rounds 1

Every figure has fresh client processes; servers are up during the whole run. Each build is server
and client at once. Rates are medians of all rounds; after the semicolon are the microseconds of the
server's processors for each message, which a busy machine disturbs much less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from ..hermes_front import ROWS as HERMES_ROWS
from ..hermes_front import daemon
from ..installing import CannotInstall
from ..peers.install import install
from ..peers.modes import Mode
from ..peers.page import into_page
from ..peers.running import Cell, CellFailed, Clients, Effort, take_turns
from ..peers.servers import ROOT, Running, environment_of, flintmq_server, starters
from ..processes import DidNotStart
from ..report import machine, machine_line
from ..scenario import Settings
from ..scenarios.perf_runner import SCENARIO
from ..tokio_memq_peer import build as build_tokio_memq
from .aims import Found, Take
from .hermesmq import hermesmqd
from .hermesmq import install as install_hermesmq
from .in_process import NAME
from .page import BEGIN, render
from .rows import FSYNC, HERMES, IN_PROCESS, TITLES, Build, Row, network_rows

PAGE = ROOT / "docs" / "benchmarks.md"
KEPT = ROOT / "docs" / "benchmarks-builds.json"
PEERS = ["redis", "nats"]
HERMES_SCALE = 0.5
PATIENCE_SECONDS = 60.0


class Run:
    def __init__(
        self, builds: list[Build], rounds: int, effort: Effort, seconds_max: float
    ) -> None:
        self.builds, self.rounds, self.effort = builds, rounds, effort
        self.began, self.seconds_max = time.monotonic(), seconds_max
        self.takes: dict[tuple[str, str], list[Take]] = {}
        self.errors: dict[tuple[str, str], str] = {}
        self.titles: dict[str, str] = {}
        self.notes: list[str] = []

    def take(self, row: str, column: str, measure: Callable[[], Take]) -> None:
        if (row, column) in self.errors:
            return
        say(f"{row}, {column}")
        try:
            figures = measure()
            if figures.get("lost"):
                raise CellFailed(f"{figures['lost']:,.0f} messages were lost")
        except Exception as error:  # the run is unattended: the others are still wanted
            self.errors[row, column] = f"{type(error).__name__}: {error}"
            print(f"failed: {row}, {column}: {error}", file=sys.stderr, flush=True)
        else:
            self.takes.setdefault((row, column), []).append(figures)

    # --- over the network

    def network(self, rows: list[Row]) -> None:
        installed = install(PEERS)
        for peer, why in installed.missing.items():
            self.notes.append(f"{peer} is MISSING: {why}")
        peers = list(installed.servers)
        self.titles.update({row.key: row.title for row in rows})
        with ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="flintmq-builds-"))
            )
            servers: dict[str, Running] = {}
            start = starters(installed)
            for row in rows:
                for mode in self._modes(row, peers):
                    place = folder / mode.server.replace(" ", "-")
                    if place.exists():
                        continue
                    place.mkdir()
                    opened: AbstractContextManager[Running]
                    if mode.site:
                        opened = flintmq_server(place, FSYNC[mode.durability], mode.site)
                    else:
                        opened = start[mode.server](place)
                    try:
                        servers[mode.server] = stack.enter_context(opened)
                    except DidNotStart as error:
                        self.notes.append(f"{mode.server} did not start: {error}")
            clients = Clients(folder, self.effort)
            for number in range(self.rounds):
                if not self._has_time(number):
                    self.notes.append(f"Stopped after {number} rounds over the network: no time.")
                    break
                for row in rows:
                    self._round(row, peers, clients, servers, number)

    def _has_time(self, rounds: int) -> bool:
        """Whether one more round ends in time, as long as those before."""
        elapsed = time.monotonic() - self.began
        return not rounds or elapsed * (rounds + 1) / rounds < self.seconds_max

    def _modes(self, row: Row, peers: list[str]) -> list[Mode]:
        return [*map(row.mode_of, self.builds), *row.modes_of_peers(peers)]

    def _round(
        self,
        row: Row,
        peers: list[str],
        clients: Clients,
        servers: dict[str, Running],
        number: int,
    ) -> None:
        modes = [mode for mode in self._modes(row, peers) if mode.server in servers]
        cells = [Cell(row.scenario, mode, row.scenario.shape_of(mode)) for mode in modes]
        for cell in take_turns(cells, number):
            mode = cell.mode
            column = mode.name if mode.site else mode.peer
            server = servers[mode.server]
            self.take(row.key, column, partial(clients.measure, cell, server))

    # --- in process, and through the Hermes port

    def in_process(self) -> None:
        self.titles[IN_PROCESS] = TITLES[IN_PROCESS]
        if why_not := build_tokio_memq():
            self.notes.append(why_not)
        for _ in range(self.rounds):
            for build in self.builds:
                self.take(IN_PROCESS, build.name, partial(_in_process, build))
            if not why_not:
                self.take(IN_PROCESS, "tokio-memq", _tokio_memq)

    def hermes(self) -> None:
        program: Path | None = None
        try:
            program = install_hermesmq()
        except CannotInstall as error:
            self.notes.append(f"HermesMQ is MISSING: {error}")
        for _ in range(self.rounds):
            for row, name in HERMES.items():
                self.titles[row] = TITLES[row]
                for build in self.builds:
                    self.take(row, build.name, partial(_hermes, name, build))
                if program is not None:
                    self.take(row, "hermesmq", partial(_hermesmq, name, program))


def _in_process(build: Build) -> Take:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.builds.in_process"],
        cwd=ROOT, env=environment_of(build.site), capture_output=True, text=True, check=True,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    figures: Take = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def _tokio_memq() -> Take:
    beside = SCENARIO.cases[NAME].peer
    assert beside is not None

    async def run() -> Take:
        return await beside(Settings(quick=False, seconds=1.0))

    return {"msgs/s": asyncio.run(run())["tokio_memq"]}


def _hermes(name: str, build: Build) -> Take:
    with daemon(site=build.site) as address:
        return {"msgs/s": HERMES_ROWS[name](address, HERMES_SCALE)}


def _hermesmq(name: str, program: Path) -> Take:
    with hermesmqd(program) as address:
        return {"msgs/s": HERMES_ROWS[name](address, HERMES_SCALE)}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.from_json:
        whole = json.loads(Path(options.from_json).read_text())
    else:
        whole = _measured(options)
    text = rendered(whole)
    print(text)
    if options.json:
        Path(options.json).write_text(json.dumps(whole) + "\n")
    if options.write_docs:
        KEPT.write_text(json.dumps(whole) + "\n")
        PAGE.write_text(into_page(PAGE.read_text(), text, BEGIN))
    return 1 if whole["errors"] else 0


def _measured(options: argparse.Namespace) -> dict[str, Any]:
    effort = Effort(seconds=options.seconds, latencies=300)
    run = Run(options.build, options.rounds, effort, options.minutes * 60)
    facts = machine()
    wanted = set(options.rows.split(",")) if options.rows else None
    rows = [row for row in network_rows() if wanted is None or row.scenario.name in wanted]
    if rows:
        run.network(rows)
    if wanted is None or IN_PROCESS in wanted:
        run.in_process()
    if wanted is None or "hermes" in wanted:
        run.hermes()
    say("")
    run.notes += [
        machine_line(facts),
        f"{options.rounds} rounds, {options.seconds:g} s for each figure, "
        f"{(time.monotonic() - run.began) / 60:.1f} minutes, {datetime.now(UTC):%Y-%m-%d}.",
    ]
    return {
        "builds": [build.name for build in run.builds],
        "titles": run.titles,
        "takes": [
            {"row": row, "column": column, "takes": takes}
            for (row, column), takes in run.takes.items()
        ],
        "errors": [[row, column, why] for (row, column), why in run.errors.items()],
        "notes": run.notes,
    }


def rendered(whole: dict[str, Any]) -> str:
    builds: list[str] = whole["builds"]
    titles: dict[str, str] = whole["titles"]
    notes: list[str] = whole["notes"]
    takes = {(one["row"], one["column"]): one["takes"] for one in whole["takes"]}
    errors = {(row, column): why for row, column, why in whole["errors"]}
    columns = [*builds, *dict.fromkeys(column for _, column in takes if column not in builds)]
    return render(Found(takes), titles, columns, builds, errors, notes)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.builds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--build", type=_build, action="append", metavar="NAME=FOLDER")
    parser.add_argument("--rows", metavar="NAMES", help="scenarios, in-process, hermes; by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each figure [0.5]")
    parser.add_argument("--minutes", type=float, default=15, help="no round begins beyond it [15]")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--from-json", metavar="FILE", help="no run: what one had found")
    parser.add_argument("--write-docs", action="store_true", help=f"into {PAGE.name}")
    options = parser.parse_args(arguments)
    if not options.build and not options.from_json:
        options.build = [_build("new=src")]
    return options


def _build(text: str) -> Build:
    name, _, folder = text.partition("=")
    site = os.path.abspath(folder)
    if not os.path.isdir(os.path.join(site, "flintmq")):
        raise argparse.ArgumentTypeError(f"{folder} has no flintmq; pass the folder that holds it")
    return Build(name, site)


def say(step: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{step[:90]}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
