"""Puts what benchmarks compare us with into a folder of its own, apart from our environment.

Nothing is installed into the system. Python packages go into an environment, jars into a folder,
and Debian's packages are unpacked, not installed: with everything they need that the system lacks.
The package managers' own settings say from where.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PEERS = Path(__file__).parent / ".peers"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>flintmq</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{}</dependencies>
</project>
"""
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)
_COMPLETE = ".complete"


class CannotInstall(Exception):
    """The peer cannot be had here; the text says what was tried."""


def install_python(folder: Path, packages: Sequence[str]) -> Path:
    """An environment with these packages; its interpreter. What is complete is left alone."""
    python = folder / "bin" / "python"
    stamp = folder / _COMPLETE
    wanted = "\n".join(packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent, "environment")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    run([*pip, *packages], folder.parent, f"Python packages {', '.join(packages)}")
    stamp.write_text(wanted)
    return python


def install_jars(folder: Path, *, needed: Sequence[str], alone: Sequence[str] = ()) -> Path:
    """Jars with what they depend on, and jars `alone`, without it; fetched by Maven."""
    if folder.exists():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotInstall("there is no mvn on PATH, which fetches jars")
    work = folder.with_suffix(".new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    wanted = [_dependency(one) for one in needed] + [_dependency(one, _ALONE) for one in alone]
    (work / "pom.xml").write_text(_POM.format("\n".join(wanted)))
    command = [
        maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime",
        f"-DoutputDirectory={work / 'jars'}",
    ]  # fmt: skip
    run(command, work, f"jars {', '.join([*alone, *needed])}")
    shutil.move(work / "jars", folder)
    shutil.rmtree(work)
    return folder


def _dependency(coordinates: str, more: str = "") -> str:
    group, artifact, version = coordinates.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{more}</dependency>"
    )


def unpack_debian(folder: Path, package: str) -> Path:
    """A package of Debian's, and what it needs and the system lacks, unpacked below `folder`."""
    if (folder / _COMPLETE).exists():
        return folder
    apt, unpacker = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or unpacker is None:
        raise CannotInstall(f"{package} is not on PATH, and there is no apt-get to fetch it with")
    shutil.rmtree(folder, ignore_errors=True)
    packed = folder / "packed"
    packed.mkdir(parents=True)
    run([apt, "download", *_lacking(apt, package)], packed, f"Debian's {package}")
    for archive in sorted(packed.glob("*.deb")):
        run([unpacker, "-x", str(archive), str(folder)], folder, archive.name)
    shutil.rmtree(packed)
    (folder / _COMPLETE).touch()
    return folder


def _lacking(apt: str, package: str) -> list[str]:
    """The package, and what would be installed with it. A dry run: it needs no rights."""
    command = [apt, "--simulate", "install", "--no-install-recommends", package]
    try:
        said = run(command, PEERS, f"Debian's {package}")
    except CannotInstall:
        if os.getuid() != 0:
            raise
        run([apt, "update", "--quiet"], PEERS, "the list of Debian's packages")
        said = run(command, PEERS, f"Debian's {package}")
    found = packages_to_install(said)
    return found if package in found else [package, *found]


def packages_to_install(said: str) -> list[str]:
    """What a dry run of apt-get would install, by name."""
    return [line.split()[1] for line in said.splitlines() if line.startswith("Inst ")]


def run(command: list[str], folder: Path, what: str) -> str:
    """What a command said; CannotInstall, with its last words, where it failed."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise CannotInstall(f"{what}: {' '.join(said[-3:]) or f'exit code {done.returncode}'}")
    return done.stdout
