"""Streams over HTTP: what an idle client costs, and one topic to thousands of them.

    .venv/bin/python -m benchmarks.http_streams --clients 2000 --messages 50 --rounds 3

A real `flintmq serve` with `--http-cpu-share 1`, and the clients in a process of their own. Memory
is what is resident (/proc, so Linux only). Fan-out counts messages that have arrived at clients:

    single   one message is published, and the next when all clients have it
    burst    all are published at once

The bare loop writes as many bytes to as many sockets, with nothing else to do, and its clients
count the same way: of a burst, it writes all to a client at once, which no broker can do better.
One table and one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Literal, cast

import flintmq
from flintmq.daemon.process import loop_factory

from .report import machine, machine_line

Kind = Literal["sse", "ws"]
KINDS: tuple[Kind, ...] = ("sse", "ws")
PATH = "/api/v1/topics/fan/stream"
AT_ONCE = 100
QUIET_SECONDS = 1.0
GIVE_UP_SECONDS = 120.0


class StreamClient(asyncio.Protocol):
    """Opens one stream, and counts the messages that come."""

    def __init__(self, kind: Kind, counts: Counts) -> None:
        self._kind = kind
        self._counts = counts
        self._rest = b""
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        lines = [f"GET {PATH} HTTP/1.1", "Host: 127.0.0.1"]
        if self._kind == "ws":
            nonce = base64.b64encode(os.urandom(16)).decode()
            lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
            lines.append(f"Sec-WebSocket-Key: {nonce}")
        # uvloop's transports are no subclass of asyncio's.
        cast(asyncio.Transport, transport).write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        self._rest += data
        if not self._is_open:
            head, found, rest = self._rest.partition(b"\r\n\r\n")
            if not found:
                return
            if b" 200 " not in head[:20] and b" 101 " not in head[:20]:
                self._counts.failed.append(head.decode(errors="replace"))
                return
            self._is_open, self._rest = True, rest
            self._counts.opened += 1
            data = rest
        self._counts.bytes += len(data)
        self._counts.arrived += self._events() if self._kind == "sse" else self._frames()

    def _events(self) -> int:
        whole, _, self._rest = self._rest.rpartition(b"\n\n")
        return whole.count(b"data: ")

    def _frames(self) -> int:
        """Frames of a server have no mask: kind, length, and what is in them.

        A ping of the server is not counted, and not answered: a round is shorter than its patience.
        """
        count = place = 0
        data = self._rest
        while len(data) - place >= 4:
            kind, length, begin = data[place] & 15, data[place + 1], place + 2
            if length == 126:
                length, begin = int.from_bytes(data[begin : begin + 2], "big"), begin + 2
            if begin + length > len(data):
                break
            place = begin + length
            count += kind in (1, 2)
        self._rest = data[place:]
        return count

    def connection_lost(self, error: Exception | None) -> None:
        self._counts.lost += 1


class Counts:
    """Of all clients of the process together."""

    def __init__(self) -> None:
        self.opened = self.arrived = self.lost = self.bytes = 0
        self.failed: list[str] = []


def clients(kind: Kind, port: int, count: int, pipe: Connection) -> None:
    """The process of the clients: says when all are open, then answers how many messages came."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        counts = Counts()
        for start in range(0, count, AT_ONCE):
            await asyncio.gather(
                *(
                    loop.create_connection(lambda: StreamClient(kind, counts), "127.0.0.1", port)
                    for _ in range(min(AT_ONCE, count - start))
                )
            )
            while counts.opened < min(start + AT_ONCE, count) and not counts.failed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        pipe.send(counts.failed[:1])
        while (wanted := await loop.run_in_executor(None, pipe.recv)) is not None:
            give_up = time.monotonic() + GIVE_UP_SECONDS
            while (  # noqa: ASYNC110
                counts.arrived < wanted and counts.lost == 0 and time.monotonic() < give_up
            ):
                await asyncio.sleep(0.001)
            pipe.send((counts.arrived, counts.lost, counts.bytes))

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run())


@contextmanager
def opened(kind: Kind, port: int, count: int) -> Iterator[Connection]:
    """That many clients; the block asks them how many messages have come."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=clients, args=(kind, port, count, theirs), daemon=True
    )
    process.start()
    try:
        if failed := ours.recv():
            raise RuntimeError(f"a stream was refused: {failed[0]}")
        yield ours
    finally:
        process.terminate()
        process.join()


def wait_arrived(pipe: Connection, wanted: int) -> int:
    """How many bytes have come since the begin."""
    pipe.send(wanted)
    arrived, lost, size = pipe.recv()
    if arrived != wanted or lost:
        raise RuntimeError(f"{arrived:,} of {wanted:,} messages arrived; {lost} streams ended")
    return int(size)


@contextmanager
def broker(connections: int) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """A broker that lives on HTTP: its process, its URL, its port of HTTP."""
    with tempfile.TemporaryDirectory(prefix="flintmq-") as directory:
        command = [sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", directory]
        command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--http-cpu-share", "1"]
        command += ["--http-max-connections", str(connections + 10)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        try:
            url, http, _ = process.stdout.readline().split("ready at ")[1].split(", ", 2)
            yield process, url, int(http.rpartition(":")[2])
        finally:
            process.terminate()
            process.wait()


def resident_kib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Fan:
    """Publishes to all streams of a broker, and says what that took."""

    def __init__(self, process: int, pipe: Connection, mq: flintmq.Client, count: int) -> None:
        self._process, self._pipe, self._mq, self._count = process, pipe, mq, count
        self._wanted = 0

    async def lot(self, number: int) -> int:
        """That many at once, and wait for them."""
        await asyncio.gather(*(self._mq.publish("fan", b"x" * 100) for _ in range(number)))
        self._wanted += number * self._count
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, wait_arrived, self._pipe, self._wanted)

    async def timed(self, lots: list[int]) -> tuple[float, float]:
        """Messages a second, and what each cost the broker in microseconds of the processor."""
        spent, start = processor_seconds(self._process), time.perf_counter()
        for number in lots:
            await self.lot(number)
        seconds = time.perf_counter() - start
        used = processor_seconds(self._process) - spent
        total = sum(lots) * self._count
        return total / seconds, used * 1e6 / total


async def measured(kind: Kind, count: int, messages: int) -> dict[str, float]:
    """Memory of idle clients, then what is published to all of them."""
    with broker(count) as (process, url, port):
        async with flintmq.connect(url) as mq:
            await mq.create_topic("fan", storage="memory")
            await asyncio.sleep(QUIET_SECONDS)
            before = resident_kib(process.pid)
            with opened(kind, port, count) as pipe:
                await asyncio.sleep(QUIET_SECONDS)
                figures = {"KiB each": (resident_kib(process.pid) - before) / count}
                fan = Fan(process.pid, pipe, mq, count)
                figures["bytes"] = await fan.lot(1) / count
                single, burst = [1] * messages, [messages] * 4
                figures["single/s"], figures["single us"] = await fan.timed(single)
                figures["burst/s"], figures["burst us"] = await fan.timed(burst)
                figures["KiB after"] = (resident_kib(process.pid) - before) / count
            return figures


def one_message(kind: Kind, size: int) -> bytes:
    """As many bytes as the broker writes for one message, as the bare loop will write them."""
    body = b"y" * size
    while True:
        event = b"id: 0\ndata: " + body + b"\n\n"
        made = b"%x\r\n%b\r\n" % (len(event), event)
        if kind == "ws":
            made = bytes([0x81, 126]) + len(body).to_bytes(2, "big") + body
        if len(made) <= size:
            return made
        body = body[: -(len(made) - size)]


def bare_loop(kind: Kind, size: int, pipe: Connection) -> None:
    """A server that does nothing but write the same bytes to every client that is there."""

    class Writer(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)

        def data_received(self, data: bytes) -> None:
            self.transport.write(b"HTTP/1.1 200 OK\r\n\r\n")
            transports.append(self.transport)

    transports: list[asyncio.Transport] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Writer, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        data = one_message(kind, size)
        while (number := await loop.run_in_executor(None, pipe.recv)) is not None:
            lot = data * number
            for transport in transports:
                transport.write(lot)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run())


def bare(kind: Kind, count: int, messages: int, size: int) -> dict[str, float]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=bare_loop, args=(kind, size, theirs), daemon=True
    )
    process.start()
    try:
        with opened(kind, ours.recv(), count) as pipe:
            figures = {}
            wanted = 0
            for name, lots in (("bare single", [1] * messages), ("bare burst", [messages] * 4)):
                spent, start = processor_seconds(process.pid or 0), time.perf_counter()
                for number in lots:
                    ours.send(number)
                    wanted += number * count
                    wait_arrived(pipe, wanted)
                total = sum(lots) * count
                figures[f"{name}/s"] = total / (time.perf_counter() - start)
                used = processor_seconds(process.pid or 0) - spent
                figures[f"{name} us"] = used * 1e6 / total
            return figures
    finally:
        process.terminate()
        process.join()


NAMES = (
    "KiB each", "KiB after", "bytes", "single/s", "bare single/s", "single us", "bare single us",
    "burst/s", "bare burst/s", "burst us", "bare burst us",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--messages", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    facts = machine()
    print(f"{options.clients:,} clients, 1:{options.clients:,} fan-out; {machine_line(facts)}\n")
    print(f"{'':4}" + "".join(f"{name:>15}" for name in NAMES) + f"{'single x':>10}{'burst x':>9}")
    result: dict[str, object] = {"benchmark": "http_streams", "clients": options.clients}
    for kind in KINDS:
        rounds = []
        for _ in range(options.rounds):
            figures = asyncio.run(measured(kind, options.clients, options.messages))
            size = round(figures["bytes"])
            figures |= bare(kind, options.clients, options.messages, size)
            for name in ("single", "burst"):
                figures[f"{name} x"] = figures[f"{name}/s"] / figures[f"bare {name}/s"]
            rounds.append(figures)
        found = {name: median(one[name] for one in rounds) for name in rounds[0]}
        shown = "".join(f"{found[name]:>15,.1f}" for name in NAMES)
        print(f"{kind:4}{shown}{found['single x']:>10.2f}{found['burst x']:>9.2f}")
        result[kind] = found
    print(json.dumps({**result, "machine": facts}))


if __name__ == "__main__":
    main()
