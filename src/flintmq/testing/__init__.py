"""For tests, ours and yours: a clock that is moved by hand, with the real engine underneath.

pytest finds the fixtures `flint`, `flint_sync` and `flintmq_clock` by itself where FlintMQ is
installed; see docs/testing.md.
"""

from __future__ import annotations

from .manual_clock import ManualClock, settle
from .waiting import advance_sync, wait_consumed, wait_consumed_sync

__all__ = ["ManualClock", "advance_sync", "settle", "wait_consumed", "wait_consumed_sync"]
