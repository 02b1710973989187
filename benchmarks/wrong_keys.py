"""What a flood of wrong keys costs everybody else.

    .venv/bin/python -m benchmarks.wrong_keys --rate 200 --seconds 20

A real `flintmq serve` with one key, a client that has it and publishes at a steady pace, and a
process beside it that tries wrong keys. The client's latency before, during and after; the broker's
memory (RSS, so Linux only) likewise. One table and one JSON line. Look at the ratios: flood, client
and broker share the machine. So there is a phase in which the same flood runs against a bare
server of its own: what that costs the client is the machine's, the rest is the broker's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import flintmq
from flintmq.access import TopicGrant
from flintmq.daemon.process import loop_factory
from flintmq.net.wire.frames import encode_frame
from flintmq.net.wire.hello import HELLO_BYTES, client_hello
from flintmq.net.wire.operations import Op, OpenRequest, encode
from flintmq.storage.key_file import KEYS_FILE, KeyFile, make_key

from .report import machine, machine_line
from .server_footprint import Process

PACE_SECONDS = 0.005
BARE = "bare"
ANSWER_SECONDS = 10.0


def add_key(directory: str) -> str:
    grants = [TopicGrant.of(">", ["publish", "consume", "administer"])]
    key, text = make_key("bench", grants, now_ms=0, expires_at_ms=None)
    KeyFile(Path(directory) / KEYS_FILE).add(key)
    return text


# --- the flood


async def flood(host: str, port: int, key: str, rate: float, seconds: float) -> Counter[str]:
    """Wrong keys at a steady rate, each over a connection of its own; what became of them."""
    outcomes: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    attempts: set[asyncio.Task[None]] = set()
    for number in range(round(rate * seconds)):
        pause = begun + number / rate - loop.time()
        if pause > 0:
            await asyncio.sleep(pause)
        attempt = loop.create_task(_attempt(host, port, _wrong(key, number), outcomes))
        attempts.add(attempt)
        attempt.add_done_callback(attempts.discard)
    outcomes["seconds"] = round(loop.time() - begun)
    if attempts:
        await asyncio.wait(attempts)
    return outcomes


def _wrong(key: str, number: int) -> str:
    """Every kind in turn: nonsense, an id that is not known, and a secret that is wrong."""
    id = key.split("_")[1]
    secret = secrets.token_urlsafe(32)
    return (f"flint_{id}_{secret}", f"flint_{secrets.token_hex(8)}_{secret}", secret)[number % 3]


async def _attempt(host: str, port: int, key: str, outcomes: Counter[str]) -> None:
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        outcomes["not connected"] += 1
        return
    try:
        frame = encode_frame(Op.OPEN, 1, encode(OpenRequest(auth=["key", key])))
        writer.write(b"".join([client_hello(), *frame]))
        answer = await asyncio.wait_for(reader.read(4096), ANSWER_SECONDS)
        if len(answer) == HELLO_BYTES:  # the hello; what it thinks of the key comes later
            answer = await asyncio.wait_for(reader.read(4096), ANSWER_SECONDS)
        outcomes["answered" if b"NotAuthenticated" in answer else "dropped"] += 1
    except TimeoutError:
        outcomes["not answered"] += 1
    except OSError:
        outcomes["dropped"] += 1
    finally:
        writer.transport.abort()


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that does nothing: what the flood costs without a broker."""
    await reader.read(4096)
    writer.transport.abort()


async def run_flood(url: str, key: str, rate: float, seconds: float) -> Counter[str]:
    if url != BARE:
        host, _, port = url.removeprefix("flint://").rpartition(":")
        return await flood(host, int(port), key, rate, seconds)
    async with await asyncio.start_server(_hang_up, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()
        return await flood(address[0], address[1], key, rate, seconds)


# --- everybody else


async def latencies(mq: flintmq.Client, seconds: float) -> list[float]:
    """Publish at a steady pace, and say in milliseconds how long each took."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        await mq.publish("orders", b"x" * 100)
        taken.append((time.perf_counter() - start) * 1000)
        await asyncio.sleep(max(0.0, PACE_SECONDS - (time.perf_counter() - start)))
    return taken


def percentile(taken: list[float], share: float) -> float:
    return sorted(taken)[min(len(taken) - 1, int(len(taken) * share))]


async def measure(rate: float, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="flintmq-") as directory:
        key = add_key(directory)
        process = Process(directory)
        try:
            return await _measured(process, key, rate, seconds)
        finally:
            process.end(signal.SIGTERM)


async def _measured(process: Process, key: str, rate: float, seconds: float) -> dict[str, Any]:
    figures: dict[str, Any] = {"rate": rate, "seconds": seconds}
    async with flintmq.connect(process.url, api_key=key) as mq:
        await mq.create_topic("orders", storage="memory", retention_count=1000)
        await latencies(mq, 1.0)  # warm
        memory = [process.memory_mib()]
        phases = {"before": await latencies(mq, seconds / 2)}
        phases["bare"], _ = await _beside(mq, BARE, key, rate, seconds)
        memory.append(process.memory_mib())
        phases["during"], figures["flood"] = await _beside(mq, process.url, key, rate, seconds)
        memory.append(process.memory_mib())
        phases["after"] = await latencies(mq, seconds / 2)
        memory.append(process.memory_mib())
    for name, taken in phases.items():
        figures[f"{name}_p50_ms"] = round(percentile(taken, 0.5), 3)
        figures[f"{name}_p99_ms"] = round(percentile(taken, 0.99), 3)
    figures["p99_to_bare"] = round(figures["during_p99_ms"] / figures["bare_p99_ms"], 2)
    figures["p50_to_bare"] = round(figures["during_p50_ms"] / figures["bare_p50_ms"], 2)
    figures["p99_ratio"] = round(figures["during_p99_ms"] / figures["before_p99_ms"], 2)
    figures["p50_ratio"] = round(figures["during_p50_ms"] / figures["before_p50_ms"], 2)
    figures["memory_mib"] = [round(one, 1) for one in memory]
    return figures


async def _beside(
    mq: flintmq.Client, url: str, key: str, rate: float, seconds: float
) -> tuple[list[float], dict[str, int]]:
    """Latencies while a process of its own floods that place; and what became of the flood."""
    attacker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.wrong_keys", "--flood", url),
        *("--rate", str(rate), "--seconds", str(seconds)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert attacker.stdout is not None
    assert attacker.stdin is not None
    # Not as an argument: those are seen by everybody.
    attacker.stdin.write(f"{key}\n".encode())
    attacker.stdin.close()
    assert await attacker.stdout.readline() == b"begins\n"
    taken = await latencies(mq, seconds)
    outcomes: dict[str, int] = json.loads(await attacker.stdout.readline())
    await attacker.wait()
    return taken, outcomes


def show(figures: dict[str, Any]) -> None:
    print(f"{'':10} {'p50 ms':>10} {'p99 ms':>10} {'memory MiB':>12}")
    for name, memory in zip(
        ("before", "bare", "during", "after"), figures["memory_mib"], strict=True
    ):
        p50, p99 = figures[f"{name}_p50_ms"], figures[f"{name}_p99_ms"]
        print(f"{name:10} {p50:10.3f} {p99:10.3f} {memory:12.1f}")
    print(f"during / before: p50 {figures['p50_ratio']:.2f}, p99 {figures['p99_ratio']:.2f} (<= 2)")
    print(f"during / bare: p50 {figures['p50_to_bare']:.2f}, p99 {figures['p99_to_bare']:.2f}")
    print(f"of the flood: {figures['flood']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0, help="wrong keys a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--flood", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if arguments.flood:
            key = sys.stdin.readline().strip()
            print("begins", flush=True)
            outcomes = runner.run(
                run_flood(arguments.flood, key, arguments.rate, arguments.seconds)
            )
            print(json.dumps(outcomes), flush=True)
            return
        facts = machine()
        print(f"{arguments.rate:g} wrong keys a second: {machine_line(facts)}")
        figures = runner.run(measure(arguments.rate, arguments.seconds))
    show(figures)
    print(json.dumps({**facts, **figures}))


if __name__ == "__main__":
    main()
