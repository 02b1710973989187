"""Staged writes on the disk: the hidden log's segments, and what the manifest says of them.

A checkpoint writes what was staged since the last one into a segment of its own, under the hidden
topic id, once. The manifest refers to the batches there until they are committed or dropped; then
the segment goes like any other that nothing refers to. What a large number has staged is in memory
no more from then on, and is taken up from the index of the segment alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import cast

from ..batch import OBJECTS, PRODUCER, TIMES, RecordBatch, RestingRows, lost_rows
from ..errors import Corrupt, FlintError
from ..observe.logs import event
from ..storage.manifest import PartState, StagedState, WriterState
from ..storage.segment_store import SegmentStore
from ..storage.segments import HIDDEN_TOPIC, SegmentWriter, is_damage
from .commands import CommitPlace, StagedBatch
from .state.staging import Part, StagedWriter, Staging

_log = logging.getLogger(__name__)

PartKey = tuple[str, int, str]


def _parts_at(staging: Staging, keys: Iterable[PartKey]) -> Iterator[tuple[PartKey, Part]]:
    for writer, number, name in dict.fromkeys(keys):
        known = staging.writers.get(writer)
        part = None if known is None else known.parts.get(number, {}).get(name)
        if part is not None:
            yield (writer, number, name), part


def write_staged(
    staging: Staging, fresh: Sequence[PartKey], new_segment: Callable[[], SegmentWriter]
) -> str | None:
    """Put what is in no segment yet into one; its name, None if there was nothing to write.

    The name is durable only after its directory was synced.
    """
    batches = [
        staged.batch
        for _, part in _parts_at(staging, fresh)
        for staged in part.batches
        if staged.file is None and isinstance(staged.batch, RecordBatch)
    ]
    if not batches:
        return None
    writer = new_segment()
    try:
        for batch in sorted(batches, key=lambda batch: batch.base_offset):
            writer.add(HIDDEN_TOPIC, batch)
        writer.seal()
    finally:
        writer.abandon()
    return writer.name


def note_written(
    staging: Staging, view: Staging, fresh: Sequence[PartKey], planned: Staging, file: str
) -> None:
    """What `write_staged` found to write is in that segment now. What of it is a large number's is
    let go from memory: of the state, and of the view of who leads."""
    for _, part in _parts_at(planned, fresh):
        for staged in part.batches:
            staged.file = staged.file or file
    large: dict[tuple[str, int], bool] = {}
    for key, part in _parts_at(staging, fresh):
        if all(staged.file is not None for staged in part.batches):  # else it was replaced
            staging.fresh.pop(key, None)
        large[key[:2]] = staging.is_large(*key[:2])
    for (writer, number), is_large in large.items():
        if is_large:
            for name, part in staging.writers[writer].parts[number].items():
                if _may_rest(part):
                    part.batches = _resting(part.batches)
                    for _, seen in _parts_at(view, [(writer, number, name)]):
                        if _first(seen) == _first(part):
                            seen.batches = part.batches


def _first(part: Part) -> int:
    return part.batches[0].batch.base_offset


def _may_rest(part: Part) -> bool:
    return any(isinstance(staged.batch, RecordBatch) for staged in part.batches) and all(
        staged.file is not None and not staged.batch.columns & (OBJECTS | PRODUCER | TIMES)
        for staged in part.batches
    )


def _resting(batches: Sequence[StagedBatch]) -> list[StagedBatch]:
    """Runs of batches for one topic in one file, without what is in them."""
    found = []
    for (topic, name, file), group in groupby(batches, lambda one: (one.topic, one.name, one.file)):
        run = [one.batch for one in group]
        columns = 0
        for batch in run:
            columns |= batch.columns
        rows = RestingRows(
            file or "",
            run[0].base_offset,
            sum(batch.row_count for batch in run),
            sum(batch.byte_length for batch in run),
            sum(batch.size(0, batch.row_count) for batch in run),
            columns,
            run[0].append_time,
        )
        found.append(StagedBatch(topic, name, rows, file))
    return found


def states_of(staging: Staging, fresh_file: str | None) -> list[WriterState]:
    """What the manifest keeps of it. What is in no other segment is in the fresh one."""
    return [
        WriterState(
            name,
            writer.last,
            list(writer.places),
            [
                _part_state(number, part, staged, fresh_file)
                for number, parts in writer.parts.items()
                for part, staged in parts.items()
            ],
            writer.ended,
        )
        for name, writer in staging.writers.items()
    ]


def _part_state(number: int, name: str, part: Part, fresh_file: str | None) -> PartState:
    if part.stored is None:
        batches = part.batches
        state = PartState(number, name, part.time, [_stored(one, fresh_file) for one in batches])
        if not all(isinstance(staged.batch, RestingRows) for staged in batches):
            return state
        part.stored = state  # it stays as it is: who stages much has many
    return cast(PartState, part.stored)


def _stored(staged: StagedBatch, fresh_file: str | None) -> StagedState:
    batch = staged.batch
    place = StagedState(staged.topic, staged.name, staged.file or fresh_file or "", 0)
    if isinstance(batch, RestingRows):
        return StagedState(*_places(place), batch.place, batch.row_count, batch.total)
    return StagedState(*_places(place), batch.base_offset)


def _places(state: StagedState) -> tuple[int, str, str]:
    return state.topic, state.name, state.file


def restore_staging(staging: Staging, states: Sequence[WriterState], store: SegmentStore) -> None:
    """Take up what a manifest says is staged. Batches are read and checked, but for those of large
    numbers: of them it is the indexes of their segments.

    A part that is damaged and not committed is left out: nobody was promised anything of it, and
    its writer stages it again, as it does with a part that was dropped for its age. Where its
    commit is in the journal, its rows are damaged messages.
    """
    for state in states:
        places = [CommitPlace(*place) for place in state.places]
        staging.writers[state.name] = StagedWriter(state.last, places, ended=state.ended)
        for part in state.parts:
            try:
                batches = [_batch_of(kept, store) for kept in part.batches]
            except FlintError as error:
                if not is_damage(error):
                    raise
                is_proven = isinstance(error, Corrupt)
                lost = _lost_of(part.batches, store) if is_proven else None
                staging.damaged[state.name, part.number, part.part] = lost
                event(
                    _log,
                    logging.ERROR,
                    "staged_part_damaged",
                    f"part {part.part!r} of number {part.number}, staged by {state.name!r}, is "
                    f"damaged on the disk and left out: {error}",
                    writer=state.name,
                    number=part.number,
                    part=part.part,
                )
                continue
            staging.add(state.name, part.number, part.part, part.time, batches)
    staging.put_in_order()


def _lost_of(batches: Sequence[StagedState], store: SegmentStore) -> list[StagedBatch]:
    """What stands for a damaged part; what is whole of it stays. Nothing where a file's index is
    lost: then only a commit says how many there were."""
    found: list[StagedBatch] = []
    for kept in batches:
        try:
            found.append(_batch_of(kept, store))
        except FlintError as error:
            cause = str(error).partition(";")[0]
            if kept.rows:
                rows = RestingRows(kept.file, kept.offset, kept.rows, kept.size, kept.size, 0, 0)
                found.append(StagedBatch(kept.topic, kept.name, rows, kept.file, cause))
                continue
            try:
                entry = store.segment(kept.file).entry_at(HIDDEN_TOPIC, kept.offset)
            except FlintError:
                return []
            batch = lost_rows(entry.rows, entry.size)
            batch.stamp(entry.base, entry.first_time)
            found.append(StagedBatch(kept.topic, kept.name, batch, kept.file, cause))
    return found


def _batch_of(kept: StagedState, store: SegmentStore) -> StagedBatch:
    segment = store.segment(kept.file)
    if not kept.rows:
        batch = segment.read(segment.entry_at(HIDDEN_TOPIC, kept.offset))
        return StagedBatch(kept.topic, kept.name, batch, kept.file)
    entries = segment.between(HIDDEN_TOPIC, kept.offset, kept.offset + kept.rows)
    columns = 0
    for entry in entries:
        columns |= entry.columns
    length = sum(entry.length for entry in entries)
    time = entries[0].first_time
    rows = RestingRows(kept.file, kept.offset, kept.rows, length, kept.size, columns, time)
    return StagedBatch(kept.topic, kept.name, rows, kept.file)
