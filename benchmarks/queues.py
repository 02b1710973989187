"""Queues in process, all scenarios of them: `python -m benchmarks.queues`.

Another name for `python -m benchmarks queue_drain queue_poll_one queue_delayed queue_groups`; it
takes the same options.
"""

from __future__ import annotations

import sys

from .cli import main

NAMES = ("queue_drain", "queue_poll_one", "queue_delayed", "queue_groups")

if __name__ == "__main__":
    sys.exit(main([*NAMES, *sys.argv[1:]]))
