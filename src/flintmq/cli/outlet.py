"""Messages on standard output: which were delivered, and which the reader has not read.

Standard output is never given to the event loop: uvloop would make it non-blocking, for every
process that shares it.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import stat
import struct
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from math import inf
from threading import Thread
from time import monotonic
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

from .beside import beside

T = TypeVar("T")

PIECE_BYTES = 4096
"""What a writable pipe accepts without blocking; PIPE_BUF and a page on Linux."""

ONE_BY_ONE = 1000
"""The first lines are written one at a time; later ones in groups of a thousandth of all so far."""

GRACE_SECONDS = 0.5
"""How long an early end waits for the reader to take pending lines."""


class Outlet:
    """Lines into a file or a pipe. `left` is how many of those last printed have left us.

    With `exact` a line has left when the reader of a pipe has taken it, not while it is in the
    pipe. The pipe is made as small as one page for that: Linux calls it writable when the reader
    has taken the whole page. The first lines go each alone, so that `head -1` takes one and no
    more. Where a pipe cannot be made small, and for files and terminals, written is left.

    A thread does the writing. It blocks for what can be interrupted only, so that Ctrl-C ends it in
    good order and the count is right.
    """

    def __init__(self, file: BinaryIO, *, exact: bool = False) -> None:
        file.flush()
        self._file = file
        self._descriptor, mode = -1, 0
        with suppress(io.UnsupportedOperation):  # a buffer in memory
            self._descriptor = file.fileno()
            mode = os.fstat(self._descriptor).st_mode
        self._is_pipe = stat.S_ISFIFO(mode)
        self._can_wait = (self._is_pipe or stat.S_ISSOCK(mode)) and hasattr(select, "poll")
        self._wide = 0
        self._is_exact = exact and self._is_pipe and self._narrow()
        self._wakes: list[tuple[int, int]] = []
        self._stop_at = inf
        self._gone: asyncio.Future[None] | None = None
        self._total = 0
        self._sizes: list[int] = []
        self._rest = memoryview(b"")
        self.left = 0

    @property
    def begun(self) -> int:
        """How many of the lines that have not left are written, or partly so."""
        return len(self._sizes)

    async def __aenter__(self) -> Self:
        self._wakes = [os.pipe(), os.pipe()] if self._can_wait else []
        self._gone = asyncio.get_running_loop().create_future()
        if self._is_pipe and self._can_wait:
            Thread(target=self._watch, args=[asyncio.get_running_loop()], daemon=True).start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for index, (ours, theirs) in enumerate(self._wakes):
            os.close(theirs)
            if index == 0 or not self._is_pipe:  # the thread that watches closes its own
                os.close(ours)
        if self._wide:
            self._set_pipe_bytes(self._wide)

    async def print(self, lines: Sequence[bytes], seconds: float = inf) -> None:
        """Have lines leave, for so long at most; go on with those that have not, in their order.

        Cancelled, or when the reader has gone (BrokenPipeError), `left` is right as well.
        """
        work = asyncio.ensure_future(beside(self._print, lines, monotonic() + seconds))
        await to_its_end(work, self._stop)

    async def unless_gone(self, work: Awaitable[T]) -> T:
        """What `work` returns; BrokenPipeError where the reader of the pipe goes meanwhile."""
        assert self._gone is not None, "open the outlet first"
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {task, self._gone}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise BrokenPipeError
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    # --- in the thread

    def _print(self, lines: Sequence[bytes], deadline: float) -> None:
        self.left = 0
        while self.left < len(lines):
            if not self._sizes:
                if self._stop_at < inf:
                    return
                self._begin(lines)
            if (self._rest or self._is_exact) and not self._is_writable(deadline):
                return
            if self._rest:
                self._write_piece()
                if self._rest or self._is_exact:
                    continue
            self._portion_left(len(self._sizes))

    def _begin(self, lines: Sequence[bytes]) -> None:
        if self._is_exact:
            count = max(1, self._total // ONE_BY_ONE)
            portion = lines[self.left : self.left + count]
        else:
            portion = lines[self.left :]
        self._sizes = [len(line) for line in portion]
        self._rest = memoryview(b"".join(portion))

    def _portion_left(self, count: int) -> None:
        self.left += count
        self._total += count
        self._sizes = []

    def _write_piece(self) -> None:
        if self._descriptor < 0:
            self._file.write(self._rest)
            self._rest = memoryview(b"")
            return
        piece = self._rest[:PIECE_BYTES] if self._can_wait else self._rest
        try:
            self._rest = self._rest[os.write(self._descriptor, piece) :]
        except BlockingIOError:
            if not self._can_wait:
                select.select([], [self._descriptor], [], 1)
        except BrokenPipeError:
            self._count_those_taken()
            raise

    def _is_writable(self, deadline: float) -> bool:
        """Whether something can be written before the time is up, or somebody stops us."""
        if not self._can_wait:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        poll.register(self._wakes[0][0], select.POLLIN)
        while True:
            deadline = min(deadline, self._stop_at)
            wait = None if deadline == inf else max(0.0, deadline - monotonic()) * 1000
            found = dict(poll.poll(wait))
            state = found.get(self._descriptor, 0)
            if state & select.POLLOUT:
                return True
            if state:
                self._count_those_taken()
                raise BrokenPipeError
            if not found:
                return False
            poll.unregister(self._wakes[0][0])  # it has said what it has to say

    def _count_those_taken(self) -> None:
        """The reader has gone. What it has not read is in the pipe still."""
        if self._is_exact:
            taken = sum(self._sizes) - len(self._rest) - self._unread()
            self._portion_left(sum(end <= taken for end in accumulate(self._sizes)))

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Notice that the reader has gone also while nothing is written."""
        assert self._gone is not None
        wake = self._wakes[1][0]
        poll = select.poll()
        poll.register(self._descriptor, 0)
        poll.register(wake, select.POLLIN)
        found = dict(poll.poll())
        os.close(wake)
        if wake not in found:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_set, self._gone)

    # --- asked by the loop

    def _stop(self) -> None:
        self._stop_at = monotonic() + GRACE_SECONDS
        if self._wakes:
            os.write(self._wakes[0][1], b"!")

    # --- the pipe

    def _narrow(self) -> bool:
        with suppress(ImportError, AttributeError, OSError):  # not Linux, or not our pipe
            import fcntl

            wide = fcntl.fcntl(self._descriptor, fcntl.F_GETPIPE_SZ)
            if self._unread() == 0 and self._set_pipe_bytes(PIECE_BYTES) <= PIECE_BYTES:
                self._wide = wide
                return True
        return False

    def _set_pipe_bytes(self, count: int) -> int:
        import fcntl

        with suppress(OSError):
            return fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, count)
        return sys.maxsize

    def _unread(self) -> int:
        import fcntl
        import termios

        data = fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4))
        count: int = struct.unpack("i", data)[0]
        return count


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def to_its_end(work: Awaitable[T], when_cancelled: Callable[[], object] = bool) -> T:
    """What is done halfway is worse than late: cancelled, it is waited for all the same."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        when_cancelled()
        with suppress(Exception):
            await task
        raise
