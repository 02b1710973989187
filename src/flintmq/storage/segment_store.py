"""Open segments and batches read lately, both bounded: files by count, batches by bytes.

Who may not wait for the disk (`waits=False`) gets what is in memory. What is not is read by a
thread, with what lies behind it, and the caller gets NotLoaded.

What is read is known by the file and a number: the position of a batch, the same below zero for its
control columns alone, and 0 for the index of the segment.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from typing import TypeVar

from ..batch import RecordBatch
from ..errors import FlintError
from .filesystem import Opens
from .loading import Key, Load, Loads, NotLoaded
from .objects import is_object
from .segments import BatchEntry, Segment, is_damage

T = TypeVar("T")

_FIRST_BYTES = 256 << 10
_AHEAD_BYTES = 2 << 20
"""How much is read at once: for a reader that begins, and for one that reads on."""
_FRESH_MAX = 256
_INDEX = 0


class SegmentStore:
    def __init__(
        self, filesystem: Opens, *, files_max: int = 64, bytes_max: int = 16 << 20
    ) -> None:
        self._filesystem = filesystem
        self._files_max, self._bytes_max = files_max, bytes_max
        self._segments: OrderedDict[str, Segment] = OrderedDict()
        self._batches: OrderedDict[Key, RecordBatch] = OrderedDict()
        self._bytes = 0
        self._loads: Loads | None = None
        self._far: Executor | None = None
        self._reading: list[Segment] = []
        """The segments that threads read, once for each load. They are closed later."""
        self._fresh: dict[Key, RecordBatch] = {}
        """Loaded for a caller that waits and has not asked again yet: nothing drives it out."""
        self._failed: dict[Key, Exception] = {}
        """The same for what could not be read."""
        self._marks: dict[Key, BatchEntry] = {}
        """A reader that comes to one of these soon needs what lies behind the entry. All of them
        are in memory: with its batch, the mark of a reader that is gone goes too."""

    def read_aside(self, pool: Executor, far: Executor | None = None) -> None:
        """From now on, what is asked for without waiting is read by threads: objects by those of
        `far`, so that nobody waits for the network who needs the disk."""
        self._loads, self._far = Loads(pool), far

    def _pool_of(self, name: str) -> Executor | None:
        return self._far if is_object(name) else None

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Until the end of this, everything is read in the caller's thread."""
        loads, self._loads = self._loads, None
        try:
            yield
        finally:
            self._loads = loads

    def segment(self, name: str, waits: bool = True) -> Segment:
        segment = self._segments.get(name)
        if segment is not None:
            self._segments.move_to_end(name)
            return segment
        if waits or self._loads is None:
            segment = _twice(lambda: Segment(self._filesystem, name))
            self._keep_open(segment)
            return segment
        key = (name, _INDEX)
        raise NotLoaded(self._under_way(key) or self._open(key, self._loads))

    def _open(self, key: Key, loads: Loads) -> Load:
        def read() -> list[Segment | Exception]:
            try:
                return [_twice(lambda: Segment(self._filesystem, key[0]))]
            except Exception as error:
                return [error]

        def then(found: list[Segment | Exception], asked: set[Key]) -> None:
            for segment in found:
                if isinstance(segment, Exception):
                    if asked and load.is_awaited:
                        self._failed[key] = segment
                elif not asked or segment.name in self._segments or self._loads is None:
                    segment.close()  # it was forgotten, or opened by a caller that could not wait
                else:
                    self._keep_open(segment)

        load = loads.begin([key], read, then, self._pool_of(key[0]))
        return load

    def _keep_open(self, segment: Segment) -> None:
        self._segments[segment.name] = segment
        while len(self._segments) > self._files_max:
            self._close(self._segments.popitem(last=False)[1])

    def _close(self, segment: Segment) -> None:
        if segment not in self._reading:
            segment.close()

    def read(
        self,
        name: str,
        entry: BatchEntry,
        waits: bool = True,
        is_control: bool = False,
        ahead: int = 0,
    ) -> RecordBatch:
        """A batch, or its control columns alone. What is not in memory and may not be waited for is
        read with what lies behind it: `ahead` bytes, or as much as is likely needed."""
        key = (name, -entry.position if is_control else entry.position)
        batch = self._batches.get(key)
        if batch is not None:
            self._batches.move_to_end(key)
        elif self._fresh and (batch := self._fresh.pop(key, None)) is not None:
            self._keep(key, batch)
        if batch is not None:
            if self._marks and (last := self._marks.pop(key, None)) is not None:
                self._begin(name, last.topic, last.next, is_control, _AHEAD_BYTES)
            return batch
        if waits or self._loads is None:
            batch = _twice(
                lambda: _read(self.segment(name), entry, is_control),
                between=lambda: self.forget(name),
            )
            self._keep(key, batch)
            return batch
        load = self._under_way(key)
        if load is None and not is_control and self._loads.may_look(entry.length):
            batch = self.segment(name).read_cached(entry, self._loads.scratch)
            if batch is not None:
                self._keep(key, batch)
                return batch
        if load is None:
            self.segment(name)  # it is open, or was a moment ago: the entry is from its index
            load = self._begin(name, entry.topic, entry.base, is_control, ahead or _FIRST_BYTES)
        assert load is not None, "what is to be read begins with this entry"
        raise NotLoaded(load)

    def first_missing(self, name: str, entries: Iterable[BatchEntry]) -> BatchEntry | None:
        """The first of these batches that is not in memory."""
        for entry in entries:
            key = (name, entry.position)
            if key not in self._batches and key not in self._fresh:
                return entry
        return None

    def _keep(self, key: Key, batch: RecordBatch) -> None:
        known = self._batches.pop(key, None)
        self._batches[key] = batch
        self._bytes += batch.byte_length - (0 if known is None else known.byte_length)
        while self._bytes > self._bytes_max and len(self._batches) > 1:
            key, batch = self._batches.popitem(last=False)
            self._bytes -= batch.byte_length
            self._marks.pop(key, None)

    # --- without waiting for the disk

    def _under_way(self, key: Key) -> Load | None:
        """The load of this, if there is one. Raises what came of the last, if that failed."""
        failure = self._failed.pop(key, None)
        if failure is not None:
            raise failure
        assert self._loads is not None
        return self._loads.of(key)

    def _begin(self, name: str, topic: int, base: int, is_control: bool, ahead: int) -> Load | None:
        """Have a thread read the batches from an offset on, unless the first is in memory already,
        or about to be."""
        segment, loads = self._segments.get(name), self._loads
        if segment is None or loads is None:
            return None
        # The more readers and loads there are, the less of the memory is for each.
        room = self._bytes_max // (4 + 2 * (len(self._marks) + len(self._reading)))
        run = segment.run(topic, base, min(ahead, room), is_control=is_control)
        sign = -1 if is_control else 1
        keys = [(name, sign * entry.position) for entry in run]
        wanted = {
            key: entry
            for key, entry in zip(keys, run, strict=True)
            if key not in self._batches and loads.of(key) is None
        }
        if not run or keys[0] not in wanted:
            return None
        reading = BatchReading(self._filesystem, segment, list(wanted.values()), is_control)
        self._reading.append(segment)

        def then(batches: list[RecordBatch | Exception], asked: set[Key]) -> None:
            if self._loads is None:
                return  # the store is closed
            self._reading.remove(segment)
            if self._segments.get(name) is not segment:
                self._close(segment)
            if reading.is_stale:
                self.forget(name)
            for key, batch in zip(wanted, batches, strict=False):
                if key not in asked:
                    continue  # it was forgotten meanwhile
                if isinstance(batch, Exception):
                    if load.is_awaited:
                        self._failed[key] = batch
                elif key == keys[0] and load.is_awaited:
                    self._fresh[key] = batch
                else:
                    self._keep(key, batch)
            middle = keys[len(keys) // 2]
            if middle in self._batches or middle in self._fresh:
                self._marks[middle] = run[-1]
            while len(self._fresh) > _FRESH_MAX:
                key = next(iter(self._fresh))
                self._keep(key, self._fresh.pop(key))

        load = loads.begin(wanted, reading.read, then, self._pool_of(name))
        return load

    async def settled(self) -> bool:
        """Wait until nothing is being read; whether there was anything."""
        was_reading = bool(self._loads)
        if self._loads is not None:
            await self._loads.wait()
        return was_reading

    def forget(self, name: str) -> None:
        """Close a segment that is about to be removed."""
        segment = self._segments.pop(name, None)
        if segment is not None:
            self._close(segment)
        if self._loads is not None:
            self._loads.forget(name)
        for key in [key for key in self._batches if key[0] == name]:
            self._bytes -= self._batches.pop(key).byte_length
        for held in (self._fresh, self._failed, self._marks):
            for key in [key for key in held if key[0] == name]:
                del held[key]

    def close(self) -> None:
        """No thread reads any more."""
        self._loads = None
        for segment in {*self._segments.values(), *self._reading}:
            segment.close()
        self._reading.clear()
        for held in (self._segments, self._batches, self._fresh, self._failed, self._marks):
            held.clear()
        self._bytes = 0


class BatchReading:
    """What a thread reads of a segment."""

    def __init__(
        self,
        filesystem: Opens,
        segment: Segment,
        entries: list[BatchEntry],
        is_control: bool,
    ) -> None:
        self._filesystem, self._segment = filesystem, segment
        self._entries, self._is_control = entries, is_control
        self.is_stale = False
        """What is open is not the file any more: only opened anew, it could be read."""

    def read(self) -> list[RecordBatch | Exception]:
        """The batches, up to the first that cannot be read; of the first, why."""
        first, *others = self._entries
        try:
            batches: list[RecordBatch | Exception] = [self._read_first(first)]
        except Exception as error:
            return [error]
        for entry in others:
            try:
                batches.append(_read(self._segment, entry, self._is_control))
            except Exception:
                break  # the reader that comes to it gets the error
        return batches

    def _read_first(self, entry: BatchEntry) -> RecordBatch:
        try:
            return _read(self._segment, entry, self._is_control)
        except FlintError as error:
            if not is_damage(error):
                raise
        with closing(Segment(self._filesystem, self._segment.name)) as anew:
            batch = _read(anew, entry, self._is_control)
        self.is_stale = True
        return batch


def _read(segment: Segment, entry: BatchEntry, is_control: bool) -> RecordBatch:
    batch = segment.read_control(entry) if is_control else segment.read(entry)
    assert batch is not None, "the index says which batches have control columns"
    return batch


def _twice(read: Callable[[], T], between: Callable[[], None] = lambda: None) -> T:
    """What cannot be read is tried once more: a disk may fail once, and a file be replaced."""
    try:
        return read()
    except FlintError as error:
        if not is_damage(error):
            raise
    between()
    return read()
