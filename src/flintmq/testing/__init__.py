"""For tests, ours and yours: a clock that is moved by hand, with the real engine underneath."""

from __future__ import annotations

from .manual_clock import ManualClock, settle

__all__ = ["ManualClock", "settle"]
