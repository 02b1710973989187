"""The usual arguments and options of commands about topics, or about one group."""

from __future__ import annotations

import click

from .connecting import server_options
from .names import GROUP, TOPIC
from .shared import output_option, with_options

of_a_group = with_options(
    click.argument("topic", type=TOPIC),
    click.argument("group", type=GROUP),
    output_option,
    server_options,
)
of_topics = with_options(
    click.argument("topic", type=TOPIC, required=False), output_option, server_options
)
