"""How large the packages are, and how soon a broker from them is ready.

    scripts/build && .venv/bin/python -m benchmarks.package_footprint --runs 7

A fresh virtual environment with the wheel and its `server` extra, and the single file; memory is
what is resident (/proc, so Linux only). Start times are medians, beside what Python itself needs.
One table and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from .report import machine, machine_line

MIB = 1024 * 1024
REST_SECONDS = 1.0


def size_of(path: Path) -> int:
    """Of a file, or of everything below a directory."""
    if path.is_file():
        return path.stat().st_size
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())


def environment(directory: Path, wheel: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "-c", "constraints.txt", f"{wheel}[server]"], check=True)
    return python


def seconds_of_python(python: Path) -> float:
    started = time.perf_counter()
    subprocess.run([python, "-c", "pass"], check=True)
    return time.perf_counter() - started


def start(command: list[str], variables: dict[str, str]) -> tuple[float, float]:
    """Seconds until it is ready, and MiB at rest."""
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        process = subprocess.Popen(
            [*command, "serve", "--data-dir", directory, "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **variables},
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        taken = time.perf_counter() - started
        assert "ready at " in line, line
        time.sleep(REST_SECONDS)
        memory = Path(f"/proc/{process.pid}/status").read_text().split("VmRSS:")[1].split()[0]
        process.send_signal(signal.SIGTERM)
        process.wait()
        return taken, int(memory) / 1024


def figures(dist: Path, runs: int) -> dict[str, float]:
    (wheel,), (sdist,) = dist.glob("flintmq-*.whl"), dist.glob("flintmq-*.tar.gz")
    pyz = dist / "flintmq.pyz"
    found: dict[str, float] = {
        "wheel MiB": size_of(wheel) / MIB,
        "sdist MiB": size_of(sdist) / MIB,
        "pyz MiB": size_of(pyz) / MIB,
    }
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        python = environment(directory / "venv", wheel)
        (site,) = (directory / "venv").glob("lib/python*/site-packages")
        found["flintmq installed MiB"] = size_of(site / "flintmq") / MIB
        found["with its server extra MiB"] = size_of(site) / MIB
        cache = {"FLINTMQ_PYZ_CACHE": str(directory / "cache")}
        ways = {
            "venv": ([str(python.parent / "flintmq")], {}),
            "pyz": ([str(python), str(pyz)], cache),
        }
        found["pyz, first start s"] = start(*ways["pyz"])[0]
        found["pyz unpacked MiB"] = size_of(directory / "cache") / MIB
        bare, taken, memory = [], {way: [] for way in ways}, {way: [] for way in ways}  # type: ignore[var-annotated]
        for _ in range(runs):
            bare.append(seconds_of_python(python))
            for way, (command, variables) in ways.items():
                one, other = start(command, variables)
                taken[way].append(one)
                memory[way].append(other)
        found["python -c pass s"] = median(bare)
        for way in ways:
            found[f"{way}, ready after s"] = median(taken[way])
            found[f"{way}, at rest MiB"] = median(memory[way])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dist", type=Path, default=Path("dist"))
    parser.add_argument("--runs", type=int, default=7)
    wanted = parser.parse_args()
    print(machine_line(machine()))
    found = figures(wanted.dist, wanted.runs)
    for what, figure in found.items():
        print(f"{what:32}{figure:10.2f}")
    print(json.dumps({"machine": machine(), **found}))


if __name__ == "__main__":
    main()
