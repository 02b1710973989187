"""The machine and the installation: versions, extras, processors, memory, limits, the clock."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ... import __version__
from ...amounts import size
from ...compiled import BUILD
from ...installing import remedy
from .findings import DoctorFinding, ok, warn

PACKAGES = (
    *("msgspec", "fastcrc", "uvloop", "pyarrow", "lz4", "backports.zstd", "fastavro", "click"),
    *("starlette", "uvicorn", "httptools", "pyyaml", "rich", "pyspark", "opentelemetry-api"),
)
MEMORY_BYTES_FEW = 256 << 20
FILES_FEW = 4096
BUILT = datetime(2025, 1, 1, tzinfo=UTC).timestamp()
"""A correct clock shows no time before this."""


def look_at_machine() -> Iterator[DoctorFinding]:
    installed = {name: _version(name) for name in PACKAGES}
    yield from versions(__version__, installed)
    yield ok(
        "system",
        f"{platform.system()} {platform.release()} ({platform.machine()}), {_distribution()}",
        libc=" ".join(platform.libc_ver()),
        container=Path("/.dockerenv").exists() or Path("/run/.containerenv").exists(),
    )
    yield ok("processors", f"{os.cpu_count()} CPUs, {usable_processors()} usable by this process")
    if (found := memory()) is not None:
        yield judge_memory(*found)
    if (limit := open_files()) is not None:
        yield judge_files(*limit)
    yield judge_clock(time.time())


def versions(ours: str, installed: dict[str, str | None]) -> Iterator[DoctorFinding]:
    there = {name: number for name, number in installed.items() if number is not None}
    yield ok(
        "versions",
        f"FlintMQ {ours} ({BUILD}), {platform.python_implementation()} {platform.python_version()}",
        flintmq=ours,
        build=BUILD,
        python=sys.version,
        executable=sys.executable,
    )
    shown = ", ".join(f"{name} {number}" for name, number in there.items())
    missing = [name for name, number in installed.items() if number is None]
    facts = {"installed": there, "missing": missing}
    if "uvloop" in missing and sys.platform != "win32":
        yield warn(
            "packages",
            f"{shown}; uvloop is not installed, and the broker is slower without it",
            remedy("uvloop"),
            **facts,
        )
    else:
        yield ok("packages", shown, **facts)


def usable_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> tuple[int, int, int | None] | None:
    """Total bytes, free bytes, and the container's limit; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        facts = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
        total, free = facts["MemTotal"], facts["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        return None
    limit: int | None = None
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(file).read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < total:
            limit = int(text)
        break
    return total, free, limit


def judge_memory(total: int, free: int, limit: int | None) -> DoctorFinding:
    what = f"{size(free)} free of {size(total)}"
    if limit is not None:
        what += f"; this container is limited to {size(limit)}"
    facts = {"total_bytes": total, "free_bytes": free, "limit_bytes": limit}
    if min(free, limit or free) < MEMORY_BYTES_FEW:
        return warn(
            "memory",
            what,
            "a broker under load needs about 256 MiB: give it more, or lower "
            "checkpoint_bytes and what topics keep in memory",
            **facts,
        )
    return ok("memory", what, **facts)


def open_files() -> tuple[int, int] | None:
    try:
        import resource
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = 1 << 62
    return (
        unlimited if soft == resource.RLIM_INFINITY else soft,
        unlimited if hard == resource.RLIM_INFINITY else hard,
    )


def judge_files(soft: int, hard: int) -> DoctorFinding:
    what = f"limit {soft:,} open files, can be raised to {hard:,}"
    if hard < FILES_FEW:
        return warn(
            "ulimit",
            what,
            "each connection needs one: raise the limit (ulimit -Hn, LimitNOFILE= in a "
            "systemd unit)",
            soft=soft,
            hard=hard,
        )
    return ok("ulimit", what, soft=soft, hard=hard)


def judge_clock(now: float) -> DoctorFinding:
    shown = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    if now < BUILT:
        return warn(
            "clock",
            f"the clock says {shown}, which is far in the past",
            "set the clock: timestamps, ttl and delays depend on it",
        )
    return ok("clock", f"{shown} (UTC)", zone=time.tzname[0])


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _distribution() -> str:
    try:
        facts = platform.freedesktop_os_release()
    except OSError:
        return "unknown distribution"
    return facts.get("PRETTY_NAME", facts.get("ID", "unknown distribution"))
