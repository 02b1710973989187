"""tokio-memq's published crate beside us, where cargo is there: built once, into .peers.

Figures of another day are never divided by: without a program there is no ratio.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .installing import PEERS
from .scenario import Figures

SOURCE = Path(__file__).parent / "tokio_memq"
FOLDER = PEERS / "tokio-memq"
FILES = ("Cargo.toml", "src/main.rs")
BUILD_SECONDS = 900.0
PATIENCE_SECONDS = 100.0


def build(folder: Path = FOLDER) -> str:
    """Build the program unless it is there; why it could not be, or nothing."""
    if program(folder) is not None:
        return ""
    cargo = shutil.which("cargo")
    if cargo is None:
        return "tokio-memq was not measured: cargo is not installed. Install Rust to compare."
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCE / name, folder / name)
    try:
        subprocess.run(
            [cargo, "build", "--release", "--quiet"],
            cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS, check=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"tokio-memq was not measured: cargo took more than {BUILD_SECONDS:g} s."
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        return f"tokio-memq was not measured: cargo failed: {said[0].strip()}"
    return ""


def program(folder: Path = FOLDER) -> Path | None:
    """The program, if it was built from the source as it is now."""
    path = folder / "target" / "release" / "beside"
    if not path.exists():
        return None
    is_ours = all((folder / name).read_bytes() == (SOURCE / name).read_bytes() for name in FILES)
    return path if is_ours else None


async def measure(arguments: Sequence[int], folder: Path = FOLDER) -> Figures:
    """What the crate delivers in one run of a workload; nothing where it is not built."""
    path = program(folder)
    if path is None:
        return {}
    process = await asyncio.create_subprocess_exec(
        str(path), *map(str, arguments), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    if process.returncode:
        raise RuntimeError(f"tokio-memq's workload ended with {process.returncode}")
    figures = json.loads(output)
    # A figure of a run that lost messages is the rate of what did arrive.
    return {"tokio_memq": figures["delivered"], "tokio_memq_lost": float(figures["lost"])}
