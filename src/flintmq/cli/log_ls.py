"""`flintmq log ls`: list the contents of a data directory."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from ..storage.inspect import list_directory
from .look import print_table
from .shared import DIRECTORY, output_option, print_json, stopped_directory


@click.command("ls")
@click.argument("directory", type=DIRECTORY)
@output_option
def command(directory: Path, output: str) -> int:
    """List topics with offsets, bytes and segments, and the files of the journal.

    Topics are shown as of the last checkpoint. After a crash the journal contains more.

    \b
    Examples:
      flintmq log ls /var/lib/flint
      flintmq log ls /var/lib/flint --output json
    """
    with stopped_directory(directory) as filesystem:
        listing = list_directory(filesystem)
    if output == "json":
        found = msgspec.to_builtins(listing)
        for topic in found["topics"]:
            for name in ("id", "first_offset", "next_offset"):
                topic[name] = str(topic[name])
        for group in found["groups"]:
            for name in ("term", "checkpoint"):
                group[name] = str(group[name])
        print_json({**found, "checkpoint": str(listing.checkpoint)})
    else:
        print_table(
            ["TOPIC", "ID", "FIRST", "NEXT", "BYTES", "SEGMENTS"],
            [
                (t.name, t.id, t.first_offset, t.next_offset, f"{t.bytes:,}", len(t.segments))
                for t in listing.topics
            ],
        )
        click.echo()
        print_table(
            ["SEGMENT", "BYTES", "BATCHES", "MESSAGES", "TOPICS", ""],
            [
                (s.file, f"{s.bytes:,}", s.batches, s.rows, s.topics, "" if s.is_in_use else "idle")
                for s in listing.segments
            ],
        )
        click.echo()
        print_table(
            ["JOURNAL", "BYTES", "FRAMES", "RECORDS"],
            [(j.file, f"{j.bytes:,}", j.frames, j.records) for j in listing.journal],
        )
        click.echo()
        if listing.groups:
            print_table(
                ["GROUP", "TERM", "TOPICS", "CHECKPOINT", "RECORDS AFTER IT"],
                [
                    (
                        g.group,
                        g.term,
                        sum(topic.group == g.group for topic in listing.topics),
                        g.checkpoint,
                        f"{g.records_behind_checkpoint:,}",
                    )
                    for g in listing.groups
                ],
            )
        else:
            behind = f"{listing.records_behind_checkpoint:,} records after it"
            click.echo(f"checkpoint {listing.checkpoint}, {behind}")
        for problem in listing.problems:
            click.echo(f"! {problem}", err=True)
    return int(any(problem.is_damage for problem in listing.problems))
