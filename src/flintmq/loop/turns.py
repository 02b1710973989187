"""The watchdog of the event loop: how long its turns are, and what held it up.

Whatever one turn does, everybody else waits for. Each turn is measured (`probe.py`). A thread
looks now and then whether one goes on for long; if so it notes which functions of ours are running,
so that a turn over the limit is logged and counted by its name.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
from collections import Counter, deque
from pathlib import Path
from time import perf_counter, sleep
from types import FrameType
from typing import Any, NamedTuple

from ..amounts import precise
from ..observe.logs import limited
from ..observe.metrics import Histogram
from .probe import SHORT_SECONDS, LoopProbe, probe

_log = logging.getLogger(__name__)

TURN_SECONDS_MAX = 0.02
"""The longest turn that is not worth a word."""

WARN_SECONDS = 0.1
"""Time on the processor from which on a turn is worth a warning."""

TURN_SECONDS = (
    SHORT_SECONDS,
    0.002,
    0.005,
    0.01,
    0.015,
    0.02,
    0.03,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    5.0,
)

LOOK_SECONDS = 0.01
"""How often the thread looks while the loop has something to do."""

REST_SECONDS = 0.5
"""How often it looks otherwise: an idle broker sleeps. The first long turn after a rest may stay
without a name; it is measured all the same."""

RESTS_AFTER = 100
"""So many looks without a turn that was not short, and it rests."""

NAMES_MAX = 64
"""How many names are counted by themselves."""

UNKNOWN = "not seen"
"""The name of a turn that was over before the thread looked."""

GARBAGE = "Python collected garbage"

_PACKAGE = str(Path(__file__).parents[1])
_DISK = "storage.filesystem."
"""What waits there waits for the disk: a write, or the sync of a lone message."""
_AROUND = frozenset(("api", "cli", "daemon", "loop"))
"""What runs the loop, or watches it."""


class Overrun(NamedTuple):
    seconds: float
    cpu_seconds: float
    """Of these, on the processor."""
    what: str

    def __str__(self) -> str:
        waited = f"the event loop was blocked for {precise(self.seconds)}"
        if self.what.rpartition(" ")[2].startswith(_DISK):
            return f"{waited} while the broker waited for its disk: {self.what}"
        if self.what != UNKNOWN:
            return f"{waited} while the broker did one thing: {self.what}"
        if self.cpu_seconds < self.seconds / 2:
            return f"{waited}: the machine, or its disk, was busy with something else"
        return f"{waited} for the broker; what it did was not seen"


class Turns:
    """Measures the turns of the loop it is started on. Its figures may be read at any time."""

    def __init__(self, seconds_max: float = TURN_SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self._histogram = Histogram(TURN_SECONDS)
        self._cpu_histogram = Histogram(TURN_SECONDS)
        self.overruns: Counter[str] = Counter()
        """Turns over the limit, by what held them up."""
        self.longest = Overrun(0.0, 0.0, UNKNOWN)
        self._probe: LoopProbe | None = None
        self._loop_thread = 0
        self._long = 0  # turns that were not short
        self._seen: deque[tuple[float, str]] = deque(maxlen=1000)
        """What ran when the thread looked, and when that was."""
        self._stopped = threading.Event()
        self._collecting_since = 0.0

    @property
    def is_measuring(self) -> bool:
        return self._probe is not None

    @property
    def seconds(self) -> Histogram:
        """Of all turns."""
        return self._whole(self._histogram)

    @property
    def cpu_seconds(self) -> Histogram:
        """The same of what they took of the processor."""
        return self._whole(self._cpu_histogram)

    def _whole(self, histogram: Histogram) -> Histogram:
        whole = Histogram(TURN_SECONDS)
        whole.add(histogram)
        if self._probe is not None:  # short turns are busy all the time
            whole.counts[0] += self._probe.short
            whole.total += self._probe.short_seconds
        return whole

    def start(self) -> None:
        """Watch the running loop, until `stop`."""
        self._loop_thread = threading.get_ident()
        self._probe = probe(asyncio.get_running_loop(), self._ended)
        if self._probe is not None:
            gc.callbacks.append(self._collects)
            threading.Thread(target=self._look, name="flintmq-turns", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        if self._probe is not None:
            self._probe.stop()
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)

    def _ended(self, seconds: float, cpu_seconds: float) -> None:
        """A turn is over that was not short."""
        self._histogram.observe(seconds)
        self._cpu_histogram.observe(cpu_seconds)
        self._long += 1
        if seconds > self.longest.seconds or seconds > self._seconds_max:
            what = _usual(list(self._seen), perf_counter() - seconds)
            self._note(Overrun(seconds, cpu_seconds, what))
        self._seen.clear()

    def _note(self, turn: Overrun) -> None:
        if turn.seconds > self.longest.seconds:
            self.longest = turn
        if turn.seconds <= self._seconds_max:
            return
        name = turn.what if len(self.overruns) < NAMES_MAX else "others"
        self.overruns[turn.what if turn.what in self.overruns else name] += 1
        facts: dict[str, Any] = {
            "what": turn.what,
            "milliseconds": round(turn.seconds * 1000),
            "cpu_milliseconds": round(turn.cpu_seconds * 1000),
        }
        if turn.cpu_seconds >= WARN_SECONDS:
            limited(_log, logging.WARNING, "loop_held", turn.what, str(turn), **facts)
        else:
            limited(_log, logging.INFO, "loop_held", turn.what, str(turn), **facts)

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        """Python collects garbage, on whichever thread: everybody waits."""
        if phase == "start":
            self._collecting_since = perf_counter()
        elif perf_counter() - self._collecting_since > LOOK_SECONDS / 2:
            looks = len(self._seen) + 1  # more than what it took the place of
            self._seen.extend([(perf_counter(), GARBAGE)] * looks)

    # --- in a thread of its own

    def _look(self) -> None:
        known, quiet = self._long, 0
        while not self._stopped.is_set():
            sleep(REST_SECONDS if quiet > RESTS_AFTER else LOOK_SECONDS)
            frame = sys._current_frames().get(self._loop_thread)
            name = None if frame is None else name_of(frame)
            if name is not None:
                self._seen.append((perf_counter(), name))
            quiet = 0 if self._long != known else quiet + 1
            known = self._long


def name_of(frame: FrameType) -> str | None:
    """What a stack is about: the first and the last function of ours in it; None if there is none,
    as where the loop waits."""
    ours: list[str] = []
    outer: FrameType | None = frame
    while outer is not None:
        code = outer.f_code
        if code.co_filename.startswith(_PACKAGE):
            module = code.co_filename[len(_PACKAGE) + 1 : -len(".py")].replace("/", ".")
            if module.partition(".")[0] not in _AROUND:
                ours.append(f"{module}.{code.co_qualname}")
        outer = outer.f_back
    if not ours:
        return None
    return ours[0] if len(ours) == 1 else f"{ours[-1]} in {ours[0]}"


def _usual(seen: list[tuple[float, str]], since: float) -> str:
    """What was seen most often since a time."""
    names = Counter(name for at, name in seen if at >= since)
    return names.most_common(1)[0][0] if names else UNKNOWN
