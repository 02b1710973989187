"""Staged writes: what writers have laid ready, and what they have committed. Pure state.

A writer stages parts under a number that grows (a Spark query: its batches), then commits some of
them in one step. What is staged lies in a hidden log: its batches are journaled once, by the stage;
a commit says only where they go.

Always true: a writer's parts have numbers above its last committed one, which is never forgotten:
so a number is appended once, however often its commit is sent. Offsets of the hidden log only grow,
and segments know its batches by them. Sizes are the sums of the parts that are there.

A writer that is said to end is forgotten a while after its last commit, so that a commit which is
sent again finds it; one that was named goes on for ever.

The caller brings the time. `check_room` and `find` may refuse; `apply` refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...batch import lost_rows
from ...errors import Corrupt, InvalidRequest, NotStaged, QueueFull
from ..commands import AbortStages, CommitPlace, CommitStage, Stage, StagedBatch

STAGED_SECONDS = 3600.0
"""How long a number may rest without a new part before it is dropped."""

STAGED_BYTES_MAX = 1 << 30
WRITER_BYTES_MAX = STAGED_BYTES_MAX * 3 // 4
"""In memory: a large job of Spark is one writer; it must not keep everybody else out."""
LARGE_BYTES = 64 << 20
"""What a number has staged beyond this is in segments only, once it is there; so is what anybody
has, where all together have four times as much."""
NAME_BYTES_MAX = 1024
NUMBER_MAX = 2**63 - 1


class Part:
    __slots__ = ("batches", "size", "stored", "time")

    def __init__(self, time: int, batches: Sequence[StagedBatch]) -> None:
        self.time, self.batches = time, batches
        self.size = sum(staged.batch.byte_length for staged in batches)
        self.stored: object = None
        """As a manifest has it, once all of it is in segments."""


@dataclass(slots=True)
class StagedWriter:
    last: int = -1
    """The last number that was committed. It is never forgotten."""
    places: list[CommitPlace] = field(default_factory=list)
    """Where the last commit went."""
    parts: dict[int, dict[str, Part]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    """By number."""
    size: int = 0
    ended: int = 0
    """When it was said to end; 0: it was not."""


class Staging:
    def __init__(
        self,
        *,
        writer_bytes_max: int | None = None,
        staged_bytes_max: int | None = None,
        large_bytes: int = LARGE_BYTES,
    ) -> None:
        """Where there is no limit, that is the disk's."""
        self._writer_bytes_max, self._staged_bytes_max = writer_bytes_max, staged_bytes_max
        self.large_bytes = large_bytes
        self.writers: dict[str, StagedWriter] = {}
        self.size = 0
        self._is_applied = True
        self.fresh: dict[tuple[str, int, str], None] = {}
        """Writers, numbers and parts that were applied and are in no segment yet."""
        self._resting: dict[tuple[str, int], int] = {}
        """When each number got its last part, the oldest first."""
        self._ended: dict[str, int] = {}
        """The same of the writers that were said to end and have nothing staged."""
        self.damaged: dict[tuple[str, int, str], list[StagedBatch] | None] = {}
        """By writer, number and part, what could not be read at the start, and is left out: what
        stands for its batches where a checksum says that they are damaged."""
        self.next_offset = 0
        """Of the hidden log."""

    def clear(self) -> None:
        self.writers, self.damaged, self.fresh = {}, {}, {}
        self._resting, self._ended = {}, {}
        self.size = self.next_offset = 0

    # --- asking

    def is_done(self, writer: str, number: int) -> bool:
        """Whether that number, or a later one, was committed: then there is nothing to do."""
        known = self.writers.get(writer)
        return known is not None and number <= known.last

    def places(self, writer: str, number: int) -> Sequence[CommitPlace]:
        """Where a committed number went, as far as that is remembered: of the last one."""
        known = self.writers.get(writer)
        return known.places if known is not None and known.last == number else ()

    def check_room(self, writer: str, number: int, part: str, size: int) -> None:
        """Refuse a part that would be too much."""
        known = self.writers.get(writer) or StagedWriter()
        replaced = known.parts.get(number, {}).get(part)
        more = size - (replaced.size if replaced is not None else 0)
        if self._writer_bytes_max is not None and known.size + more > self._writer_bytes_max:
            raise QueueFull(
                f"the room for what writer {writer!r} has staged, in bytes,",
                self._writer_bytes_max,
                "commit or abort staged parts, or stage less at a time",
            )
        if self._staged_bytes_max is not None and self.size + more > self._staged_bytes_max:
            raise QueueFull(
                "the room for what all writers have staged, in bytes,",
                self._staged_bytes_max,
                "wait until others have committed",
            )

    def find(self, writer: str, number: int, parts: Sequence[str]) -> list[StagedBatch]:
        """The batches of the named parts, in their order. Raises NotStaged."""
        known = self.writers.get(writer)
        there = known.parts.get(number, {}) if known is not None else {}
        missing = [part for part in parts if part not in there]
        damaged = [part for part in missing if (writer, number, part) in self.damaged]
        if damaged:
            raise Corrupt(
                f"what {writer!r} staged under number {number} is damaged on the disk, in part "
                f"{', '.join(map(repr, damaged))}; stage that again, or abort the number"
            )
        if missing:
            raise NotStaged(writer, number, missing)
        return [staged for part in parts for staged in there[part].batches]

    def topics_of(self, writer: str) -> set[str]:
        """What it has staged for, and where its last commit went."""
        known = self.writers.get(writer)
        if known is None:
            return set()
        staged = (part for parts in known.parts.values() for part in parts.values())
        names = {batch.name for part in staged for batch in part.batches}
        return names | {place.name for place in known.places}

    def due(self, rest_ms: int) -> int | None:
        """When the first number has rested for so long, or a writer ended that long ago; None where
        there is neither."""
        times = [next(iter(times.values())) for times in (self._resting, self._ended) if times]
        return min(times) + rest_ms if times else None

    def rested_since(self, time_ms: int) -> list[tuple[str, int]]:
        """The writers and numbers to which nothing was added after that time; and the last numbers
        of writers that had ended by then."""
        found: list[tuple[str, int]] = []
        for key, time in self._resting.items():
            if time > time_ms:
                break
            found.append(key)
        for name, time in self._ended.items():
            if time > time_ms:
                break
            found.append((name, self.writers[name].last))
        return found

    def is_large(self, writer: str, number: int) -> bool:
        """Whether what a number has staged is not kept in memory beside the segments."""
        known = self.writers.get(writer)
        size = 0 if known is None else known.sizes.get(number, 0)
        return size > self.large_bytes or self.size > 4 * self.large_bytes

    def parts(self) -> Iterator[tuple[str, int, str, Part]]:
        """Everything that is staged: by which writer, under which number and name."""
        for name, writer in self.writers.items():
            for number, parts in writer.parts.items():
                for part, staged in parts.items():
                    yield name, number, part, staged

    # --- applying

    def apply(self, command: Stage | CommitStage | AbortStages) -> Sequence[Sequence[StagedBatch]]:
        """Make a change that was decided; the batches that it takes out, in order, by parts."""
        match command:
            case Stage():
                self._stage(command)
            case CommitStage():
                return self._commit(command)
            case AbortStages():
                self._abort(command)
        return ()

    def _stage(self, command: Stage) -> None:
        """Lay a part ready, in place of the one of that name."""
        self.add(command.writer, command.number, command.part, command.time, command.batches)

    def add(
        self, writer: str, number: int, part: str, time: int, batches: Sequence[StagedBatch]
    ) -> None:
        for staged in batches:
            end = staged.batch.base_offset + staged.batch.row_count
            self.next_offset = max(self.next_offset, end)
        self.damaged.pop((writer, number, part), None)
        known = self.writers.setdefault(writer, StagedWriter())
        parts = known.parts.setdefault(number, {})
        replaced = parts.pop(part, None)
        added = parts[part] = Part(time, batches)
        more = added.size - (replaced.size if replaced is not None else 0)
        known.sizes[number] = known.sizes.get(number, 0) + more
        known.size += more
        self.size += more
        last = self._resting.pop((writer, number), 0)
        self._resting[writer, number] = max(time, last)
        if known.ended:
            known.ended = 0
            self._ended.pop(writer, None)
        if self._is_applied and any(staged.file is None for staged in batches):
            self.fresh[writer, number, part] = None

    def put_in_order(self) -> None:
        """All that was restored is here: the oldest come first."""
        self._resting = dict(sorted(self._resting.items(), key=lambda item: item[1]))
        found = {name: one.ended for name, one in self.writers.items() if one.ended}
        self._ended = dict(sorted(found.items(), key=lambda item: item[1]))

    def _commit(self, command: CommitStage) -> list[Sequence[StagedBatch]]:
        """Take the named parts out, drop the others up to that number, and remember it."""
        taken = self._taken(command)
        writer = self.writers.setdefault(command.writer, StagedWriter())
        for number in [number for number in writer.parts if number <= command.number]:
            self._drop(command.writer, writer, number)
        writer.last, writer.places = command.number, list(command.places)
        if command.ended and not writer.parts:
            writer.ended = self._ended[command.writer] = command.ended
        return taken

    def _taken(self, command: CommitStage) -> list[Sequence[StagedBatch]]:
        """The batches that a commit appends. It was promised: where a part is damaged or missing
        by now, as many rows as it had take their places, and are damaged."""
        known = self.writers.get(command.writer) or StagedWriter()
        there = known.parts.get(command.number, {})
        taken: list[Sequence[StagedBatch]] = []
        for part in command.parts:
            if part in there:
                taken.append(there[part].batches)
            elif (command.writer, command.number, part) in self.damaged:
                lost = self.damaged.pop((command.writer, command.number, part))
                if lost is None:
                    raise Corrupt(
                        f"part {part!r} of number {command.number}, which {command.writer!r} has "
                        "committed, cannot be read from the disk; check the disk and start again, "
                        "or run `flintmq log repair` to continue without it"
                    )
                taken.append(lost)
        rows: dict[int, int] = {}
        for staged in (staged for batches in taken for staged in batches):
            rows[staged.topic] = rows.get(staged.topic, 0) + staged.batch.row_count
        for place in command.places:
            if rows.get(place.topic, 0) != place.rows:
                taken = [[one for one in part if one.topic != place.topic] for part in taken]
                why = "a part that was committed is missing"
                lost = [StagedBatch(place.topic, place.name, lost_rows(place.rows), damage=why)]
                taken.append(lost)
        return taken

    def _abort(self, command: AbortStages) -> None:
        for name, number in command.numbers:
            writer = self.writers.get(name)
            if writer is not None:
                self._drop(name, writer, number)
                is_over = writer.ended > 0 and number == writer.last
                if not writer.parts and (writer.last < 0 or is_over):
                    del self.writers[name]
                    self._ended.pop(name, None)

    def _drop(self, name: str, writer: StagedWriter, number: int) -> None:
        for part in writer.parts.pop(number, ()):
            self.fresh.pop((name, number, part), None)
        self._resting.pop((name, number), None)
        size = writer.sizes.pop(number, 0)
        writer.size -= size
        self.size -= size

    def copy(self) -> Staging:
        """The same state, to be changed apart from this one. Parts are shared."""
        other = Staging(
            writer_bytes_max=self._writer_bytes_max,
            staged_bytes_max=self._staged_bytes_max,
            large_bytes=self.large_bytes,
        )
        other.writers = {
            name: StagedWriter(
                writer.last,
                list(writer.places),
                {number: dict(parts) for number, parts in writer.parts.items()},
                dict(writer.sizes),
                writer.size,
                writer.ended,
            )
            for name, writer in self.writers.items()
        }
        other._is_applied = False
        other.size, other.next_offset = self.size, self.next_offset
        other.damaged = dict(self.damaged)
        other._resting, other._ended = dict(self._resting), dict(self._ended)
        return other


def check_writer(writer: object, number: object) -> None:
    _check_text(writer, "writer")
    if type(number) is not int or not 0 <= number <= NUMBER_MAX:
        raise InvalidRequest(f"number is a whole number from 0 to 2^63 - 1, not {number!r}")


def part_name(part: object) -> str:
    """Parts are named by text; a number is one."""
    if type(part) is int:
        return str(part)
    _check_text(part, "part")
    return str(part)


def part_names(parts: Sequence[str | int]) -> list[str]:
    if isinstance(parts, str | bytes):
        raise InvalidRequest(f"parts is a list of names, not {parts!r}")
    names = [part_name(part) for part in parts]
    if len(set(names)) != len(names):
        raise InvalidRequest(f"parts names one of them twice: {names!r}")
    return names


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str) or not text:
        raise InvalidRequest(f"{what} is a name, not {text!r}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what} is not valid Unicode: {error}") from None
    if size > NAME_BYTES_MAX:
        raise InvalidRequest(f"{what} has {size:,} bytes of UTF-8; at most {NAME_BYTES_MAX:,}")
