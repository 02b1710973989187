"""What the broker's time goes to: a small sampling profiler that is part of the broker.

`flintmq serve --profile FILE` switches it on. It needs nothing installed and no privileges; where
`py-spy` can be had, that sees more (time spent in C) and costs the broker less.
"""

from __future__ import annotations

from .flame_graph import flame_graph
from .sampler import Profiler, hint
from .stacks import Stacks

__all__ = ["Profiler", "Stacks", "flame_graph", "hint"]
