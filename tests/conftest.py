"""What every test may ask for: a clock moved by hand, and calls that run beside the test."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Generator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from flintmq import __compiled__
from flintmq.net.remote import dialing
from flintmq.observe import logs
from flintmq.testing import ManualClock

from .effort import (
    EFFORTS,
    EXAMPLES_AT_MOST,
    is_left_out_of_checks,
    limit_examples,
    register_profiles,
)

T = TypeVar("T")

pytest_plugins = ["tests.spark.fixtures"]
"""One session of Spark and one broker for the tests of the data source and of pipelines."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in `make test &`: our children are to hear Ctrl-C all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine breaks no promise, even if a connection is made while the same loop answers
# thousands of requests.
dialing.CONNECT_SECONDS = 60.0
register_profiles()


UNCAPTURED_STDERR = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--effort", choices=EFFORTS, default="all", help="how much to test (tests/effort.py)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[UNCAPTURED_STDERR] = os.dup(2)
    if config.option.effort == "check":
        config.option.markexpr = config.option.markexpr or "not slow and not spark"
    if config.option.effort in EXAMPLES_AT_MOST:
        settings.load_profile(config.option.effort)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.option.effort == "check" and collection_path.name.startswith("test_"):
        return is_left_out_of_checks(collection_path) or None
    return None


def pytest_itemcollected(item: pytest.Item) -> None:
    limit_examples(item)
    if __compiled__ and (mark := item.get_closest_marker("pure_python")) is not None:
        item.add_marker(pytest.mark.skip(f"NOT TESTED COMPILED: {mark.args[0]}"))


@cache
def shares_the_session(path: Path) -> bool:
    """Whether tests of a file ask for the one session of Spark."""
    return "spark: Any" in path.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With --dist loadgroup, one process runs all tests that share the session of Spark.

    Not by pytest-xdist's own marks: on pytest 9.2 they keep nothing together (its issue 1386).
    """
    if config.getvalue("dist") != "loadgroup":
        return None

    def scope(nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        is_near_spark = file.startswith(("tests/spark/", "tests/pipeline/"))
        return "spark" if is_near_spark and shares_the_session(config.rootpath / file) else nodeid

    # It begins with the largest group and keeps the order of the rest (see below).
    scheduler = import_module("xdist.scheduler").LoadScopeScheduling(config, log)
    scheduler._split_scope = scope
    return scheduler


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In `make test`, what takes longest begins first, so that at the end no process waits for the
    other: tests that start a Spark of their own, beside those that share one."""
    if config.option.effort == "test":
        items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no collection of garbage has to walk through it."""
    gc.collect()
    gc.freeze()


HARD_LIMIT_SECONDS = 400
"""pytest-timeout fails a test long before, but does not look at what comes behind a failure: a
teardown that waits for ever. Then the process prints where every thread is, and ends."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    stderr = item.config.stash[UNCAPTURED_STDERR]
    faulthandler.dump_traceback_later(HARD_LIMIT_SECONDS, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


LOUD = ("NOT TESTED", "NO FULL DISK", "NO POWER CUT", "could not import")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What this machine could not provide stands in the closing lines, where nobody misses it."""
    reasons = {
        str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        for report in terminalreporter.getreports("skipped")
    }
    effort = terminalreporter.config.option.effort
    if effort != "all":
        terminalreporter.line(
            f"--effort {effort}: tests/effort.py says what that leaves out; "
            "--effort all runs each test on every way that promises it"
        )
    missing = sorted(reason for reason in reasons if any(word in reason for word in LOUD))
    if missing:
        terminalreporter.section("NOT TESTED HERE", red=True, bold=True)
        for reason in missing:
            terminalreporter.line(reason, red=True)


@pytest.fixture(autouse=True)
def _unlimited_logs() -> None:
    """What a test before has logged leaves no line of this one out."""
    logs.forget_limits()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Background:
    """Calls that go on while the test does something else. What is left at its end is cancelled."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._tasks: list[asyncio.Task[Any]] = []

    async def settle(self) -> None:
        """Let everybody run until they wait for something. No time passes."""
        await self._clock.advance(0)

    def start(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(call)
        self._tasks.append(task)
        return task

    async def waiting(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a call that has to wait, and see that it does."""
        task = self.start(call)
        await self.settle()
        assert not task.done(), f"this call was to wait: {task!r}"
        return task

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def background(clock: ManualClock) -> AsyncIterator[Background]:
    background = Background(clock)
    yield background
    await background.close()
