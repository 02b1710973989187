"""Commands: every durable change as bytes. The journal stores them, apply carries them out.

    kind u8   level u8   6 zeros     0: a command below, as MessagePack behind these eight bytes
    kind u8   7 zeros   topic u64   record batch          1: an append
    kind u8   7 zeros   length u64   stage   batches      2: a stage; `length` bytes of MessagePack
                                                          with zeros up to a multiple of 8, then
                                                          its record batches one behind another
    kind u8   7 zeros   length u64   move   batch         3: a move; as a stage, with one batch
    kind u8   level u8   6 zeros   length u64   rows   batches      4: appends; as a stage

A level is what whoever applies the command has to know beyond the first version: 1 for appends, for
what many groups change and for definitions, 2 for compactions and for the nodes of a cluster, 3 for
checks of the state, 4 for objects.

What a command says was decided before it was written; apply refuses nothing. Times are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct as Layout
from typing import NamedTuple, TypeVar

import msgspec

from ..batch import BatchBuilder, RecordBatch, RestingRows
from ..cluster_model import NodeEntry
from ..errors import Corrupt, UnsupportedFormat
from ..group_model import Order, Ranges
from ..groups.offset_set import Chunks
from ..model import TopicOptions
from ..storage.segments import Section

_KIND = Layout("<BB6x")
_APPEND = Layout("<B7xQ")
_HEAD = Layout("<BB6xQ")
_STRUCT, _BATCH, _STAGE, _MOVE, _ROWS = 0, 1, 2, 3, 4

LEVEL = 4
"""The highest of the commands that are known here."""

Buffer = bytes | memoryview


class CreateTopics(msgspec.Struct, frozen=True, tag="create", array_like=True):
    """New topics with the same options: one, or the partitions of a row."""

    topics: list[tuple[int, str]]
    options: TopicOptions


class ConfigureTopics(msgspec.Struct, frozen=True, tag="configure", array_like=True):
    """New options for topics, and partitions that are added with them."""

    topics: list[int]
    options: TopicOptions
    added: list[tuple[int, str]]


class DeleteTopics(msgspec.Struct, frozen=True, tag="delete", array_like=True):
    topics: list[int]


class AdvanceFirstOffset(msgspec.Struct, frozen=True, tag="advance", array_like=True):
    """Drop everything before an offset: what time alone, or readers passing, bring about."""

    topic: int
    offset: int
    reason: str


class SetCursor(msgspec.Struct, frozen=True, tag="cursor", array_like=True):
    """A reader name begins, or commits."""

    topic: int
    name: str
    began: int
    committed: int | None


class CommitPlace(NamedTuple):
    """Where a commit of staged parts puts what they have for one topic."""

    topic: int
    name: str
    offset: int
    rows: int
    time: int


class CommitStage(msgspec.Struct, frozen=True, tag="commit_stage", array_like=True):
    """Append the named parts to their topics, drop the writer's others up to that number."""

    writer: str
    number: int
    parts: list[str]
    places: list[CommitPlace]
    evenly: bool = False
    """Rows count for as much as the others of their part and topic: they are many, and not in the
    memory of every node."""
    ended: int = 0
    """When the writer said that it stages nothing more, and is to be forgotten a while later; 0: it
    did not."""


class AbortStages(msgspec.Struct, frozen=True, tag="abort_stages", array_like=True):
    """Drop what is staged under these writers and numbers: they said so, or their time is up."""

    numbers: list[tuple[str, int]]
    time: int


class CreateGroup(msgspec.Struct, frozen=True, tag="create_group", array_like=True):
    """A queue group begins at `floor`."""

    topic: int
    group: str
    order: Order
    filter: str | None
    start: str
    floor: int
    term: int = 0
    """In which it was decided: tokens of it may be of a group of that name that is gone."""


class DeleteGroup(msgspec.Struct, frozen=True, tag="delete_group", array_like=True):
    """Forget a group of either kind."""

    topic: int
    group: str


class Settle(msgspec.Struct, frozen=True, tag="settle", array_like=True):
    """Messages that a group is done with; `reason` says why they were never delivered, if so."""

    topic: int
    group: str
    ranges: Ranges
    reason: str = ""


class Attempts(msgspec.Struct, frozen=True, tag="attempts", array_like=True):
    """How often messages were handed out, and until when nacked ones wait. Absolute, so a later
    one goes before an earlier one; a count of 0 forgets."""

    topic: int
    group: str
    counts: list[tuple[int, int, int]]
    delays: list[tuple[int, int]] = []
    token: int = 0
    """What those that are counted here were granted under; 0: they were given back."""
    ended: Ranges = []
    """Nacked without a delay."""


class GroupChanges(msgspec.Struct, frozen=True, tag="groups", array_like=True):
    """What groups of any topics handed out and were done with in one turn of the event loop, in the
    order it was decided."""

    changes: list[Settle | Attempts]


class ResetGroup(msgspec.Struct, frozen=True, tag="reset_group", array_like=True):
    """A queue group begins anew at `floor`."""

    topic: int
    group: str
    floor: int
    term: int = 0


class PauseGroup(msgspec.Struct, frozen=True, tag="pause_group", array_like=True):
    topic: int
    group: str
    paused: bool


class Cancel(msgspec.Struct, frozen=True, tag="cancel", array_like=True):
    """Delayed messages that nobody is to get any more."""

    topic: int
    ranges: Ranges


class Compact(msgspec.Struct, frozen=True, tag="compact", array_like=True):
    """Drop messages of a compacted topic: each of these a newer message of its key has superseded,
    of all that lie before `up_to`. Offsets stay."""

    topic: int
    up_to: int
    dropped: Chunks
    """As an OffsetSet is stored: they are many, and lie scattered."""


class PlanObject(msgspec.Struct, frozen=True, tag="plan_object", array_like=True):
    """An object of this URL may be there from now on: so whoever leads later removes it, unless a
    TierSection has come."""

    url: str


class TierSection(msgspec.Struct, frozen=True, tag="tier_section", array_like=True):
    """The object has this part of the topic, whole and verified: it may be read from there."""

    topic: int
    section: Section
    due_ms: int


class DropObjects(msgspec.Struct, frozen=True, tag="drop_objects", array_like=True):
    """Objects of the topic that end there or before belong to it no more: they may be removed."""

    topic: int
    up_to: int


class ForgetObjects(msgspec.Struct, frozen=True, tag="forget_objects", array_like=True):
    """These are removed."""

    urls: list[str]


class BeginEpoch(msgspec.Struct, frozen=True, tag="begin_epoch", array_like=True):
    """From now on, lease tokens begin with this. Earlier versions wrote it; now it is the term."""

    epoch: int


class LimitProducers(msgspec.Struct, frozen=True, tag="limit_producers", array_like=True):
    """How long, and in how many bytes, producers are remembered from now on. A command, since what
    is forgotten has to be the same wherever commands are applied."""

    age_ms: int
    bytes_max: int


class Define(msgspec.Struct, frozen=True, tag="define", array_like=True):
    """A definition that belongs to a topic, a webhook for example: new or changed, or removed if
    it has no value. Versions only grow."""

    kind: str
    topic: str
    name: str
    value: bytes | None
    version: int


class SetNodes(msgspec.Struct, frozen=True, tag="nodes", array_like=True):
    """Nodes of the cluster as they are from now on, each in place of what its id had before."""

    nodes: list[NodeEntry]


class CheckState(msgspec.Struct, frozen=True, tag="check", array_like=True):
    """Changes nothing: whoever applies it works out what its state comes to here."""

    number: int
    """No two have the same one."""


TopicChange = (
    AdvanceFirstOffset
    | SetCursor
    | CreateGroup
    | DeleteGroup
    | Settle
    | Attempts
    | ResetGroup
    | PauseGroup
    | Cancel
    | Compact
)
"""What concerns one topic."""
Change = (
    CreateTopics
    | ConfigureTopics
    | DeleteTopics
    | CommitStage
    | AbortStages
    | BeginEpoch
    | LimitProducers
    | SetNodes
    | CheckState
    | PlanObject
    | TierSection
    | DropObjects
    | ForgetObjects
    | GroupChanges
    | Define
    | TopicChange
)


class Append(NamedTuple):
    """A stamped batch for a topic."""

    topic: int
    batch: RecordBatch


AppendedRows = tuple[int, int, list[bytes], str | None, int, int]
"""A few messages: topic, offset of the first, values, content type; then which of the producers has
sent them (-1: it has none), and the first sequence. Without values, the next of the batches."""


class Appends(NamedTuple):
    """What was published in one turn of the event loop, in the order it was decided.

    What is in no batch was appended at `time`, or when the message before it was, if that is later.
    """

    time: int
    producers: Sequence[str]
    rows: Sequence[AppendedRows]
    batches: Sequence[RecordBatch]


@dataclass(slots=True, eq=False)
class StagedBatch:
    """A batch of the hidden log, or a run of them. Base offset and time are those of the stage."""

    topic: int
    name: str
    batch: RecordBatch | RestingRows
    """Of a large writer, what a checkpoint has written is not in memory any more."""
    file: str | None = None
    """The segment that holds it, once a checkpoint has written it."""
    damage: str = ""
    """Why its rows cannot be had, where they cannot: the batch stands for them."""


class Stage(NamedTuple):
    """A part that is laid ready for a commit, in place of an earlier one of that name."""

    writer: str
    number: int
    part: str
    time: int
    batches: Sequence[StagedBatch]


class Move(NamedTuple):
    """Messages change places in one step: a group is done with them, another topic has them.

    So go dead letters, and so they come back: then for one group of that topic alone.
    """

    source: int
    group: str
    ranges: Ranges
    target: int
    only_for: str | None
    batch: RecordBatch | BatchBuilder


Command = Change | Append | Appends | Stage | Move


def topics_of(command: Command) -> Iterable[int]:
    """The ids of the topics whose state it may change."""
    match command:
        case Settle() | Attempts():  # as most are
            return (command.topic,)
        case CreateTopics(topics):
            return [id for id, _ in topics]
        case ConfigureTopics(topics, _, added):
            return [*topics, *(id for id, _ in added)]
        case DeleteTopics(topics):
            return topics
        case CommitStage():
            return [place.topic for place in command.places]
        case Move():
            return command.source, command.target
        case Appends():
            return {row[0] for row in command.rows}
        case GroupChanges(changes):
            return {change.topic for change in changes}
        case Stage() | AbortStages() | BeginEpoch() | LimitProducers():
            return ()
        case Define() | SetNodes() | CheckState() | PlanObject() | ForgetObjects():
            return ()
        case _:
            return (command.topic,)


_LEVELS: dict[type, int] = {GroupChanges: 1, Define: 1, Compact: 2, SetNodes: 2, CheckState: 3}
_LEVELS |= dict.fromkeys((PlanObject, TierSection, DropObjects, ForgetObjects), 4)


def encode_command(command: Command) -> Sequence[Buffer]:
    """The buffers of a command, payload bytes uncopied."""
    if isinstance(command, Append):
        batch = command.batch
        return (_APPEND.pack(_BATCH, command.topic), batch.header(), batch.body)
    if isinstance(command, Appends):
        return _encode(_ROWS, 1, command[:3], command.batches)
    if isinstance(command, Stage):
        topics = [(staged.topic, staged.name) for staged in command.batches]
        batches = [one.batch for one in command.batches if isinstance(one.batch, RecordBatch)]
        assert len(batches) == len(topics), "what is staged is in memory"
        return _encode(_STAGE, 0, (*command[:4], topics), batches)
    if isinstance(command, Move):
        assert isinstance(command.batch, RecordBatch), "the journal has batches only"
        return _encode(_MOVE, 0, command[:5], (command.batch,))
    level = _LEVELS.get(type(command), 0)
    if isinstance(command, CommitStage) and command.evenly:
        level = 3
    return (_KIND.pack(_STRUCT, level), msgspec.msgpack.encode(command))


def decode_command(payload: Buffer) -> Command:
    """The command. The journal has checked the bytes: damage here is a bug, or a newer version."""
    if len(payload) < _KIND.size:
        raise Corrupt("a journal record is too short for a command")
    kind, level = payload[0], payload[1]
    if level > LEVEL:
        raise UnsupportedFormat(
            f"a journal record needs a newer FlintMQ (level {level}; this one knows {LEVEL})"
        )
    if kind == _ROWS:
        return _decode_appends(payload)
    if kind == _BATCH:
        if len(payload) < _APPEND.size:
            raise Corrupt("a journal record is too short for an append")
        (_, topic) = _APPEND.unpack_from(payload)
        return Append(topic, RecordBatch.decode(payload[_APPEND.size :], verify=False))
    if kind == _STAGE:
        return _decode_stage(payload)
    if kind == _MOVE:
        return _decode_move(payload)
    if kind != _STRUCT:
        raise Corrupt(f"a journal record holds the unknown command kind {kind}")
    try:
        return _DECODER.decode(payload[_KIND.size :])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"a journal record holds no command we know: {error}") from error


_DECODER: msgspec.msgpack.Decoder[Change] = msgspec.msgpack.Decoder(Change)

# What stands before the batches.
_AppendsHead = tuple[int, list[str], list[AppendedRows]]
_StageHead = tuple[str, int, str, int, list[tuple[int, str]]]
_MoveHead = tuple[int, str, Ranges, int, str | None]
_APPENDS: msgspec.msgpack.Decoder[_AppendsHead] = msgspec.msgpack.Decoder(_AppendsHead)
_STAGES: msgspec.msgpack.Decoder[_StageHead] = msgspec.msgpack.Decoder(_StageHead)
_MOVES: msgspec.msgpack.Decoder[_MoveHead] = msgspec.msgpack.Decoder(_MoveHead)

T = TypeVar("T")


def _encode(kind: int, level: int, head: object, batches: Sequence[RecordBatch]) -> list[Buffer]:
    """What begins with fields, and goes on with batches at a multiple of 8."""
    packed = msgspec.msgpack.encode(head)
    buffers: list[Buffer] = [_HEAD.pack(kind, level, len(packed)), packed]
    if batches:
        buffers.append(bytes(-len(packed) & 7))
        for batch in batches:
            buffers += (batch.header(), batch.body)
    return buffers


def _decode_head(payload: Buffer, decoder: msgspec.msgpack.Decoder[T], what: str) -> tuple[T, int]:
    """What stands before the batches, and where they begin."""
    if len(payload) < _APPEND.size:
        raise Corrupt(f"a journal record is too short for a {what}")
    _, length = _APPEND.unpack_from(payload)
    end = _APPEND.size + length
    try:
        head = decoder.decode(payload[_APPEND.size : end])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"a journal record holds no {what} we know: {error}") from error
    return head, end + (-length & 7)


def _decode_appends(payload: Buffer) -> Appends:
    head, position = _decode_head(payload, _APPENDS, "appends")
    batches = []
    for row in head[2]:
        if not row[2]:
            batch, position = RecordBatch.decode_from(payload, position, verify=False)
            batches.append(batch)
    return Appends(*head, batches)


def _decode_stage(payload: Buffer) -> Stage:
    head, position = _decode_head(payload, _STAGES, "stage")
    batches = []
    for topic, name in head[4]:
        batch, position = RecordBatch.decode_from(payload, position, verify=False)
        batches.append(StagedBatch(topic, name, batch))
    return Stage(*head[:4], batches)


def _decode_move(payload: Buffer) -> Move:
    head, position = _decode_head(payload, _MOVES, "move")
    batch, _ = RecordBatch.decode_from(payload, position, verify=False)
    return Move(*head, batch)
