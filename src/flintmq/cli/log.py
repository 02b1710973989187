"""`flintmq log`: inspect, verify and repair the data directory of a stopped broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import click
import msgspec

from ..storage.filesystem import FileSystem
from ..storage.inspect import Listing, list_directory, topic_names, verify
from ..storage.journal_scan import JournalProblem
from ..storage.repair import carry_out, plan_repair
from .command_group import CommandGroup
from .log_dump import messages_of, records_of
from .look import print_table, said, say
from .shared import DIRECTORY, output_option, print_json, show, stopped_directory


@click.group("log", cls=CommandGroup)
def command() -> None:
    """Inspect, verify and repair the data directory of a stopped broker.

    \b
    Examples:
      flintmq log ls /var/lib/flint
      flintmq log verify /var/lib/flint
    """


@command.command("ls")
@click.argument("directory", type=DIRECTORY)
@output_option
def ls(directory: Path, output: str) -> int:
    """List topics with offsets, bytes and segments, and the files of the journal.

    Topics are shown as of the last checkpoint. After a crash the journal contains more.

    \b
    Examples:
      flintmq log ls /var/lib/flint
      flintmq log ls /var/lib/flint --output json
    """
    with stopped_directory(directory) as filesystem:
        listing = list_directory(filesystem)
    show(output, _as_json(listing), lambda: _print(listing))
    return int(any(problem.is_damage for problem in listing.problems))


def _as_json(listing: Listing) -> dict[str, object]:
    found = msgspec.to_builtins(listing)
    for topic in found["topics"]:
        topic |= {name: str(topic[name]) for name in ("id", "first_offset", "next_offset")}
    for group in found["groups"]:
        group |= {name: str(group[name]) for name in ("term", "checkpoint")}
    return {**found, "checkpoint": str(listing.checkpoint)}


def _print(listing: Listing) -> None:
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
        topics = Counter(topic.group for topic in listing.topics)
        print_table(
            ["GROUP", "TERM", "TOPICS", "CHECKPOINT", "RECORDS AFTER IT"],
            [
                (g.group, g.term, topics[g.group], g.checkpoint, f"{g.records_behind_checkpoint:,}")
                for g in listing.groups
            ],
        )
    else:
        behind = f"{listing.records_behind_checkpoint:,} records after it"
        click.echo(f"checkpoint {listing.checkpoint}, {behind}")
    for problem in listing.problems:
        click.echo(f"! {problem}", err=True)


@command.command("dump")
@click.argument("directory", type=DIRECTORY)
@click.option("--topic", help="Only this topic (a partition as in orders/0).")
@click.option("--from", "start", type=int, default=0, help="Start at this offset (or index).")
@click.option("--limit", type=click.IntRange(min=0), help="Stop after N records.")
@click.option("--journal", is_flag=True, help="Print journal records instead of messages.")
@output_option
def dump(
    directory: Path, topic: str | None, start: int, limit: int | None, journal: bool, output: str
) -> int:
    """Print the messages stored in segments, or the records of the journal.

    Messages published since the last checkpoint are only in the journal. A binary value is
    printed as `value_base64`.

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
            found = records_of(filesystem, names, topic, start)
        else:
            found = (row for name in wanted for row in messages_of(filesystem, name, start))
        for row in islice(found, limit):
            show(output, row, "  ".join(f"{name}={value}" for name, value in row.items()))
    return 0


@command.command("verify")
@click.argument("directory", type=DIRECTORY)
@output_option
def check(directory: Path, output: str) -> int:
    """Check all checksums of journal, segments and manifest. Changes nothing.

    Exits with 1 if anything is damaged. An incomplete last write of the journal is normal after
    a crash: it is noted, but is not damage.

    \b
    Examples:
      flintmq log verify /var/lib/flint
      flintmq log verify /mnt/backup/flint-monday --output json
    """
    with stopped_directory(directory) as filesystem:
        problems = verified(filesystem)
    return tell_damage(
        output,
        problems,
        sound="No damage found.",
        damaged="Restore a backup, or see what 'flintmq log repair' would do.",
    )


def verified(filesystem: FileSystem) -> list[JournalProblem]:
    problems = verify(filesystem, lambda name: say(f"checking {name}"))
    said()
    return problems


def tell_damage(
    output: str, problems: Sequence[JournalProblem], *, sound: str, damaged: str
) -> int:
    """Print the problems of a data directory, and one of the two texts. Returns 1 for damage."""
    is_damaged = any(problem.is_damage for problem in problems)
    if output == "json":
        print_json({"ok": not is_damaged, "problems": msgspec.to_builtins(problems)})
    else:
        for problem in problems:
            click.echo(f"{'DAMAGED' if problem.is_damage else 'note'}  {problem}")
        click.echo(damaged if is_damaged else sound)
    return int(is_damaged)


@command.command("repair")
@click.argument("directory", type=DIRECTORY)
@click.option("--yes", is_flag=True, help="Do the repair. Without it, the steps are only listed.")
@click.option(
    "--cut-journal",
    is_flag=True,
    help="Cut a damaged journal where the damage starts. Everything after it is lost.",
)
@output_option
def repair(directory: Path, yes: bool, cut_journal: bool, output: str) -> int:
    """Repair a damaged data directory, and keep as much data as possible.

    Files that are taken out of use are first moved to repair-1 (2, 3 ...) inside the directory,
    with a report. Exits with 1 if something remains to be done.

    \b
    Examples:
      flintmq log repair /var/lib/flint
      flintmq log repair /var/lib/flint --yes
      flintmq log repair /var/lib/flint --cut-journal --yes
    """
    with stopped_directory(directory) as filesystem:
        say("looking for damage")
        plan = plan_repair(filesystem, cut_journal=cut_journal)
        said()
        aside, steps = None, plan.steps
        if yes and plan.steps:
            name, steps = carry_out(filesystem, plan, say)
            said()
            aside = filesystem.describe(name)
    if output == "json":
        print_json({"done": yes, "steps": steps, "left": plan.refused, "aside": aside})
    else:
        for step in steps:
            click.echo(f"{'done' if yes else 'would do'}: {step}")
        for left in plan.refused:
            click.echo(f"not repaired: {left}")
        if aside is not None:
            click.echo(f"Removed data was moved to {aside}.")
        elif steps:
            click.echo("Nothing was changed. Run it again with --yes to repair.")
        elif not plan.refused:
            click.echo("Nothing to repair.")
    return int(bool(plan.refused) or (bool(plan.steps) and not yes))
