"""For tests, ours and yours: a clock that is moved by hand and a disk that fails on request."""

from __future__ import annotations

from .manual_clock import ManualClock
from .simulated_filesystem import Crashed, SimulatedFileSystem

__all__ = ["ManualClock", "SimulatedFileSystem", "Crashed"]
