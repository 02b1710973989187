"""HermesMQ's own measurements, through our front end: the rows of its performance page.

    .venv/bin/python -m benchmarks.hermes_front --rounds 3

`flintmq hermesd` runs in a process of its own and syncs before it answers, as HermesMQ does. The
client is bare sockets and hand-made frames with TCP_NODELAY, as in the run of theirs whose figures
stand beside ours: HermesMQ 0.6.5, built for release, on a like machine with 2 cores. That was
another run, and another day: compare with care. The last column is a ratio within this run: how
many times faster than one request after the other. One table and one JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from statistics import median

from .report import machine, machine_line

PAYLOAD = b"x" * 256
UNDER_WAY = 32
"""What their client for Node has under way on a connection."""
Address = tuple[str, int]

THEIRS = {
    "(the disk: bare syncs)": "",
    "sequential": "1,438",
    "4 connections": "3,538",
    "pipelined": "6,668-20,720",
    "32 under way, as produceMany": "17,241",
    "poll 256, ack each": "1,313",
    "push + ack": "17,476-20,599",
    "push latency p50, ms": "1.49",
    "push latency p99, ms": "2.26",
    "length and body apart": "23",
}


# --- a client


def number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(field: int, value: bytes) -> bytes:
    return bytes((field << 3 | 2,)) + number(len(value)) + value


def frame(kind: int, body: bytes) -> bytes:
    message = text(kind, body)
    return struct.pack(">I", len(message)) + message


def produce(topic: bytes) -> bytes:
    return frame(1, text(1, topic) + text(4, PAYLOAD))


def poll(topic: bytes, most: int) -> bytes:
    return frame(2, text(1, topic) + text(2, b"g") + b"\x18" + number(most) + b"\x20\xc0\xcf\x24")


def ack(topic: bytes, lease: int) -> bytes:
    return frame(3, text(1, topic) + text(2, b"g") + b"\x18" + number(lease))


def subscribe(topic: bytes, prefetch: int) -> bytes:
    return frame(12, text(1, topic) + text(2, b"g") + b"\x18" + number(prefetch))


class Wire:
    """A connection, blocking."""

    def __init__(self, address: Address, *, nodelay: bool = True) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(nodelay))
        self._buffer = bytearray()

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frames(self) -> list[bytes]:
        """Those that have come; one at least."""
        found: list[bytes] = []
        while not found:
            data = self._socket.recv(1 << 18)
            if not data:
                raise SystemExit("the broker has closed the connection")
            self._buffer += data
            at = 0
            while len(self._buffer) - at >= 4:
                (length,) = struct.unpack_from(">I", self._buffer, at)
                if len(self._buffer) - at - 4 < length:
                    break
                found.append(bytes(self._buffer[at + 4 : at + 4 + length]))
                at += 4 + length
            del self._buffer[:at]
        return found

    def call(self, request: bytes) -> bytes:
        self.write(request)
        (reply,) = self.frames()
        return reply

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def leases(reply: bytes) -> list[int]:
    """The lease ids of a Polled."""
    if reply[0] != 2 << 3 | 2:
        raise SystemExit(f"no messages but {reply!r}")
    _, at = varint(reply, 1)
    found = []
    while at < len(reply):
        length, at = varint(reply, at + 1)
        found.append(varint(reply, at + 1)[0])  # always there: our ids are never 0
        at += length
    return found


# --- the rows


def sequential(address: Address, count: int, *, apart: bool = False) -> float:
    request = produce(b"seq")
    with Wire(address, nodelay=not apart) as wire:
        wire.call(request)
        began = time.perf_counter()
        for _ in range(count):
            if apart:
                wire.write(request[:4])
                wire.write(request[4:])
                wire.frames()
            else:
                wire.call(request)
        return count / (time.perf_counter() - began)


def four_connections(address: Address, count: int) -> float:
    began = time.perf_counter()
    threads = [threading.Thread(target=sequential, args=(address, count // 4)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count / (time.perf_counter() - began)


def pipelined(address: Address, count: int, topic: bytes = b"pipe") -> float:
    with Wire(address) as wire:
        wire.call(produce(topic))
        request = produce(topic)
        writer = threading.Thread(target=wire.write, args=(request * count,))
        began = time.perf_counter()
        writer.start()
        left = count
        while left:
            left -= len(wire.frames())
        writer.join()
        return count / (time.perf_counter() - began)


def produced_many(address: Address, count: int) -> float:
    """As `produceMany` of their client for Node has it: one connection, 32 produces under way."""
    with Wire(address) as wire:
        request = produce(b"many")
        wire.call(request)
        began = time.perf_counter()
        sent = min(count, UNDER_WAY)
        wire.write(request * sent)
        answered = 0
        while answered < count:
            replies = wire.frames()
            if not all(reply.startswith(b"\x0a") for reply in replies):
                raise SystemExit(f"a produce failed: {replies!r}")
            answered += len(replies)
            more = min(len(replies), count - sent)
            if more:
                wire.write(request * more)
                sent += more
        return count / (time.perf_counter() - began)


def drained(address: Address, count: int) -> float:
    topic = b"drain"
    pipelined(address, count - 1, topic)
    done = 0
    with Wire(address) as wire:
        began = time.perf_counter()
        while done < count:
            for lease in leases(wire.call(poll(topic, 256))):
                wire.call(ack(topic, lease))
                done += 1
        return count / (time.perf_counter() - began)


def pushed(address: Address, count: int) -> float:
    topic = b"push"
    pipelined(address, count - 1, topic)
    done = 0
    with Wire(address) as wire:
        began = time.perf_counter()
        wire.write(subscribe(topic, 64))
        while done < count:
            found = [lease for reply in wire.frames() for lease in leases(reply)]
            wire.write(b"".join([ack(topic, lease) for lease in found]))
            done += len(found)
        return count / (time.perf_counter() - began)


def latencies(address: Address, count: int) -> list[float]:
    """From writing a produce to having read its push, one after the other; milliseconds."""
    topic, taken = b"latency", []
    with Wire(address) as producer, Wire(address) as subscriber:
        subscriber.write(subscribe(topic, 16))
        request = produce(topic)
        for _ in range(count + 20):
            began = time.perf_counter()
            producer.write(request)
            (reply,) = subscriber.frames()
            taken.append((time.perf_counter() - began) * 1000)
            producer.frames()
            subscriber.write(ack(topic, leases(reply)[0]))
    return sorted(taken[20:])


def bare_syncs(count: int) -> float:
    """What the disk itself does: a write of 512 bytes that is synced, and nothing else."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(512 * count))
        file.flush()
        os.fsync(file.fileno())
        began = time.perf_counter()
        for number in range(count):
            os.pwrite(file.fileno(), b"x" * 512, 512 * number)
            os.fdatasync(file.fileno())
        return count / (time.perf_counter() - began)


# --- the run


@contextlib.contextmanager
def daemon(*arguments: str, site: str = "") -> Iterator[Address]:
    """`flintmq hermesd` in a process of its own; of another build, where its place is given."""
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "flintmq.cli", "hermesd", "--data-dir", directory),
                *("--client-addr", "127.0.0.1:0", "--metrics-addr", "off", *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": site} if site else None,
        )
        assert process.stdout is not None
        try:
            host, _, port = (
                process.stdout.readline().split("hermes://")[1].split(",")[0].rpartition(":")
            )
            yield host, int(port)
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


ROWS: dict[str, Callable[[Address, float], float]] = {
    "(the disk: bare syncs)": lambda address, scale: bare_syncs(int(1000 * scale)),
    "sequential": lambda address, scale: sequential(address, int(1000 * scale)),
    "length and body apart": lambda address, scale: sequential(
        address, int(300 * scale), apart=True
    ),
    "4 connections": lambda address, scale: four_connections(address, int(2000 * scale)),
    "pipelined": lambda address, scale: pipelined(address, int(10_000 * scale)),
    "32 under way, as produceMany": lambda address, scale: produced_many(
        address, int(10_000 * scale)
    ),
    "poll 256, ack each": lambda address, scale: drained(address, int(1300 * scale)),
    "push + ack": lambda address, scale: pushed(address, int(10_000 * scale)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of messages")
    given = parser.parse_args()
    facts = machine()
    found: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        for name, row in ROWS.items():
            with daemon() as address:
                found.setdefault(name, []).append(row(address, given.scale))
        with daemon() as address:
            taken = latencies(address, int(500 * given.scale))
        for share in (50, 99):
            figure = taken[round((len(taken) - 1) * share / 100)]
            found.setdefault(f"push latency p{share}, ms", []).append(figure)
    print(f"HermesMQ's measurements through FlintMQ's front end, median of {given.rounds} runs")
    print(machine_line(facts), end="\n\n")
    print(f"{'messages a second':28} {'FlintMQ':>10} {'min-max':>17} {'HermesMQ':>15} {'ratio':>7}")
    one = median(found["sequential"])
    for name, figures in found.items():
        digits = 2 if name.endswith("ms") else 0
        spread = f"{min(figures):,.{digits}f}-{max(figures):,.{digits}f}"
        ratio = "" if digits else f"{median(figures) / one:.1f}"
        print(
            f"{name:28} {median(figures):>10,.{digits}f} {spread:>17} {THEIRS[name]:>15} {ratio:>7}"
        )
    print()
    print(json.dumps({"benchmark": "hermes_front", "machine": facts, "rows": found}))


if __name__ == "__main__":
    main()
