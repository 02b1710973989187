"""SIGTERM asks a program to end: who works on messages hears of it first, and finishes.

Only a program that leaves SIGTERM to the system is watched: one that handles the signal itself
decides itself. A second SIGTERM ends the process at once, as it would have without us, and so does
the first where nothing is left to finish, or where the program is still there some seconds after
the work had its time. A process that is forked off has none of this.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

Callback = Callable[[], bool]
"""Whether something is finished now that would have been cut short."""

LEAVE_SECONDS = 2.0
"""How long a program has for its own end, once the work is done or was given up."""

_callbacks: dict[Callback, float] = {}
_was_heard = False


def on_sigterm(callback: Callback, grace: float) -> Callable[[], None]:
    """Call `callback` once SIGTERM comes, and give the process `grace` and a few seconds more; the
    returned function ends that.

    The callback runs between two steps of the main thread, wherever that is: it only notes or
    schedules something. Outside the main thread, nothing is done.
    """
    if _was_heard or threading.current_thread() is not threading.main_thread():
        return _nothing
    if not _callbacks:
        if signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, _heard):
            return _nothing
        signal.signal(signal.SIGTERM, _heard)
    _callbacks[callback] = grace

    def forget() -> None:
        _callbacks.pop(callback, None)
        if not _callbacks:
            _leave_it_to_the_system()

    return forget


def _heard(number: int, frame: object) -> None:
    global _was_heard
    _was_heard = True
    graces = [grace for callback, grace in _forget_all().items() if callback()]
    if not graces:
        signal.raise_signal(number)
    # A program that waits for something else would not end at all: SIGTERM was meant for all of it.
    end = threading.Timer(max(graces) + LEAVE_SECONDS, os.kill, (os.getpid(), number))
    end.daemon = True
    end.start()


def _forget_all() -> dict[Callback, float]:
    callbacks = _callbacks.copy()
    _callbacks.clear()
    _leave_it_to_the_system()
    return callbacks


def _leave_it_to_the_system() -> None:
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is _heard:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


# --- processes that are forked off


class _Forking(threading.local):
    """Python drops a signal that it is handed in the middle of a fork: the child is handed it when
    it has left SIGTERM to the system."""

    _mask: set[int | signal.Signals] | None = None

    def begin(self) -> None:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def end(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask or ())

    def end_in_child(self) -> None:
        global _was_heard
        _was_heard = False
        _forget_all()
        self.end()


def _nothing() -> None:
    pass


if hasattr(os, "register_at_fork"):
    _forking = _Forking()
    os.register_at_fork(
        before=_forking.begin,
        after_in_parent=_forking.end,
        after_in_child=_forking.end_in_child,
    )
