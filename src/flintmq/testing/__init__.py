"""For tests, ours and yours: a clock that is moved by hand, a disk that fails on request, and the
real engine underneath.

pytest finds the fixtures `flint`, `flint_sync` and `flintmq_clock` by itself where FlintMQ is
installed; see docs/testing.md.
"""

from __future__ import annotations

from .app_runs import AppTest as AppTest
from .app_runs import run as run
from .manual_clock import ManualClock as ManualClock
from .manual_clock import settle as settle
from .simulated_filesystem import Crashed as Crashed
from .simulated_filesystem import SimulatedFileSystem as SimulatedFileSystem
from .simulated_objects import SimulatedObjects as SimulatedObjects
from .waiting import advance_sync as advance_sync
from .waiting import wait_consumed as wait_consumed
from .waiting import wait_consumed_sync as wait_consumed_sync
