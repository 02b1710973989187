"""`flintmq webhook`: have the broker send the messages of a group to a URL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from ..client.client import Client
from ..webhook_model import Webhook, WebhookKeywords, WebhookState
from .command_group import CommandGroup
from .connecting import Target, server_options
from .exit_codes import FAILED
from .named import of_a_group, of_topics
from .names import GROUP, TOPIC
from .pub import header_map, header_option
from .schedule import shown_time
from .shared import confirm, output_option, show, show_list, yes_option


@click.group("webhook", cls=CommandGroup)
def command() -> None:
    """Create, list, test and pause webhooks: groups whose messages go to a URL.

    \b
    Examples:
      flintmq webhook add orders crm https://crm.example.com/hook
      flintmq webhook ls
      flintmq webhook test orders crm
      flintmq webhook pause orders crm
    """


@command.command("add")
@click.argument("topic", type=TOPIC)
@click.argument("group", type=GROUP)
@click.argument("url")
@click.option("--secret", metavar="WHSEC", help="Secret that signs requests. Default: a new one.")
@header_option
@click.option("--concurrency", type=int, default=4, show_default=True, help="Requests in flight.")
@click.option("--rate", type=float, metavar="N", help="Maximum requests per second.")
@click.option(
    "--timeout", type=float, default=15.0, show_default=True, help="Seconds to wait for an answer."
)
@click.option(
    "--retries", type=int, metavar="N", help="Retries of a message. Default: by max_deliveries."
)
@click.option(
    "--backoff", type=float, default=1.0, show_default=True, help="Seconds before the first retry."
)
@click.option(
    "--backoff-max", type=float, default=300.0, show_default=True, help="Seconds at most."
)
@click.option("--order", type=click.Choice(["priority", "key", "log"]), help="Order of the group.")
@click.option("--filter", metavar="EXPRESSION", help="Send only messages that pass.")
@click.option("--start", metavar="WHERE", help="Where a new group starts: earliest or latest.")
@click.option("--replace", is_flag=True, help="Change the webhook if there is one.")
@output_option
@server_options
def add(
    target: Target,
    topic: str,
    group: str,
    url: str,
    secret: str | None,
    headers: tuple[str, ...],
    replace: bool,
    output: str,
    **said: Any,
) -> int:
    """Send the messages of a group to a URL, as signed POST requests.

    A 2xx answer acknowledges a message. Other answers are retried, then the message becomes a dead
    letter. While the target cannot be reached, messages wait. The secret is shown once: the target
    needs it to verify the signature (https://www.standardwebhooks.com describes it).

    \b
    Examples:
      flintmq webhook add orders crm https://crm.example.com/hook
      flintmq webhook add orders crm https://crm.example.com/hook --order key --retries 10
    """
    given: Any = {name: value for name, value in said.items() if value is not None}
    chosen: WebhookKeywords = given
    if headers:
        chosen["headers"] = header_map(headers)

    async def work(mq: Client) -> Webhook:
        return await mq.create_webhook(
            topic, group=group, url=url, secret=secret, replace=replace, **chosen
        )

    made = target.ask(work)

    def tell() -> None:
        click.echo(f"Webhook created (topic {topic}, group {group}). Secret: {made.secret}")

    show(output, made, tell)
    return 0


@command.command("ls")
@of_topics
def ls(target: Target, topic: str | None, output: str) -> int:
    """List webhooks and their state.

    \b
    Examples:
      flintmq webhook ls
      flintmq webhook ls orders --output json
    """
    found: list[WebhookState] = target.ask(lambda mq: mq.webhooks(topic))
    rows = [
        (
            *(one.topic, one.group, one.condition, f"{one.delivered:,}", f"{one.retried:,}"),
            *(f"{one.dead:,}", f"{one.per_second:,.1f}", one.url),
        )
        for one in found
    ]
    heads = ["TOPIC", "GROUP", "STATE", "DELIVERED", "RETRIED", "DEAD", "PER S", "URL"]
    return show_list(output, found, heads, rows, "no webhooks")


@command.command("show")
@of_a_group
def show_one(target: Target, topic: str, group: str, output: str) -> int:
    """Show one webhook: its settings, state and last error. The secret is not shown.

    \b
    Examples:
      flintmq webhook show orders crm
    """

    async def work(mq: Client) -> dict[str, Any]:
        webhook = await mq.webhook(topic, group)
        states = [one for one in await mq.webhooks(topic) if one.group == group]
        facts: dict[str, Any] = {
            name: getattr(webhook, name)
            for name in Webhook.__struct_fields__
            if name not in ("secret", "headers", "paused")
        }
        facts["headers"] = sorted(webhook.headers)
        for state in states:
            facts |= {name: getattr(state, name) for name in WebhookState.__struct_fields__}
        return facts

    facts = target.ask(work)

    def tell() -> None:
        shown = {name.replace("_", " "): value for name, value in facts.items()}
        shown["last delivery"] = shown_time(shown.pop("last delivery ms", None))
        width = max(map(len, shown))
        for name, value in shown.items():
            click.echo(f"{name:{width}}  {'-' if value in (None, [], '') else value}")

    show(output, facts, tell)
    return 0


@command.command("test")
@of_a_group
def test(target: Target, topic: str, group: str, output: str) -> int:
    """Send a test request now. Exit code 1 if the target does not accept it.

    \b
    Examples:
      flintmq webhook test orders crm
    """
    answer = target.ask(lambda mq: mq.test_webhook(topic, group))

    def tell() -> None:
        if answer.ok:
            click.echo(f"Accepted with HTTP {answer.status} in {answer.seconds * 1000:.0f} ms.")
        else:
            click.echo(f"Not accepted: {answer.error}")

    show(output, answer, tell)
    return 0 if answer.ok else FAILED


@command.command("pause")
@of_a_group
def pause(target: Target, topic: str, group: str, output: str) -> int:
    """Pause a webhook. Messages wait until it is resumed.

    \b
    Examples:
      flintmq webhook pause orders crm
    """
    return _done(target, output, Client.pause_webhook, topic, group, "paused")


@command.command("resume")
@of_a_group
def resume(target: Target, topic: str, group: str, output: str) -> int:
    """Resume a webhook that was paused, also by an answer of 410 Gone.

    \b
    Examples:
      flintmq webhook resume orders crm
    """
    return _done(target, output, Client.resume_webhook, topic, group, "resumed")


@command.command("rm")
@yes_option
@of_a_group
def rm(target: Target, topic: str, group: str, yes: bool, output: str) -> int:
    """Delete a webhook. The group and its messages stay.

    \b
    Examples:
      flintmq webhook rm orders crm --yes
    """
    confirm(f"Delete the webhook of topic {topic}, group {group}?", yes)
    return _done(target, output, Client.delete_webhook, topic, group, "deleted")


def _done(
    target: Target,
    output: str,
    act: Callable[[Client, str, str], Awaitable[Any]],
    topic: str,
    group: str,
    done: str,
) -> int:
    target.ask(lambda mq: act(mq, topic, group))
    text = f"Webhook {done} (topic {topic}, group {group})."
    return show(output, {"topic": topic, "group": group, done: True}, text)
