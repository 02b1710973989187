"""Staged writes: what writers have laid ready, and what they have committed. Pure state.

A writer stages parts under a number that grows (a Spark query: its batches), then commits some of
them in one step. What is staged lies in a hidden log: its batches are journaled once, by the stage;
a commit says only where they go.

Always true: a writer's parts have numbers above its last committed one, which is never forgotten:
so a number is appended once, however often its commit is sent. Offsets of the hidden log only grow,
and segments know its batches by them. Sizes are the sums of the parts that are there.

The caller brings the time. `check_room` and `find` may refuse; `apply` refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...batch import lost_rows
from ...errors import Corrupt, InvalidRequest, NotStaged, QueueFull
from ..commands import AbortStages, CommitPlace, CommitStage, Stage, StagedBatch

STAGED_SECONDS = 3600.0
"""How long a number may rest without a new part before it is dropped."""

STAGED_BYTES_MAX = 1 << 30
WRITER_BYTES_MAX = STAGED_BYTES_MAX * 3 // 4
"""A large job of Spark is one writer; it must not keep everybody else out."""
NAME_BYTES_MAX = 1024
NUMBER_MAX = 2**63 - 1


class Part(NamedTuple):
    time: int
    batches: Sequence[StagedBatch]

    @property
    def size(self) -> int:
        return sum(staged.batch.byte_length for staged in self.batches)


@dataclass(slots=True)
class StagedWriter:
    last: int = -1
    """The last number that was committed. It is never forgotten."""
    places: list[CommitPlace] = field(default_factory=list)
    """Where the last commit went."""
    parts: dict[int, dict[str, Part]] = field(default_factory=dict)
    size: int = 0


class Staging:
    def __init__(
        self,
        *,
        writer_bytes_max: int = WRITER_BYTES_MAX,
        staged_bytes_max: int = STAGED_BYTES_MAX,
    ) -> None:
        self._writer_bytes_max, self._staged_bytes_max = writer_bytes_max, staged_bytes_max
        self.writers: dict[str, StagedWriter] = {}
        self.size = 0
        self.damaged: dict[tuple[str, int, str], list[StagedBatch] | None] = {}
        """By writer, number and part, what could not be read at the start, and is left out: what
        stands for its batches where a checksum says that they are damaged."""
        self.next_offset = 0
        """Of the hidden log."""

    def clear(self) -> None:
        self.writers, self.damaged = {}, {}
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
        if known.size + more > self._writer_bytes_max:
            raise QueueFull(
                f"the room for what writer {writer!r} has staged, in bytes,",
                self._writer_bytes_max,
                "commit or abort what is there, or write less at once",
            )
        if self.size + more > self._staged_bytes_max:
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
        """When the first number has rested for so long; None where nothing is staged."""
        times = [time for _, _, time in self._numbers()]
        return min(times) + rest_ms if times else None

    def rested_since(self, time_ms: int) -> list[tuple[str, int]]:
        """The writers and numbers to which nothing was added after that time."""
        return [(writer, number) for writer, number, time in self._numbers() if time <= time_ms]

    def _numbers(self) -> Iterator[tuple[str, int, int]]:
        for name, writer in self.writers.items():
            for number, parts in writer.parts.items():
                yield name, number, max(part.time for part in parts.values())

    def staged(self) -> Iterator[StagedBatch]:
        """Everything that is staged, in the order of the hidden log."""
        found = [
            staged
            for writer in self.writers.values()
            for parts in writer.parts.values()
            for part in parts.values()
            for staged in part.batches
        ]
        return iter(sorted(found, key=lambda staged: staged.batch.base_offset))

    # --- applying

    def apply(self, command: Stage | CommitStage | AbortStages) -> Sequence[StagedBatch]:
        """Make a change that was decided; the batches that it takes out, in order."""
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
        known.size += more
        self.size += more

    def _commit(self, command: CommitStage) -> list[StagedBatch]:
        """Take the named parts out, drop the others up to that number, and remember it."""
        taken = self._taken(command)
        writer = self.writers.setdefault(command.writer, StagedWriter())
        for number in [number for number in writer.parts if number <= command.number]:
            self._drop(writer, number)
        writer.last, writer.places = command.number, list(command.places)
        return taken

    def _taken(self, command: CommitStage) -> list[StagedBatch]:
        """The batches that a commit appends. It was promised: where a part is damaged or missing
        by now, as many rows as it had take their places, and are damaged."""
        known = self.writers.get(command.writer) or StagedWriter()
        there = known.parts.get(command.number, {})
        taken: list[StagedBatch] = []
        for part in command.parts:
            if part in there:
                taken += there[part].batches
            elif (command.writer, command.number, part) in self.damaged:
                lost = self.damaged.pop((command.writer, command.number, part))
                if lost is None:
                    raise Corrupt(
                        f"part {part!r} of number {command.number}, which {command.writer!r} has "
                        "committed, cannot be read from the disk; check the disk and start again, "
                        "or run `flintmq log repair` to go on without it"
                    )
                taken += lost
        for place in command.places:
            found = [staged for staged in taken if staged.topic == place.topic]
            if sum(staged.batch.row_count for staged in found) != place.rows:
                taken = [staged for staged in taken if staged.topic != place.topic]
                why = "a part that was committed is missing"
                taken.append(
                    StagedBatch(place.topic, place.name, lost_rows(place.rows), damage=why)
                )
        return taken

    def _abort(self, command: AbortStages) -> None:
        for name, number in command.numbers:
            writer = self.writers.get(name)
            if writer is not None:
                self._drop(writer, number)
                if writer.last < 0 and not writer.parts:
                    del self.writers[name]

    def _drop(self, writer: StagedWriter, number: int) -> None:
        size = sum(part.size for part in writer.parts.pop(number, {}).values())
        writer.size -= size
        self.size -= size

    def copy(self) -> Staging:
        """The same state, to be changed apart from this one. Batches are shared."""
        other = Staging(
            writer_bytes_max=self._writer_bytes_max, staged_bytes_max=self._staged_bytes_max
        )
        other.writers = {
            name: StagedWriter(
                writer.last,
                list(writer.places),
                {number: dict(parts) for number, parts in writer.parts.items()},
                writer.size,
            )
            for name, writer in self.writers.items()
        }
        other.size, other.next_offset = self.size, self.next_offset
        other.damaged = dict(self.damaged)
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
