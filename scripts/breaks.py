"""Deliberate breaks: each is one replacement in a copy of `src`, and has to be noticed.

Used by scripts/mutate-durability and scripts/mutate-cluster; the repository is not touched. The
quick tests that are named beside a break run against the copy, and one of them has to fail; where
seeds are named, the simulator of the engine has to. First the same runs against an unbroken copy,
so that a test that always fails notices nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = 2
TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class Break:
    name: str
    file: str  # below src/flintmq
    old: str
    new: str
    tests: tuple[str, ...] = ()
    seeds: str = ""
    """Of the simulator of the engine, A:B: what no test is named for."""
    times: int = 1
    """How often the old text is there; each is replaced."""


def run_tests(tests: tuple[str, ...], source: Path) -> tuple[bool, str]:
    """Whether a test failed, and the first that did."""
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    if not any("::" in test for test in tests):  # what is named by itself may take its time
        options += ["-m", "not slow"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--timeout=300", *tests],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
        check=False,
    )  # fmt: skip
    lines = [
        line
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED tests", "ERROR tests"))
    ]
    if done.returncode not in (0, 1) and not lines:
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.returncode != 0, lines[0].partition(" - ")[0][:100] if lines else ""


def run_seeds(seeds: str, source: Path) -> tuple[bool, str]:
    """Whether a seed failed, and what it said."""
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--engine", "--seeds", seeds],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
        check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    return done.returncode != 0, (lines or done.stderr.splitlines()[-1:] or [""])[0][:100]


def is_noticed(tests: tuple[str, ...], seeds: str, source: Path) -> tuple[bool, str]:
    found, how = run_tests(tests, source) if tests else (False, "")
    return run_seeds(seeds, source) if seeds and not found else (found, how)


def copy_of_source(place: str) -> Path:
    source = Path(place) / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    return source


def try_out(item: Break) -> tuple[bool, str, float]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        source = copy_of_source(place)
        path = source / "flintmq" / item.file
        path.write_text(path.read_text().replace(item.old, item.new))
        found, how = is_noticed(item.tests, item.seeds, source)
    return found, how, time.monotonic() - began


def do_not_apply(breaks: list[Break]) -> list[str]:
    """Breaks whose text is not there, or more often than it says."""
    wrong = []
    for item in breaks:
        times = (ROOT / "src" / "flintmq" / item.file).read_text().count(item.old)
        if times != item.times:
            wrong.append(f"{item.name}: the text to replace is in {item.file} {times} times")
    return wrong


def main(breaks: list[Break], words: list[str]) -> int:
    """The exit code: 1 where a break is not noticed, 2 where that cannot be said."""
    if words == ["--list"]:
        print("\n".join(item.name for item in breaks))
        return 0
    chosen = [item for item in breaks if not words or any(word in item.name for word in words)]
    if wrong := do_not_apply(chosen):
        print("\n".join(wrong))
        return 2
    began = time.monotonic()
    missed: list[str] = []
    no_tests: tuple[str, ...] = ()
    width = max((len(item.name) for item in chosen), default=0)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        with tempfile.TemporaryDirectory() as place:
            source = copy_of_source(place)
            every = {(item.tests, "") for item in chosen}
            every |= {(no_tests, item.seeds) for item in chosen}
            for found, how in pool.map(lambda one: is_noticed(one[0], one[1], source), every):
                if found:
                    print(f"a test fails without any break: {how}")
                    return 2
        print(f"{'break':<{width}}  {'noticed':<7}  seconds  by", flush=True)
        for item, (found, how, seconds) in zip(chosen, pool.map(try_out, chosen), strict=True):
            mark = "yes" if found else "MISSED"
            print(f"{item.name:<{width}}  {mark:<7}  {seconds:7.1f}  {how}", flush=True)
            if not found:
                missed.append(item.name)
    took = time.monotonic() - began
    print(f"{len(chosen) - len(missed)} of {len(chosen)} breaks were noticed in {took:.0f} s")
    for name in missed:
        print(f"missed: {name}")
    return 1 if missed else 0
