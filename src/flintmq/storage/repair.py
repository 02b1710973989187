"""Repair of a data directory that is not in use: saves what can be saved, and says what it did.

Nothing is thrown away: whatever is taken out of the directory's use is put aside first, into
`repair-<n>/`, with a report. First the steps are planned, then they are carried out.

- A manifest that is missing or damaged comes back from its copy, which is always as good. If that
  is gone too, it is made from the segments' own indexes: names, options and positions of readers
  are lost then, topics are called `recovered-<id>`, and the journal is put aside, because
  it is unknown what of it is in the segments.
  Where the journal still has everything from the beginning on, it is read instead.
- Batches that are damaged leave a gap, and a topic has none: it begins behind the last gap. What is
  readable before it becomes a topic of its own, `<name>.salvaged`, numbered from 0.
- A damaged journal is cut where the damage begins, but only with `--cut-journal`: what was
  acknowledged behind it is lost to the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import msgspec

from ..batch import RecordBatch, twin_of
from ..errors import Corrupt, FlintError
from ..group_model import Ranges
from ..model import TopicOptions
from .backup import JOURNAL, SEGMENTS
from .filesystem import FileSystem, copy_file, replace_file
from .group_files import GROUPS, Below, files_of, groups_in, path_in
from .inspect import names_in, note_missing_journal, verify_segment
from .journal_files import NEWEST, read_header
from .journal_scan import JournalScan, scan_journal
from .manifest import (
    COPY_NAME,
    NAME,
    Manifest,
    TopicRecord,
    changes_in,
    read_manifest,
    write_manifest,
)
from .segments import HIDDEN_TOPIC, Section, Segment, SegmentWriter, cause_of, sections

DURABLE = TopicOptions(storage="durable", retention_bytes=None)


@dataclass
class GroupPlan:
    """What is to be done to the files of one group. Names are as the group has them."""

    group: int
    manifest: Manifest | None = None
    writes_manifest: bool = False
    removes_manifest: bool = False
    bad_segments: list[str] = field(default_factory=list)


@dataclass
class RepairPlan:
    """What a repair would do, in words, and what it needs to know to do it."""

    steps: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Damage that is left as it is without `--cut-journal`."""
    groups: list[GroupPlan] = field(default_factory=list)
    puts_journal_aside: bool = False
    cut_at: tuple[str, int] | None = None


def plan_repair(filesystem: FileSystem, *, cut_journal: bool) -> RepairPlan:
    plan = RepairPlan()
    scan = scan_journal(filesystem, JOURNAL)
    for group in groups_in(filesystem):
        files, found = files_of(filesystem, group), GroupPlan(group)
        plan.groups.append(found)
        _plan_manifest(files, plan, found, scan)
        there = names_in(files, SEGMENTS)
        for name in there:
            if any(problem.is_damage for problem in verify_segment(files, name)):
                found.bad_segments.append(name)
                path = path_in(files, name)
                plan.steps.append(f"{path} is damaged: put it aside, keep what is readable in it")
        for name in sorted((found.manifest or Manifest()).files() - set(there)):
            found.bad_segments.append(name)
            plan.steps.append(f"{path_in(files, name)} is missing: its topics continue without it")
        note_missing_journal(scan, found.manifest or Manifest())
    plan.refused += [
        f"the files of group {group} are missing, but the journal has records of it; restore them "
        "from a backup"
        for group in sorted(scan.groups() - set(groups_in(filesystem)))
    ]
    if plan.puts_journal_aside and len(plan.groups) > 1:
        plan.puts_journal_aside = False  # the others need it
    elif plan.puts_journal_aside:
        plan.steps.append("it is unknown what of the journal is in the segments: put it aside")
    if scan.cut_at is not None and not plan.puts_journal_aside:
        name, offset = scan.cut_at
        text = f"the journal is damaged in {name} at byte {offset:,}"
        if name == JOURNAL:
            text = "the journal is missing"
        if cut_journal:
            plan.cut_at = scan.cut_at
            plan.steps.append(f"{text}: put a copy aside, cut it there")
        else:
            plan.refused.append(f"{text}; --cut-journal cuts it there, what is behind is lost")
    return plan


def _plan_manifest(
    files: FileSystem, plan: RepairPlan, found: GroupPlan, scan: JournalScan
) -> None:
    group = found.group
    what, why = "the manifest" + (f" of group {group}" if group else ""), "is missing"
    try:
        found.manifest = _of_group(read_manifest(files), group)
        if found.manifest is not None:
            return
    except Corrupt as error:
        why = cause_of(error)
    segments, first = names_in(files, SEGMENTS), scan.first(group)
    try:
        kept = _of_group(read_manifest(files, COPY_NAME), group)
    except Corrupt:
        kept = None
    if kept is not None:
        found.manifest, found.writes_manifest = kept, True
        plan.steps.append(f"{what} {why}: restore it from its copy")
    elif first == 1 and scan.cut_at is None:
        if files.exists(NAME) or files.exists(COPY_NAME):
            found.removes_manifest = True
            plan.steps.append(
                f"{what} {why}, and so is its copy, but the journal has everything from the "
                "beginning on: put the manifest aside; the next start reads the journal"
            )
    elif files.exists(NAME) or (segments and first != 1):
        found.manifest, found.writes_manifest = _from_segments(files, group, scan), True
        count = len(found.manifest.topics)
        plan.steps.append(
            f"{what} {why}, and so is its copy: make one from {len(segments)} segments; "
            f"{count} topics, called recovered-<id>, without options and positions of readers"
        )
        plan.puts_journal_aside |= bool(scan.files or scan.cut_at)


def _of_group(manifest: Manifest | None, group: int) -> Manifest | None:
    if manifest is not None and manifest.group != group:
        raise Corrupt(f"is the one of group {manifest.group}")
    return manifest


def _from_segments(filesystem: FileSystem, group: int, scan: JournalScan) -> Manifest:
    """A manifest of what the segments say of themselves."""
    found: dict[int, list[Section]] = {}
    last_file = 0
    for name in names_in(filesystem, SEGMENTS):
        number = name.rpartition("/")[2].partition(".")[0]
        last_file = max(last_file, int(number) if number.isdigit() else 0)
        try:
            segment = Segment(filesystem, name)
        except FlintError:
            continue
        for topic in segment.topics():
            found.setdefault(topic, []).append(sections(name, segment.entries(topic))[topic])
        segment.close()
    found.pop(HIDDEN_TOPIC, None)
    topics = []
    for topic, parts in sorted(found.items()):
        chosen = _without_overlap(parts)
        topics.append(
            TopicRecord(
                topic, f"recovered-{topic}", DURABLE, chosen[0].base, chosen[-1].next,
                max(section.last_time for section in chosen), chosen, [], [],
            )
        )  # fmt: skip
    last_topic = max(found, default=0)
    # What the journal has of the group counts as being in the segments: it is not read again.
    last, term = scan.last_written(group), scan.term(group)
    return Manifest(
        last, 0, last_topic, last_file + 1, topics, epoch=term, term=max(1, term), group=group
    )


def _without_overlap(parts: list[Section]) -> list[Section]:
    """Sections that were joined into a larger one may still be there beside it."""
    chosen: list[Section] = []
    for section in sorted(parts, key=lambda section: (section.base, -section.next)):
        if chosen and section.base > chosen[-1].next:
            chosen = []  # a topic has no gaps; the files before this one stay where they are
        if not chosen or section.next > chosen[-1].next:
            chosen.append(section)
    return chosen


def carry_out(
    filesystem: FileSystem, plan: RepairPlan, tell: Callable[[str], object] = lambda _: None
) -> tuple[str, list[str]]:
    """Do what was planned. Where things were put aside, and what was done."""
    number = 1
    while filesystem.exists(f"repair-{number}"):
        number += 1
    aside = f"repair-{number}"
    filesystem.make_directory(aside)
    filesystem.sync_directory()
    done: list[str] = list(plan.steps)
    for found in plan.groups:
        files = files_of(filesystem, found.group)
        bad = [name for name in found.bad_segments if files.exists(name)]
        names = [name for name in (NAME, COPY_NAME, *changes_in(files), *bad) if files.exists(name)]
        place = files_of(Below(filesystem, aside), found.group)
        _put_aside(files, names, place, tell)
    journal = names_in(filesystem, JOURNAL, "journal-")
    if plan.cut_at is not None or plan.puts_journal_aside:
        _put_aside(filesystem, journal, Below(filesystem, aside), tell)
    for directory in (aside, f"{aside}/{GROUPS}"):
        if filesystem.exists(directory):
            filesystem.sync_directory(directory)
    manifests = {
        found.group: _around_damage(
            files_of(filesystem, found.group),
            found.manifest or Manifest(group=found.group),
            set(found.bad_segments),
            done,
            tell,
        )
        if found.bad_segments and not found.removes_manifest
        else found.manifest
        for found in plan.groups
    }
    if plan.puts_journal_aside:
        _forget_newest(filesystem)
        _remove(filesystem, journal)
    elif plan.cut_at is not None:
        _cut(filesystem, *plan.cut_at)
    for found in plan.groups:
        files, manifest = files_of(filesystem, found.group), manifests[found.group]
        if manifest is not None and plan.cut_at is not None:
            manifest = msgspec.structs.replace(manifest, position=0)
        is_new = found.writes_manifest or found.bad_segments or plan.cut_at is not None
        if found.manifest is not None and manifest is not None and is_new:
            write_manifest(files, manifest)
        if found.removes_manifest:
            _remove(files, [name for name in (NAME, COPY_NAME) if files.exists(name)])
        else:
            _remove(files, [name for name in found.bad_segments if files.exists(name)])
    report = "\n".join(done) + "\n"
    replace_file(filesystem, f"{aside}/report.txt", [report.encode()])
    return aside, done


def _put_aside(
    files: FileSystem, names: list[str], place: FileSystem, tell: Callable[[str], object]
) -> None:
    if names and not place.exists(""):
        place.make_directory("")
    for name in names:
        tell(f"{path_in(files, name)} to {place.describe()}")
        copy_file(files, name, place, name.rpartition("/")[2])
    if names:
        place.sync_directory()


def _remove(filesystem: FileSystem, names: list[str]) -> None:
    for name in reversed(names):
        filesystem.remove(name)
        filesystem.sync_directory(name.rpartition("/")[0])


def _forget_newest(filesystem: FileSystem) -> None:
    """The next start notes which file is the newest: it is not the one it was."""
    if filesystem.exists(f"{JOURNAL}/{NEWEST}"):
        _remove(filesystem, [f"{JOURNAL}/{NEWEST}"])


def _cut(filesystem: FileSystem, name: str, offset: int) -> None:
    """End the journal at a place. Later files go first, so that a crash leaves no gap."""
    _forget_newest(filesystem)
    files = names_in(filesystem, JOURNAL, "journal-")
    if name not in files:
        return  # all of them are gone
    behind = files[files.index(name) + (1 if offset else 0) :]
    _remove(filesystem, behind)
    if offset:
        with closing(filesystem.open(name, writable=True)) as file:
            size = read_header(filesystem, name).bytes  # also where the file was cut short
            file.truncate(offset)
            file.truncate(size)
            file.sync_all()


def _around_damage(
    filesystem: FileSystem,
    manifest: Manifest,
    bad: set[str],
    done: list[str],
    tell: Callable[[str], object],
) -> Manifest:
    """The manifest without the damaged segments; what is readable in them is in a new one."""
    name = f"{SEGMENTS}/{manifest.next_file:016d}.seg"
    while filesystem.exists(name):
        manifest = msgspec.structs.replace(manifest, next_file=manifest.next_file + 1)
        name = f"{SEGMENTS}/{manifest.next_file:016d}.seg"
    writer = SegmentWriter(filesystem, name)
    topics: list[TopicRecord] = []
    salvaged: list[TopicRecord] = []
    last_id = manifest.last_topic_id
    for state in manifest.topics:
        if not any(section.file in bad for section in state.sections):
            topics.append(state)
            continue
        tell(state.name)
        begin, readable = _behind_last_gap(filesystem, state, bad)
        lost = begin - state.first_offset - readable
        done.append(f"topic {state.name!r} begins at {begin}; {lost:,} messages are lost")
        kept = [s for s in state.sections if s.file not in bad and s.next > begin]
        for batch in _readable(filesystem, state, bad):
            if batch.base_offset >= begin and _is_in_bad(state, bad, batch.base_offset):
                writer.add(state.id, batch)
        topics.append(
            msgspec.structs.replace(
                state, first_offset=max(begin, state.first_offset), sections=kept
            )
        )
        if readable:
            last_id += 1
            other = _salvage(filesystem, state, bad, begin, last_id, writer)
            salvaged.append(other)
            done.append(f"{readable:,} messages before that are in topic {other.name!r}")
    added = dict(writer.seal())
    filesystem.sync_directory(SEGMENTS)
    topics = [_with(state, added.get(state.id)) for state in [*topics, *salvaged]]
    stages = []
    for staged in manifest.stages:
        parts = [p for p in staged.parts if not any(b.file in bad for b in p.batches)]
        if len(parts) < len(staged.parts):
            done.append(f"writer {staged.name!r} lost staged parts; it has to stage them again")
        stages.append(msgspec.structs.replace(staged, parts=parts))
    return msgspec.structs.replace(
        manifest, topics=topics, stages=stages, last_topic_id=last_id,
        next_file=manifest.next_file + 1,
    )  # fmt: skip


def _with(state: TopicRecord, section: Section | None) -> TopicRecord:
    if section is None:
        return state
    together = sorted([*state.sections, section], key=lambda section: section.base)
    return msgspec.structs.replace(state, sections=together)


def _is_in_bad(state: TopicRecord, bad: set[str], offset: int) -> bool:
    return any(s.file in bad and s.base <= offset < s.next for s in state.sections)


def _readable(filesystem: FileSystem, state: TopicRecord, bad: set[str]) -> Iterator[RecordBatch]:
    """The good batches of a topic, in order."""
    for section in state.sections:
        try:
            segment = Segment(filesystem, section.file)
        except FlintError:
            continue
        with closing(segment):
            for entry in segment.entries(state.id):
                if section.base <= entry.base < section.next:
                    try:
                        yield segment.read(entry)
                    except FlintError:
                        continue


def _behind_last_gap(filesystem: FileSystem, state: TopicRecord, bad: set[str]) -> tuple[int, int]:
    """Where the messages go on without a gap up to the end, and how many are readable before."""
    begin, due, readable, counted = state.first_offset, state.first_offset, 0, 0
    for batch in _readable(filesystem, state, bad):
        if batch.base_offset > due:
            begin, readable = batch.base_offset, counted
        due = batch.base_offset + batch.row_count
        counted += due - max(batch.base_offset, state.first_offset)
    flushed = max(section.next for section in state.sections)
    if due < flushed:
        begin, readable = flushed, counted
    return begin, readable


def _salvage(
    filesystem: FileSystem,
    state: TopicRecord,
    bad: set[str],
    begin: int,
    id: int,
    writer: SegmentWriter,
) -> TopicRecord:
    """A topic of what is readable before the last gap, numbered anew. What was dropped, cancelled
    or discarded stays so."""
    offset = last_time = first = 0
    cancelled: Ranges = []
    discarded: Ranges = []
    for batch in _readable(filesystem, state, bad):
        if batch.base_offset >= begin:
            break
        if batch.base_offset + batch.row_count <= state.first_offset:
            continue
        if not offset:
            first = max(0, state.first_offset - batch.base_offset)
        cancelled += _renumbered(state.cancelled, batch, offset)
        discarded += _renumbered(state.gone(), batch, offset)
        renumbered = twin_of(batch)
        renumbered.stamp(offset, batch.append_time)
        writer.add(id, renumbered)
        offset += batch.row_count
        last_time = max(last_time, batch.time(batch.row_count - 1))
    base, _, partition = state.name.partition("/")
    name = f"{base}.salvaged" + (f"-{partition}" if partition else "") + f"-{id}"
    return TopicRecord(
        id, name, DURABLE, first, offset, last_time, [], [], [],
        cancelled=cancelled, discarded=discarded,
    )  # fmt: skip


def _renumbered(ranges: Ranges, batch: RecordBatch, offset: int) -> Ranges:
    """What of these is in a batch, as it is called where the batch begins with `offset`."""
    base, end = batch.base_offset, batch.base_offset + batch.row_count
    return [
        (max(start, base) - base + offset, min(stop, end) - base + offset)
        for start, stop in ranges
        if start < end and base < stop
    ]
