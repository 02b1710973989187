"""A topic's log, in memory and in segments, beside a list."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flintmq.batch import BatchBuilder, DecodeCache
from flintmq.storage.segment_store import SegmentStore
from flintmq.storage.segments import SegmentWriter, joined
from flintmq.storage.topic_log import TopicLog
from flintmq.testing import SimulatedFileSystem

TOPIC = 5


class TopicLogModel(RuleBasedStateMachine):
    """`rows` holds every message ever: time, value, size."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedFileSystem()
        self.store = SegmentStore(self.disk, files_max=2, bytes_max=300)
        self.log = TopicLog(TOPIC, self.store, DecodeCache(1_000))
        self.rows: list[tuple[int, bytes, int]] = []
        self.first = 0
        self.time = 1_000
        self.files = 0

    @rule(
        values=st.lists(st.binary(max_size=30), min_size=1, max_size=5),
        later=st.integers(0, 3),
        key=st.one_of(st.none(), st.just("key")),
    )
    def append(self, values: list[bytes], later: int, key: str | None) -> None:
        self.time += later
        rows = BatchBuilder()
        for value in values:
            rows.append_row(value, key=key)
        batch = rows.seal()
        batch.stamp(len(self.rows), self.time)
        self.rows += [(self.time, v, batch.size(n, n + 1)) for n, v in enumerate(values)]
        assert self.log.append(batch) == batch.base_offset

    @rule(count=st.integers(1, 8))
    def drop(self, count: int) -> None:
        offset = min(self.first + count, len(self.rows))
        assert self.log.drop_to(offset) == offset - self.first
        assert self.log.drop_to(offset) == 0
        self.first = offset

    def _write(self, batches: list[Any]) -> Any:
        self.files += 1
        writer = SegmentWriter(self.disk, f"{self.files}.seg")
        for batch in joined(batches, rows_max=6, bytes_max=400):
            writer.add(TOPIC, batch)
        (section,) = dict(writer.seal()).values()
        return section

    @rule(merge=st.integers(0, 3), appended=st.booleans(), dropped=st.integers(0, 4))
    def flush(self, merge: int, appended: bool, dropped: int) -> None:
        """A checkpoint, with what goes on while it writes."""
        self.log.drop_sections(len(self.log.sections_to_drop()))
        tail = self.log.tail()
        if not tail:
            return
        merge = min(merge, len(self.log.sections))
        merged = self.log.sections[len(self.log.sections) - merge :]
        before = [
            self.store.read(section.file, entry)
            for section in merged
            for entry in self.store.segment(section.file).entries(TOPIC)
        ]
        section = self._write([*before, *tail])
        if appended:
            self.append([b"meanwhile"], 1, None)
        if dropped:
            self.drop(dropped)
        self.log.flushed(section, merge)
        for old in merged:
            self.store.forget(old.file)
            self.disk.remove(old.file)

    @precondition(lambda self: not self.log.tail())
    @rule(is_old=st.booleans())
    def restart(self, is_old: bool) -> None:
        """What a manifest keeps is enough, also that of a version that kept no sizes."""
        log = self.log
        log.drop_sections(len(log.sections_to_drop()))
        again = TopicLog(TOPIC, self.store, DecodeCache(1_000))
        sizes = [] if is_old else log.sizes.snapshot()
        again.restore(list(log.sections), log.first_offset, log.next_offset, log.last_time, sizes)
        self.log = again

    @rule(time=st.integers(-2, 40))
    def find_by_time(self, time: int) -> None:
        time += 1_000
        expected = next(
            (n for n in range(self.first, len(self.rows)) if self.rows[n][0] >= time),
            len(self.rows),
        )
        assert self.log.offset_at_time(time) == expected

    @rule(wanted=st.integers(0, 200))
    def free(self, wanted: int) -> None:
        offset, freed = self.first, 0
        while freed < wanted and offset < len(self.rows):
            freed += self.rows[offset][2]
            offset += 1
        assert self.log.offset_freeing(wanted, self.log.next_offset) == offset

    @rule(data=st.data())
    def measure(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.first, len(self.rows)))
        stop = data.draw(st.integers(start, len(self.rows)))
        assert self.log.size_between(start, stop) == sum(r[2] for r in self.rows[start:stop])

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        if self.first == len(self.rows):
            return
        offset = data.draw(st.integers(self.first, len(self.rows) - 1))
        batch, row, stop = self.log.locate(offset)
        assert stop == batch.row_count
        found = [(batch.time(r), batch.value(r)) for r in range(row, stop)]
        assert found == [r[:2] for r in self.rows[offset : offset + stop - row]]
        assert self.log.time_of(offset) == self.rows[offset][0]

    @invariant()
    def counts(self) -> None:
        log = self.log
        assert (log.first_offset, log.next_offset) == (self.first, len(self.rows))
        assert log.byte_count == sum(row[2] for row in self.rows[self.first :])
        assert log.last_time == (self.rows[-1][0] if self.rows else 0)
        assert self.disk.open_files <= 2

    @invariant()
    def everything_reads(self) -> None:
        offset, found = self.first, []
        while offset < self.log.next_offset:
            batch, row, stop = self.log.locate(offset)
            found += [batch.value(r) for r in range(row, stop)]
            offset += stop - row
        assert found == [row[1] for row in self.rows[self.first :]]


TestTopicLog = TopicLogModel.TestCase
TestTopicLog.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
