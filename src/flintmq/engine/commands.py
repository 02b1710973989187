"""Commands: every durable change as bytes. The journal stores them, apply carries them out.

    kind u8   7 zeros            0: a command below, as MessagePack behind these eight bytes
    kind u8   7 zeros   topic u64   record batch          1: an append

What a command says was decided before it was written; apply refuses nothing. Times are in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Layout
from typing import NamedTuple

import msgspec

from ..batch import RecordBatch
from ..errors import Corrupt
from ..model import TopicOptions

_KIND = Layout("<B7x")
_APPEND = Layout("<B7xQ")
_STRUCT, _BATCH = 0, 1

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


Change = CreateTopics | ConfigureTopics | DeleteTopics | AdvanceFirstOffset | SetCursor


class Append(NamedTuple):
    """A stamped batch for a topic."""

    topic: int
    batch: RecordBatch


Command = Change | Append


def encode_command(command: Command) -> Sequence[Buffer]:
    """The buffers of a command, payload bytes uncopied."""
    if isinstance(command, Append):
        batch = command.batch
        return (_APPEND.pack(_BATCH, command.topic), batch.header(), batch.body)
    return (_KIND.pack(_STRUCT), msgspec.msgpack.encode(command))


def decode_command(payload: Buffer) -> Command:
    """The command. The journal has checked the bytes: damage here is a bug, or a newer version."""
    if len(payload) < _KIND.size:
        raise Corrupt("a journal record is too short for a command")
    kind = payload[0]
    if kind == _BATCH:
        (_, topic) = _APPEND.unpack_from(payload)
        return Append(topic, RecordBatch.decode(payload[_APPEND.size :], verify=False))
    if kind != _STRUCT:
        raise Corrupt(f"a journal record holds the unknown command kind {kind}")
    try:
        return _DECODER.decode(payload[_KIND.size :])
    except msgspec.DecodeError as error:
        raise Corrupt(f"a journal record holds no command we know: {error}") from error


_DECODER: msgspec.msgpack.Decoder[Change] = msgspec.msgpack.Decoder(Change)
