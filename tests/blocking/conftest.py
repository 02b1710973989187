"""What the tests of the blocking API share: a connection, threads that are always joined, and time
that is moved by hand in the connection's own thread."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import pytest

from flintmq.client.blocking import BlockingClient, connect_sync
from flintmq.testing import ManualClock

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and fork are POSIX")


class Worker(Generic[T]):
    """A call in a thread of its own; `result()` joins it and raises what it raised."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._outcome: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome.append(self._call())
        except BaseException as error:
            self._error = error

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> T:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the call did not return"
        if self._error is not None:
            raise self._error
        return self._outcome[0]


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.001)


def wait_until_parked(mq: BlockingClient, calls: int = 1) -> None:
    """Until so many calls have begun in the connection's thread and wait there."""
    wait_until(lambda: mq._thread.waiting_calls >= calls)


def advance(mq: BlockingClient, clock: ManualClock, seconds: float) -> None:
    mq._thread.wait_for(clock.advance, seconds)


def run_script(script: str, *, code: int = 0) -> str:
    """Run a script in an interpreter of its own; what it printed. Nothing may be on stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.stderr == ""
    assert done.returncode == code
    return done.stdout


@pytest.fixture
def mq() -> Iterator[BlockingClient]:
    with connect_sync("memory://") as client:
        yield client


@pytest.fixture
def timed_mq(clock: ManualClock) -> Iterator[BlockingClient]:
    """A connection whose time `advance` moves."""
    with connect_sync("memory://", clock=clock) as client:
        yield client


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left: list[Any] = [
        thread
        for thread in set(threading.enumerate()) - before
        if thread.name.startswith("flintmq")
    ]
    for thread in left:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in left)
