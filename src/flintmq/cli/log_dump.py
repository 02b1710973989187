"""What `flintmq log dump` prints: messages of topics, or records of the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from ..batch import RecordBatch
from ..engine.commands import Append, Appends, Move, Stage, decode_command, topics_of
from ..errors import FlintError
from ..storage.backup import JOURNAL
from ..storage.filesystem import FileSystem
from ..storage.frames import STATE, Record, State
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
            described, concerns = _described(record, _Names(names, record.group))
            if topic is not None and topic not in concerns:
                continue
            yield {
                "index": str(record.index),
                "term": str(record.term),
                **({"raft_group": record.group} if record.group else {}),
                "file": file,
                "byte": str(frame.offset),
                **described,
            }
    for problem in scan.problems:
        click.echo(f"! {problem}", err=True)


class _Names(NamedTuple):
    """What the topics of one group are called."""

    known: dict[tuple[int, int], str]
    group: int

    def of(self, id: int) -> str:
        return self.known.get((self.group, id), f"({id})")


def _described(record: Record, names: _Names) -> tuple[dict[str, Any], Sequence[str]]:
    """What it says, and the topics it concerns."""
    if record.kind == STATE:
        state = State.of(record.term, record.payload)
        return {"command": "State", "group": record.group, "what": str(state)}, ()
    try:
        command = decode_command(bytes(record.payload))
    except FlintError as error:
        return {"command": "?", "error": str(error)}, ()
    kind = type(command).__name__
    if isinstance(command, Append):
        batch = command.batch
        name = names.of(command.topic)
        place = {"offset": str(batch.base_offset), "count": batch.row_count}
        return {"command": kind, "topic": name, **place}, (name,)
    if isinstance(command, Appends):
        topics = [names.of(id) for id in sorted(topics_of(command))]
        count = sum(len(rows[2]) for rows in command.rows)
        count += sum(batch.row_count for batch in command.batches)
        return {"command": kind, "topics": topics, "count": count}, topics
    if isinstance(command, Stage):
        facts = {"writer": command.writer, "number": str(command.number), "part": command.part}
        return {"command": kind, **facts}, ()
    if isinstance(command, Move):
        name, source = names.of(command.target), names.of(command.source)
        moved = {"from": source, "group": command.group, "count": command.batch.row_count}
        return {"command": kind, "topic": name, **moved}, (name,)
    return {"command": kind, "what": str(command)}, ()
