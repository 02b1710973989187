"""The profiler that samples this process: a thread that looks at the others, and writes a file.

A sample is weighed by the CPU time the thread has used since the last one, so who waits weighs
nothing. Where that cannot be asked (it is Linux's), each sample weighs the time between two.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

from .flame_graph import flame_graph
from .stacks import DEPTH_MAX, Stack, Stacks

HERTZ = 97
"""Odd, so that it does not keep step with what happens a hundred times a second."""

_IS_LINUX = sys.platform == "linux"


class Profiler:
    """Samples from `start` on; `write` can be called any number of times; `stop` ends it."""

    def __init__(self, path: Path, hertz: float = HERTZ) -> None:
        self.path = path
        self.stacks = Stacks()
        self.samples = 0
        self._seconds = 1.0 / hertz
        self._began = 0.0
        self._own_seconds = 0.0
        self._used: dict[int, int] = {}
        self._labels: dict[CodeType, str] = {}
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="flintmq-profiler", daemon=True)

    def start(self) -> None:
        self._began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End sampling and write the file."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        self.write()

    @property
    def overhead(self) -> float:
        """The part of one core that sampling has taken."""
        return self._own_seconds / max(1e-9, time.monotonic() - self._began)

    def summary(self) -> list[str]:
        seconds = time.monotonic() - self._began
        what = "CPU time" if _IS_LINUX else "time, waiting included"
        return [
            f"{what} of {self.stacks.total / 1e6:,.2f} s in {seconds:,.1f} s; {self.samples:,} "
            f"samples, {1 / self._seconds:.0f} a second; sampling took {self.overhead:.1%} of a "
            "core",
            f"pid {os.getpid()}, Python {sys.version.split()[0]}; time in C code counts for the "
            "Python function that called it",
        ]

    def write(self) -> None:
        """Write what was found so far: an SVG, or text for other tools if it is not named .svg."""
        with self._lock:
            if self.path.suffix == ".svg":
                text = flame_graph(self.stacks, "FlintMQ", self.summary())
            else:
                text = self.stacks.folded()
        # Beside it first: whoever looks at the file never sees half of it.
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        aside.write_text(text, encoding="utf-8")
        aside.replace(self.path)

    # --- in its thread

    def _run(self) -> None:
        next_at = time.monotonic()
        while not self._ends.wait(max(0.0, next_at - time.monotonic())):
            self.sample()
            self._own_seconds = time.thread_time()
            # Late by more than a turn, as on a busy machine: go on from here.
            next_at = max(next_at + self._seconds, time.monotonic())

    def sample(self) -> None:
        """Look at every thread but this one."""
        here = threading.get_ident()
        frames = sys._current_frames()
        with self._lock:
            self.samples += 1
            alive = set()
            for thread in threading.enumerate():
                frame = frames.get(thread.ident or 0)
                if frame is None or thread.ident == here or thread.native_id is None:
                    continue
                alive.add(thread.native_id)
                weight = self._weight(thread.native_id)
                if weight > 0:
                    self.stacks.add(self._stack(thread.name, frame), weight)
            for gone in self._used.keys() - alive:
                del self._used[gone]
        del frames

    def _weight(self, native_id: int) -> int:
        """Microseconds of CPU that the thread has used since it was looked at last."""
        if not _IS_LINUX:
            return round(self._seconds * 1_000_000)
        used = cpu_of_thread(native_id)
        if used is None:
            return 0
        before = self._used.get(native_id, used)
        # What is less than a microsecond stays for the next sample.
        microseconds = (used - before) // 1000
        self._used[native_id] = before + microseconds * 1000
        return microseconds

    def _stack(self, thread: str, frame: FrameType | None) -> Stack:
        labels = self._labels
        found: list[str] = []
        while frame is not None and len(found) < DEPTH_MAX + 1:
            code = frame.f_code
            label = labels.get(code)
            if label is None:
                module = frame.f_globals.get("__name__", "?")
                label = labels[code] = f"{module}.{code.co_qualname}"
            found.append(label)
            frame = frame.f_back
        found.append(f"thread {thread}")
        found.reverse()
        return tuple(found)


def cpu_of_thread(native_id: int) -> int | None:
    """Nanoseconds of CPU that a thread of this process has used; None if it is gone.

    By the kernel's own number for that clock. `time.pthread_getcpuclockid` would give the same, but
    may crash where the thread has just ended.
    """
    per_thread, scheduled = 4, 2
    try:
        return time.clock_gettime_ns((~native_id << 3) | per_thread | scheduled)
    except OSError:
        return None


def hint(pid: int, tell: Callable[[str], object]) -> None:
    """How to see more."""
    tell(f"time inside C code shows with: py-spy record --native --pid {pid} --output profile.svg")
