"""What BlipMQ's clients get from us: QoS 0, QoS 1 and what is behind a PING, end to end.

    .venv/bin/python -m benchmarks.blip_front --messages 20000

A broker in a process of its own, synced before anything is acknowledged; clients are bare sockets
in two threads of this one, 100 bytes a message. One table and one JSON line. BlipMQ's figures are
those of its own `bench` on a machine of two cores like the ones we develop on, not of this run: QoS
1 there is in memory, and its durable run received 1,028 of 3,000.

One message for each POLL is a round trip for each: so the last row is what a loop that does nothing
but answer so many bytes reaches with the same client, in the same run.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIZE = 100
TOPIC = b"bench"
CHUNK = 500
"""Publishes that go out in one write."""
HELLO, AUTH, PUBLISH, SUBSCRIBE, ACK, PING, POLL = 1, 2, 3, 4, 5, 7, 9
DELIVERY_BYTES = 13 + 11 + len(TOPIC) + SIZE
POLLED_BYTES = 13 + 3 + len(TOPIC) + SIZE
FLAT_BYTES = 5 + 52 + SIZE
THEIRS = {"QoS 0, polled": 34_000, "QoS 0, pushed": 34_000, "QoS 1, polled": 162,
          "QoS 1, pushed": 162, "durable, PING behind each 500": 431}  # fmt: skip


@contextmanager
def broker() -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "flintmq.cli", "blipd", "--data-dir", directory]
        command += ["--listen", "127.0.0.1:0", "--blip", "127.0.0.1:0", "--http", "off"]
        process = subprocess.Popen(
            [*command, "--blip-queue-capacity", "1000000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            found = re.search(r"blip://([\d.]+):(\d+)", process.stdout.readline())
            assert found is not None, "the broker did not start"
            yield found[1], int(found[2])
        finally:
            process.terminate()
            process.wait()


ECHO = f"""
import asyncio
try:
    from uvloop import run
except ImportError:
    from asyncio import run

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(bytes({POLLED_BYTES}))

async def main():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

run(main())
"""


@contextmanager
def echo() -> Iterator[tuple[str, int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield "127.0.0.1", int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


def echoed(address: tuple[str, int], count: int) -> float:
    wire = Wire(address, 0)
    poll = frame(POLL, bytes(8))

    def consume() -> None:
        for _ in range(count):
            wire.socket.sendall(poll)
            wire.receive(POLLED_BYTES)

    return rate(count, lambda: None, consume)


class Wire:
    """A connection that has logged in."""

    def __init__(self, address: tuple[str, int], version: int) -> None:
        self.socket = socket.create_connection(address, 30)
        self._buffer = bytearray()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if version:
            self.ask(HELLO, struct.pack(">H", version), 8)
            self.ask(AUTH, struct.pack(">H", 1) + b"k", 8)

    def ask(self, type: int, payload: bytes, answer_bytes: int, id: int = 1) -> bytes:
        self.socket.sendall(frame(type, payload, id))
        return self.receive(13 + answer_bytes)

    def receive(self, count: int) -> bytes:
        data = self.socket.recv(count, socket.MSG_WAITALL)
        assert len(data) == count, "the broker has closed the connection"
        return data

    def frame(self) -> bytes:
        """The next one, whatever it is. Raises TimeoutError and keeps what there is of it."""
        buffer = self._buffer
        while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
            data = self.socket.recv(1 << 16)
            assert data, "the broker has closed the connection"
            buffer += data
        stop = 4 + int.from_bytes(buffer[:4], "big")
        found = bytes(buffer[:stop])
        del buffer[:stop]
        return found

    def subscribe(self, qos: int) -> int:
        payload = struct.pack(">H", len(TOPIC)) + TOPIC + bytes([qos])
        return int.from_bytes(self.ask(SUBSCRIBE, payload, 8)[13:], "big")


def frame(type: int, payload: bytes, id: int = 1) -> bytes:
    return struct.pack(">IBQ", 9 + len(payload), type, id) + payload


def publish_frame(qos: int) -> bytes:
    return frame(PUBLISH, struct.pack(">BH", qos, len(TOPIC)) + TOPIC + bytes(SIZE))


def flat_command(action: int, payload: bytes) -> bytes:
    """A command of the first protocol, without a ttl."""
    name = struct.pack("<I", len(TOPIC)) + TOPIC + b"\0"
    name += bytes(-len(name) % 4)
    data = struct.pack("<I", len(payload)) + payload
    table = struct.pack("<I6HiIQIb3x", 16, 12, 24, 20, 4, 16, 8, 12, 20, 0, 8 + len(name), action)
    body = table + name + data
    return struct.pack(">I", len(body)) + body


def rate(count: int, publish: Callable[[], None], consume: Callable[[], None]) -> float:
    """Messages a second until the last is received."""
    publisher = threading.Thread(target=publish)
    began = time.perf_counter()
    publisher.start()
    consume()
    seconds = time.perf_counter() - began
    publisher.join()
    return count / seconds


def publishing(wire: Wire, one: bytes, count: int) -> Callable[[], None]:
    def publish() -> None:
        for sent in range(0, count, CHUNK):
            wire.socket.sendall(one * min(CHUNK, count - sent))

    return publish


def drained(wire: Wire, total: int) -> None:
    while total:
        total -= len(wire.socket.recv(min(total, 1 << 20)))


def pushed(address: tuple[str, int], count: int, qos: int) -> float:
    subscriber, publisher = Wire(address, 2), Wire(address, 2)
    number = subscriber.subscribe(qos)
    acks = struct.pack(">Q", number)

    def consume() -> None:
        if not qos:
            drained(subscriber, count * DELIVERY_BYTES)
            return
        buffer = bytearray()
        received = 0
        while received < count:
            buffer += subscriber.socket.recv(1 << 20)
            whole = len(buffer) // DELIVERY_BYTES
            tags = [
                int.from_bytes(buffer[at + 5 : at + 13], "big")
                for at in range(0, whole * DELIVERY_BYTES, DELIVERY_BYTES)
            ]
            del buffer[: whole * DELIVERY_BYTES]
            received += whole
            subscriber.socket.sendall(b"".join(frame(ACK, acks, tag) for tag in tags))

    return rate(count, publishing(publisher, publish_frame(qos), count), consume)


def polled(address: tuple[str, int], count: int, qos: int) -> float:
    """As its own clients do: one POLL, one message, its ACK."""
    subscriber, publisher = Wire(address, 1), Wire(address, 1)
    number = struct.pack(">Q", subscriber.subscribe(qos))
    poll = frame(POLL, number)

    def consume() -> None:
        subscriber.socket.settimeout(0.05)
        seen: set[int] = set()
        received = 0
        while received < count:
            subscriber.socket.sendall(poll)
            try:
                got = subscriber.frame()
            except TimeoutError:
                continue
            if got[4] != PUBLISH:
                continue  # a late ACK was refused
            if qos:
                tag = int.from_bytes(got[5:13], "big")
                subscriber.socket.sendall(frame(ACK, number, tag))
                received += tag not in seen
                seen.add(tag)
            else:
                received += 1

    return rate(count, publishing(publisher, publish_frame(qos), count), consume)


def flat(address: tuple[str, int], count: int) -> float:
    subscriber, publisher = Wire(address, 0), Wire(address, 0)
    subscriber.socket.sendall(flat_command(1, b""))
    length = struct.unpack(">I", subscriber.receive(4))[0]
    subscriber.receive(length)
    return rate(
        count,
        publishing(publisher, flat_command(0, bytes(SIZE)), count),
        lambda: drained(subscriber, count * FLAT_BYTES),
    )


def durable(address: tuple[str, int], count: int) -> float:
    """Publishes of QoS 1 that a PONG stands for: on the disk."""
    wire = Wire(address, 1)
    some = publish_frame(1) * CHUNK

    def consume() -> None:
        for _ in range(0, count, CHUNK):
            wire.socket.sendall(some)
            wire.ask(PING, b"", 0)

    return rate(count, lambda: None, consume)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    wanted = parser.parse_args()
    count = max(CHUNK, wanted.messages // CHUNK * CHUNK)
    few = max(CHUNK, count // 10)
    cases: dict[str, tuple[int, Callable[[tuple[str, int], int], float]]] = {
        "first protocol, pushed": (count, flat),
        "QoS 0, polled": (few, lambda address, n: polled(address, n, 0)),
        "QoS 0, pushed": (count, lambda address, n: pushed(address, n, 0)),
        "QoS 1, polled": (few, lambda address, n: polled(address, n, 1)),
        "QoS 1, pushed": (count, lambda address, n: pushed(address, n, 1)),
        "durable, PING behind each 500": (count, durable),
        "a bare loop, one by one": (few, echoed),
    }
    figures: dict[str, dict[str, float | None]] = {}
    print(f"{'case':34}{'messages':>10}{'ours /s':>12}{'BlipMQ /s':>12}{'times':>8}")
    for name, (messages, work) in cases.items():
        with echo() if work is echoed else broker() as address:
            ours = work(address, messages)
        theirs = THEIRS.get(name)
        figures[name] = {"ours": round(ours), "theirs": theirs}
        shown = f"{theirs:>12,}{ours / theirs:8.1f}" if theirs else f"{'-':>12}{'-':>8}"
        print(f"{name:34}{messages:>10,}{ours:>12,.0f}{shown}", flush=True)
    print(json.dumps({"size": SIZE, "cases": figures}))


if __name__ == "__main__":
    main()
