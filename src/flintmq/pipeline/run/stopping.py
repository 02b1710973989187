"""Stops a run, after the running micro-batches or at once: by Ctrl-C, SIGTERM, or a call."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import Closed
from ...spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.1
WAIT_SECONDS = 60.0
A_FLOW = "a flow that was stopped"
"""The beginning of the error of a closed gate."""


class Stop:
    """Asks a run to stop. May be called from any thread."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.is_urgent = False
        self._was_told = False

    def ask(self) -> None:
        """Stop after the running micro-batches."""
        self._asked.set()

    def ask_now(self) -> None:
        """Stop at once: the running micro-batches are repeated at the next start."""
        self.is_urgent = True
        self._asked.set()

    def is_asked(self) -> bool:
        return self._asked.is_set()

    def tell(self, tell: Callable[[str], None], when: str) -> None:
        """Announce the stop, once. Not in `ask`: a signal may come in the middle of a line."""
        if self._asked.is_set() and not self._was_told:
            self._was_told = True
            tell(f"stopping {when}; Ctrl-C again stops at once")

    def wait(self, seconds: float) -> None:
        if self._asked.is_set():
            time.sleep(seconds)
        else:
            self._asked.wait(seconds)


class BatchGate:
    """Lets micro-batches through to a function, one at a time, until it is closed.

    When Spark stops a query, it does not wait for a function in Python. With the gate, no
    micro-batch starts after the stop, and the stopping thread can wait for the running one.

    `file` exists from then on: sources of topics look for it, and offer nothing more. So a query
    that is always busy comes to rest as well.
    """

    def __init__(self) -> None:
        self._at_work = threading.Lock()
        self._is_closed = False
        self.file = Path(tempfile.gettempdir()) / f"flintmq-stop-{uuid.uuid4().hex}"

    @contextmanager
    def passed(self) -> Iterator[None]:
        with self._at_work:
            if self._is_closed:
                raise Closed(A_FLOW)
            yield

    def close(self) -> None:
        """Let nothing more through. The running micro-batch goes on."""
        if not self._is_closed:
            self._is_closed = True
            with suppress(OSError):  # it only saves a micro-batch
                self.file.touch()

    def remove(self) -> None:
        """The query has ended."""
        self.file.unlink(missing_ok=True)

    def wait_empty(self, seconds: float = WAIT_SECONDS) -> None:
        if self._at_work.acquire(timeout=seconds):
            self._at_work.release()


@contextmanager
def stopped_by_signals(stop: Stop) -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM. PySpark's own handler of Ctrl-C aborts everything that runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, frame: Any) -> None:
        if number == signal.SIGINT and stop.is_asked():
            stop.ask_now()
        else:
            stop.ask()

    heard = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN  # the parent process asked to ignore it
    ]
    before = {number: signal.signal(number, asked) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def session_unless_stopped(stop: Stop, tell: Callable[[str], None], **wanted: Any) -> SparkSession:
    """Start a session, and raise KeyboardInterrupt if Ctrl-C came meanwhile.

    In a thread of its own: else PySpark would handle Ctrl-C, and fail in the middle of a call.
    """
    made: list[SparkSession] = []
    errors: list[BaseException] = []

    def make() -> None:
        try:
            made.append(session(**wanted))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=make, name="flintmq-session", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(LOOK_SECONDS)
        stop.tell(tell, "as soon as Spark is ready")
        if stop.is_urgent:
            raise KeyboardInterrupt
    if errors:
        raise errors[0]
    if stop.is_asked():
        raise KeyboardInterrupt
    return made[0]
