"""How far long work has come, as one line on a terminal. The line itself is pure."""

from __future__ import annotations

import shutil
import sys
from time import monotonic

from .shared import said, say

EVERY_SECONDS = 0.1
BAR_MIN, BAR_MAX = 6, 24


def progress_line(what: str, done: int, total: int | None, seconds: float, width: int) -> str:
    """`copied [######------]  50%  1,000 of 2,000  9,500/s  1 s left`, cut to the width."""
    rate = done / seconds if seconds > 0 else 0.0
    speed = f"{rate:,.0f}/s" if seconds >= 0.5 else ""
    if not total:
        parts = [what, f"{done:,}", speed]
    else:
        share = min(1.0, done / total)
        left = f"{left_text((total - done) / rate)} left" if rate and speed and share < 1 else ""
        parts = [what, f"{int(share * 100):3}%", f"{done:,} of {total:,}", speed, left]
        room = width - len("  ".join(part for part in parts if part)) - len("  []")
        long = max(BAR_MIN, min(BAR_MAX, room))
        full = int(share * long)
        parts.insert(1, f"[{'#' * full}{'-' * (long - full)}]")
    return "  ".join(part for part in parts if part)[:width]


def left_text(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class ProgressBar:
    """Drawn a few times a second, on stderr, and only where somebody looks."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self.what, self.total = what, total
        self._began = monotonic()
        self._drawn = 0.0
        self._shows = sys.stderr.isatty()

    def show(self, done: int) -> None:
        now = monotonic()
        if not self._shows or now - self._drawn < EVERY_SECONDS:
            return
        self._drawn = now
        width = shutil.get_terminal_size().columns - 1
        say(progress_line(self.what, done, self.total, now - self._began, width))

    def clear(self) -> None:
        said()
