"""`flintmq log dump`: print messages of topics, or records of the journal."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click

from ..batch import RecordBatch
from ..engine.commands import Append, Move, Stage, decode_command
from ..errors import FlintError
from ..storage.backup import JOURNAL
from ..storage.filesystem import FileSystem
from ..storage.frames import STATE, Record, State
from ..storage.inspect import messages, topic_names
from ..storage.journal_scan import frames_of, scan_journal
from .shared import DIRECTORY, output_option, print_json, stopped_directory


@click.command("dump")
@click.argument("directory", type=DIRECTORY)
@click.option("--topic", help="Only this topic (a partition as in orders/0).")
@click.option("--from", "start", type=int, default=0, help="Start at this offset (or index).")
@click.option("--limit", type=click.IntRange(min=0), help="Stop after N records.")
@click.option("--journal", is_flag=True, help="Print journal records instead of messages.")
@output_option
def command(
    directory: Path, topic: str | None, start: int, limit: int | None, journal: bool, output: str
) -> int:
    """Print the messages stored in segments, or the records of the journal.

    Messages published since the last checkpoint are only in the journal. A binary value is
    printed as a Python bytes literal; in JSON it is `value_base64`.

    \b
    Examples:
      flintmq log dump /var/lib/flint --topic orders --from 1000 --limit 10
      flintmq log dump /var/lib/flint --journal --output json
    """
    with stopped_directory(directory) as filesystem:
        names = topic_names(filesystem)
        if topic is not None and topic not in names.values():
            raise click.UsageError(f"topic {topic!r} does not exist; 'flintmq log ls' lists topics")
        every = dict.fromkeys(name for (_, id), name in names.items() if id)
        wanted = [topic] if topic is not None else list(every)
        if journal:
            found = _records(filesystem, names, topic, start)
        else:
            found = (row for name in wanted for row in _messages(filesystem, name, start))
        for row in islice(found, limit):
            if output == "json":
                print_json(row)
            else:
                click.echo("  ".join(f"{name}={value}" for name, value in row.items()))
    return 0


def _messages(filesystem: FileSystem, topic: str, start: int) -> Iterator[dict[str, Any]]:
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
        if data is None:
            continue
        if isinstance(data, str):
            found[name] = data
            continue
        try:
            found[name] = data.decode()
        except UnicodeDecodeError:
            found[f"{name}_base64"] = base64.b64encode(data).decode()
    if headers := batch.headers(row):
        found["headers"] = {name: str(value) for name, value in headers.items()}
    return found


def _records(
    filesystem: FileSystem, names: dict[tuple[int, int], str], topic: str | None, start: int
) -> Iterator[dict[str, Any]]:
    scan = scan_journal(filesystem, JOURNAL)
    for file, frame in frames_of(filesystem, scan):
        for record in frame.records():
            if record.index < start:
                continue
            described, concerns = _described(record, _Names(names, record.group))
            if topic is not None and concerns != topic:
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


def _described(record: Record, names: _Names) -> tuple[dict[str, Any], str | None]:
    if record.kind == STATE:
        state = State.of(record.term, record.payload)
        return {"command": "State", "group": record.group, "what": str(state)}, None
    try:
        command = decode_command(bytes(record.payload))
    except FlintError as error:
        return {"command": "?", "error": str(error)}, None
    kind = type(command).__name__
    if isinstance(command, Append):
        batch = command.batch
        name = names.of(command.topic)
        place = {"offset": str(batch.base_offset), "count": batch.row_count}
        return {"command": kind, "topic": name, **place}, name
    if isinstance(command, Stage):
        facts = {"writer": command.writer, "number": str(command.number), "part": command.part}
        return {"command": kind, **facts}, None
    if isinstance(command, Move):
        name, source = names.of(command.target), names.of(command.source)
        moved = {"from": source, "group": command.group, "count": command.batch.row_count}
        return {"command": kind, "topic": name, **moved}, name
    return {"command": kind, "what": str(command)}, None
