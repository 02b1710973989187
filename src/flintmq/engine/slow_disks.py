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
        "the disk took long to write and sync; publishers wait for it",
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
        f"the disk has not finished a sync yet, and {who} for it",
        directory=directory,
        seconds=seconds,
        on_loop=on_loop,
    )
