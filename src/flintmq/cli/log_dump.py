"""What `flintmq log dump` prints: messages of topics, or records of the journal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from ..batch import RecordBatch
from ..engine.commands import Append, Appends, Move, Stage, decode_command
from ..errors import FlintError
from ..raft.membership import decode_change
from ..storage.backup import JOURNAL
from ..storage.filesystem import FileSystem
from ..storage.frames import MEMBERSHIP, STATE, Record, State
from ..storage.inspect import messages
from ..storage.journal_scan import frames_of, scan_journal
from .envelope import readable


def messages_of(filesystem: FileSystem, topic: str, start: int) -> Iterator[dict[str, Any]]:
    for batch, first, end in messages(filesystem, topic, start):
        for row in range(first, end):
            yield _message(topic, batch, row)


def _message(topic: str, batch: RecordBatch, row: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topic": topic,
        "offset": str(batch.base_offset + row),
        "time_ms": str(batch.time(row)),
    }
    for name, data in (("key", batch.key(row)), ("value", batch.value(row))):
        if data is not None:
            found |= readable(name, data)
    if headers := batch.headers(row):
        found["headers"] = {name: str(value) for name, value in headers.items()}
    return found


def records_of(
    filesystem: FileSystem, names: dict[tuple[int, int], str], topic: str | None, start: int
) -> Iterator[dict[str, Any]]:
    scan = scan_journal(filesystem, JOURNAL)
    for file, frame in frames_of(filesystem, scan):
        for record in frame.records():
            if record.index < start:
                continue
            place = {
                "index": str(record.index),
                "term": str(record.term),
                **({"raft_group": record.group} if record.group else {}),
                "file": file,
                "byte": str(frame.offset),
            }
            for described in _described(record, _Names(names, record.group)):
                if topic is None or topic == described.get("topic"):
                    yield {**place, **described}
    for problem in scan.problems:
        click.echo(f"! {problem}", err=True)


class _Names(NamedTuple):
    """What the topics of one group are called."""

    known: dict[tuple[int, int], str]
    group: int

    def of(self, id: int) -> str:
        return self.known.get((self.group, id), f"({id})")


def _described(record: Record, names: _Names) -> Iterator[dict[str, Any]]:
    """What it says; a line for each topic that a turn of the event loop has appended to."""
    if record.kind == STATE:
        state = State.of(record.term, record.payload)
        yield {"command": "State", "group": record.group, "what": str(state)}
        return
    if record.kind & MEMBERSHIP:
        change = decode_change(bytes(record.payload))
        yield {"command": "Membership", "what": str(change)}
        return
    if not record.payload:
        yield {"command": "TermBegins"}
        return
    try:
        command = decode_command(bytes(record.payload))
    except FlintError as error:
        yield {"command": "?", "error": str(error)}
        return
    said = {"command": type(command).__name__}
    if isinstance(command, Append):
        yield {**said, **_appended(command.topic, command.batch, names)}
    elif isinstance(command, Appends):
        batches = iter(command.batches)
        for topic, offset, values, *_ in command.rows:
            if values:
                place = {"offset": str(offset), "count": len(values)}
                yield {**said, "topic": names.of(topic), **place}
            else:
                yield {**said, **_appended(topic, next(batches), names)}
    elif isinstance(command, Stage):
        yield {
            **said,
            "writer": command.writer,
            "number": str(command.number),
            "part": command.part,
        }
    elif isinstance(command, Move):
        moved = {"from": names.of(command.source), "group": command.group}
        count = command.batch.row_count
        yield {**said, "topic": names.of(command.target), **moved, "count": count}
    else:
        yield {**said, "what": str(command)}


def _appended(topic: int, batch: RecordBatch, names: _Names) -> dict[str, Any]:
    place = {"offset": str(batch.base_offset), "count": batch.row_count}
    return {"topic": names.of(topic), **place}
