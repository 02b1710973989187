"""A device that publishes measurements without a network: they are queued on its disk.

python device.py URL DIRECTORY
"""

import asyncio
import sys

import flintmq


async def main(url: str, directory: str) -> None:
    async with flintmq.connect(url, outbox=directory) as mq:
        for number in range(3):
            receipt = await mq.publish("measured", {"device": 7, "number": number}, key="7")
            print(f"measured {number}: {receipt.durability}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
