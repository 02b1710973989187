"""Publish, and poll + ack, over plain HTTP with keep-alive, beside RabbitMQ's HTTP API.

    .venv/bin/python -m benchmarks.http_api --rounds 3 --seconds 3

Both servers run on this machine, and the clients in a process of their own. A message is 100 bytes.
FlintMQ: one `POST …/messages` with the raw value for each message, and a poll of one message
followed by its ack. RabbitMQ: `POST /api/exchanges/…/publish` (answered once it is routed, not once
it is stored), and `POST /api/queues/…/get` of one message that acknowledges it at once. Its
documents call this API one for diagnostics; it is the nearest that a peer has. Redpanda's REST
proxy cannot be had from a package registry.

Meanwhile another client of FlintMQ's native protocol publishes and reads one message at a time:
p99 before and during, with the share of HTTP as it is by default (a tenth) and with all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import quote

import flintmq
from flintmq.daemon.process import loop_factory

from .http_hammer import latencies
from .installing import CannotInstall
from .peers.install import install
from .peers.servers import rabbitmq_server
from .processes import free_port
from .report import machine, machine_line

VALUE = "x" * 100
SAVED_SECONDS = 3.0
"""By then HTTP has spent the share that it saved up while nobody asked."""
GUEST = base64.b64encode(b"guest:guest").decode()


class HttpLine:
    """One connection that is kept alive: a request, its answer, the next. Where the server ends it
    (RabbitMQ's does after 1,000 requests), the next request opens another."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        self._streams = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, method: str, path: str, body: str, headers: str) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        if self._streams is None:
            await self.open()
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(f"{head}{headers}\r\n{body}".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if answer[9:10] != b"2":
            raise RuntimeError(answer.decode(errors="replace"))
        length = answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        content = await reader.readexactly(int(length)) if length else b""
        if b"connection: close" in answer.lower():
            writer.close()
            self._streams = None
        return content


class Target(NamedTuple):
    """A server that is asked, and how."""

    peer: str
    port: int

    async def publish(self, line: HttpLine) -> int:
        if self.peer == "rabbitmq":
            body = {"properties": {"delivery_mode": 2}, "routing_key": "hot"}
            body |= {"payload": VALUE, "payload_encoding": "string"}
            path = "/api/exchanges/%2F/amq.default/publish"
            await line.ask("POST", path, json.dumps(body), RABBIT)
        else:
            await line.ask("POST", "/api/v1/topics/hot/messages", VALUE, PLAIN)
        return 1

    async def consume(self, line: HttpLine) -> int:
        if self.peer == "rabbitmq":
            body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
            answer = await line.ask("POST", "/api/queues/%2F/hot/get", json.dumps(body), RABBIT)
            return len(json.loads(answer))
        group = "/api/v1/topics/hot/groups/g"
        answer = await line.ask("POST", f"{group}/poll", '{"max": 1, "lease": 60}', JSON)
        leases = [one["lease"] for one in json.loads(answer)["messages"]]
        if leases:
            await line.ask("POST", f"{group}/ack", json.dumps({"leases": leases}), JSON)
        return len(leases)


JSON = "Content-Type: application/json\r\n"
PLAIN = "Content-Type: text/plain\r\n"
RABBIT = f"{JSON}Authorization: Basic {GUEST}\r\n"


def drive(target: Target, verb: str, connections: int, seconds: float, pipe: Connection) -> None:
    """The process of the clients: how many messages a second."""

    async def run() -> float:
        lines = [HttpLine(target.port) for _ in range(connections)]
        for line in lines:
            await line.open()
        begin = time.perf_counter()

        async def one(line: HttpLine) -> int:
            count = 0
            while time.perf_counter() < begin + seconds:
                done = await getattr(target, verb)(line)
                if not done:
                    break  # the backlog is drained
                count += done
            return count

        total = sum(await asyncio.gather(*(one(line) for line in lines)))
        return total / (time.perf_counter() - begin)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        pipe.send(runner.run(run()))


class Driving:
    def __init__(self, target: Target, verb: str, connections: int, seconds: float) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=drive, args=(target, verb, connections, seconds, theirs), daemon=True
        )
        self._process.start()
        theirs.close()  # so that its end is the end of ours, too

    def result(self) -> float:
        rate: float = self._ours.recv()
        self._process.join()
        return rate


@contextlib.contextmanager
def flintmq_broker(share: float) -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory(prefix="flintmq-") as directory:
        command = [sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", directory]
        command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        command += ["--http-cpu-share", str(share), "--fsync", "interval:1000"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        try:
            url, http, _ = process.stdout.readline().split("ready at ")[1].split(", ", 2)
            yield url, int(http.rpartition(":")[2])
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def rabbitmq(script: Path) -> Iterator[int]:
    with tempfile.TemporaryDirectory(prefix="rabbitmq-") as directory:
        port = free_port()
        with rabbitmq_server(script, Path(directory), management_port=port):
            give_up = time.monotonic() + 60
            while True:
                try:
                    asyncio.run(declare(port))
                    break
                except (OSError, RuntimeError, asyncio.IncompleteReadError):
                    if time.monotonic() > give_up:
                        raise
                    time.sleep(0.2)
            yield port


async def declare(port: int) -> None:
    line = HttpLine(port)
    await line.ask("PUT", f"/api/queues/{quote('/', safe='')}/hot", '{"durable": true}', RABBIT)


def rates(target: Target, seconds: float) -> dict[str, float]:
    found = {}
    for connections in (1, 64):
        for verb in ("publish", "consume"):
            found[f"{verb} {connections}"] = Driving(target, verb, connections, seconds).result()
    return found


def beside(url: str, port: int, seconds: float) -> dict[str, float]:
    """p99 of a native client, alone and while 64 connections publish over HTTP."""

    async def measure() -> dict[str, float]:
        async with flintmq.connect(url) as mq:
            await mq.create_topic("latency", storage="memory")
            await mq.publish("latency", b"warm")
            return await latencies(mq, seconds)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        alone = runner.run(measure())
        driving = Driving(Target("flintmq", port), "publish", 64, seconds + SAVED_SECONDS + 1)
        time.sleep(SAVED_SECONDS)
        during = runner.run(measure())
    found = {"http/s": driving.result()}
    for name in ("receipt p99", "arrival p99"):
        found[f"{name} alone"], found[f"{name} during"] = alone[name], during[name]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    facts = machine()
    print(machine_line(facts))
    script = None
    try:
        installed = install(["rabbitmq"], say=lambda what: print(f"installing {what}"))
        script = installed.servers.get("rabbitmq")
        print(
            "".join(f"without {name}: {why}\n" for name, why in installed.missing.items()), end=""
        )
    except CannotInstall as error:
        print(f"without RabbitMQ: {error}")
    found: dict[str, list[dict[str, float]]] = {"flintmq": [], "rabbitmq": []}
    native: dict[str, list[dict[str, float]]] = {"0.1": [], "1": []}
    for _ in range(options.rounds):
        with flintmq_broker(1) as (_, port):
            found["flintmq"].append(rates(Target("flintmq", port), options.seconds))
        if script is not None:
            with rabbitmq(script) as port:
                found["rabbitmq"].append(rates(Target("rabbitmq", port), options.seconds))
        for share, taken in native.items():
            with flintmq_broker(float(share)) as (url, port):
                taken.append(beside(url, port, options.seconds))
    result: dict[str, object] = {"benchmark": "http_api", "machine": facts}
    print(f"\n{'messages/s':16}{'FlintMQ':>12}{'RabbitMQ':>12}{'ratio':>8}")
    for name in ("publish 1", "publish 64", "consume 1", "consume 64"):
        ours, theirs = (
            median([one[name] for one in found[peer]] or [0.0]) for peer in ("flintmq", "rabbitmq")
        )
        ratio = f"{ours / theirs:.2f}" if theirs else "-"
        print(f"{name:16}{ours:>12,.0f}{theirs:>12,.0f}{ratio:>8}")
        result[name] = {"flintmq": ours, "rabbitmq": theirs}
    print("\np99 of a native client, ms, alone and beside 64 connections that publish over HTTP")
    for share, taken in native.items():
        one = {name: median(figures[name] for figures in taken) for name in taken[0]}
        result[f"share {share}"] = one
        print(f"share {share:4} HTTP {one['http/s']:>7,.0f}/s", end="")
        for name in ("receipt", "arrival"):
            before, during = one[f"{name} p99 alone"], one[f"{name} p99 during"]
            print(f"   {name} {before:.2f} -> {during:.2f}", end="")
        print()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
