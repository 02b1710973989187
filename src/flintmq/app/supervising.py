"""The processes of `flintmq worker`: started, watched, started again, drained."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

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
SILENT_SECONDS = 15.0
"""A process that has not reported for so long is in trouble."""
LAST_WORDS_SECONDS = 1.0
"""How long the last report of a process that has ended is waited for."""


class WorkerPlan(msgspec.Struct, kw_only=True):
    """What `flintmq worker` was told."""

    order: ChildOrder
    processes: int = 1
    reload: bool = False


class WorkerProcess:
    """One process, through all of its lives."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.report: ChildReport | None = None
        """The last one of this life."""
        self.heard_at = monotonic()
        self.hearing: asyncio.Task[None] | None = None
        self.past: list[HandlerFigures] = []
        """What its earlier lives have done."""
        self.lives = 0
        self.changes = 0
        """Which state of the program it has imported."""

    @property
    def is_ready(self) -> bool:
        return self.report is not None and self.report.is_ready

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
        self._error = self._told = ""
        self._changed, self._changes = asyncio.Event(), 0
        """How often files of the program have changed."""
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
            self._tell("draining: no new messages; a second Ctrl-C or SIGTERM stops it immediately")

    def _send(self, number: signal.Signals) -> None:
        for one in self.workers:
            if one.process is not None and one.process.returncode is None:
                with suppress(ProcessLookupError):
                    one.process.send_signal(number)

    async def _drain(self) -> None:
        self._send(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        kill = loop.call_later(self.plan.order.grace + 5, self._send, signal.SIGKILL)
        for one in self.workers:
            if one.process is not None:
                await _ended(one)
        kill.cancel()
        if not self._error:
            self._tell(f"stopped; {self.progress()}")

    async def _keep_up(self, one: WorkerProcess) -> None:
        loop = asyncio.get_running_loop()
        least, most = AGAIN_SECONDS
        pause = least
        while True:
            began, changes = loop.time(), self._changes
            one.changes = changes
            code = await self._one_life(one)
            error, was_ready = one.report.error if one.report else "", one.is_ready
            one.ended()
            if code == MISUSED and not was_ready and error:
                if not self.plan.reload:
                    self._error = self._error or error
                    self._stopping.set()
                    return
                if error != self._told:  # not by each process
                    self._told = error
                    self._tell(f"{error}; waiting for a change")
                if self._changes == changes:
                    await self._changed.wait()
                continue
            if self._changes != changes:
                continue
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
        one.hearing = asyncio.create_task(self._keep_hearing(one, ours))
        return await _ended(one)

    async def _keep_hearing(self, one: WorkerProcess, source: int) -> None:
        reader = asyncio.StreamReader(limit=1 << 22)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb")
        )
        try:
            while line := await reader.readline():
                self._hear(one, msgspec.json.decode(line, type=ChildReport))
        finally:
            transport.close()

    def _hear(self, one: WorkerProcess, report: ChildReport) -> None:
        one.report, one.heard_at = report, monotonic()
        for file in report.files:
            self._files.setdefault(file, _changed_at(file))
        if not self._is_told_ready and all(
            one.is_ready and one.changes == self._changes for one in self.workers
        ):
            self._is_told_ready = True
            notify(READY)
            names = ", ".join(handler.name for handler in report.handlers)
            count = len(self.workers)
            processes = "process" if count == 1 else "processes"
            self._tell(f"{count} worker {processes} running: {names}")

    # --- files

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            known = self._files
            self._files = {file: _changed_at(file) for file in known}
            if self._files == known:
                continue
            self._tell("files have changed; starting again")
            self._told, self._is_told_ready = "", False
            self._changes += 1
            self._send(signal.SIGTERM)
            self._changed.set()  # wakes those who wait now
            self._changed.clear()

    # --- looking

    def figures(self) -> list[HandlerFigures]:
        """How each handler is doing in all processes, their earlier lives included."""
        now = [h for one in self.workers if one.report for h in one.report.handlers]
        return added([*(h for one in self.workers for h in one.past), *now])

    def troubles(self) -> list[str]:
        """Why it is not in good health; empty if it is."""
        found: list[str] = []
        for one in self.workers:
            if one.report is None:
                found.append(f"process {one.number} is not running")
                continue
            found += [f"process {one.number}: {text}" for text in one.report.troubles]
            silent = monotonic() - one.heard_at
            if silent > SILENT_SECONDS and not one.report.troubles:
                found.append(f"process {one.number} has not answered for {silent:.0f} s")
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


async def _ended(one: WorkerProcess) -> int:
    """Wait until a process has ended, and all it has told is heard. What it has started may live
    on, and hold its pipe."""
    assert one.process is not None
    code = await one.process.wait()
    if one.hearing is not None:
        await asyncio.wait([one.hearing], timeout=LAST_WORDS_SECONDS)
        one.hearing.cancel()
    return code


def _changed_at(file: str) -> float:
    try:
        return os.stat(file).st_mtime
    except OSError:
        return 0.0


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
