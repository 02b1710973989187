"""What messages of a durable topic ask for, and when they were appended, without their payloads.

Queues, timers and retention go by this. Damage keeps none of it: control columns are in a segment
twice, and where both are damaged the messages count as plain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ..batch import DELIVER_AT, EXPIRY, NOT_PLAIN, TIMES, HoleBatch, RestingRows
from ..errors import Corrupt, FlintError
from .objects import is_object
from .resting import outlines, resting_outline, without_columns
from .segment_store import SegmentStore
from .segments import BatchEntry, Section, is_damage
from .tail import StoredRows, Tail

if TYPE_CHECKING:
    from .topic_log import TopicLog


class Outlines:
    def __init__(self, topic: int, store: SegmentStore, tail: Tail, log: TopicLog) -> None:
        self._topic, self._store, self._tail, self._log = topic, store, tail, log

    def control_at(self, offset: int, *, waits: bool = True) -> tuple[StoredRows | None, int, int]:
        """What holds the control columns of `offset`, its row there, and the row behind the last;
        None as the first where they are plain, or cannot be read. No payload is read. Unless it
        `waits`, it raises NotLoaded where the disk has to be asked."""
        if self._tail.holds(offset):
            rows = self._tail.at(offset)
            if isinstance(rows, RestingRows) and rows.columns & NOT_PLAIN:
                rows = resting_outline(self._store, rows, offset, waits=waits)
            control = None if isinstance(rows, RestingRows) else rows
            if control is not None and not control.columns & NOT_PLAIN:
                control = None
            return control, offset - rows.base_offset, rows.row_count
        section = self._log.section_at(offset)
        if section.columns & NOT_PLAIN:
            with suppress(Corrupt):
                entry = self._log.index_of(section, waits).entry_or_hole(
                    self._topic, offset, section
                )
                if isinstance(entry, HoleBatch):
                    return None, offset - entry.base_offset, entry.row_count
                has_some = entry.columns & NOT_PLAIN
                control = self._control(section, entry, waits=waits) if has_some else None
                return control, offset - entry.base, entry.rows
        return None, offset - section.base, section.next - section.base

    def outline(self, offset: int, *, waits: bool = True) -> tuple[StoredRows, int, int]:
        """As `locate`, for who asks for times and control columns alone. Never raises, if it
        `waits`, else NotLoaded: of what cannot be read, all messages are taken to be as young as
        the last, and to have no expiry of their own unless the control columns say so."""
        if self._tail.holds(offset):
            rows = self._tail.at(offset)
            if isinstance(rows, RestingRows):
                rows = resting_outline(self._store, rows, offset, waits=waits)
            return rows, offset - rows.base_offset, rows.row_count
        section = self._log.section_at(offset)
        base, next, time = section.base, section.next, section.last_time
        control: StoredRows | None = None
        if is_object(section.file) and not section.columns & EXPIRY:
            # Nobody asks the network for times: what is there goes by the age of its last message.
            control = without_columns(base, next - base)
            control.append_time = time
            return control, offset - base, next - base
        with suppress(FlintError):
            entry = self._log.index_of(section, waits).entry_or_hole(self._topic, offset, section)
            if isinstance(entry, HoleBatch):
                return entry, offset - entry.base_offset, entry.row_count
            base, next, time = entry.base, entry.next, entry.last_time
            if entry.columns & TIMES:
                with suppress(Corrupt):
                    return self._log.locate_nowait(offset, waits=waits)
            if entry.columns & NOT_PLAIN:
                control = self._control(section, entry, waits=waits)
        if control is None or control.columns & TIMES:
            control = without_columns(base, next - base)
        control.append_time = time
        return control, offset - base, next - base

    def delayed(self, now_ms: int) -> Iterator[tuple[int, int, int]]:
        """When messages are due, their offsets and priorities, of those that are not
        due yet. What cannot be read is never due. Of what is in objects only, all is due."""
        for section in self._log.sections:
            if not section.columns & DELIVER_AT:
                continue
            try:
                entries = self._log.index_of(section).entries(self._topic)
            except Corrupt:
                continue
            for entry in entries:
                control = self._control(section, entry) if entry.columns & DELIVER_AT else None
                if control is None:
                    continue
                for row in range(entry.rows):
                    due_ms = control.deliver_at(row)
                    if due_ms > now_ms and entry.base + row >= self._log.first_offset:
                        yield due_ms, entry.base + row, control.priority(row)
        for rows in self._tail.all:
            if not rows.columns & DELIVER_AT:
                continue
            for batch in outlines(self._store, rows) if isinstance(rows, RestingRows) else [rows]:
                for row in range(
                    max(0, self._log.first_offset - batch.base_offset), batch.row_count
                ):
                    if (due_ms := batch.deliver_at(row)) > now_ms:
                        yield due_ms, batch.base_offset + row, batch.priority(row)

    def has_expiry(self) -> bool:
        """Whether messages may have an expiry of their own."""
        parts = (*self._log.all_sections(), *self._tail.all)
        return any(one.columns & EXPIRY for one in parts)

    def _control(
        self, section: Section, entry: BatchEntry, *, waits: bool = True
    ) -> StoredRows | None:
        """The control columns of a batch that has some; None where they are damaged in both of
        their places."""
        try:
            return self._store.read(section.file, entry, waits, is_control=True)
        except FlintError as error:
            if not is_damage(error):
                raise
        with suppress(Corrupt):
            return self._log.locate_nowait(entry.base, waits=waits)[0]
        return None
