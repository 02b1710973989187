"""What durable scenarios are compared with: the bare disk, SQLite, Redis. And where they write.

Everything is below the directory for temporary files, and gone afterwards. Where that directory is
in memory, the figures say nothing: set TMPDIR to a directory of the disk that matters.
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

BARE_FILE_BYTES = 64 << 20
_ZEROS = bytes(1 << 20)


@contextmanager
def data_directory() -> Iterator[Path]:
    """A directory for one measurement. What was written before it is on the disk when it begins.

    On a shared disk that is not enough to make rows comparable: the same SQLite loop, which does
    not depend on how much is in flight, has differed by a factor of two and more between them.
    """
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as directory:
        os.sync()
        yield Path(directory)
    os.sync()


def calls_per_second(call: Callable[[], object], seconds: float) -> float:
    """How often a call can be made, one after the other."""
    call()
    count, start = 0, perf_counter()
    while (took := perf_counter() - start) < seconds or not count:
        call()
        count += 1
    return count / took


# --- the bare disk


def bare_disk(write_bytes: int, seconds: float, *, file_bytes: int = BARE_FILE_BYTES) -> float:
    """pwrite and fdatasync of so many bytes, on a file written with zeros: how often a second."""
    size = max(file_bytes, 4 * write_bytes)
    data = bytes(range(256)) * (write_bytes // 256 + 1)
    data = data[:write_bytes]
    with data_directory() as directory:
        descriptor = os.open(directory / "bare", os.O_RDWR | os.O_CREAT)
        try:
            for position in range(0, size, len(_ZEROS)):
                os.pwrite(descriptor, _ZEROS, position)
            os.fsync(descriptor)
            position = 0

            def write() -> None:
                nonlocal position
                os.pwrite(descriptor, data, position)
                os.fdatasync(descriptor)
                position += write_bytes
                if position + write_bytes > size:
                    position = 0

            return calls_per_second(write, seconds)
        finally:
            os.close(descriptor)


# --- SQLite


def sqlite_transactions(values: Sequence[bytes], seconds: float) -> float:
    """Transactions of these rows a second: WAL, synchronous=FULL, one connection."""
    rows = [(value,) for value in values]
    with data_directory() as directory:
        database = sqlite3.connect(directory / "queue.db", isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, value BLOB)")

            def commit() -> None:
                database.execute("BEGIN")
                database.executemany("INSERT INTO queue (value) VALUES (?)", rows)
                database.execute("COMMIT")

            return calls_per_second(commit, seconds)
        finally:
            database.close()


# --- Redis


def has_redis() -> bool:
    return shutil.which("redis-server") is not None


def redis_pipelines(values: Sequence[bytes], seconds: float) -> float:
    """Pipelines of an XADD for each value a second, with appendfsync always.

    The stream is kept short, so that it is the disk and not the memory that is measured.
    """
    with _redis_server() as connection:
        pipeline = b"".join(
            _command(b"XADD", b"queue", b"MAXLEN", b"~", b"1000", b"*", b"v", value)
            for value in values
        )
        replies = connection.makefile("rb")

        def exchange() -> None:
            connection.sendall(pipeline)
            for _ in values:
                head = replies.readline()
                if head[:1] != b"$":
                    raise RuntimeError(f"redis said {head!r}")
                replies.read(int(head[1:]) + 2)

        return calls_per_second(exchange, seconds)


@contextmanager
def _redis_server() -> Iterator[socket.socket]:
    with data_directory() as directory:
        path = str(directory / "redis.sock")
        server = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", path, "--dir", str(directory),
             "--appendonly", "yes", "--appendfsync", "always", "--save", "",
             "--auto-aof-rewrite-percentage", "0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            connection = _connected(path)
            try:
                yield connection
            finally:
                connection.close()
        finally:
            server.terminate()
            server.wait()


def _connected(path: str) -> socket.socket:
    deadline = time.monotonic() + 10
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
            return connection
        except OSError:
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _command(*words: bytes) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)
