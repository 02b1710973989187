"""A small sampling profiler for the broker's CPU time.

`flintmq serve --profile FILE` enables it. It needs no extra package and no privileges. `py-spy`, if
available, sees more (time spent in C) and costs the broker less.
"""

from __future__ import annotations

from .flame_graph import flame_graph
from .sampler import Profiler, hint
from .stacks import Stacks

__all__ = ["Profiler", "Stacks", "flame_graph", "hint"]
