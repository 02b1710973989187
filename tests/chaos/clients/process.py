"""A client process of a chaos run.

It works until SIGTERM, then finishes what it has begun. SIGKILL is fine at any time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from pathlib import Path

from ..story import Story
from . import managing, publishing, queueing, reading
from .common import Worker, connected

ROLES = {
    "publish": publishing.run,
    "queue": queueing.run,
    "read": reading.run,
    "manage": managing.run,
}


async def work(role: str, url: str, story: Story, seed: int, skew: float) -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    async with connected(url, skew) as mq:
        worker = Worker(mq, story, random.Random(f"{seed} {story.worker}"), done, bool(skew))
        story.tell("at_work")
        await ROLES[role](worker)
        story.tell("closing", member=None)


def live(role: str, url: str, stories: Path, name: str, seed: int, skew: float) -> None:
    """Be that process, to its end."""
    errors = os.open(stories.parent / f"{name}.err", os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(errors, 2)
    os.close(errors)
    logging.disable()  # handlers that fail are told about, and nobody reads that
    story = Story(stories / name, name)
    asyncio.run(work(role, url, story, seed, skew))
    story.tell("process_ends")
    story.close()
