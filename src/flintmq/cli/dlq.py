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
from .command_group import CommandGroup
from .connecting import Target, run_async, server_options
from .envelope import envelope
from .exit_codes import FAILED
from .look import print_table
from .names import GROUP, TOPIC
from .shared import hint, output_option, print_json
from .showing import confirm, yes_option
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

    async def work() -> list[tuple[str, str, int]]:
        async with target.connect() as mq:
            return [
                (name, group.name, count)
                for name in await mq.topics(topic)
                for group in await mq.groups(name)
                if (count := (await mq.group_stats(name, group.name)).dead_letters)
            ]

    found = run_async(work())
    if not found and output != "json":
        hint("no dead letters")
    if output == "json":
        print_json([{"topic": t, "group": g, "dead_letters": count} for t, g, count in found])
    else:
        print_table(["TOPIC", "GROUP", "DEAD LETTERS"], found)
    return 0


@command.command("show")
@click.argument("topic", type=TOPIC)
@click.argument("group", type=GROUP)
@click.option("--count", type=click.IntRange(1, LOOK), default=20, show_default=True)
@click.option("--first", type=click.IntRange(min=0), default=0, help="Start at this id.")
@output_option
@server_options
def show(target: Target, topic: str, group: str, count: int, first: int, output: str) -> int:
    """Show dead letters with reason and delivery count.

    \b
    Examples:
      flintmq dlq show orders billing
      flintmq dlq show orders billing --count 100 --output json
    """

    async def work() -> list[DeadLetter]:
        async with target.connect() as mq:
            await mq.group_stats(topic, group)  # so that a name that is wrong is told
            return await mq.dead_letters(topic, group, count, first=first)

    found = run_async(work())
    if output == "json":
        print_json([_as_json(letter) for letter in found])
    else:
        if not found:
            hint("no dead letters")
        # On a terminal a line each; the reason tells more than the value.
        room = shutil.get_terminal_size().columns - 48 if sys.stdout.isatty() else 120
        print_table(
            ["ID", "DIED", "OFFSET", "DELIVERIES", "REASON", "VALUE"],
            [
                (
                    letter.id,
                    _when(letter.time),
                    f"{letter.partition}/{letter.offset}" if letter.partition else letter.offset,
                    letter.delivery_count,
                    shown(letter.reason)[: max(20, room // 2)],
                    shown(for_people(letter.message))[: max(12, room // 2)],
                )
                for letter in found
            ],
        )
    return 0


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

            async def work() -> int:
                async with target.connect() as mq:
                    return await act(mq, topic, group, chosen, filter)

            count = run_async(work())
            if output == "json":
                print_json({"topic": topic, "group": group, "count": count})
            else:
                click.echo(f"{done} {many(count, 'dead letter')} (topic {topic}, group {group}).")
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
