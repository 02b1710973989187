"""`flintmq topic`: list, inspect, create, change, purge and delete topics."""

from __future__ import annotations

from typing import Any

import click

from ..amounts import many, size
from ..client.client import Client
from ..config.topic_options import TOPIC_OPTIONS, TopicOptionRow
from ..model import TopicInfo, TopicOptions, TopicStats
from ..rows import Message
from .command_group import CommandGroup
from .connecting import Target, server_options
from .durations import Duration, Position, Size, duration_text
from .envelope import envelope
from .look import print_facts, print_table
from .names import GROUP, TOPIC
from .shared import (
    ParamType,
    confirm,
    has_colour,
    output_option,
    plain,
    print_json,
    show,
    show_list,
    yes_option,
)
from .sub import pretty

NONE = "none"
"""The word for "no limit" on the command line."""


@click.group("topic", cls=CommandGroup)
def command() -> None:
    """List, inspect, create, change, purge and delete topics.

    \b
    Examples:
      flintmq topic ls 'orders.>'
      flintmq topic add orders --partitions 4 --retention-age 7d
      flintmq topic info orders
    """


@command.command("ls")
@click.argument("pattern", type=TOPIC, default=">")
@output_option
@server_options
def ls(target: Target, pattern: str, output: str) -> int:
    """List topics with message counts, sizes and rates.

    \b
    Examples:
      flintmq topic ls
      flintmq topic ls 'orders.*' --output json
    """

    async def work(mq: Client) -> list[TopicStats]:
        return await mq.stats_of(await mq.topics(pattern))

    found = target.ask(work)
    rows = [
        (
            one.name,
            f"{one.message_count:,}",
            size(one.byte_count),
            "" if one.partitions else one.first_offset,
            f"{len(one.partitions)} partitions" if one.partitions else one.next_offset,
            f"{one.rates.get('published', 0):,.0f}",
            f"{one.rates.get('delivered', 0):,.0f}",
            one.subscribers,
        )
        for one in found
    ]
    headings = ["TOPIC", "MESSAGES", "SIZE", "FIRST", "NEXT", "IN/S", "OUT/S", "READERS"]
    none = f"no topic matches {pattern}; create one with `flintmq topic add NAME`"
    return show_list(output, [plain(one) for one in found], headings, rows, none)


@command.command("info")
@click.argument("topic", type=TOPIC)
@output_option
@server_options
def info(target: Target, topic: str, output: str) -> int:
    """Show the options, statistics and groups of a topic.

    \b
    Examples:
      flintmq topic info orders
    """

    async def work(mq: Client) -> tuple[TopicInfo, TopicStats, list[Any]]:
        found = await mq.topic_info(topic)
        return found, await mq.topic_stats(topic), await mq.groups(topic)

    found, stats, groups = target.ask(work)
    if output == "json":
        print_json({**plain(found), "stats": plain(stats), "groups": plain(groups)})
        return 0
    click.echo(f"topic {found.name}, id {found.id}\n")
    options = plain(found.options)
    defaults = plain(TopicOptions())
    del options["schema"], defaults["schema"]
    # Where topics are kept unless one says so is the broker's business, not the topic's.
    defaults["storage"] = options["storage"]
    facts = {
        name: f"{_shown(name, value)}{'' if value == defaults[name] else '  (set)'}"
        for name, value in options.items()
        if value is not None
    }
    print_facts(facts, "  ")
    if found.options.schema is not None:
        click.echo(f"  schema: {found.options.schema}")
    click.echo()
    print_facts(
        {
            "messages": f"{stats.message_count:,} ({size(stats.byte_count)})",
            "offsets": f"{stats.first_offset} to {stats.next_offset}",
            "published": f"{stats.published:,}",
            "delivered": f"{stats.delivered:,}",
            "dropped": ", ".join(f"{n} {c:,}" for n, c in stats.drops.items() if c) or "none",
            **_damaged(stats),
        },
        "  ",
    )
    if groups:
        click.echo()
        print_table(
            ["GROUP", "KIND", "ORDER", "FILTER", ""],
            [
                (g.name, g.kind, g.order or "", g.filter or "", "paused" if g.paused else "")
                for g in groups
            ],
        )
    return 0


def _or_none(kind: Any) -> Any:
    class OrNone(ParamType):
        name = kind.name

        def convert(self, value: Any, param: Any, ctx: Any) -> Any:
            return value if value == NONE else kind.convert(value, param, ctx)

    return OrNone()


_TYPES: dict[str, Any] = {
    "count": _or_none(click.IntRange(min=1)),
    "bytes": _or_none(Size()),
    "seconds": _or_none(Duration()),
    "rate": _or_none(click.FloatRange(0.001, 1e9)),
    "text": click.STRING,
    "yes or no": click.BOOL,
}


def _type_of(option: TopicOptionRow) -> Any:
    if option.name == "schema":
        return click.File()
    if option.kind == "choice":
        words = [*option.choices, NONE] if option.name == "compact" else list(option.choices)
        return click.Choice(words)
    return _TYPES[option.kind]


_TEXTS = {
    "retention_bytes": "Keep at most this many bytes: 1000, 64KiB, 10GB.",
    "rate_burst": "Burst size for --rate-limit.",
    "partitions": "Number of partitions.",
    "schema": "File with the Avro schema of the values.",
}
"""Where a command says it otherwise than the table."""


def topic_options(function: Any) -> Any:
    for option in reversed(TOPIC_OPTIONS):
        if option.kind == "words":
            continue  # hooks are functions of a program
        flag, text = f"--{option.name.replace('_', '-')}", _TEXTS.get(option.name, option.meaning)
        function = click.option(flag, type=_type_of(option), help=text)(function)
    return function


def _said(options: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if value == NONE else value.read() if name == "schema" else value
        for name, value in options.items()
        if value is not None
    }


@command.command("add")
@click.argument("topic", type=TOPIC)
@topic_options
@output_option
@server_options
def add(target: Target, topic: str, output: str, **options: Any) -> int:
    """Create a topic. Succeeds if it already exists with the same options.

    \b
    Examples:
      flintmq topic add orders
      flintmq topic add orders.eu --partitions 4 --retention-age 7d --max-deliveries 3
    """
    found = target.ask(lambda mq: mq.create_topic(topic, **_said(options)), makes=True)
    return show(output, plain(found), f"topic {found.name}, id {found.id}")


@command.command("edit")
@click.argument("topic", type=TOPIC)
@topic_options
@output_option
@server_options
def edit(target: Target, topic: str, output: str, **options: Any) -> int:
    """Change options of a topic, and print old and new values. `none` removes a limit.

    \b
    Examples:
      flintmq topic edit orders --retention-age 30d --retention-bytes none
      flintmq topic edit orders --max-deliveries 10 --dead-letter-topic orders.dead
    """
    changes = _said(options)
    if not changes:
        raise click.UsageError("pass an option to change, for example --retention-age 30d")

    async def work(mq: Client) -> tuple[TopicInfo, TopicInfo]:
        return await mq.topic_info(topic), await mq.configure_topic(topic, **changes)

    before, found = target.ask(work)
    old, new = plain(before.options), plain(found.options)
    facts = {n: f"{_shown(n, old[n])} -> {_shown(n, new[n])}" for n in changes}
    return show(output, plain(found), lambda: print_facts(facts))


def _shown(name: str, value: Any) -> str:
    """The value of an option, as one would type it."""
    if value is None:
        return NONE
    if name in ("retention_age", "ttl"):
        return duration_text(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


@command.command("rm")
@click.argument("topics", type=TOPIC, nargs=-1, required=True, metavar="TOPIC...")
@yes_option
@output_option
@server_options
def rm(target: Target, topics: tuple[str, ...], yes: bool, output: str) -> int:
    """Delete topics and all their messages. This cannot be undone.

    \b
    Examples:
      flintmq topic rm orders.old --yes
    """

    async def count(mq: Client) -> int:
        return sum(one.message_count for one in await mq.stats_of(topics))

    async def delete(mq: Client) -> None:
        for name in topics:
            await mq.delete_topic(name)

    messages = target.ask(count)
    what = f"{', '.join(topics)} with {many(messages, 'message')}"
    confirm(f"Delete {what}?", yes)
    target.ask(delete)
    return show(output, {"deleted": list(topics), "messages": messages}, f"deleted {what}")


@command.command("peek")
@click.argument("topic", type=TOPIC)
@click.option("--from", "start", type=Position(), help="Where to start.  [earliest]")
@click.option("--last", is_flag=True, help="The newest messages, oldest of them first.")
@click.option("--group", type=GROUP, help="Messages the group would receive next, in order.")
@click.option("--filter", "filter", help="Only messages that match.")
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True)
@output_option
@server_options
def peek(
    target: Target,
    topic: str,
    start: Any,
    last: bool,
    group: str | None,
    filter: str | None,
    count: int,
    output: str,
) -> int:
    """Show a few messages, without consuming them.

    \b
    Examples:
      flintmq topic peek orders
      flintmq topic peek orders --last --count 3
      flintmq topic peek orders --group billing
      flintmq topic peek orders --from -5m --count 3 --output json
    """
    if sum((start is not None, last, group is not None)) > 1:
        raise click.UsageError("choose one of --from, --last and --group")
    if filter is not None and (last or group is not None):
        raise click.UsageError("--filter needs a start position: use --from")

    async def read(mq: Client, name: str, where: Any) -> list[Message]:
        async with mq.reader(name, start=where, filter=filter) as reader:
            return list(await reader.read_batch(count, timeout=0))

    async def newest(mq: Client) -> list[Message]:
        stats = await mq.topic_stats(topic)
        parts = [(f"{topic}/{n}", part) for n, part in enumerate(stats.partitions)]
        found: list[Message] = []
        for name, part in parts or [(topic, stats)]:
            found += await read(mq, name, max(part.first_offset, part.next_offset - count))
        return sorted(found, key=lambda message: message.timestamp)[-count:]

    async def work(mq: Client) -> list[Message]:
        if group is not None:
            return list(await mq.peek(topic, group, count))
        return await newest(mq) if last else await read(mq, topic, start or "earliest")

    found = target.ask(work, auto_create=False)
    if output == "json":
        print_json([envelope(message) for message in found])
    else:
        for message in found:
            click.echo(pretty(message, colour=has_colour()).decode(), nl=False)
    return 0


@command.command("purge")
@click.argument("topic", type=TOPIC)
@click.option("--before", type=click.IntRange(min=0), help="Only messages before this offset.")
@yes_option
@output_option
@server_options
def purge(target: Target, topic: str, before: int | None, yes: bool, output: str) -> int:
    """Delete the messages of a topic. The topic, its options and its groups stay.

    \b
    Examples:
      flintmq topic purge orders --yes
      flintmq topic purge orders --before 1000 --yes
    """
    what = "all messages" if before is None else f"the messages before offset {before:,}"
    confirm(f"Delete {what} of {topic}?", yes)
    count = target.ask(lambda mq: mq.purge_topic(topic, before))
    text = f"Deleted {many(count, 'message')} of {topic}."
    return show(output, {"topic": topic, "purged": count}, text)


def _damaged(stats: TopicStats) -> dict[str, str]:
    """The damaged messages of a topic, if there are any."""
    if not stats.damaged:
        return {}
    parts = stats.partitions or [stats]
    ranges = [
        f"{start} to {stop - 1}" + (f" of {part.name}" if stats.partitions else "")
        for part in parts
        for start, stop in part.damaged_ranges
    ]
    return {"damaged": f"{stats.damaged:,}; offsets {', '.join(ranges)}"}
