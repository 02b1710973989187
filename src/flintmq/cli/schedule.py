"""`flintmq schedule`: have the broker publish messages by the clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import click

from ..client.client import Client
from ..schedule_model import Schedule, ScheduleKeywords, ScheduleState
from .command_group import CommandGroup
from .connecting import Target, server_options
from .named import of_topics
from .names import TOPIC
from .pub import header_map, header_option
from .shared import confirm, output_option, show, show_list, with_options, yes_option


@click.group("schedule", cls=CommandGroup)
def command() -> None:
    """Create, list, run and delete schedules: messages that the broker publishes at set times.

    \b
    Examples:
      flintmq schedule add nightly orders '{"kind": "report"}' --cron '0 2 * * *'
      flintmq schedule ls
      flintmq schedule run nightly
      flintmq schedule rm nightly --yes
    """


@command.command("add")
@click.argument("name")
@click.argument("topic", type=TOPIC)
@click.argument("value", default="")
@click.option("--cron", metavar="EXPRESSION", help="Five fields, as in '*/5 8-18 * * mon-fri'.")
@click.option(
    "--every", type=float, metavar="SECONDS", help="Interval in seconds, instead of --cron."
)
@click.option("--timezone", metavar="ZONE", help="Time zone of --cron. Default: UTC.")
@click.option(
    "--missed",
    type=click.Choice(["skip", "once", "all"]),
    help="Runs missed while no broker was running. Default: once.",
)
@click.option("--key", help="Key of the messages.")
@click.option("--priority", type=int, help="Priority of the messages, 0 to 7.")
@header_option
@click.option("--replace", is_flag=True, help="Change the schedule if there is one.")
@output_option
@server_options
def add(
    target: Target,
    name: str,
    topic: str,
    value: str,
    headers: tuple[str, ...],
    replace: bool,
    output: str,
    **said: Any,
) -> int:
    """Publish a message by a cron expression or at an interval.

    Each run is published once, in a cluster too, even while no worker is running.

    \b
    Examples:
      flintmq schedule add nightly orders '{"kind": "report"}' --cron '0 2 * * *'
      flintmq schedule add beat orders --every 30 --missed skip
    """
    given: Any = {name: value for name, value in said.items() if value is not None}
    chosen: ScheduleKeywords = given
    if headers:
        chosen["headers"] = header_map(headers)

    async def work(mq: Client) -> Schedule:
        return await mq.create_schedule(name, topic, value.encode(), replace=replace, **chosen)

    made = target.ask(work)
    show(output, made, f"Schedule created ({made.name}: {made.when}, topic {made.topic}).")
    return 0


@command.command("ls")
@of_topics
def ls(target: Target, topic: str | None, output: str) -> int:
    """List schedules, with their last and next times.

    \b
    Examples:
      flintmq schedule ls
      flintmq schedule ls orders --output json
    """
    found: list[ScheduleState] = target.ask(lambda mq: mq.schedules(topic))
    rows = [
        (
            *(one.name, one.topic, one.when, one.missed, shown_time(one.last_ms)),
            "paused" if one.paused else shown_time(one.next_ms),
        )
        for one in found
    ]
    heads = ["NAME", "TOPIC", "WHEN", "MISSED", "LAST", "NEXT"]
    return show_list(output, found, heads, rows, "no schedules")


def shown_time(ms: int | None) -> str:
    if ms is None:
        return "-"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


of_a_schedule = with_options(click.argument("name"), output_option, server_options)


@command.command("run")
@of_a_schedule
def run(target: Target, name: str, output: str) -> int:
    """Publish the message of a schedule now, in addition.

    \b
    Examples:
      flintmq schedule run nightly
    """
    receipt = target.ask(lambda mq: mq.run_schedule(name))
    return show(output, receipt, f"Published to {receipt.topic}, offset {receipt.offset}.")


@command.command("pause")
@of_a_schedule
def pause(target: Target, name: str, output: str) -> int:
    """Pause a schedule: it publishes nothing until resumed.

    \b
    Examples:
      flintmq schedule pause nightly
    """
    return _done(target, output, Client.pause_schedule, name, "paused")


@command.command("resume")
@of_a_schedule
def resume(target: Target, name: str, output: str) -> int:
    """Resume a paused schedule. Times during the pause are skipped.

    \b
    Examples:
      flintmq schedule resume nightly
    """
    return _done(target, output, Client.resume_schedule, name, "resumed")


@command.command("rm")
@yes_option
@of_a_schedule
def rm(target: Target, name: str, yes: bool, output: str) -> int:
    """Delete a schedule. The topic and its messages stay.

    \b
    Examples:
      flintmq schedule rm nightly --yes
    """
    confirm(f"Delete schedule {name}?", yes)
    return _done(target, output, Client.delete_schedule, name, "deleted")


def _done(
    target: Target, output: str, act: Callable[[Client, str], Awaitable[Any]], name: str, done: str
) -> int:
    target.ask(lambda mq: act(mq, name))
    return show(output, {"name": name, done: True}, f"Schedule {done} ({name}).")
