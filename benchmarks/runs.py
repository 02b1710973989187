"""Runs cases in fresh processes and takes medians."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .scenario import Scenario, Settings, with_ratios
from .worker import Job, LoopName, PartName

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 120.0
"""How long one part may take beyond the seconds it was told to run."""


class PartFailed(Exception):
    """A part ended without figures. The text is the last line it said."""

    def __init__(self, reason: str, output: str) -> None:
        super().__init__(reason)
        self.output = output


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    min: float
    max: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        return cls(median(figures), min(figures), max(figures))


@dataclass(slots=True)
class Line:
    """What all runs of one case on one loop came to."""

    case: str
    loop: LoopName
    runs: list[dict[str, float]] = field(default_factory=list)
    error: str | None = None

    def spreads(self) -> dict[str, Spread]:
        if not self.runs:
            return {}
        names = dict.fromkeys(name for run in self.runs for name in run)
        return {name: Spread.of([run[name] for run in self.runs if name in run]) for name in names}


def execute_apart(job: Job) -> dict[str, float]:
    """Execute a job in a process of its own."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.worker", job.to_json()],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS + job.settings.seconds,
            # Ctrl-C is ours to handle: the worker is killed and says nothing.
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PartFailed(f"no result after {PATIENCE_SECONDS:g} s", "") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise PartFailed(said[-1].strip(), done.stderr)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def run_scenario(
    name: str,
    scenario: Scenario,
    *,
    loops: Sequence[LoopName],
    runs: int,
    settings: Settings,
    execute: Callable[[Job], dict[str, float]] = execute_apart,
    on_progress: Callable[[str], None] = lambda step: None,
    on_failure: Callable[[str, PartFailed], None] = lambda step, error: None,
) -> list[Line]:
    """Every case, `runs` times. Cases and loops take turns, so that noise hits all alike."""
    if not scenario.every_loop:
        loops = loops[:1]
    lines = [Line(case, loop) for case in scenario.cases for loop in loops]
    for run in range(1, runs + 1):
        for line in lines:
            if line.error is not None:
                continue
            step = f"{name}: {line.case}, {line.loop}, run {run} of {runs}"
            on_progress(step)
            figures: dict[str, float] = {}
            try:
                parts = list(parts_of(scenario, line.case))
                # Every other run begins with the bare loop: going first can be a disadvantage.
                for part in parts if run % 2 else reversed(parts):
                    figures |= execute(Job(name, line.case, part, line.loop, settings))
            except PartFailed as error:
                line.error = str(error)
                on_failure(step, error)
                continue
            line.runs.append(with_ratios(scenario, figures))
    return lines


def parts_of(scenario: Scenario, case: str) -> Iterator[PartName]:
    yield "run"
    if scenario.cases[case].bare is not None:
        yield "bare"
    if scenario.cases[case].peer is not None:
        yield "peer"
