"""What is told of a disk that is slow."""

from __future__ import annotations

import logging

from ..observe.logs import limited

_log = logging.getLogger(__name__)


def was_slow(directory: str, seconds: float, size: int) -> None:
    limited(
        _log,
        logging.WARNING,
        "slow_disk",
        directory,
        "writing and syncing took long: publishers waited for the disk",
        directory=directory,
        seconds=seconds,
        bytes=size,
    )


def is_stalled(directory: str, seconds: float, on_loop: bool) -> None:
    """Told by a thread: the loop may be what waits."""
    who = "the whole broker waits" if on_loop else "publishers wait"
    limited(
        _log,
        logging.WARNING,
        "sync_stalled",
        directory,
        f"a disk sync takes long, and {who} for it",
        directory=directory,
        seconds=seconds,
        on_loop=on_loop,
    )
