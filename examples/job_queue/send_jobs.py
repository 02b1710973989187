"""Sends three jobs and one that follows them, and waits for a scheduled job."""

import asyncio

from job_runner import app, index, resize

import flintmq


async def main() -> None:
    async with app:
        handle = await resize.send("cat.png", width=100)
        print("resized:", await handle.get(timeout=30))

        photos = flintmq.group(*(resize.step(f"{number}.png") for number in range(3)))
        handle = await flintmq.chain(photos, index.step()).send()
        print("indexed:", await handle.get(timeout=30))

        async with app.mq.reader("beats") as beats:
            first, second = await beats.read(), await beats.read()
        print("the schedule beat:", first.decode()["at"] != second.decode()["at"])
        print("schedules:", ", ".join(sorted(one.name for one in await app.mq.schedules())))


if __name__ == "__main__":
    asyncio.run(main())
