"""A benchmark by several client processes: one Python is often slower than the broker it measures.

The parent makes the topics, starts the processes, and brings them together twice: before the first
message, when every subscriber is there, and after the last one, so that each knows how many were
published. It counts nothing itself. What goes over a pipe, to the parent and back:

    ("done", n)          n messages so far, a few times a second
    ("meet", counts)     waits for ("all", counts of all of them)
    ("result", sides)    published, received, lost, durability, messages by topic; the last one
    ("failed", text)     in place of that
                         ("stop",): end early, and tell what was done
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from threading import Thread
from time import monotonic
from typing import Any

from ..errors import FlintError
from .bench_workloads import BenchPlan, BenchRun
from .connecting import run_async
from .exit_codes import Terminated

TELL_EVERY = 0.1
END_WITHIN = 10.0

Measure = Callable[[BenchRun], Any]


def run_share(plan: BenchPlan, measure: Measure, pipe: Connection) -> None:
    """One of the processes, from its beginning to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and says stop
    told = 0.0
    answers: asyncio.Queue[Counter[str]] = asyncio.Queue()

    def tell(done: int) -> None:
        nonlocal told
        if monotonic() - told > TELL_EVERY:
            told = monotonic()
            pipe.send(("done", done))

    async def meet(counts: Counter[str]) -> Counter[str]:
        pipe.send(("meet", counts))
        return await answers.get()

    run = BenchRun(plan, tell, meet)

    async def work() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def hear() -> None:
            """In a thread: the loop would make the pipe non-blocking, and what is sent short."""
            while True:
                try:
                    what, *counts = pipe.recv()
                except (EOFError, OSError):
                    what, counts = "stop", []  # the parent has died
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(heard, *counts)
                if what == "stop":
                    return

        def heard(counts: Counter[str] | None = None) -> None:
            if counts is not None:
                answers.put_nowait(counts)
            else:
                task.cancel()

        Thread(target=hear, daemon=True).start()
        await measure(run)

    with suppress(BrokenPipeError):
        try:
            with suppress(asyncio.CancelledError, Terminated):
                run_async(work())
            facts = (run.published, run.received, run.lost, run.durability, run.by_topic)
            pipe.send(("result", facts))
        except (FlintError, ExceptionGroup) as error:
            pipe.send(("failed", str(first_of(error))))


def first_of(error: BaseException) -> BaseException:
    """Of several errors the first that is ours, else the first."""
    while isinstance(error, BaseExceptionGroup):
        ours = error.subgroup(FlintError)
        error = (ours or error).exceptions[0]
    return error


class Processes:
    """The client processes of one run, seen by the parent."""

    def __init__(
        self, run: BenchRun, count: int, measure: Measure, show: Callable[[int], None]
    ) -> None:
        self._run, self._show = run, show
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Any] = []
        self._processes = []
        for number in range(count):
            ours, theirs = context.Pipe()
            share = run.plan.share(number, count)
            process = context.Process(target=run_share, args=(share, measure, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self._done = dict.fromkeys(self._pipes, 0)
        self._met: dict[Any, Counter[str]] = {}
        self._open = set(self._pipes)

    def measure(self) -> None:
        """To its end; Ctrl-C ends it early, with what was done so far in `run`."""
        try:
            while self._open:
                self._hear(None)
        except KeyboardInterrupt:
            for pipe in self._open:
                with suppress(OSError):
                    pipe.send(("stop",))
            end = monotonic() + END_WITHIN
            while self._open and monotonic() < end:
                self._hear(0.2)
            raise
        finally:
            for process in self._processes:
                if self._open:
                    process.terminate()
                process.join(END_WITHIN)
            for pipe in self._pipes:
                pipe.close()

    def _hear(self, timeout: float | None) -> None:
        for pipe in wait(list(self._open), timeout):
            assert isinstance(pipe, Connection)
            try:
                kind, what = pipe.recv()
            except (EOFError, ConnectionError):
                raise FlintError("a benchmark process died; see above") from None
            if kind == "done":
                self._done[pipe] = what
                self._show(sum(self._done.values()))
            elif kind == "meet":
                self._met[pipe] = what
                if len(self._met) == len(self._pipes):
                    total = sum(self._met.values(), Counter())
                    self._met.clear()
                    for one in self._pipes:
                        one.send(("all", total))
            elif kind == "failed":
                raise FlintError(what)
            else:
                self._take(what)
                self._open.discard(pipe)

    def _take(self, facts: Any) -> None:
        published, received, lost, durability, by_topic = facts
        run = self._run
        run.published.merge(published)
        run.received.merge(received)
        run.lost += lost
        run.durability = run.durability or durability
        run.by_topic |= by_topic  # the largest of each: after they met, all know all
