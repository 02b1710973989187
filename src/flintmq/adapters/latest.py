"""The newest value of every key of a compacted topic, kept up to date in this process."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ..client.client import Client
from ..client.reader import Reader
from ..errors import FlintError
from ..rows import Rows

AT_ONCE = 1000
"""How many messages are read in one go."""


class LatestValues:
    """Writes and follows a topic of bytes by key; an empty value takes its key away.

    Nothing is read before something is asked for. From then on every value of the topic is kept
    here, but for those older than `ttl` seconds, which the broker drops, too.
    """

    def __init__(self, mq: Client, topic: str, *, ttl: float | None = None) -> None:
        self.mq, self.topic, self.ttl = mq, topic, ttl
        self._found: dict[str, tuple[float, bytes]] = {}
        """Time and value by key, oldest first."""
        self._following: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._is_made = False
        self._reader: Reader | None = None
        self._changed = asyncio.Condition()
        self.version = 0
        """Grows with everything that is read."""

    # --- writing

    async def put(self, key: str, value: bytes) -> None:
        """Set the value of a key. Returns once it is as safe as a publish."""
        await self._make_topic()
        await self.mq.publish(self.topic, value, key=key)

    async def remove(self, key: str) -> None:
        await self.put(key, b"")

    async def _make_topic(self) -> None:
        if not self._is_made:
            await self.mq.create_topic(self.topic, compact="key", ttl=self.ttl)
            self._is_made = True

    # --- reading

    async def get(self, key: str, *, newest: bool = False) -> bytes | None:
        """The value of a key. What others have published a moment ago may not be here yet, unless
        `newest` is asked for, which asks the broker."""
        await self._follow(newest)
        found = self._found.get(key)
        return None if found is None else found[1]

    async def values(self, *, newest: bool = False) -> list[bytes]:
        await self._follow(newest)
        return [value for _, value in self._found.values()]

    async def wait_newer(self, version: int, timeout: float) -> None:
        """Wait until something was read after `version`, or for `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: self.version > version)

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self, newest: bool) -> None:
        """Have everything here that was published up to now, the first time; and from then on."""
        async with self._one_at_a_time:
            if self._following is not None and self._following.done():
                self._following = None
            if self._following is None:
                await self._make_topic()
                self._found.clear()
                reader = await self.mq.reader(self.topic, start="last_per_key")
                while await reader.lag():
                    self._take(await reader.read_batch(AT_ONCE, timeout=1))
                self._reader = reader
                self._following = asyncio.create_task(self._go_on(reader))
            elif newest and self._reader is not None:
                seen = self.version
                while await self._reader.lag() and not self._following.done():
                    await self.wait_newer(seen, timeout=1)
                    seen = self.version
        self._drop_old()

    async def _go_on(self, reader: Reader) -> None:
        with suppress(FlintError):  # who asks next opens it again, or hears what is wrong
            while True:
                self._take(await reader.read_batch(AT_ONCE))
                async with self._changed:
                    self._changed.notify_all()

    def _take(self, rows: Rows) -> None:
        for message in rows:
            key = message.key
            if not isinstance(key, str):
                continue  # not one of ours
            self._found.pop(key, None)
            if value := message.unpacked():
                self._found[key] = (message.timestamp, value)
        self.version += 1
        self._drop_old()

    def _drop_old(self) -> None:
        if self.ttl is None:
            return
        oldest = self.mq.clock.now_ms() / 1000 - self.ttl
        while self._found:
            key = next(iter(self._found))
            if self._found[key][0] >= oldest:
                return
            del self._found[key]
