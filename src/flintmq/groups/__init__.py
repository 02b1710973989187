"""What turns a log into a queue: who gets which message, when, and how often. Begin at `queue`.

Pure. No clock, no task, no file: time is an argument, and chance is the caller's.
"""

from flintmq.groups.backoff import backoff_seconds
from flintmq.groups.delay_wheel import DelayWheel
from flintmq.groups.lanes import LOG, LaneCursors, LaneIndex
from flintmq.groups.offset_set import OffsetSet
from flintmq.groups.queue import Queue, Selection
from flintmq.groups.queue_state import QueueState
from flintmq.groups.token_bucket import TokenBucket

__all__ = [
    "Queue",
    "QueueState",
    "Selection",
    "LaneIndex",
    "LaneCursors",
    "LOG",
    "DelayWheel",
    "TokenBucket",
    "backoff_seconds",
    "OffsetSet",
]
