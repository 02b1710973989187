"""Looking for damage before a reader finds it: every sealed segment is read, over and over.

A thread reads the files of the last checkpoint from the disk, not from the system's memory, and
compares checksums. It reads at a limited rate, and begins a pass at most every
`PASS_SECONDS`. Only where a file does not match are its batches looked at one by one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing
from typing import Literal, NamedTuple

from ..batch.checksum import crc32c
from ..errors import Corrupt, FlintError
from .filesystem import FileSystem
from .segments import Segment, cause_of, is_damage, read_trailer

PASS_SECONDS = 6 * 3600.0
"""How long after the last one a pass begins, at the earliest."""
READ_BYTES = 256 * 1024


class FoundDamage(NamedTuple):
    """Damage in a segment. Of `messages`, those of a topic from `first` to before `next`; of the
    `index`, all messages of the file; of a `copy`, none, because what is damaged is there twice."""

    what: Literal["messages", "index", "copy"]
    file: str
    cause: str
    topic: int = 0
    first: int = 0
    next: int = 0
    is_proven: bool = True
    """By a checksum; else the disk could not read it."""


def examine(filesystem: FileSystem, name: str) -> Iterator[int | FoundDamage]:
    """Read a segment; how many bytes each step has read, and what was found."""
    try:
        if (yield from _matches(filesystem, name)):
            return
        segment = Segment(filesystem, name)
    except FlintError as error:
        if is_damage(error):
            is_proven = isinstance(error, Corrupt)
            yield FoundDamage("index", name, cause_of(error), is_proven=is_proven)
        return
    is_data_good = True
    with closing(segment):
        for entry in segment.all_entries():
            yield entry.length
            try:
                segment.read(entry)
            except FlintError as error:
                if not is_damage(error):
                    return
                is_data_good = False
                is_proven, cause = isinstance(error, Corrupt), cause_of(error)
                yield FoundDamage(
                    "messages", name, cause, entry.topic, entry.base, entry.next, is_proven
                )
    if is_data_good:
        yield FoundDamage("copy", name, f"segment {name} has damaged control columns")


def _matches(filesystem: FileSystem, name: str) -> Generator[int, None, bool]:
    """Whether a whole file matches its checksums. Raises where its trailer cannot be read."""
    with closing(filesystem.open(name)) as file:
        file.reread()
        for start, stop, wanted in read_trailer(file, name).parts():
            checksum = 0
            for position in range(start, stop, READ_BYTES):
                length = min(READ_BYTES, stop - position)
                try:
                    data = file.pread(length, position)
                except FlintError as error:
                    if not is_damage(error):
                        raise
                    return False  # which batch it is in, is found by reading each
                checksum = crc32c(data, checksum)
                yield length
            if checksum != wanted:
                return False
    return True


class Scrubber:
    """The thread. `files` are asked for at the beginning of a pass and whenever damage was found:
    what is no longer needed is of no interest. `found` is called in the thread."""

    def __init__(
        self,
        filesystem: FileSystem,
        files: Callable[[], Collection[str]],
        found: Callable[[FoundDamage], object],
        bytes_per_second: int,
        *,
        pass_seconds: float = PASS_SECONDS,
    ) -> None:
        self._filesystem, self._files, self._found = filesystem, files, found
        self.bytes_per_second = bytes_per_second
        self._pass_seconds = pass_seconds
        self.read_bytes = self.passes = 0
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="flintmq-scrub", daemon=True)
        self._thread.start()

    def set_rate(self, bytes_per_second: int) -> None:
        """0 halts it."""
        with self._changed:
            self.bytes_per_second = bytes_per_second
            self._changed.notify()
        if bytes_per_second and self._thread is None:
            self.start()

    def stop(self) -> None:
        """Have the thread end, and wait for it: at most for one read."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped:
            began = time.monotonic()
            self.run_pass()
            while not self._is_stopped and time.monotonic() < began + self._pass_seconds:
                self._wait(began + self._pass_seconds - time.monotonic())

    def run_pass(self) -> None:
        for name in sorted(self._files()):
            for step in examine(self._filesystem, name):
                if self._is_stopped:
                    return
                if isinstance(step, int):
                    self.read_bytes += step
                    self._pace(step)
                elif name in self._files():  # else a checkpoint has removed it meanwhile
                    self._found(step)
        self.passes += 1

    def _pace(self, size: int) -> None:
        if self._thread is None:
            return
        rate = self.bytes_per_second
        if rate > 0:
            self._wait(size / rate)
        while self.bytes_per_second <= 0 and not self._is_stopped:
            self._wait(None)

    def _wait(self, seconds: float | None) -> None:
        with self._changed:
            if not self._is_stopped:
                self._changed.wait(seconds)
