"""Runs the cells: each in client processes of its own, the servers taking turns within a round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..meters import family, machine_ticks, processor_seconds, resident_bytes
from .install import PYTHON
from .job import Job, Progress, Role, Shape
from .modes import BARE, US, Mode
from .scenarios import Scenario
from .servers import ROOT, Running, environment_of

PATIENCE_SECONDS = 90.0
SAMPLE_SECONDS = 0.1
DRAIN_SHARES = {"each": 50}
"""A drain with one loop is slower than one with many; the slowest waits for each message."""
ROLES: Mapping[str, Role] = {
    "publish": "publish",
    "open loop": "open loop",
    "batches": "batches",
    "consume": "consume",
    "drain": "drain",
    "parked": "parked",
    "latency": "latency",
    "live latency": "latency",
}


class CellFailed(Exception):
    """A client ended without figures; the text is the last it said."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of the table: a scenario, a mode, and how many publishes are kept in flight."""

    scenario: Scenario
    mode: Mode
    shape: Shape


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done for one figure."""

    seconds: float = 1.0
    backlog_share: float = 1.0
    latencies: int = 400


QUICK = Effort(seconds=0.3, backlog_share=0.1, latencies=50)


def cells_of(scenario: Scenario, modes: Sequence[Mode]) -> Iterator[Cell]:
    """Every mode as it is; ours in both shapes where peers differ in theirs."""
    for mode in modes:
        if not scenario.takes(mode) or scenario.why_not(mode):
            continue
        yield Cell(scenario, mode, scenario.shape_of(mode))
        if mode.peer == US and scenario.has_two_shapes:
            yield Cell(scenario, mode, "pipeline")


def take_turns(cells: Sequence[Cell], round_number: int) -> list[Cell]:
    """Each round begins with another: who goes first is not always the same."""
    at = (round_number * 3) % len(cells) if cells else 0
    return [*cells[at:], *cells[:at]]


class Clients:
    """Starts client processes and reads what they tell. Those that are under way end with us."""

    def __init__(self, folder: Path, effort: Effort) -> None:
        self._folder, self._effort = folder, effort
        self._number = 0

    def measure(self, cell: Cell, server: Running) -> dict[str, float]:
        job = self._job(cell, server)
        with Watch(server.pids) as watch:
            if cell.scenario.kind == "live":
                before = watch.server_seconds()
                figures = self._live(job)
                spent = watch.server_seconds() - before
                figures["server us"] = spent * 1e6 / max(1.0, figures["count"])
            else:
                figures = self._result(self._start(job))
                if "seconds" in figures:
                    figures["msgs/s"] = figures["count"] / figures["seconds"]
                if "server s" in figures and figures["count"]:
                    figures["server us"] = figures.pop("server s") * 1e6 / figures["count"]
        return {**figures, **watch.figures()}

    def _job(self, cell: Cell, server: Running) -> Job:
        self._number += 1
        scenario, mode = cell.scenario, cell.mode
        count = int(mode.backlog * self._effort.backlog_share)
        if scenario.kind == "drain":
            count //= DRAIN_SHARES.get(scenario.variety, 5)
        if scenario.read == 1:
            count //= DRAIN_SHARES["each"]
        return Job(
            peer=mode.peer,
            mode=mode.name,
            role=ROLES.get(scenario.kind, "live publish"),
            address=server.address,
            topic=f"bench{os.getpid()}x{self._number}",
            seconds=self._effort.seconds,
            in_flight=scenario.in_flight,
            size=scenario.size,
            count=self._effort.latencies if scenario.is_latency else count,
            subscribers=scenario.subscribers,
            topics=scenario.topics,
            connections=scenario.connections,
            variety=scenario.variety,
            loops=scenario.loops,
            read=scenario.read,
            servers=server.pids,
            replicas=mode.replicas,
            site=mode.site,
            durability="live" if scenario.is_live else mode.durability,
            shape=cell.shape,
        )

    def _live(self, job: Job) -> dict[str, float]:
        page = self._folder / "progress"
        Progress.create(page)
        job = replace(job, progress=str(page))
        with self._process(replace(job, role="live listen")) as listener:
            assert listener.stdin is not None
            assert listener.stdout is not None
            if listener.stdout.readline().strip() != "ready":
                raise CellFailed(f"the subscribers: {self._last_words()}")
            sent = self._result(self._start(job))
            print(int(sent["count"]), file=listener.stdin, flush=True)
            heard = self._finish(listener)
        expected = sent["count"] * job.subscribers
        seconds = heard["last"] - sent["start"]
        return {
            "count": heard["delivered"],
            "lost": expected - heard["delivered"],
            "seconds": seconds,
            "msgs/s": heard["delivered"] / seconds,
        }

    def _start(self, job: Job) -> subprocess.Popen[str]:
        python = sys.executable if job.peer in (US, BARE) else str(PYTHON)
        stdin = subprocess.PIPE if job.role == "live listen" else subprocess.DEVNULL
        with (self._folder / f"client-{job.role.replace(' ', '-')}.log").open("w") as log:
            self._log = Path(log.name)
            return subprocess.Popen(
                [python, "-m", "benchmarks.peers.driving", job.to_json()],
                cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE, stderr=log, text=True,
                env=environment_of(job.site), start_new_session=True,
            )  # fmt: skip

    @contextmanager
    def _process(self, job: Job) -> Iterator[subprocess.Popen[str]]:
        process = self._start(job)
        try:
            yield process
        finally:
            _end(process)

    def _result(self, process: subprocess.Popen[str]) -> dict[str, float]:
        try:
            return self._finish(process)
        finally:
            _end(process)

    def _finish(self, process: subprocess.Popen[str]) -> dict[str, float]:
        try:
            output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise CellFailed(f"no result after {PATIENCE_SECONDS:g} s") from None
        if process.returncode:
            raise CellFailed(self._last_words() or f"exit code {process.returncode}")
        figures: dict[str, float] = json.loads(output.strip().splitlines()[-1])
        return figures

    def _last_words(self) -> str:
        said = self._log.read_text(errors="replace").strip().splitlines()
        return said[-1].strip() if said else ""


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


class Watch:
    """A server's memory while a cell runs, and what the host took from the machine meanwhile."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = [one for pid in pids for one in family(pid)]
        self._most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def server_seconds(self) -> float:
        return processor_seconds(self._pids)

    def __enter__(self) -> Watch:
        self._before = machine_ticks()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._after = machine_ticks()

    def _look(self) -> None:
        while True:
            self._most = max(self._most, sum(resident_bytes(pid) for pid in self._pids))
            if self._over.wait(SAMPLE_SECONDS):
                return

    def figures(self) -> dict[str, float]:
        stolen, total = (
            after - before for before, after in zip(self._before, self._after, strict=True)
        )
        return {"MiB": self._most / 2**20, "stolen": stolen / total if total else 0.0}
