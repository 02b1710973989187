"""`flintmq cluster set`: a setting for all nodes of a cluster."""

from __future__ import annotations

import click

from ..config.shared import KIND, NAMES, parsed
from .cluster_change import ask_broker
from .connecting import Target, server_options
from .shared import output_option, show


@click.command("set")
@click.argument("name", type=click.Choice(NAMES), metavar="NAME")
@click.argument("value")
@server_options
@output_option
def command(name: str, value: str, target: Target, output: str) -> int:
    """Set something for all nodes of a cluster, in place of what each was started with.

    The cluster keeps auto_create, topic_defaults, staged_seconds, producer_seconds and
    max_producer_bytes: what the node that leads goes by. VALUE is written as in an environment
    variable. It is in effect at once, also at nodes that join later. Needs a key with administer
    on >.

    \b
    Examples:
      flintmq cluster set auto_create false
      flintmq cluster set topic_defaults retention_age=7d,max_deliveries=10
    """
    parsed(name, value)
    ask_broker(target, lambda broker: broker.define(KIND, "", name, value.encode()))
    return show(output, {"name": name, "value": value}, f"{name} is {value} at all nodes")
