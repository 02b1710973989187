"""Runs the jobs that clients send, and scheduled jobs.

python job_runner.py, with the broker in FLINTMQ_SERVER.
"""

import asyncio

import flintmq

app = flintmq.App()


@app.task(retries=3, unique=True)
async def resize(path: str, width: int = 800) -> str:
    await asyncio.sleep(0.01)  # the work
    return f"{path.removesuffix('.png')}-{width}.png"


@app.task
async def index(paths: list[str]) -> int:
    return len(paths)


@app.cron("0 3 * * *", timezone="Europe/Berlin", missed="once")
async def clean_up(task: flintmq.RunningTask) -> None:
    print("cleaning up what was due at", task.scheduled_at)


@app.every(1)
async def beat(task: flintmq.RunningTask) -> None:
    await app.publish("beats", {"at": str(task.scheduled_at)})


if __name__ == "__main__":
    asyncio.run(app.run())
