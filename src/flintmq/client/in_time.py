"""A step that has to be done within the time of the call it belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..clock import Clock, done_within
from ..errors import OutcomeUnknown

ANSWER_SECONDS = 0.08
"""What asks the broker runs out of time by itself, and says more precisely why: so much later."""

T = TypeVar("T")


async def in_time(clock: Clock, seconds: float | None, step: Coroutine[Any, Any, T]) -> T:
    """Take a step; one that is not done in time is cancelled, and OutcomeUnknown."""
    if seconds is None:
        return await step
    task = asyncio.get_running_loop().create_task(step)
    try:
        if await done_within(clock, task, seconds + ANSWER_SECONDS):
            return task.result()
    finally:
        task.cancel()
    raise OutcomeUnknown(f"the broker did not answer within {seconds:.3g} s")
