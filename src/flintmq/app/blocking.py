"""Notices, from a thread of its own, that a function blocks the event loop, and names it.

Until it returns, no other function of its process is called, and no lease is renewed.
"""

from __future__ import annotations

import logging
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread, get_ident
from time import monotonic
from types import FrameType

from ..observe.logs import event

log = logging.getLogger("flintmq.app.child")

BLOCKED_SECONDS = 5.0
LOOK_SECONDS = 1.0

_INSTALLED = tuple(
    {str(Path(__file__).parents[1]), *(sysconfig.get_path(one) for one in ("stdlib", "platstdlib"))}
)
"""Where FlintMQ and Python itself are."""


class BlockedLoopWatch:
    """`beat` is called by the loop; `tell` by the thread, with what blocks it."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._loop_thread = get_ident()
        self._at = monotonic()
        self._ended = Event()

    def start(self) -> None:
        Thread(target=self._watch, name="flintmq-blocked", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def beat(self) -> None:
        self._at = monotonic()

    def _watch(self) -> None:
        is_told = False
        while not self._ended.wait(LOOK_SECONDS):
            is_blocked = monotonic() - self._at > BLOCKED_SECONDS
            if is_blocked and not is_told:
                self.look()
            is_told = is_blocked

    def look(self) -> None:
        """Tell which function is running now, unless it is none of the program."""
        where = function_of(sys._current_frames().get(self._loop_thread))
        if where is None:  # the machine is busy with something else
            return
        event(
            log,
            logging.ERROR,
            "worker_blocked",
            f"{where} has blocked the event loop for {BLOCKED_SECONDS:g} s: the other functions of "
            "this process wait, and leases are not renewed; write it as a plain def, which runs in "
            "a thread, or await what it waits for",
            where=where,
        )
        self._tell(f"{where} blocks the event loop")


def is_program(file: str) -> bool:
    """Whether a file is of the program: neither installed nor ours."""
    return not (
        "site-packages" in file or "dist-packages" in file or file.startswith(("<", *_INSTALLED))
    )


def function_of(frame: FrameType | None) -> str | None:
    """The innermost function of the program in a stack, and its line."""
    while frame is not None:
        code = frame.f_code
        if is_program(code.co_filename):
            return f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})"
        frame = frame.f_back
    return None
