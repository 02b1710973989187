"""A worker process: runs an app, and tells the process that started it how it is doing.

`flintmq worker` starts it. What it is to do comes as one line of JSON on stdin, which stays open:
when it ends, whoever started it is gone, and this process drains. Its reports go to a descriptor of
their own, a line of JSON each, since stdout belongs to the program.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from threading import Lock
from typing import Any

import msgspec

from ..errors import Disconnected, FlintError, InvalidRequest, TlsFailed
from ..loop.event_loop import loop_factory
from ..observe.logs import Format, configure, event
from .app import App
from .blocking import BlockedLoopWatch, is_program
from .consuming import GRACE_SECONDS
from .figures import HandlerFigures
from .loading import AppNotLoaded, load_app
from .running import RunningApp
from .serving import until_signalled

log = logging.getLogger("flintmq.app.child")  # it runs as __main__

REPORT_SECONDS = 0.5
AGAIN_SECONDS = (0.2, 2.0)
"""How long it waits before it looks for the broker again."""
FAILED, MISUSED, UNREACHABLE = 1, 2, 3
"""Exit codes, as of all commands."""


class ChildOrder(msgspec.Struct, kw_only=True):
    """What a worker process is to do."""

    place: str
    report_to: int
    """The descriptor for its reports."""
    url: str | None = None
    connecting: dict[str, Any] = {}
    grace: float = GRACE_SECONDS
    """Seconds for what is being worked on when it stops."""
    log_format: Format = "auto"
    log_level: str = "info"


class ChildReport(msgspec.Struct, kw_only=True):
    """How a worker process is doing."""

    handlers: list[HandlerFigures] = []
    troubles: list[str] = []
    files: list[str] = []
    """What it has imported of the program, in its first report."""
    is_ready: bool = True
    """Whether its functions are at work."""
    error: str = ""
    """Why it has not started."""


def main() -> int:
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=ChildOrder)
    logs = configure(format=order.log_format, level=order.log_level)
    reports, reporting = os.fdopen(order.report_to, "wb", buffering=0), Lock()

    def report(what: ChildReport) -> None:
        with suppress(OSError), reporting:  # where nobody is there to read it, stdin ends as well
            reports.write(msgspec.json.encode(what) + b"\n")

    try:
        app = load_app(order.place)
        if order.url is not None:
            app.url = order.url
        app.connecting = {**app.connecting, **order.connecting}
        if not (app.consumers or app.tasks):
            raise InvalidRequest(
                f"{order.place} has nothing to run: it has no @app.consumer, @app.task, @app.cron "
                "or @app.every; import the modules that have them"
            )
    except InvalidRequest as error:
        more = error.files if isinstance(error, AppNotLoaded) else []
        report(ChildReport(error=str(error), files=[*_files(), *more], is_ready=False))
        return MISUSED
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_work(app, order.grace, report))
    except FlintError as error:
        report(ChildReport(error=str(error), is_ready=False))
        return UNREACHABLE if isinstance(error, ConnectionError | OSError) else FAILED
    finally:
        logs.close()
    return 0


async def _work(app: App, grace: float, report: Any) -> None:
    running: list[RunningApp] = []

    def tell(troubles: list[str]) -> None:
        handlers = running[0].figures() if running else []
        report(ChildReport(handlers=handlers, troubles=troubles, is_ready=bool(running)))

    watch = BlockedLoopWatch(lambda trouble: tell([trouble]))
    telling = asyncio.create_task(_keep_telling(running, tell, watch))
    async with _connected(app), app.running(grace=grace) as run:
        running.append(run)
        report(ChildReport(handlers=run.figures(), files=_files()))
        ending = asyncio.create_task(until_signalled(run))
        alone = asyncio.create_task(_until_alone())
        try:
            await asyncio.wait([ending, alone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (ending, alone):
                one.cancel()
            await asyncio.gather(ending, alone, return_exceptions=True)
    telling.cancel()
    tell([])


@asynccontextmanager
async def _connected(app: App) -> AsyncIterator[None]:
    """Wait for a broker that is not there yet."""
    pause, most = AGAIN_SECONDS
    while True:
        try:
            await app.open()
            break
        except Disconnected as error:
            if isinstance(error, TlsFailed):
                raise
            event(
                log,
                logging.WARNING,
                "worker_waits",
                f"no broker yet: {error}; trying again in {pause:g} s",
            )
            await asyncio.sleep(pause)
            pause = min(most, pause * 2)
    try:
        yield
    finally:
        await app.close()


async def _keep_telling(
    running: list[RunningApp], tell: Callable[[list[str]], None], watch: BlockedLoopWatch
) -> None:
    watch.start()
    try:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            watch.beat()
            tell(running[0].troubles() if running else ["no connection to the broker yet"])
    finally:
        watch.stop()


async def _until_alone() -> None:
    """Until stdin ends: the process that started this one is gone."""
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(0, lambda: gone.set() if not os.read(0, 4096) else None)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(0)


def _files() -> list[str]:
    """The files of the program: what was imported that is not installed."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return sorted(file for file in files if file and is_program(file))


if __name__ == "__main__":
    sys.exit(main())
