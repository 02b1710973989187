"""SIGTERM asks a program to end: who works on messages hears of it first, and finishes.

Only a program that leaves SIGTERM to the system is watched: one that handles the signal itself
decides itself. A second SIGTERM ends the process at once, as it would have without us.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

Callback = Callable[[], object]

_callbacks: list[Callback] = []


def on_sigterm(callback: Callback) -> Callable[[], None]:
    """Call `callback` once SIGTERM comes; the returned function ends that.

    The callback runs between two steps of the main thread, wherever that is: it only notes or
    schedules something. Outside the main thread, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        return _nothing
    if not _callbacks:
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return _nothing
        signal.signal(signal.SIGTERM, _heard)
    _callbacks.append(callback)

    def forget() -> None:
        if callback in _callbacks:
            _callbacks.remove(callback)
            if not _callbacks:
                _leave_it_to_the_system()

    return forget


def _heard(number: int, frame: object) -> None:
    callbacks = list(_callbacks)
    _callbacks.clear()
    _leave_it_to_the_system()
    for callback in callbacks:
        callback()


def _leave_it_to_the_system() -> None:
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is _heard:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _nothing() -> None:
    pass
