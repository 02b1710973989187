"""What is printed leaves whole, and what a reader has taken is known."""

from __future__ import annotations

import asyncio
import io
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import BinaryIO

import pytest

import flintmq
from flintmq.cli.outlet import Outlet
from flintmq.cli.streams import PatientFile

from .slow_readers import Way, run

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ours, theirs = os.pipe()
    yield ours, theirs
    for end in (ours, theirs):
        try:
            os.close(end)
        except OSError:
            continue


def read_all(end: int, size: int) -> tuple[Thread, bytearray]:
    found = bytearray()

    def work() -> None:
        while len(found) < size:
            found.extend(os.read(end, 100_000))

    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread, found


def end_of(pipe: Pipe) -> BinaryIO:
    return os.fdopen(pipe[1], "wb", buffering=0, closefd=False)


def wait_for_bytes(end: int) -> None:
    select.select([end], [], [], 60)


def test_a_write_to_a_pipe_that_does_not_block_waits_until_all_has_left(pipe: Pipe) -> None:
    os.set_blocking(pipe[1], False)
    data = bytes(range(256)) * 20_000
    thread, found = read_all(pipe[0], len(data))
    file = PatientFile(pipe[1])
    assert file.write(data) == len(data)
    assert io.BufferedWriter(file).write(b"") == 0
    thread.join(60)
    assert found == data


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("blocks", [True, False])
async def test_large_lines_leave_whole(pipe: Pipe, blocks: bool, exact: bool) -> None:
    os.set_blocking(pipe[1], blocks)
    lines = [b"a" * 300_000 + b"\n", b"\n", b"b" * 5000 + b"\n"]
    thread, found = read_all(pipe[0], sum(map(len, lines)))
    async with Outlet(end_of(pipe), exact=exact) as out:
        await out.print(lines)
        assert out.left == 3
    await asyncio.to_thread(thread.join, 60)
    assert bytes(found) == b"".join(lines)
    assert os.get_blocking(pipe[1]) is blocks


async def test_a_line_has_left_when_the_reader_has_taken_it(pipe: Pipe) -> None:
    async with Outlet(end_of(pipe), exact=True) as out:
        await out.print([b"one\n", b"two\n", b"three\n"], seconds=0)
        assert (out.left, out.begun) == (0, 1)
        assert os.read(pipe[0], 100) == b"one\n"
        await out.print([b"one\n", b"two\n", b"three\n"], seconds=0)
        assert (out.left, out.begun) == (1, 1)
        assert os.read(pipe[0], 100) == b"two\n"
        await out.print([b"two\n"])
        assert (out.left, out.begun) == (1, 0)


async def test_what_a_reader_has_taken_before_it_went_is_known(pipe: Pipe) -> None:
    async with Outlet(end_of(pipe), exact=True) as out:
        out._total = 5000  # five at once by now
        lines = [b"%d\n" % number for number in range(10)]
        await out.print(lines, seconds=0)
        assert (out.left, out.begun) == (0, 5)
        assert os.read(pipe[0], 5) == b"0\n1\n2"
        os.close(pipe[0])
        with pytest.raises(BrokenPipeError):
            await out.print(lines)
        assert out.left == 2


async def test_who_is_cancelled_knows_what_has_left(pipe: Pipe) -> None:
    async with Outlet(end_of(pipe), exact=True) as out:
        printing = asyncio.ensure_future(out.print([b"one\n", b"two\n"]))
        assert await asyncio.to_thread(os.read, pipe[0], 100) == b"one\n"
        await asyncio.to_thread(wait_for_bytes, pipe[0])  # the second is in the pipe
        printing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await printing
        assert (out.left, out.begun) == (1, 1)


async def test_a_reader_that_goes_is_noticed_while_nothing_is_printed(pipe: Pipe) -> None:
    async with Outlet(end_of(pipe)) as out:
        assert await out.unless_gone(asyncio.sleep(0, "done")) == "done"
        waiting = asyncio.ensure_future(out.unless_gone(asyncio.Event().wait()))
        os.close(pipe[0])
        with pytest.raises(BrokenPipeError):
            await waiting


async def test_a_pipe_has_its_size_again_afterwards(pipe: Pipe) -> None:
    fcntl = pytest.importorskip("fcntl", reason="NOT TESTED: no pipes of Linux here")
    before = fcntl.fcntl(pipe[1], fcntl.F_GETPIPE_SZ)
    async with Outlet(end_of(pipe), exact=True):
        assert fcntl.fcntl(pipe[1], fcntl.F_GETPIPE_SZ) == 4096
    assert fcntl.fcntl(pipe[1], fcntl.F_GETPIPE_SZ) == before


# --- with real processes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "readers"),
    [
        (Way(True, True), ("while read", "head -1", "nobody reads; sub is stopped")),
        (Way(False, False), ("sleep, then cat", "slow; sub is stopped", "large: one line")),
    ],
    ids=["uvloop, unbuffered", "asyncio"],
)
def test_what_slow_readers_got_is_what_was_acknowledged(way: Way, readers: tuple[str, ...]) -> None:
    """A slice of scripts/slow-readers."""
    assert run(20_000, 5, 1, [way], lambda reader: reader.name in readers) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["copy", "orders", "-"], ["sub", "orders"], ["topic", "peek", "orders", "--count", "5000"]],
)
def test_a_pipe_that_somebody_made_non_blocking_gets_everything(
    tmp_path: Path, arguments: list[str]
) -> None:
    with flintmq.connect_sync(f"file://{tmp_path}/data") as mq:
        mq.publish_batch("orders", [b"order %d, " % number * 10 for number in range(5000)])
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with subprocess.Popen(
        [sys.executable, "-m", "flintmq.cli", *arguments],
        env={**os.environ, "FLINTMQ_SERVER": f"file://{tmp_path}/data", "PYTHONUNBUFFERED": "1"},
        stdout=theirs,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(theirs)
        with open(ours, "rb") as source:
            lines = source.read().splitlines()
        assert process.wait(60) == 0
    assert len(lines) == 5000
    assert b"order 4999" in lines[-1]
