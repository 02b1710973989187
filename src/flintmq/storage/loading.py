"""Reading segments beside the event loop.

A caller that needs what is on the disk and not in memory gets NotLoaded: a thread reads it, and the
load calls back when it is there. Everything but the reading itself happens on the loop, so nothing
here is locked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, suppress
from typing import TypeVar

from ..loop.callbacks import call_each

T = TypeVar("T")

Key = tuple[str, int]
"""A file, and what of it: see SegmentStore."""

READING_THREADS = 2
"""Two, so that a part of the disk that takes long to read holds up only half of the readers."""

_TRIES = 32
"""How many loads an attempt waits for before it reads at once: what is loaded is held in bounded
memory, and an attempt that needs more than that would not end."""

ENOUGH_BYTES = 256 << 10
ENOUGH_BATCHES = 16
"""A caller gets this much without waiting for more. If there is less in memory it waits for the
rest, so that small things come whole."""

LOOKED_BYTES_MAX = 1 << 20
"""What the loop copies in one turn out of the system's memory for files: some 0.3 ms."""


class Load:
    """Something that is being read."""

    __slots__ = ("_callbacks", "is_done")

    def __init__(self) -> None:
        self._callbacks: dict[Callable[[], object], None] = {}
        self.is_done = False

    @property
    def is_awaited(self) -> bool:
        return bool(self._callbacks)

    def then(self, callback: Callable[[], object]) -> None:
        """Call back once it is there, or could not be read. Ask again to learn which."""
        if self.is_done:
            callback()
        else:
            self._callbacks.setdefault(callback)

    async def wait(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def is_there() -> None:
            if not future.done():
                future.set_result(None)

        self.then(is_there)
        try:
            await future
        finally:
            self._callbacks.pop(is_there, None)

    def done(self) -> None:
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, {}
        call_each(callbacks)


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
        self._running: set[Load] = set()
        self._looked_bytes = 0
        self.scratch = bytearray(LOOKED_BYTES_MAX)

    def __len__(self) -> int:
        return len(self._running)

    def of(self, key: Key) -> Load | None:
        return self._under_way.get(key)

    def may_look(self, length: int) -> bool:
        """Whether the loop itself may look for this many bytes in the system's memory: a little in
        each turn, which costs less than handing it to a thread."""
        if self._looked_bytes + length > LOOKED_BYTES_MAX:
            return False
        if not self._looked_bytes:
            self._loop.call_soon(self._next_turn)
        self._looked_bytes += length
        return True

    def _next_turn(self) -> None:
        self._looked_bytes = 0

    def begin(
        self,
        keys: Iterable[Key],
        read: Callable[[], list[T]],
        then: Callable[[list[T], set[Key]], None],
        pool: Executor | None = None,
    ) -> Load:
        """Read in a thread (of `pool`) what is found under these keys. Then call back on the loop
        with what was read (nothing if the pool was shut down) and the keys that were not forgotten
        meanwhile."""
        load, keys = Load(), list(keys)
        self._under_way.update(dict.fromkeys(keys, load))
        self._running.add(load)

        def finish(future: Future[list[T]]) -> None:
            asked = {key for key in keys if self._under_way.get(key) is load}
            for key in asked:
                del self._under_way[key]
            try:
                then([] if future.cancelled() else future.result(), asked)
            finally:
                self._running.discard(load)
                load.done()

        def is_read(future: Future[list[T]]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nothing waits
                self._loop.call_soon_threadsafe(finish, future)

        (pool or self._pool).submit(read).add_done_callback(is_read)
        return load

    def forget(self, name: str) -> None:
        """What is being read of a file is not wanted any more. Its loads end all the same."""
        for key in [key for key in self._under_way if key[0] == name]:
            del self._under_way[key]

    async def wait(self) -> None:
        """Until nothing is being read."""
        while self._running:
            await next(iter(self._running)).wait()
