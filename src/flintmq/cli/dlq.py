"""`flintmq dlq`: messages a group gave up on: why, and what to do with them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import click

from ..client.client import Client
from ..client.dead_letters import DeadLetter
from .connecting import Target, run_async, server_options
from .envelope import envelope
from .shared import output_option, print_json, print_table
from .showing import confirm, yes_option
from .sub import shown

LOOK = 1000


@click.group("dlq")
def command() -> None:
    """Dead letters: messages a group gave up on, and why. Put them back, or let them go.

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
@click.argument("topic", default=">")
@output_option
@server_options
def ls(target: Target, topic: str, output: str) -> int:
    """Which groups have dead letters, and how many.

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
    if output == "json":
        print_json([{"topic": t, "group": g, "dead_letters": count} for t, g, count in found])
    else:
        print_table(["TOPIC", "GROUP", "DEAD LETTERS"], found)
    return 0


@command.command("show")
@click.argument("topic")
@click.argument("group")
@click.option("--count", type=click.IntRange(1, LOOK), default=20, show_default=True)
@click.option("--first", type=click.IntRange(min=0), default=0, help="From that id on.")
@output_option
@server_options
def show(target: Target, topic: str, group: str, count: int, first: int, output: str) -> int:
    """What died, why, and after how many deliveries; oldest first.

    \b
    Examples:
      flintmq dlq show orders billing
      flintmq dlq show orders billing --count 100 --output json
    """

    async def work() -> list[DeadLetter]:
        async with target.connect() as mq:
            return await mq.dead_letters(topic, group, count, first=first)

    found = run_async(work())
    if output == "json":
        print_json([_as_json(letter) for letter in found])
    else:
        print_table(
            ["ID", "DIED", "OFFSET", "DELIVERIES", "REASON", "VALUE"],
            [
                (
                    letter.id,
                    _when(letter.time),
                    f"{letter.partition}/{letter.offset}" if letter.partition else letter.offset,
                    letter.delivery_count,
                    shown(letter.reason)[:60],
                    shown(letter.message.value)[:60],
                )
                for letter in found
            ],
        )
    return 0


@command.command("redrive")
@click.argument("topic")
@click.argument("group")
@click.option("--id", "ids", type=click.IntRange(min=0), multiple=True, help="Only that one.")
@click.option("--filter", "filter", help="Only those an expression picks.")
@yes_option
@output_option
@server_options
def redrive(
    target: Target,
    topic: str,
    group: str,
    ids: tuple[int, ...],
    filter: str | None,
    yes: bool,
    output: str,
) -> int:
    """Put dead letters back for their group: all, some by id, or those a filter picks.

    \b
    Examples:
      flintmq dlq redrive orders billing --yes
      flintmq dlq redrive orders billing --id 0 --id 3 --yes
      flintmq dlq redrive orders billing --filter 'headers.region == "eu"' --yes
    """
    return _settle(target, topic, group, ids, filter, yes, output, "redrive", "put back")


@command.command("discard")
@click.argument("topic")
@click.argument("group")
@click.option("--id", "ids", type=click.IntRange(min=0), multiple=True, help="Only that one.")
@click.option("--filter", "filter", help="Only those an expression picks.")
@yes_option
@output_option
@server_options
def discard(
    target: Target,
    topic: str,
    group: str,
    ids: tuple[int, ...],
    filter: str | None,
    yes: bool,
    output: str,
) -> int:
    """Let dead letters go for good. There is no way back.

    \b
    Examples:
      flintmq dlq discard orders billing --id 7 --yes
    """
    return _settle(target, topic, group, ids, filter, yes, output, "discard", "let go")


def _settle(
    target: Target,
    topic: str,
    group: str,
    ids: Iterable[int],
    filter: str | None,
    yes: bool,
    output: str,
    verb: str,
    done: str,
) -> int:
    chosen = list(ids) or None
    which = f"{len(chosen)} of the" if chosen else "the filtered" if filter else "all"
    confirm(f"{verb.capitalize()} {which} dead letters of {group} on {topic}?", yes)

    async def work() -> int:
        async with target.connect() as mq:
            act = Client.redrive if verb == "redrive" else Client.discard
            return await act(mq, topic, group, chosen, filter)

    count = run_async(work())
    if output == "json":
        print_json({"topic": topic, "group": group, "count": count})
    else:
        click.echo(f"{count:,} dead letters of {group} on {topic} are {done}")
    return 0
