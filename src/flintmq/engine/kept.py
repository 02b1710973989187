"""A shard on the disk: its files, its log in the journal of all shards, its checkpoints.

Counts what is in the journal and in no segment of the shard yet: so much is in memory, and so much
is read again by the next start.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..batch import DecodeCache
from ..clock import SteadyClock
from ..model import Durability
from ..storage.group_commit import GroupCommit
from ..storage.group_files import files_of
from ..storage.journal import Journal
from ..storage.manifest import Manifest
from ..storage.objects import FilesAndObjects
from ..storage.resting import batches_of
from ..storage.segment_store import SegmentStore
from ..storage.topic_log import Damage, TopicLog
from .checkpoints import Checkpoints
from .commands import LimitProducers
from .proposer import Proposer
from .recovery import SEGMENTS, RecoveryPace, Replayed, restore
from .shard import Shard
from .tiering import Tiering

if TYPE_CHECKING:
    from .host import Host

BACKLOG_TIMES = 1.75
"""How much may be in memory and in no segment, by the bytes between two checkpoints, before
publishers have to wait."""

_SEGMENT_NAME = re.compile(r"[0-9]{16}\.seg", re.ASCII)


class KeptShard:
    def __init__(self, host: Host, group: int, shard: Shard, clock: SteadyClock) -> None:
        self.host, self.group, self.shard, self.clock = host, group, shard, clock
        self.files = files_of(host.filesystem, group)
        self.store = SegmentStore(FilesAndObjects(self.files, host.objects))
        shard.state.read_resting = lambda rows: batches_of(self.store, rows)
        self.log = host.log_of(group)
        self.checkpoints = Checkpoints(host, self)
        self.tiering = Tiering(self)
        shard.check_tier = host.objects.check
        self.manifest: Manifest | None = None
        """As it was found."""
        self.checkpoint_bytes = host.checkpoint_bytes
        self._replayed_bytes = self._flushed_bytes = self._being_flushed = 0
        self.journal_bytes = 0
        """What all groups had written when the last checkpoint of this one began."""
        self._limits_decided = (0, 0)
        self._journal: Journal

    def new_log(self, id: int, name: str, cache: DecodeCache) -> TopicLog:
        def note(damage: Damage) -> None:
            self.host.damages.note(self, id, name, damage)

        return TopicLog(id, self.store, cache, name=name, on_damage=note)

    # --- opening

    def connect(self, commit: GroupCommit, queue_bytes_max: int) -> None:
        """Have what the shard proposes written."""
        self._journal, shard = commit.journal, self.shard
        is_synced, alone = commit.policy.acknowledges_after_sync, self.log.leads_alone
        durability: Durability = "synced" if is_synced else "written"
        if not alone:
            durability = "replicated" if is_synced else "replicated-written"
        shard.proposer = Proposer(self.log, shard.state.apply, durability, shard.fault)
        shard.proposer.queue_bytes_max = queue_bytes_max
        self.log.write_to(commit, shard.proposer.committed, self._checkpoint_is_due)

    def go_on_behind(self, found: Replayed) -> None:
        """What the journal had is applied."""
        state = self.shard.state
        self.log.go_on_behind(found.index, found.term, is_behind=found.is_behind)
        self.shard.proposer.applied = found.index
        self._replayed_bytes = found.bytes
        self._note_backlog()
        for topic in state.by_id.values():
            if isinstance(topic.log, TopicLog):
                topic.log.sizes.bound()
        times = (topic.log.last_time for topic in state.by_id.values())
        self.clock.begin_at(max(self.checkpoints.manifest.head.time_ms, *times, 0))
        self._note_limits()

    async def take_up_anew(self, pace: RecoveryPace) -> None:
        """The manifest is another node's, of an index beyond the journal's last: drop what is
        applied, and take up that."""
        manifest, state, log = self.checkpoints.manifest.whole(), self.shard.state, self.log
        state.clear()
        await restore(state, manifest, self.store, pace)
        self.shard.staging = state.staging
        self.shard.proposer.covered(manifest.checkpoint)
        log.members = manifest.members
        self._flushed_bytes = log.submitted_bytes
        self.go_on_behind(Replayed(manifest.checkpoint, is_behind=True, term=manifest.term))

    def _note_limits(self) -> None:
        remembered = self.shard.state.remembered
        self._limits_decided = (remembered.age_ms, remembered.bytes_max)

    async def take_lead(
        self, reclaim_seconds: float, step_aside: Callable[[], Awaitable[None]]
    ) -> None:
        await self.shard.take_lead(reclaim_seconds=reclaim_seconds, step_aside=step_aside)
        self._note_limits()
        self.tiering.look()

    def remove_unfinished(self) -> None:
        """Remove segments that the manifest let go, and those of a checkpoint that never ended.

        Without a manifest only if the journal has everything from the beginning on: what else is
        there may be all that is left, and stays.
        """
        numbers = {
            f"{SEGMENTS}/{name}": int(name.partition(".")[0])
            for name in self.files.list(SEGMENTS)
            if _SEGMENT_NAME.fullmatch(name)
        }
        checkpoints = self.checkpoints
        kept = checkpoints.manifest.head
        checkpoints.next_file = max(kept.next_file, 1 + max(numbers.values(), default=0))
        known = self._journal.groups().get(self.group)
        if self.manifest is None and (known is None or known.first_index != 1):
            return
        self.manifest = None
        gone = set(kept.obsolete)
        checkpoints.litter = [
            path for path, number in numbers.items() if path in gone or number >= kept.next_file
        ]
        checkpoints.remove_litter()

    def limit_producers(self, limits: tuple[int, int] | None) -> None:
        """For how many milliseconds, and in how many bytes, producers are remembered."""
        if limits is None:
            return
        shard = self.shard
        shard.state.remembered_in_memory.set_limits(*limits)
        if (
            self._limits_decided != limits
            and shard.refusal is None
            and (shard.proposer.failure is None)
        ):
            self._limits_decided = limits
            shard.proposer.propose(LimitProducers(*limits))

    # --- what is in no segment yet

    def unflushed(self) -> int:
        """Bytes in the journal and in no segment."""
        return self._replayed_bytes + self.log.submitted_bytes - self._flushed_bytes

    def resting_bytes(self) -> int:
        """Bytes of large commits that no checkpoint has copied into segments of their topics."""
        logs = (topic.log for topic in self.shard.state.by_id.values())
        return sum(log.resting_bytes() for log in logs if isinstance(log, TopicLog))

    def has_news(self) -> bool:
        """Whether the journal has what no checkpoint has."""
        return self.shard.proposer.applied > self.checkpoints.manifest.head.checkpoint

    def is_checkpoint_due(self) -> bool:
        """By what is applied: the rest would be due again at once, and is looked at when it is."""
        waits = self._being_flushed + self.shard.proposer.queued_bytes
        return self.unflushed() - waits >= self.checkpoint_bytes

    def _checkpoint_is_due(self) -> None:
        if self.is_checkpoint_due() and self.checkpoints.full is None:
            self.checkpoints.begin()

    def checkpoint_begins(self) -> None:
        # What is proposed and not yet applied has to wait for the next one.
        self._being_flushed = self.unflushed() - self.shard.proposer.queued_bytes
        self.journal_bytes = self.host.journal_bytes()
        self._note_backlog()

    def checkpoint_ends(self, is_done: bool) -> None:
        if is_done:
            self._flushed_bytes += self._being_flushed
        self._being_flushed = 0
        self._note_backlog()
        if is_done:
            self.tiering.look()

    def set_sizes(self, checkpoint_bytes: int, queue_bytes_max: int) -> None:
        self.checkpoint_bytes = checkpoint_bytes
        self.shard.proposer.queue_bytes_max = queue_bytes_max
        self._note_backlog()

    def _note_backlog(self) -> None:
        """Hold publishers back where checkpoints are slower than they: memory is bounded."""
        begun, proposer = self._flushed_bytes - self._replayed_bytes, self.shard.proposer
        proposer.submitted_bytes_max = begun + self.checkpoint_bytes * BACKLOG_TIMES
        proposer.let_go_on()
        self.log.bytes_due = begun + self._being_flushed + self.checkpoint_bytes

    def position_behind(self, index: int) -> int:
        """Where in the journal the entry behind that index is, or will be."""
        return self._journal.position_of(self.group, index + 1)

    def term_of(self, index: int) -> int:
        """The term of an entry that is in no checkpoint yet, or of the last one in it."""
        head = self.checkpoints.manifest.head
        if index == head.checkpoint:
            return head.term
        term = self._journal.term(self.group, index)
        assert term is not None, "the journal has what no checkpoint has"
        return term
