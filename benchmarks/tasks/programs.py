"""The same program for each system: one empty task, a sender, and where it needs one, a worker.

`python -m benchmarks.tasks.programs SYSTEM send COUNT RATE` sends; RATE 0 is as fast as it can.
Only the system that is asked for is imported. Each as its own documentation begins with.
"""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import os
import sys
import time

from .counting import hit, payload

SYSTEM = os.environ.get("BENCH_SYSTEM", "")
FLINT = f"flint://127.0.0.1:{os.environ.get('BENCH_PORT', '7600')}"
REDIS = f"redis://127.0.0.1:{os.environ.get('BENCH_PORT', '6379')}/0"

if SYSTEM == "flintmq":
    import flintmq

    app = flintmq.App(FLINT)

    @app.task(result_ttl=None, concurrency=64)
    async def empty(data: str) -> None:
        hit(data)

elif SYSTEM == "celery":
    import celery

    app = celery.Celery("bench", broker=REDIS)
    app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False)

    @app.task(name="empty", acks_late=True)
    def empty(data):
        hit(data)

elif SYSTEM == "dramatiq":
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    dramatiq.set_broker(RedisBroker(url=REDIS))

    @dramatiq.actor
    def empty(data):
        hit(data)

elif SYSTEM == "taskiq":
    from taskiq_redis import RedisStreamBroker

    broker = RedisStreamBroker(url=REDIS)

    @broker.task(task_name="empty")
    async def empty(data: str) -> None:
        hit(data)


async def send(count: int, rate: float) -> None:
    """Many at once where the system can, one by one where it cannot."""
    if SYSTEM == "flintmq":
        async with app:
            await _paced(count, rate, lambda: empty.send(payload()), at_once=256)
    elif SYSTEM == "taskiq":
        await broker.startup()
        await _paced(count, rate, lambda: empty.kiq(payload()), at_once=256)
        await broker.shutdown()
    elif SYSTEM == "flintmq-poll":
        import flintmq

        async with flintmq.connect(FLINT) as mq:
            await _paced(
                count, rate, lambda: mq.publish("tasks.empty", payload().encode()), at_once=256
            )
    elif SYSTEM == "nats":
        stream = await _stream()
        await _paced(
            count, rate, lambda: stream.publish("tasks.empty", payload().encode()), at_once=256
        )
    else:
        call = empty.delay if SYSTEM == "celery" else empty.send

        async def one():
            call(payload())

        await _paced(count, rate, one, at_once=1)


async def _paced(count, rate, one, at_once):
    began, sent = time.monotonic(), 0
    while sent < count:
        if rate:
            await asyncio.sleep(max(0.0, began + sent / rate - time.monotonic()))
            await one()
            sent += 1
        else:
            lot = min(at_once, count - sent)
            await asyncio.gather(*(one() for _ in range(lot)))
            sent += lot


async def _stream():
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{os.environ['BENCH_PORT']}")
    stream = client.jetstream()
    await stream.add_stream(name="tasks", subjects=["tasks.>"], retention="workqueue")
    return stream


async def nats_worker() -> None:
    """A pull consumer: what people write where there is no library for tasks."""
    stream = await _stream()
    subscription = await stream.pull_subscribe("tasks.empty", "workers")
    import nats.errors

    while True:
        try:
            messages = await subscription.fetch(256, timeout=5)
        except nats.errors.TimeoutError:
            continue
        for message in messages:
            hit(message.data.decode())
            await message.ack()


async def poll_worker() -> None:
    """The same over FlintMQ."""
    import flintmq

    async with flintmq.connect(FLINT) as mq:
        while True:
            for message in await mq.poll("tasks.empty", "workers", max=256, wait=5):
                hit(message.value.decode())
                message.ack_nowait()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        asyncio.run(nats_worker() if SYSTEM == "nats" else poll_worker())
    else:
        asyncio.run(send(int(sys.argv[2]), float(sys.argv[3])))
