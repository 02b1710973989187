"""What of a topic lies in object storage. Pure.

    first offset                                                        next offset
    | objects                                    |
                            | sections of this disk                | tail |

Objects come first and overlap with sections: what is in an object may leave this disk, and does by
a limit of its own. Who reads goes to the disk where it has the offset, else to the object. Objects
are the same on every node of a cluster, sections are each node's own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..batch.format import DELIVER_AT
from .segments import Section


class TieredSection(NamedTuple):
    """An object: a segment with this part of one topic. The file of the section is its URL."""

    section: Section
    due_ms: int = 0
    """When the last of its delayed messages is due; 0: it has none."""


class FarSections:
    """The objects of a topic, in order."""

    def __init__(self) -> None:
        self.all: list[TieredSection] = []
        self.borrowed = 0
        """Objects that begin before this offset are of another data directory, of which this one
        was made by a backup: they are read here, and never removed."""
        self._bases: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def end(self) -> int:
        """The offset behind the last of them."""
        return self.all[-1].section.next if self.all else 0

    def restore(self, tiered: Sequence[TieredSection], borrowed: int) -> None:
        self.all, self.borrowed = list(tiered), borrowed
        self._bases = [one.section.base for one in tiered]

    def add(self, tiered: TieredSection) -> None:
        self.all.append(tiered)
        self._bases.append(tiered.section.base)

    def drop(self, up_to: int) -> list[str]:
        """Forget those that end there or before; the URLs of those that are ours to remove."""
        count = sum(1 for one in self.all if one.section.next <= up_to)
        gone = [one.section for one in self.all[:count]]
        del self.all[:count], self._bases[:count]
        return [section.file for section in gone if section.base >= self.borrowed]

    def holding(self, offset: int) -> Section:
        """The object that has an offset."""
        return self.all[bisect_right(self._bases, offset) - 1].section

    def before(self, offset: int | None) -> list[Section]:
        """Those that begin before an offset; all of them if it is None."""
        return [s for s, _ in self.all if offset is None or s.base < offset]

    def is_due(self, section: Section, served_ms: int) -> bool:
        """Whether no delayed message there waits for its time: for that it has to be on this disk,
        where it is found without asking anybody."""
        if not section.columns & DELIVER_AT:
            return True
        return all(
            due_ms <= served_ms
            for far, due_ms in self.all
            if far.base < section.next and section.base < far.next
        )


def count_to_leave(
    far: FarSections,
    sections: Sequence[Section],
    bytes_max: int | None,
    before_ms: int | None,
    served_ms: int,
) -> int:
    """How many sections, from the first on, are to leave this disk: they are in objects, and over
    the limit of bytes, or older than a time."""
    size = sum(section.size for section in sections)
    count = 0
    for section in sections:
        is_over = bytes_max is not None and size > bytes_max
        is_old = before_ms is not None and section.last_time < before_ms
        if section.next > far.end or not (is_over or is_old):
            break
        if not far.is_due(section, served_ms):
            break
        size -= section.size
        count += 1
    return count


def run_to_upload(
    far: FarSections,
    sections: Sequence[Section],
    first_offset: int,
    enough: int,
    bytes_max: int | None,
    before_ms: int | None,
) -> list[Section]:
    """The sections that become the next object: about `enough` bytes of them, or fewer where the
    limits of this disk cannot wait for that. None where there is nothing to do yet."""
    start = max(far.end, first_offset)
    run: list[Section] = []
    size = 0
    for section in sections:
        if section.next > start and size < enough:
            run.append(section)
            size += section.size
    if not run:
        return []
    local = sum(section.size for section in sections)
    is_over = bytes_max is not None and local > bytes_max
    is_old = before_ms is not None and run[0].last_time < before_ms
    return run if size >= enough or is_over or is_old else []


class HasSections(Protocol):
    """A topic as a manifest has it."""

    @property
    def sections(self) -> list[Section]: ...
    @property
    def tiered(self) -> list[TieredSection]: ...


def all_sections(stored: HasSections) -> list[Section]:
    """Where the messages of a topic are, from the first on: objects, then files."""
    begin = stored.sections[0].base if stored.sections else None
    far = [one.section for one in stored.tiered]
    return [*(one for one in far if begin is None or one.base < begin), *stored.sections]
