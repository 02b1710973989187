"""For tests, ours and yours: a clock that is moved by hand, a disk that fails on request, and the
real engine underneath.

pytest finds the fixtures `flint`, `flint_sync` and `flintmq_clock` by itself where FlintMQ is
installed; see docs/testing.md.
"""

from __future__ import annotations

from .manual_clock import ManualClock, settle
from .simulated_filesystem import Crashed, SimulatedFileSystem
from .waiting import advance_sync, wait_consumed, wait_consumed_sync

__all__ = [
    "ManualClock",
    "SimulatedFileSystem",
    "Crashed",
    "advance_sync",
    "settle",
    "wait_consumed",
    "wait_consumed_sync",
]
