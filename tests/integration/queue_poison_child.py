"""A process that dies of one message, whenever it gets it; it ends well once nothing is left.

    python -m tests.integration.queue_poison_child DIRECTORY FORM

Lines on standard output: `G <value> <deliveries>` when a message was got, `A <value>` when its ack
has returned.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from flintmq.client.client import Client
from flintmq.client.delivery import Delivery

from .kill_child import connect, tell

TOPIC, GROUP = "orders", "workers"
COUNT = 60
POISON = 21


async def work_on(message: Delivery) -> None:
    text = message.value.decode()
    tell("G", text, message.delivery_count)
    if text == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.002)


async def handle(mq: Client) -> None:
    """Handlers side by side, with what a subscription takes ahead by default."""

    async def handler(message: Delivery) -> None:
        await work_on(message)
        await message.ack()
        tell("A", message.value.decode())

    await mq.subscribe(TOPIC, GROUP).run(handler)


async def iterate(mq: Client) -> None:
    async with mq.subscribe(TOPIC, GROUP) as deliveries:
        async for message in deliveries:
            async with message.process():
                await work_on(message)
            tell("A", message.value.decode())


async def poll(mq: Client) -> None:
    """Everything at once, one after the other, and all settled in the end."""
    while True:
        messages = await mq.poll(TOPIC, GROUP, max=256, wait=1)
        for message in messages:
            await work_on(message)
        await messages.ack()
        for message in messages:
            tell("A", message.value.decode())


FORMS = {"handle": handle, "iterate": iterate, "poll": poll}


async def main(directory: Path, form: str) -> None:
    logging.disable()
    async with connect(directory) as mq:
        if TOPIC not in await mq.topics():
            values = [f"{n}" if n != POISON else "poison" for n in range(COUNT)]
            await mq.publish_batch(TOPIC, values)
        member = asyncio.create_task(FORMS[form](mq))
        while not member.done():
            await asyncio.sleep(0.01)
            groups = await mq.groups(TOPIC)
            if groups and not (await mq.group_stats(TOPIC, GROUP)).lag:
                break
        member.cancel()
        await asyncio.wait([member])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
