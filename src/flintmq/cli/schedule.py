"""`flintmq schedule`: have the broker publish messages by the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from ..client.client import Client
from ..schedule_model import Schedule, ScheduleKeywords, ScheduleState
from .command_group import CommandGroup
from .connecting import Target, server_options
from .look import print_table
from .names import TOPIC
from .pub import header_map
from .shared import confirm, hint, output_option, show, yes_option


@click.group("schedule", cls=CommandGroup)
def command() -> None:
    """Create, list, run and remove schedules: messages that the broker publishes at set times.

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
@click.option("--cron", metavar="EXPRESSION", help="Five fields: '*/5 8-18 * * mon-fri'.")
@click.option("--every", type=float, metavar="SECONDS", help="An interval in place of --cron.")
@click.option("--timezone", metavar="ZONE", help="Time zone of --cron. Default: UTC.")
@click.option(
    "--missed",
    type=click.Choice(["skip", "once", "all"]),
    help="What to do for times at which no broker ran. Default: once.",
)
@click.option("--key", help="Key of the messages.")
@click.option("--priority", type=int, help="Priority of the messages, 0 to 7.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME:VALUE", help="Add a header. Repeatable."
)
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
    chosen: ScheduleKeywords = {name: value for name, value in said.items() if value is not None}  # type: ignore[assignment]
    if headers:
        chosen["headers"] = header_map(headers)

    async def work(mq: Client) -> Schedule:
        return await mq.create_schedule(name, topic, value.encode(), replace=replace, **chosen)

    made = target.ask(work)
    show(output, made, f"Schedule created ({made.name}: {made.when}, topic {made.topic}).")
    return 0


@command.command("ls")
@click.argument("topic", type=TOPIC, required=False)
@output_option
@server_options
def ls(target: Target, topic: str | None, output: str) -> int:
    """List schedules, with their last and next times.

    \b
    Examples:
      flintmq schedule ls
      flintmq schedule ls orders --output json
    """

    async def work(mq: Client) -> list[ScheduleState]:
        return await mq.schedules(topic)

    found = target.ask(work)
    if not found and output != "json":
        hint("no schedules")
    rows = [
        (
            *(one.name, one.topic, one.when, one.missed, _shown(one.last_ms)),
            "paused" if one.paused else _shown(one.next_ms),
        )
        for one in found
    ]
    heads = ["NAME", "TOPIC", "WHEN", "MISSED", "LAST", "NEXT"]
    show(output, found, lambda: print_table(heads, rows) if rows else None)
    return 0


def _shown(ms: int | None) -> str:
    if ms is None:
        return "-"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


@command.command("run")
@click.argument("name")
@output_option
@server_options
def run(target: Target, name: str, output: str) -> int:
    """Publish the message of a schedule now, in addition.

    \b
    Examples:
      flintmq schedule run nightly
    """

    async def work(mq: Client) -> Any:
        return await mq.run_schedule(name)

    receipt = target.ask(work)
    return show(output, receipt, f"Published to {receipt.topic}, offset {receipt.offset}.")


@command.command("pause")
@click.argument("name")
@output_option
@server_options
def pause(target: Target, name: str, output: str) -> int:
    """Publish nothing until resumed.

    \b
    Examples:
      flintmq schedule pause nightly
    """
    target.ask(lambda mq: mq.pause_schedule(name))
    return show(output, {"name": name, "paused": True}, f"Schedule paused ({name}).")


@command.command("resume")
@click.argument("name")
@output_option
@server_options
def resume(target: Target, name: str, output: str) -> int:
    """Publish again, from now on. Times during the pause are skipped.

    \b
    Examples:
      flintmq schedule resume nightly
    """
    target.ask(lambda mq: mq.resume_schedule(name))
    return show(output, {"name": name, "resumed": True}, f"Schedule resumed ({name}).")


@command.command("rm")
@click.argument("name")
@yes_option
@output_option
@server_options
def rm(target: Target, name: str, yes: bool, output: str) -> int:
    """Remove a schedule. The topic and its messages stay.

    \b
    Examples:
      flintmq schedule rm nightly --yes
    """
    confirm(f"Remove schedule {name}?", yes)
    target.ask(lambda mq: mq.delete_schedule(name))
    return show(output, {"name": name, "deleted": True}, f"Schedule removed ({name}).")
