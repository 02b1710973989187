"""The profiler: samples this process, and writes a file.

A timer on the CPU time of the process (SIGPROF) interrupts the main thread, which then samples all
threads. A separate sampling thread would see the broker only where it releases the GIL, which is
where it waits. It is the fallback if the profiler is not started in the main thread.

A sample is weighted by the CPU time that the thread used since the last one, so a waiting thread
weighs nothing. Without per-thread CPU clocks (they are Linux-specific), each sample weighs the time
between two samples.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from ...amounts import precise
from ...errors import InvalidRequest
from .flame_graph import flame_graph
from .stacks import DEPTH_MAX, Stack, Stacks

HERTZ = 97
"""Odd, so that it is not in step with what happens a hundred times a second."""

SWITCH_SECONDS = 0.0005
"""How long the running thread may continue before the sampling thread gets its turn."""

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
        self._thread: threading.Thread | None = None
        self._handler_before: Any = None
        self._switch_before = 0.0

    def start(self) -> None:
        if not self.path.absolute().parent.is_dir():  # told now, not after a day of sampling
            raise InvalidRequest(f"directory of the profile {self.path} does not exist; create it")
        self._began = time.monotonic()
        for thread in threading.enumerate():  # what they have used before is not ours to tell
            if thread.native_id is not None:
                self._weight(thread.native_id)
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGPROF"):
            self._handler_before = signal.signal(signal.SIGPROF, self._interrupted)
            signal.setitimer(signal.ITIMER_PROF, self._seconds, self._seconds)
            return
        self._switch_before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread = threading.Thread(target=self._run, name="flintmq-profiler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End sampling and write the file."""
        if self._thread is None:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, self._handler_before or signal.SIG_DFL)
        else:
            self._ends.set()
            self._thread.join()
            sys.setswitchinterval(self._switch_before)
        self.write()

    @property
    def overhead(self) -> float:
        """The share of one core that sampling took."""
        return self._own_seconds / max(1e-9, time.monotonic() - self._began)

    def summary(self) -> list[str]:
        seconds = time.monotonic() - self._began
        what = "CPU time" if _IS_LINUX else "time, waiting included"
        often = "a second" if self._thread is not None else "for each second of CPU time"
        return [
            f"{what} of {precise(self.stacks.total / 1e6)} in {precise(seconds)}; {self.samples:,} "
            f"samples, {1 / self._seconds:.0f} {often}; sampling took {self.overhead:.1%} of a "
            "core",
            f"pid {os.getpid()}, Python {sys.version.split()[0]}; time in C code counts for the "
            "Python function that called it",
        ]

    def write(self) -> None:
        """Write the profile so far: an SVG, or text for other tools if the name does not end in
        .svg."""
        with self._lock:
            if self.path.suffix == ".svg":
                text = flame_graph(self.stacks, "FlintMQ", self.summary())
            else:
                text = self.stacks.folded()
        # Beside it first: whoever looks at the file never sees half of it.
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        aside.write_text(text, encoding="utf-8")
        aside.replace(self.path)

    # --- sampling

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        began = time.thread_time()
        self.sample(frame)
        self._own_seconds += time.thread_time() - began

    def _run(self) -> None:
        next_at = time.monotonic()
        while not self._ends.wait(max(0.0, next_at - time.monotonic())):
            self.sample()
            self._own_seconds = time.thread_time()
            # Late by more than a turn, as on a busy machine: go on from here.
            next_at = max(next_at + self._seconds, time.monotonic())

    def sample(self, interrupted: FrameType | None = None) -> None:
        """Sample every thread; this one at the frame where it was interrupted, if it was."""
        here = threading.get_ident()
        frames = sys._current_frames()
        if interrupted is not None:
            frames[here] = interrupted
        else:
            del frames[here]
        if not self._lock.acquire(blocking=False):
            return  # it is being written, perhaps by the thread that was interrupted
        try:
            self.samples += 1
            alive = set()
            for thread in threading.enumerate():
                frame = frames.get(thread.ident or 0)
                if frame is None or thread.native_id is None:
                    continue
                alive.add(thread.native_id)
                weight = self._weight(thread.native_id)
                if weight > 0:
                    self.stacks.add(self._stack(thread.name, frame), weight)
            for gone in self._used.keys() - alive:
                del self._used[gone]
        finally:
            self._lock.release()

    def _weight(self, native_id: int) -> int:
        """Microseconds of CPU that the thread used since its last sample."""
        if not _IS_LINUX:
            return round(self._seconds * 1_000_000)
        used = cpu_of_thread(native_id)
        if used is None:
            return 0
        before = self._used.get(native_id, 0)
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


def hint(pid: int) -> str:
    """How to see more detail."""
    return f"to see time inside C code, run: py-spy record --native --pid {pid} -o profile.svg"
