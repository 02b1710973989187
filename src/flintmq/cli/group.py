"""`flintmq group`: list, inspect, pause, reset and delete the groups of a topic."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import click

from ..amounts import age
from ..client.client import Client
from ..errors import TopicNotFound
from ..group_model import GroupStats
from ..patterns import is_literal
from .command_group import CommandGroup
from .connecting import Target, server_options, stats_of_groups
from .durations import Position, position_text
from .look import print_facts, print_table
from .named import of_a_group
from .names import TOPIC
from .shared import confirm, output_option, plain, show, show_list, yes_option

COUNTS = {
    "LAG": "lag",
    "READY": "ready",
    "IN FLIGHT": "in_flight",
    "DELAYED": "delayed",
    "DEAD": "dead_letters",
}


@click.group("group", cls=CommandGroup)
def command() -> None:
    """List, inspect, pause, reset and delete the groups of a topic.

    \b
    Examples:
      flintmq group ls orders
      flintmq group in-flight orders billing
      flintmq group reset orders billing --to -1h
    """


@command.command("ls")
@click.argument("topic", type=TOPIC, default=">")
@output_option
@server_options
def ls(target: Target, topic: str, output: str) -> int:
    """List groups.

    Of one topic, or of all topics that match a pattern.

    \b
    Examples:
      flintmq group ls
      flintmq group ls orders --output json
    """

    async def work(mq: Client) -> list[GroupStats]:
        names = await mq.topics(topic)
        if not names and is_literal(topic):
            raise TopicNotFound(topic)
        return await stats_of_groups(mq, names)

    found = target.ask(work)
    rows = [
        (
            *(one.topic, one.name, one.kind),
            *(f"{getattr(one, count):,}" for count in COUNTS.values()),
            age(one.oldest_age),
            "paused" if one.paused else "",
        )
        for one in found
    ]
    headings = ["TOPIC", "GROUP", "KIND", *COUNTS, "OLDEST", ""]
    none = "no groups; `flintmq sub TOPIC --group NAME` creates one"
    return show_list(output, [plain(one) for one in found], headings, rows, none)


@command.command("info")
@of_a_group
def info(target: Target, topic: str, group: str, output: str) -> int:
    """Show the statistics of one group.

    \b
    Examples:
      flintmq group info orders billing
    """
    found = target.ask(lambda mq: mq.group_stats(topic, group))
    return show(output, plain(found), lambda: _print(found))


def _print(found: GroupStats) -> None:
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


def _done(
    target: Target,
    output: str,
    act: Callable[[Client, str, str], Awaitable[Any]],
    topic: str,
    group: str,
    text: str,
    **facts: str,
) -> int:
    target.ask(lambda mq: act(mq, topic, group))
    value = {"topic": topic, "group": group, **facts}
    return show(output, value, f"Group {group} of {topic} {text}.")


@command.command("pause")
@of_a_group
def pause(topic: str, group: str, target: Target, output: str) -> int:
    """Pause a group. It gets no messages until resumed; messages in flight can still be
    acknowledged.

    \b
    Examples:
      flintmq group pause orders billing
    """
    return _done(target, output, Client.pause_group, topic, group, "is paused", state="paused")


@command.command("resume")
@of_a_group
def resume(topic: str, group: str, target: Target, output: str) -> int:
    """Resume a paused group.

    \b
    Examples:
      flintmq group resume orders billing
    """
    return _done(target, output, Client.resume_group, topic, group, "is resumed", state="running")


@command.command("reset")
@click.option(
    "--to",
    type=Position(),
    required=True,
    help="New position: earliest, latest, an offset, a time, -1h.",
)
@yes_option
@of_a_group
def reset(topic: str, group: str, to: Any, yes: bool, target: Target, output: str) -> int:
    """Move a group to another position. Messages after it are delivered again.

    \b
    Examples:
      flintmq group reset orders billing --to earliest --yes
      flintmq group reset orders billing --to -1h --yes
    """
    place = position_text(to)
    confirm(f"Reset {group} of {topic} to {place}?", yes)
    act = functools.partial(Client.reset_group, to=to)
    said = to.isoformat(timespec="milliseconds") if isinstance(to, datetime) else str(to)
    return _done(target, output, act, topic, group, f"was reset to {place}", to=said)


@command.command("rm")
@yes_option
@of_a_group
def rm(topic: str, group: str, yes: bool, target: Target, output: str) -> int:
    """Delete a group and its progress. The messages of the topic stay.

    \b
    Examples:
      flintmq group rm orders billing --yes
    """
    confirm(f"Delete group {group} of {topic} and its progress?", yes)
    return _done(target, output, Client.delete_group, topic, group, "is deleted", state="deleted")


@command.command("in-flight")
@click.option("--count", type=click.IntRange(min=1), default=100, show_default=True)
@of_a_group
def in_flight(target: Target, topic: str, group: str, count: int, output: str) -> int:
    """List messages that are leased: consumer, age, delivery count.

    \b
    Examples:
      flintmq group in-flight orders billing
    """
    found = target.ask(lambda mq: mq.in_flight(topic, group, count))
    rows = [
        (
            *(one.partition, one.offset, one.holder, one.delivery_count),
            age(one.age),
            f"{one.expires_in:.1f} s",
        )
        for one in found
    ]
    headings = ["PARTITION", "OFFSET", "HOLDER", "DELIVERY", "SINCE", "LEASE ENDS IN"]
    return show(output, [plain(one) for one in found], lambda: print_table(headings, rows))
