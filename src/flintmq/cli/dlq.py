"""`flintmq dlq`: list, redrive and discard dead letters."""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from ..amounts import many
from ..client.client import Client
from ..client.dead_letters import DeadLetter
from ..group_model import GroupStats
from .command_group import CommandGroup
from .connecting import Target, server_options, stats_of_groups
from .envelope import envelope
from .exit_codes import FAILED
from .names import GROUP, TOPIC
from .shared import confirm, output_option, show, show_list, yes_option
from .sub import shown
from .values import for_people

LOOK = 1000


@click.group("dlq", cls=CommandGroup)
def command() -> None:
    """List, redrive and discard dead letters: messages that a group failed to process.

    \b
    Examples:
      flintmq dlq ls
      flintmq dlq show orders billing
      flintmq dlq redrive orders billing --yes
    """


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": str(letter.id),
        "topic": letter.topic,
        "partition": str(letter.partition),
        "offset": str(letter.offset),
        "group": letter.group,
        "reason": letter.reason,
        "time": letter.time,
        "delivery_count": letter.delivery_count,
        "message": envelope(letter.message),
    }


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


@command.command("ls")
@click.argument("topic", type=TOPIC, default=">")
@output_option
@server_options
def ls(target: Target, topic: str, output: str) -> int:
    """List groups with dead letters, and how many they have.

    \b
    Examples:
      flintmq dlq ls
      flintmq dlq ls 'orders.>'
    """

    async def work(mq: Client) -> list[GroupStats]:
        return await stats_of_groups(mq, await mq.topics(topic))

    found = [one for one in target.ask(work) if one.dead_letters]
    rows = [(one.topic, one.name, one.dead_letters) for one in found]
    value = [{"topic": t, "group": g, "dead_letters": count} for t, g, count in rows]
    return show_list(output, value, ["TOPIC", "GROUP", "DEAD LETTERS"], rows, "no dead letters")


@command.command("show")
@click.argument("topic", type=TOPIC)
@click.argument("group", type=GROUP)
@click.option("--count", type=click.IntRange(1, LOOK), default=20, show_default=True)
@click.option("--first", type=click.IntRange(min=0), default=0, help="Start at this id.")
@output_option
@server_options
def show_letters(
    target: Target, topic: str, group: str, count: int, first: int, output: str
) -> int:
    """Show dead letters with reason and delivery count.

    \b
    Examples:
      flintmq dlq show orders billing
      flintmq dlq show orders billing --count 100 --output json
    """

    async def work(mq: Client) -> list[DeadLetter]:
        await mq.group_stats(topic, group)  # raises if one of the two names is wrong
        return await mq.dead_letters(topic, group, count, first=first)

    found = target.ask(work)
    # One line each on a terminal; in a pipe nothing is cut off.
    room = max(40, shutil.get_terminal_size().columns - 48) // 2 if sys.stdout.isatty() else None
    rows = [
        (
            letter.id,
            _when(letter.time),
            f"{letter.partition}/{letter.offset}" if letter.partition else letter.offset,
            letter.delivery_count,
            shown(letter.reason)[:room],
            shown(for_people(letter.message))[:room],
        )
        for letter in found
    ]
    headings = ["ID", "DIED", "OFFSET", "DELIVERIES", "REASON", "VALUE"]
    value = [_as_json(letter) for letter in found]
    return show_list(output, value, headings, rows, "no dead letters")


Act = Callable[[Client, str, str, Sequence[int] | None, str | None], Awaitable[int]]


def _settling(name: str, act: Act, done: str) -> Callable[[Callable[[], None]], click.Command]:
    """A command that acts on dead letters: all, some by id, or those that match a filter."""

    def made(told: Callable[[], None]) -> click.Command:
        @command.command(name, help=inspect.cleandoc(told.__doc__ or ""))
        @click.argument("topic", type=TOPIC)
        @click.argument("group", type=GROUP)
        @click.option(
            "--id",
            "ids",
            type=click.IntRange(min=0),
            multiple=True,
            help="Only this dead letter. May be repeated.",
        )
        @click.option("--filter", "filter", help="Only dead letters that match.")
        @yes_option
        @output_option
        @server_options
        def settle(
            target: Target,
            topic: str,
            group: str,
            ids: tuple[int, ...],
            filter: str | None,
            yes: bool,
            output: str,
        ) -> int:
            if ids and filter is not None:
                raise click.UsageError("choose one of --id and --filter")
            chosen = sorted(set(ids)) or None
            which = f"{len(chosen)} of the" if chosen else "the filtered" if filter else "all"
            confirm(
                f"{name.capitalize()} {which} dead letters (topic {topic}, group {group})?", yes
            )
            count = target.ask(lambda mq: act(mq, topic, group, chosen, filter))
            text = f"{done} {many(count, 'dead letter')} (topic {topic}, group {group})."
            show(output, {"topic": topic, "group": group, "count": count}, text)
            if chosen and count < len(chosen):
                missing = f"{len(chosen) - count:,} of these ids do not exist"
                click.echo(f"flintmq: {missing}; {_SHOW} lists the dead letters", err=True)
                return FAILED
            return 0

        return settle

    return made


_SHOW = "`flintmq dlq show TOPIC GROUP`"


@_settling("redrive", Client.redrive, "Redrove")
def redrive() -> None:
    """Return dead letters to their group.

    All of them, some by id, or those that match a filter.

    \b
    Examples:
      flintmq dlq redrive orders billing --yes
      flintmq dlq redrive orders billing --id 0 --id 3 --yes
      flintmq dlq redrive orders billing --filter 'headers.region == "eu"' --yes
    """


@_settling("discard", Client.discard, "Discarded")
def discard() -> None:
    """Delete dead letters. This cannot be undone.

    \b
    Examples:
      flintmq dlq discard orders billing --id 7 --yes
    """
