"""The device has a network again: the queued messages are sent, exactly once.

python come_back.py DIRECTORY, with the broker in FLINTMQ_SERVER.
"""

import asyncio
import sys

import flintmq


async def main(directory: str) -> None:
    async with flintmq.connect(outbox=directory) as mq:
        await mq.flush_outbox(timeout=30)
        print("left on the device:", (await mq.outbox_stats()).messages)
        async with mq.reader("measured") as reader:
            for message in await reader.read_batch(100, timeout=5):
                print("received:", message.decode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
