"""`flintmq request`: send a request, print the reply."""

from __future__ import annotations

import sys

import click

from ..rows import Message
from .connecting import Target, run_async, server_options
from .durations import Duration
from .envelope import line
from .names import TOPIC
from .pub import header_map, header_option, key_option
from .shared import output_option
from .values import for_people, published

TIMEOUT_SECONDS = 5.0


@click.command("request")
@click.argument("topic", type=TOPIC)
@click.argument("value", required=False)
@click.option("--timeout", type=Duration(), default=TIMEOUT_SECONDS, help="Wait this long.  [5s]")
@key_option
@header_option
@click.option("--decode", is_flag=True, help="Print a value in msgpack, Avro ... as JSON.")
@output_option
@server_options
def command(
    target: Target,
    topic: str,
    value: str | None,
    timeout: float,
    key: str | None,
    headers: tuple[str, ...],
    decode: bool,
    output: str,
) -> int:
    """Send VALUE to TOPIC as a request, and print the reply. Without VALUE, stdin is sent.

    Fails at once if nobody is there to reply, and when no reply arrives in time.

    \b
    Examples:
      flintmq request rates '{"pair": "EURUSD"}'
      echo ping | flintmq request health --timeout 1s
      flintmq request rates EURUSD --output json
    """
    given = sys.stdin.buffer.read() if value is None else value.encode(errors="surrogateescape")
    reply = run_async(_ask(target, topic, given, timeout, key, header_map(headers)))
    if output == "json":
        text = line(reply, decode=decode)
    else:
        text = for_people(reply) if decode else published(reply)
    sys.stdout.buffer.write(text + b"\n")
    return 0


async def _ask(
    target: Target,
    topic: str,
    value: bytes,
    timeout: float,
    key: str | None,
    headers: dict[str, str],
) -> Message:
    async with target.connect() as mq:
        return await mq.request(topic, value, timeout=timeout, key=key, headers=headers)
