"""Staged writes on the disk: the hidden log's segments, and what the manifest says of them.

A checkpoint writes what was staged since the last one into a segment of its own, under the hidden
topic id, once. The manifest refers to the batches there until they are committed or dropped; then
the segment goes like any other that nothing refers to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ..batch import lost_rows
from ..errors import Corrupt, FlintError
from ..observe.logs import event
from ..storage.manifest import PartState, StagedState, WriterState
from ..storage.segment_store import SegmentStore
from ..storage.segments import HIDDEN_TOPIC, SegmentWriter, is_damage
from .commands import CommitPlace, StagedBatch
from .state.staging import StagedWriter, Staging

_log = logging.getLogger(__name__)


def write_staged(staging: Staging, new_segment: Callable[[], SegmentWriter]) -> str | None:
    """Put what is in no segment yet into one; its name, None if there was nothing to write.

    The name is durable only after its directory was synced.
    """
    fresh = [staged for staged in staging.staged() if staged.file is None]
    if not fresh:
        return None
    writer = new_segment()
    try:
        for staged in fresh:
            writer.add(HIDDEN_TOPIC, staged.batch)
        writer.seal()
    finally:
        writer.abandon()
    return writer.name


def note_written(staging: Staging, file: str) -> None:
    """What `write_staged` found to write is in that segment now."""
    for staged in staging.staged():
        staged.file = staged.file or file


def states_of(staging: Staging, fresh_file: str | None) -> list[WriterState]:
    """What the manifest keeps of it. What is in no other segment is in the fresh one."""
    return [
        WriterState(
            name,
            writer.last,
            list(writer.places),
            [
                PartState(number, part, staged.time, _batch_states(staged.batches, fresh_file))
                for number, parts in writer.parts.items()
                for part, staged in parts.items()
            ],
        )
        for name, writer in staging.writers.items()
    ]


def _batch_states(batches: Sequence[StagedBatch], fresh_file: str | None) -> list[StagedState]:
    return [
        StagedState(
            staged.topic, staged.name, staged.file or fresh_file or "", staged.batch.base_offset
        )
        for staged in batches
    ]


def restore_staging(staging: Staging, states: Sequence[WriterState], store: SegmentStore) -> None:
    """Take up what a manifest says is staged; the batches are read and checked.

    A part that is damaged and not committed is left out: nobody was promised anything of it, and
    its writer stages it again, as it does with a part that was dropped for its age. Where its
    commit is in the journal, its rows are damaged messages.
    """
    for state in states:
        places = [CommitPlace(*place) for place in state.places]
        staging.writers[state.name] = StagedWriter(state.last, places)
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


def _lost_of(batches: Sequence[StagedState], store: SegmentStore) -> list[StagedBatch]:
    """What stands for a damaged part; what is whole of it stays. Nothing where a file's index is
    lost: then only a commit says how many there were."""
    found: list[StagedBatch] = []
    for kept in batches:
        try:
            found.append(_batch_of(kept, store))
        except FlintError as error:
            try:
                entry = store.segment(kept.file).entry_at(HIDDEN_TOPIC, kept.offset)
            except FlintError:
                return []
            batch = lost_rows(entry.rows, entry.size)
            batch.stamp(entry.base, entry.first_time)
            cause = str(error).partition(";")[0]
            found.append(StagedBatch(kept.topic, kept.name, batch, kept.file, cause))
    return found


def _batch_of(kept: StagedState, store: SegmentStore) -> StagedBatch:
    segment = store.segment(kept.file)
    batch = segment.read(segment.entry_at(HIDDEN_TOPIC, kept.offset))
    return StagedBatch(kept.topic, kept.name, batch, kept.file)
