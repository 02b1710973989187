"""`flintmq reply`: answer requests with a command, or with a fixed value."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress

import click

from ..client.client import Client
from ..client.delivery import Delivery
from ..model import REPLY_TO
from ..rows import Message
from .connecting import Target, run_async, server_options
from .names import GROUP, TOPIC
from .values import as_bytes, published

AT_ONCE = 8
"""How many commands run at the same time."""


@click.command("reply")
@click.argument("topic", type=TOPIC)
@click.argument("value", required=False)
@click.option("--exec", "program", metavar="COMMAND", help="Run COMMAND in a shell per request.")
@click.option("--group", type=GROUP, help="Share the requests with other members of this group.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after N requests.")
@server_options
def command(
    target: Target,
    topic: str,
    value: str | None,
    program: str | None,
    group: str | None,
    count: int | None,
) -> int:
    """Reply to the requests on TOPIC: with VALUE, or with the output of a command.

    The command gets the request on stdin, its topic and key as FLINT_TOPIC and FLINT_KEY, and each
    header as FLINT_HEADER_NAME. Its output is the reply. If it fails, no reply is sent; with
    --group the request then goes to another member.

    \b
    Examples:
      flintmq reply rates --exec './quote.sh'
      flintmq reply shout --exec 'tr a-z A-Z'
      flintmq reply health ok
      flintmq reply rates --exec ./quote.sh --group quotes
    """
    if (value is None) == (program is None) or program == "":
        raise click.UsageError("give a VALUE to reply with, or --exec COMMAND")
    fixed = None if value is None else value.encode(errors="surrogateescape")
    run_async(_serve(target, topic, Responder(fixed, program), group, count))
    return 0


async def _serve(
    target: Target, topic: str, responder: Responder, group: str | None, count: int | None
) -> None:
    async with target.connect() as mq, asyncio.TaskGroup() as tasks:
        left, room = count, asyncio.Semaphore(AT_ONCE)

        async def answer(message: Message) -> None:
            try:
                await responder.answer(mq, message)
            finally:
                room.release()

        messages = mq.live(topic, capacity=10_000)
        async with mq.subscribe(topic, group=group) if group else messages as source:
            click.echo(f"flintmq: ready for requests on {topic}", err=True)
            while left is None or left > 0:
                await room.acquire()
                message = await source.read()
                if message.headers.get(REPLY_TO) is None:
                    await responder.skip(message)
                    room.release()
                    continue
                tasks.create_task(answer(message))
                left = None if left is None else left - 1
            for _ in range(AT_ONCE):  # those under way are answered before the group is left
                await room.acquire()


class Responder:
    """How a request is answered: with a fixed value, or by running a command."""

    def __init__(self, value: bytes | None, program: str | None) -> None:
        self._value, self._program = value, program

    async def answer(self, mq: Client, message: Message) -> None:
        value = self._value
        if value is None:
            value = await self._run(message)
        if value is None:
            if isinstance(message, Delivery):
                await message.nack()
            return
        await mq.reply(message, value)
        await self.skip(message)

    async def skip(self, message: Message) -> None:
        if isinstance(message, Delivery):
            await message.ack()

    async def _run(self, message: Message) -> bytes | None:
        assert self._program is not None
        process = await asyncio.create_subprocess_shell(
            self._program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **_facts(message)},
        )
        try:
            out = await _output(process, published(message))
        except asyncio.CancelledError:
            process.kill()
            raise
        if process.returncode:
            print(f"flintmq: command failed with exit code {process.returncode}", file=sys.stderr)
            return None
        return out.removesuffix(b"\n")


async def _output(process: asyncio.subprocess.Process, given: bytes) -> bytes:
    """What a command prints. It need not read what it is given: `communicate` on uvloop raises
    RuntimeError if it has closed its input already."""
    assert process.stdin is not None
    assert process.stdout is not None
    reading = asyncio.ensure_future(process.stdout.read())
    try:
        with suppress(BrokenPipeError, ConnectionResetError, RuntimeError):
            process.stdin.write(given)
            await process.stdin.drain()
        process.stdin.close()
        out = await reading
    finally:
        reading.cancel()
    await process.wait()
    return out


def _facts(message: Message) -> dict[str, str]:
    """What the command finds in its environment."""
    facts = {"FLINT_TOPIC": message.topic}
    if message.key is not None:
        facts["FLINT_KEY"] = as_bytes(message.key).decode(errors="surrogateescape")
    for name, value in message.headers.items():
        text = as_bytes(value).decode(errors="surrogateescape")
        if name != REPLY_TO and "\0" not in text:
            word = "".join(letter if letter.isalnum() else "_" for letter in name.upper())
            facts[f"FLINT_HEADER_{word}"] = text
    return facts
