"""Object storage in memory that is cut off, forgets, damages and fails, as a test wants it.

objects = SimulatedObjects()
objects.stop_after(3)                 # everything behind the 3rd call raises Crashed
objects.fail("write", times=2)        # the next two uploads are refused
objects.damages_uploads = True        # what is written is not what is there
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..errors import ObjectStorageFailed
from ..storage.filesystem import Buffer
from ..storage.objects import OneWay
from .simulated_filesystem import Crashed


class SimulatedObjects:
    """What was written survives every crash of who wrote it."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self.damages_uploads = False
        self._failures: Counter[str] = Counter()
        self._stop_after: int | None = None

    def stop_after(self, calls: int | None) -> None:
        self._stop_after = None if calls is None else len(self.calls) + calls

    def fail(self, verb: str, times: int = 1) -> None:
        """The next calls of a kind (read, write, remove) are refused."""
        self._failures[verb] = times

    def step(self, verb: str, url: str) -> None:
        if self._stop_after is not None and len(self.calls) >= self._stop_after:
            raise Crashed
        self.calls.append((verb, url))
        if self._failures[verb] > 0:
            self._failures[verb] -= 1
            raise ObjectStorageFailed(verb, url, "503 Slow Down")

    # --- Objects

    def check(self, url: str) -> None: ...

    def create(self, name: str) -> OneWay:
        assert name not in self.stored, "URLs are never used again"
        self.step("write", name)
        return _ObjectInMaking(self, name)

    def open(self, name: str) -> OneWay:
        self.step("read", name)
        if name not in self.stored:
            raise ObjectStorageFailed("read", name, "404 Not Found", "restore it")
        return _ObjectAsRead(self, name)

    def remove(self, name: str) -> None:
        self.step("remove", name)
        self.stored.pop(name, None)


class _ObjectInMaking(OneWay):
    def __init__(self, objects: SimulatedObjects, name: str) -> None:
        super().__init__(name)
        self._objects, self._content = objects, bytearray()

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        assert position == len(self._content), "an object is written in one go"
        self._objects.step("write", self.name)
        for buffer in buffers:
            self._content += buffer

    def sync_all(self) -> None:
        self._objects.step("write", self.name)
        if self._objects.damages_uploads:
            self._content[len(self._content) // 3] ^= 1
        self._objects.stored[self.name] = bytes(self._content)
        self._objects.step("written", self.name)


class _ObjectAsRead(OneWay):
    def __init__(self, objects: SimulatedObjects, name: str) -> None:
        super().__init__(name)
        self._objects, self._content = objects, objects.stored[name]

    def pread(self, length: int, position: int) -> bytes:
        self._objects.step("read", self.name)
        return self._content[position : position + length]

    def size(self) -> int:
        return len(self._content)
