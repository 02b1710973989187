"""The packages, built once for all who ask, and environments that hold nothing else."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Built:
    directory: Path

    @property
    def wheel(self) -> Path:
        (found,) = self.directory.glob("flintmq-*.whl")
        return found

    @property
    def sdist(self) -> Path:
        (found,) = self.directory.glob("flintmq-*.tar.gz")
        return found

    @property
    def pyz(self) -> Path:
        return self.directory / "flintmq.pyz"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What scripts/build makes. Several test processes share it."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    built = Built(place / "dist")
    with (place / "dist.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.pyz.exists():
            check_index()
            run(ROOT / "scripts" / "build", built.directory)
    return built


def check_index() -> None:
    """Packages come from where this machine's pip gets them. Without that nothing can be shown."""
    asked = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"),
            *("--ignore-installed", "--no-deps", "hatchling"),
        ],
        capture_output=True,
        text=True,
    )
    if asked.returncode:
        pytest.skip(f"NOT TESTED: no packages can be had from here: {asked.stderr[-300:]}")


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=240, cwd=cwd
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def environment(directory: Path, *wanted: str) -> Path:
    """A fresh virtual environment with these packages; its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", directory)
    python = directory / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet")
    run(*pip, "-c", ROOT / "constraints.txt", *wanted)
    return python
