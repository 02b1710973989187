"""Opening a data directory: the last checkpoint, and the journal behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from ..errors import BrokerFailed, Corrupt, FlintError
from ..observe.logs import event
from ..storage.filesystem import FileSystem
from ..storage.frames import HAS_LEFT, State
from ..storage.group_files import files_of
from ..storage.journal import Journal, TornTail
from ..storage.journal_scan import TORN
from ..storage.manifest import Manifest, ManifestStore, check_not_lost
from ..storage.segment_store import SegmentStore
from .staged_segments import restore_staging
from .state.shard import ShardState
from .stored import restoring

if TYPE_CHECKING:
    from .kept import KeptShard

_log = logging.getLogger(__name__)

RECOVERY_STEP_SECONDS = 0.02
"""How long recovery keeps the event loop to itself."""

SEGMENTS = "segments"
JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening found and did."""

    topics: int
    groups: int
    messages: int
    records_replayed: int
    torn_bytes: int
    seconds: float


class RecoveryPace:
    """Lets the event loop go on now and then: whoever asks how it goes is answered."""

    def __init__(self, steps_aside: bool, seconds: float) -> None:
        self._steps_aside, self._seconds = steps_aside, seconds
        self._due = perf_counter() + seconds

    async def step_aside(self) -> None:
        if self._steps_aside and perf_counter() >= self._due:
            await asyncio.sleep(0)
            self._due = perf_counter() + self._seconds


def opened(store: ManifestStore, filesystem: FileSystem, group: int) -> Manifest | None:
    """The manifest of a group. A journal that is gone is told every time, so before a new one is
    begun."""
    files = files_of(filesystem, group)
    if group and not files.exists(""):
        return None
    manifest = store.open()
    if manifest is None:
        check_not_lost(files, SEGMENTS, filesystem, JOURNAL)
        return None
    if manifest.group != group:
        raise Corrupt(
            f"the manifest in {files.describe()} is of group {manifest.group}, not {group}: put "
            "the files of each group back into its own directory, or restore a backup"
        )
    names = filesystem.list(JOURNAL)
    if manifest.position and not any(name.startswith("journal-") for name in names):
        raise Corrupt(
            f"the last checkpoint ends with index {manifest.checkpoint} of a journal that is "
            "not there: what was acknowledged since is missing; restore a backup, or run "
            "`flintmq log repair --cut-journal` to continue without it"
        )
    return manifest


def check_segments(filesystem: FileSystem, manifest: Manifest) -> None:
    """Segments that the manifest names and that are gone are told now, not to some reader."""
    there = {f"{SEGMENTS}/{name}" for name in filesystem.list(SEGMENTS)}
    named = {section.file for topic in manifest.topics for section in topic.sections}
    if missing := sorted(named - there):
        raise Corrupt(
            f"segment {missing[0]}"
            + (f" and {len(missing) - 1} more are" if missing[1:] else " is")
            + " missing; restore a backup, or see what `flintmq log repair` can save"
        )


async def restore(
    state: ShardState, manifest: Manifest, store: SegmentStore, pace: RecoveryPace
) -> None:
    """Take up what a manifest has."""
    state.last_topic_id = manifest.last_topic_id
    state.epoch = manifest.epoch
    state.set_nodes(manifest.nodes)
    state.loose = dict.fromkeys(manifest.loose)
    for stored in manifest.topics:
        await pace.step_aside()
        topic = state.create(stored.id, stored.name, stored.options)
        for _ in restoring(topic, stored):
            await pace.step_aside()
        if state.on_change is not None and topic.is_durable and not stored.sizes:
            state.on_change(topic.id)  # it is of an earlier version
    remembered = state.remembered
    remembered.time_ms = max(remembered.time_ms, manifest.producer_time)
    if manifest.producer_limits is not None:
        remembered.set_limits(*manifest.producer_limits)
    restore_staging(state.staging, manifest.stages, store)
    state.definitions.restore(manifest.definitions, manifest.last_definition)


@dataclass(slots=True)
class Replayed:
    index: int
    """The last one."""
    is_behind: bool = False
    """Whether the journal ends before the checkpoint, and has to begin anew behind it."""
    term: int = 0
    """The last one the journal knows."""
    records: int = 0
    bytes: int = 0


async def replay(
    journal: Journal,
    checkpoints: Mapping[int, int],
    kept: Mapping[int, KeptShard],
    pace: RecoveryPace,
) -> dict[int, Replayed]:
    """Apply what the journal has behind the checkpoint of each group, in one pass for all."""
    found = {group: _to_replay(journal, group, index) for group, index in checkpoints.items()}
    states = journal.states()
    ends = {group: kept[group].log.committed_in(states.get(group, State(0))) for group in found}
    for _, record in journal.replay(journal.needed_from(checkpoints)):
        replayed = found.get(record.group)
        if replayed is not None and record.index > replayed.index:
            if (end := ends[record.group]) is not None and record.index > end:
                continue  # it may never be committed: who leads next says
            assert record.index == replayed.index + 1, "the journal has no gaps"
            command = kept[record.group].log.command_of(record)
            try:
                kept[record.group].shard.proposer.take(record.index, record.term, command)
            except FlintError:
                raise
            except Exception as error:
                where = f"applying {type(command).__name__}, index {record.index} of the journal"
                why = f"{type(error).__name__}: {error}"
                raise BrokerFailed(f"{where}, again", why) from error
            replayed.index = record.index
            replayed.records += 1
            replayed.bytes += len(record.payload)
            await pace.step_aside()
    return found


def _to_replay(journal: Journal, group: int, checkpoint: int) -> Replayed:
    """Whether the journal has what a group needs behind its checkpoint."""
    known, hard = journal.groups().get(group), journal.states().get(group, State(0))
    of_group = f" of group {group}" if group else ""
    last = max(checkpoint, known.next_index - 1 if known is not None else 0)
    # A hard state lies behind what was committed when it was written.
    if hard.commit > last and not hard.flags & HAS_LEFT:
        raise Corrupt(
            f"the journal says that index {hard.commit}{of_group} was written, but journal and "
            f"checkpoint end with {last}: files are missing; restore a backup, or see what "
            "`flintmq log repair` can save"
        )
    if known is None:
        return Replayed(checkpoint, term=hard.term)
    if known.first_index > checkpoint + 1:
        raise Corrupt(
            f"the journal begins with index {known.first_index}{of_group}, but the last checkpoint "
            f"ends with {checkpoint}: files are missing; restore a backup, or see what "
            "`flintmq log repair` can save"
        )
    # Without `always` a power cut may leave the journal behind the checkpoint. It then goes on
    # with other frames at the same positions: where to read is asked of the journal.
    is_behind = known.next_index <= checkpoint
    return Replayed(checkpoint, is_behind, max(hard.term, known.last_term))


def tell_recovered(
    filesystem: FileSystem,
    states: Sequence[ShardState],
    records: int,
    torn: TornTail | None,
    seconds: float,
) -> Recovery:
    topics = [topic for state in states for topic in state.by_id.values()]
    recovery = Recovery(
        topics=len(topics),
        groups=sum(len(topic.groups) for topic in topics),
        messages=sum(topic.log.next_offset - topic.log.first_offset for topic in topics),
        records_replayed=records,
        torn_bytes=torn.bytes if torn is not None else 0,
        seconds=seconds,
    )
    event(
        _log,
        logging.INFO,
        "recovered",
        "the data directory is recovered",
        directory=filesystem.describe(),
        **asdict(recovery),
    )
    if torn is not None:
        event(
            _log,
            logging.WARNING,
            "journal_cut",
            "the last write in the journal is incomplete: it was cut off and saved to a file; "
            + TORN,
            file=torn.file,
            at=torn.offset,
            bytes=torn.bytes,
            saved_as=torn.saved_as,
        )
    return recovery
