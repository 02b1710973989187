"""Publishes while the leader is killed, and counts what was stored.

python survive.py, with all three nodes in FLINTMQ_SERVER.
"""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import flintmq

ORDERS = 100


def leader() -> str:
    shown = subprocess.run(
        ["flintmq", "cluster", "status", "--output", "json"], capture_output=True, text=True
    )
    return str(json.loads(shown.stdout)["groups"][0]["leader"])


def kill(name: str) -> None:
    """With `kill -9`: the process of that node gets no time to clean up."""
    held = Path(os.environ["CLUSTER_DATA"], name, "lock").read_text()
    os.kill(int(held), signal.SIGKILL)


async def main() -> None:
    async with flintmq.connect() as mq:
        killed = ""
        for number in range(ORDERS):
            await mq.publish("orders", {"id": number}, timeout=60)
            if number == ORDERS // 2:
                killed = await asyncio.to_thread(leader)
                await asyncio.to_thread(kill, killed)
        print("killed the leader: yes")
        async with mq.reader("orders") as reader:
            found: list[int] = []
            while len(found) < ORDERS:
                found += [one.decode()["id"] for one in await reader.read_batch(1000, timeout=30)]
        print(f"acknowledged: {ORDERS}, stored: {len(found)}, in order: {found == sorted(found)}")
        print("another node leads:", await asyncio.to_thread(leader) != killed)


if __name__ == "__main__":
    asyncio.run(main())
