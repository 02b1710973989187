"""The command log of a cluster: what most nodes have in their journals is committed.

Who leads knows what index a command gets: nobody else appends while it leads. So commands get
their index when they are submitted, and go to the core together, once in each turn of the event
loop. While the lead is being handed over they wait; if it is lost, those were surely not done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from time import perf_counter

from ..engine.command_log import Callback, LogEntry
from ..engine.commands import LEVEL, Command, decode_command, encode_command
from ..errors import InvalidRequest, NotLeader
from ..observe.metrics import PUBLISH_SECONDS, Histogram
from ..raft import Membership
from ..raft.messages import Payload
from ..storage.frames import MEMBERSHIP, Record, State
from ..storage.group_commit import GroupCommit
from .storage import members_bytes


class ReplicatedLog:
    """Of one group on one node. Its shard host (`shard_host`) drives it."""

    is_instant = False
    leads_alone = False

    def __init__(self, group: int = 0) -> None:
        self.group = group
        self.term = 0
        """Under which commands are submitted; of who follows, that of the last entry applied."""
        self.commit: GroupCommit
        self.members = b""
        self.bytes_due: float = inf
        self.on_due: Callable[[], object]
        self.applied_bytes = 0
        self.applied_index = 0
        self.is_behind = False
        self.changes: list[Record] = []
        """Changes of who belongs to the group, found in the journal at the start."""
        self.level_max = LEVEL
        """The highest level of commands that every node of the cluster knows."""
        # While we lead:
        self.leads = False
        self._last = self._next_term = 0
        self.gathered: list[bytes] = []
        self._on_written: deque[tuple[int, Callback]] = deque()
        self._gathered_bytes = 0
        self._is_held = False
        self._proposed: deque[tuple[int, float]] = deque()
        self.commit_seconds = Histogram(PUBLISH_SECONDS)
        """From a proposal until it is applied."""
        # Of the shard host:
        self.on_gathered: Callable[[], object]
        self.on_go: Callable[[], object]
        self.on_written: Callable[[int], object] = _nobody
        self.on_durable: Callable[[int], object] = _nobody
        self.needed: Callable[[int], int] = lambda checkpoint: checkpoint

    # --- what its host asks and tells

    def write_to(
        self, commit: GroupCommit, on_committed: Callable[[int], None], on_due: Callable[[], object]
    ) -> None:
        self.commit, self.on_due = commit, on_due

    def committed_in(self, state: State) -> int | None:
        return state.commit

    def command_of(self, record: Record) -> Command | None:
        if record.kind & MEMBERSHIP:
            self.changes.append(Record(record.group, record.term, record.index, record.buffers))
            return None
        return command_in(record.payload)

    def go_on_behind(self, index: int, term: int, *, is_behind: bool) -> None:
        self.applied_index, self.term, self.is_behind = index, term, is_behind

    def needed_behind(self, checkpoint: int) -> int:
        return self.needed(checkpoint)

    def written_up_to(self, ticket: int) -> None:
        self.on_written(ticket)

    def durable_up_to(self, ticket: int) -> None:
        self.on_durable(ticket)

    # --- leading

    @property
    def index(self) -> int:
        return self._last if self.leads else self.applied_index

    @property
    def submitted_bytes(self) -> int:
        """Also what others submitted: all of it is in the journal here, and in memory."""
        return self.applied_bytes + self._gathered_bytes

    def lead(self, term: int, last: int) -> None:
        """Commands may be submitted: `last` is the index of the last entry there is."""
        self.leads, self._last = True, last
        self._next_term = term

    def begin_term(self, above: int, on_durable: Callable[[], None]) -> None:
        assert self._next_term > above, "terms only grow"
        self.term = self._next_term
        on_durable()  # its first entry is applied already

    def submit(
        self, command: Command, on_written: Callback | None = None, *, sync_can_wait: bool = False
    ) -> LogEntry:
        if not self.leads:
            raise NotLeader(0, 0)
        buffers = encode_command(command)
        if buffers[0][1] > self.level_max:
            raise InvalidRequest(
                "the cluster does not know this yet: some nodes may run an earlier version. When "
                "all of them have been updated, run `flintmq cluster finalize`"
            )
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        if not self.gathered and not self._is_held:
            self.on_gathered()
        self.gathered.append(data if isinstance(data, bytes) else bytes(data))
        self._last += 1
        self._gathered_bytes += len(data)
        if on_written is not None:
            self._on_written.append((self._last, on_written))
        return LogEntry(self._last, self.term, len(data))

    def go_on(self) -> None:
        """Submit an entry that says nothing."""
        if self.leads:
            if not self.gathered and not self._is_held:
                self.on_gathered()
            self.gathered.append(b"")
            self._last += 1

    def others_entry(self) -> None:
        """An entry that is no command was proposed behind what was submitted."""
        self._last += 1

    def hold(self) -> None:
        """What is submitted waits for `go`, which saves its host a turn of the event loop."""
        self._is_held = True

    def go(self) -> None:
        self._is_held = False
        if self.gathered:
            self.on_go()

    def take_gathered(self) -> list[bytes]:
        gathered, self.gathered = self.gathered, []
        self._proposed.append((self._last, perf_counter()))
        return gathered

    def wants_written(self) -> bool:
        return bool(self._on_written)

    def entries_written(self, index: int) -> None:
        while self._on_written and self._on_written[0][0] <= index:
            self._on_written.popleft()[1]()

    def give_up_lead(self) -> int:
        """Another leads, or nobody. From which index on nothing was ever proposed."""
        self.leads = False
        never = self._last + 1 - len(self.gathered)
        self.gathered = []
        self._gathered_bytes = 0
        self._on_written.clear()
        self._proposed.clear()
        return never

    # --- applying

    def applied(self, index: int, term: int, size: int, *, is_ours: bool) -> None:
        self.applied_index = index
        self.applied_bytes += size
        while self._proposed and self._proposed[0][0] <= index:
            self.commit_seconds.observe(perf_counter() - self._proposed.popleft()[1])
        if is_ours:
            self._gathered_bytes = max(0, self._gathered_bytes - size)
        elif not self.leads:
            self.term = term
        if self.submitted_bytes >= self.bytes_due:
            self.on_due()

    def members_changed(self, membership: Membership) -> None:
        self.members = members_bytes(membership)


def command_in(payload: Payload) -> Command | None:
    """What an entry says; None for the one that opens a term. What is kept is a copy of its own."""
    return (
        decode_command(payload if isinstance(payload, bytes) else bytes(payload))
        if payload
        else None
    )


def _nobody(_: int) -> None: ...
