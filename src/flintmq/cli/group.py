"""`flintmq group`: list, look at, pause, reset and delete the groups of a topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from ..client.client import Client
from ..group_model import GroupStats
from .connecting import Target, run_async, server_options
from .durations import Position
from .shared import output_option, print_json, print_table
from .showing import age, confirm, plain, print_facts, yes_option


@click.group("group")
def command() -> None:
    """List, look at, pause, reset and delete the groups of a topic.

    \b
    Examples:
      flintmq group ls orders
      flintmq group in-flight orders billing
      flintmq group reset orders billing --to -1h
    """


@command.command("ls")
@click.argument("topic", default=">")
@output_option
@server_options
def ls(target: Target, topic: str, output: str) -> int:
    """Groups of a topic, or of all topics that a pattern matches.

    \b
    Examples:
      flintmq group ls
      flintmq group ls orders --output json
    """

    async def work() -> list[GroupStats]:
        async with target.connect() as mq:
            return [
                await mq.group_stats(name, group.name)
                for name in await mq.topics(topic)
                for group in await mq.groups(name)
            ]

    found = run_async(work())
    if output == "json":
        print_json([plain(one) for one in found])
    else:
        print_table(
            [
                "TOPIC",
                "GROUP",
                "KIND",
                "LAG",
                "READY",
                "IN FLIGHT",
                "DELAYED",
                "DEAD",
                "OLDEST",
                "",
            ],
            [
                (
                    one.topic,
                    one.name,
                    one.kind,
                    f"{one.lag:,}",
                    f"{one.ready:,}",
                    f"{one.in_flight:,}",
                    f"{one.delayed:,}",
                    f"{one.dead_letters:,}",
                    age(one.oldest_age),
                    "paused" if one.paused else "",
                )
                for one in found
            ],
        )
    return 0


@command.command("info")
@click.argument("topic")
@click.argument("group")
@output_option
@server_options
def info(target: Target, topic: str, group: str, output: str) -> int:
    """The figures of one group.

    \b
    Examples:
      flintmq group info orders billing
    """

    async def work() -> GroupStats:
        async with target.connect() as mq:
            return await mq.group_stats(topic, group)

    found = run_async(work())
    if output == "json":
        print_json(plain(found))
    else:
        facts = plain(found)
        partitions = facts.pop("partitions")
        facts["oldest_age"] = age(found.oldest_age)
        facts["drops"] = ", ".join(f"{n} {c:,}" for n, c in found.drops.items() if c) or "none"
        print_facts(facts)
        if partitions:
            click.echo()
            print_table(
                ["PARTITION", "POSITION", "LAG", "IN FLIGHT"],
                [(n, p["position"], p["lag"], p["in_flight"]) for n, p in enumerate(partitions)],
            )
    return 0


def _done(
    target: Target, output: str, text: str, act: Callable[[Client], Awaitable[Any]], **facts: str
) -> int:
    async def work() -> None:
        async with target.connect() as mq:
            await act(mq)

    run_async(work())
    if output == "json":
        print_json(facts)
    else:
        click.echo(text)
    return 0


@command.command("pause")
@click.argument("topic")
@click.argument("group")
@output_option
@server_options
def pause(target: Target, topic: str, group: str, output: str) -> int:
    """Hand out nothing until it is resumed; what is in flight can be settled.

    \b
    Examples:
      flintmq group pause orders billing
    """
    return _done(
        target,
        output,
        f"{group} of {topic} is paused",
        lambda mq: mq.pause_group(topic, group),
        topic=topic,
        group=group,
        state="paused",
    )


@command.command("resume")
@click.argument("topic")
@click.argument("group")
@output_option
@server_options
def resume(target: Target, topic: str, group: str, output: str) -> int:
    """Have a paused group go on.

    \b
    Examples:
      flintmq group resume orders billing
    """
    return _done(
        target,
        output,
        f"{group} of {topic} goes on",
        lambda mq: mq.resume_group(topic, group),
        topic=topic,
        group=group,
        state="running",
    )


@command.command("reset")
@click.argument("topic")
@click.argument("group")
@click.option(
    "--to", type=Position(), required=True, help="earliest, latest, an offset, a time, -1h."
)
@yes_option
@output_option
@server_options
def reset(target: Target, topic: str, group: str, to: Any, yes: bool, output: str) -> int:
    """Have a group go on from elsewhere. What lies behind that is delivered again.

    \b
    Examples:
      flintmq group reset orders billing --to earliest --yes
      flintmq group reset orders billing --to -1h --yes
    """
    confirm(f"Reset {group} of {topic} to {to}?", yes)
    return _done(
        target,
        output,
        f"{group} of {topic} goes on from {to}",
        lambda mq: mq.reset_group(topic, group, to),
        topic=topic,
        group=group,
        to=str(to),
    )


@command.command("rm")
@click.argument("topic")
@click.argument("group")
@yes_option
@output_option
@server_options
def rm(target: Target, topic: str, group: str, yes: bool, output: str) -> int:
    """Forget a group and all it has settled; the messages stay.

    \b
    Examples:
      flintmq group rm orders billing --yes
    """
    confirm(f"Forget {group} of {topic}, and all it has settled?", yes)
    return _done(
        target,
        output,
        f"{group} of {topic} is forgotten",
        lambda mq: mq.delete_group(topic, group),
        topic=topic,
        group=group,
        state="deleted",
    )


@command.command("in-flight")
@click.argument("topic")
@click.argument("group")
@click.option("--count", type=click.IntRange(min=1), default=100, show_default=True)
@output_option
@server_options
def in_flight(target: Target, topic: str, group: str, count: int, output: str) -> int:
    """What is out under leases: who has it, since when, for the how many-th time.

    \b
    Examples:
      flintmq group in-flight orders billing
    """

    async def work() -> list[Any]:
        async with target.connect() as mq:
            return await mq.in_flight(topic, group, count)

    found = run_async(work())
    if output == "json":
        print_json([plain(one) for one in found])
    else:
        print_table(
            ["PARTITION", "OFFSET", "HOLDER", "DELIVERY", "SINCE", "LEASE ENDS IN"],
            [
                (
                    one.partition,
                    one.offset,
                    one.holder,
                    one.delivery_count,
                    age(one.age),
                    f"{one.expires_in:.1f} s",
                )
                for one in found
            ],
        )
    return 0
