"""Reading segments beside the event loop.

Whoever needs what is on the disk and not in memory hears NotLoaded: it is being read by a thread,
and the load tells when it is there. Everything but the reading itself happens on the loop, so
nothing here is locked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, suppress
from typing import TypeVar

T = TypeVar("T")

Key = tuple[str, int]
"""A file, and what of it: see SegmentStore."""

READING_THREADS = 2
"""Two, so that a part of the disk that takes long to read holds up only half of the readers."""

_TRIES = 32
"""How often something is waited for that needs several loads, before it is read at once: what is
loaded is held in bounded memory, and what needs more than that would not end."""


ENOUGH_BYTES = 256 << 10
ENOUGH_BATCHES = 16
"""Of so much that is in memory, whoever asks for more gets what is there. Of less it waits for the
rest, so that small things come whole."""


LOOKED_BYTES_MAX = 1 << 20
"""What the loop copies in one turn out of the system's memory for files: some 0.3 ms."""


class Load:
    """Something that is being read."""

    __slots__ = ("_told", "is_done")

    def __init__(self) -> None:
        self._told: dict[Callable[[], object], None] = {}
        self.is_done = False

    def then(self, callback: Callable[[], object]) -> None:
        """Call back once it is there, or could not be read: whoever asks again hears which."""
        if self.is_done:
            callback()
        else:
            self._told.setdefault(callback)

    async def wait(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def is_there() -> None:
            if not future.done():
                future.set_result(None)

        self.then(is_there)
        try:
            await future
        finally:
            self._told.pop(is_there, None)

    def done(self) -> None:
        self.is_done = True
        told, self._told = self._told, {}
        for callback in told:
            callback()


class NotLoaded(Exception):
    """What was asked for is on the disk, and is being read: ask again once `load` is done."""

    def __init__(self, load: Load) -> None:
        super().__init__("it is being read from the disk")
        self.load = load


async def when_loaded(
    attempt: Callable[[], T], at_once: Callable[[], AbstractContextManager[None]]
) -> T:
    """What an attempt comes to, once what it needs is in memory."""
    for _ in range(_TRIES):
        try:
            return attempt()
        except NotLoaded as missing:
            await missing.load.wait()
    with at_once():
        return attempt()


class Loads:
    """What the threads of a pool are reading for one store."""

    def __init__(self, pool: Executor) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = pool
        self._under_way: dict[Key, Load] = {}
        self._looked_bytes = 0
        self.scratch = bytearray(LOOKED_BYTES_MAX)

    def __len__(self) -> int:
        return len(self._under_way)

    def of(self, key: Key) -> Load | None:
        return self._under_way.get(key)

    def may_look(self, length: int) -> bool:
        """Whether the loop may look by itself for so many bytes that the system may have in memory:
        a little in each turn, which costs less than handing it to a thread."""
        if self._looked_bytes + length > LOOKED_BYTES_MAX:
            return False
        if not self._looked_bytes:
            self._loop.call_soon(self._next_turn)
        self._looked_bytes += length
        return True

    def _next_turn(self) -> None:
        self._looked_bytes = 0

    def begin(self, keys: Iterable[Key], read: Callable[[], T], then: Callable[[T], None]) -> Load:
        """Read in a thread what is to be found under these keys, then call back on the loop."""
        load, keys = Load(), list(keys)
        self._under_way.update(dict.fromkeys(keys, load))

        def finish(future: Future[T]) -> None:
            for key in keys:
                self._under_way.pop(key, None)
            try:
                if not future.cancelled():
                    then(future.result())
            finally:
                load.done()

        def is_read(future: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(finish, future)

        self._pool.submit(read).add_done_callback(is_read)
        return load

    async def wait(self) -> None:
        """Until nothing is being read."""
        while self._under_way:
            await next(iter(self._under_way.values())).wait()
