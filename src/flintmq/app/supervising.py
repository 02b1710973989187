"""The processes of `flintmq worker`: started, watched, started again, drained."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

import msgspec

from ..daemon.notify import READY, STOPPING, notify
from ..errors import InvalidRequest
from .child import MISUSED, ChildOrder, ChildReport
from .figures import HandlerFigures, added, prometheus_text

AGAIN_SECONDS = (0.5, 30.0)
"""How long a process that has ended is left alone before it is started again."""
STEADY_SECONDS = 3.0
"""A process that has worked for so long begins with the shortest pause again."""
LOOK_SECONDS = 0.5
"""How often files are looked at with `--reload`."""


class WorkerPlan(msgspec.Struct, kw_only=True):
    """What `flintmq worker` was told."""

    order: ChildOrder
    processes: int = 1
    reload: bool = False
    grace: float = 30.0
    """Seconds for what is being worked on when it stops."""


class WorkerProcess:
    """One process, through all of its lives."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.report: ChildReport | None = None
        """Of this life; None until it works."""
        self.past: list[HandlerFigures] = []
        """What its earlier lives have done."""
        self.lives = 0

    @property
    def is_ready(self) -> bool:
        return self.report is not None

    def ended(self) -> None:
        if self.report is not None:
            for one in self.report.handlers:
                one.running = 0
            self.past = added([*self.past, *self.report.handlers])
        self.process = self.report = None


class WorkerSupervisor:
    """`tell` gets what people should read."""

    def __init__(self, plan: WorkerPlan, tell: Callable[[str], None]) -> None:
        self.plan, self._tell = plan, tell
        self.workers = [WorkerProcess(number + 1) for number in range(plan.processes)]
        self._stopping = asyncio.Event()
        self._files: dict[str, float] = {}
        self._error = ""
        self._is_told_ready = False

    # --- running

    async def run(self) -> int:
        """Until Ctrl-C or SIGTERM: then all processes drain. The second one ends them at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told_to_stop)
        tasks = [loop.create_task(self._keep_up(one)) for one in self.workers]
        if self.plan.reload:
            tasks.append(loop.create_task(self._keep_looking()))
        try:
            await self._stopping.wait()
        finally:
            notify(STOPPING)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._drain()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        if self._error:
            raise InvalidRequest(self._error)
        return 0

    def _told_to_stop(self) -> None:
        is_second = self._stopping.is_set()
        self._stopping.set()
        if is_second:
            self._send(signal.SIGKILL)
        elif self._is_told_ready:
            self._tell("draining: no new messages; a second Ctrl-C or SIGTERM ends it at once")

    def _send(self, number: signal.Signals) -> None:
        for one in self.workers:
            if one.process is not None and one.process.returncode is None:
                with suppress(ProcessLookupError):
                    one.process.send_signal(number)

    async def _drain(self) -> None:
        self._send(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        kill = loop.call_later(self.plan.grace + 5, self._send, signal.SIGKILL)
        for one in self.workers:
            if one.process is not None:
                await one.process.wait()
        kill.cancel()
        if not self._error:
            self._tell(f"stopped; {self.progress()}")

    async def _keep_up(self, one: WorkerProcess) -> None:
        loop = asyncio.get_running_loop()
        least, most = AGAIN_SECONDS
        pause = least
        while True:
            began, was_ready = loop.time(), False
            code = await self._one_life(one)
            error, was_ready = one.report.error if one.report else "", one.is_ready
            if one.report is not None and one.report.error:
                one.report, was_ready = None, False
            one.ended()
            if code == MISUSED and not was_ready and error:
                if not self.plan.reload:
                    self._error = self._error or error
                    self._stopping.set()
                    return
                self._tell(f"{error}; waiting for a change")
                await asyncio.sleep(LOOK_SECONDS)
                await self._wait_for_change()
                continue
            if code == 0 and self.plan.reload:
                continue  # its files have changed
            if was_ready and loop.time() - began > STEADY_SECONDS:
                pause = least
            why = f": {error}" if error else ""
            self._tell(
                f"process {one.number} has ended ({_how(code)}){why}; starting it again in "
                f"{pause:g} s"
            )
            await asyncio.sleep(pause)
            pause = min(most, pause * 2)

    async def _one_life(self, one: WorkerProcess) -> int:
        ours, theirs = os.pipe()
        order = msgspec.structs.replace(self.plan.order, report_to=theirs)
        try:
            one.process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "flintmq.app.child"),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(theirs,),
                start_new_session=True,  # Ctrl-C is for us; we stop it in good order
            )
        finally:
            os.close(theirs)
        one.lives += 1
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        reader = asyncio.StreamReader(limit=1 << 22)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb")
        )
        try:
            while line := await reader.readline():
                self._hear(one, msgspec.json.decode(line, type=ChildReport))
        finally:
            transport.close()
        return await process.wait()

    def _hear(self, one: WorkerProcess, report: ChildReport) -> None:
        one.report = report
        for file in report.files:
            self._files.setdefault(file, _changed_at(file))
        if not self._is_told_ready and all(w.is_ready and not _error(w) for w in self.workers):
            self._is_told_ready = True
            notify(READY)
            names = ", ".join(handler.name for handler in report.handlers)
            count = len(self.workers)
            self._tell(f"{count} {'process' if count == 1 else 'processes'} at work: {names}")

    # --- files

    async def _keep_looking(self) -> None:
        while True:
            await self._wait_for_change()
            self._tell("files have changed; starting again")
            self._is_told_ready = False
            self._send(signal.SIGTERM)

    async def _wait_for_change(self) -> None:
        known = dict(self._files)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for file in self._files:
                changed = _changed_at(file)
                if changed != known.setdefault(file, self._files[file]):
                    self._files = {name: _changed_at(name) for name in self._files}
                    return

    # --- looking

    def figures(self) -> list[HandlerFigures]:
        """How each handler is doing in all processes, their earlier lives included."""
        now = [h for one in self.workers if one.report for h in one.report.handlers]
        return added([*(h for one in self.workers for h in one.past), *now])

    def troubles(self) -> list[str]:
        """Why it is not in good health; empty if it is."""
        found = [f"process {one.number} is not running" for one in self.workers if not one.is_ready]
        for one in self.workers:
            if one.report is not None:
                found += [f"process {one.number}: {text}" for text in one.report.troubles]
        return found

    def progress(self) -> str:
        """A line for people."""
        handlers = self.figures()
        done, failed = sum(h.done for h in handlers), sum(h.failed for h in handlers)
        running, dead = sum(h.running for h in handlers), sum(h.dead for h in handlers)
        return f"{done:,} done, {failed:,} failed ({dead:,} dead letters), {running:,} running"

    def metrics(self) -> str:
        restarts = sum(max(0, one.lives - 1) for one in self.workers)
        ready = sum(one.is_ready for one in self.workers)
        return prometheus_text(self.figures(), ready, restarts)


def _error(one: WorkerProcess) -> bool:
    return one.report is not None and bool(one.report.error)


def _changed_at(file: str) -> float:
    try:
        return os.stat(file).st_mtime
    except OSError:
        return 0.0


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
