"""Servers beside us: started on loopback, watched while they start, ended by their process id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 30.0


class DidNotStart(Exception):
    """A server ended, or did not listen in time; the text has the last it said."""


def free_port() -> int:
    """A port of loopback that nobody listens on at this moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def server(
    command: Sequence[str],
    log: Path,
    *,
    port: int,
    environment: Mapping[str, str] | None = None,
    start_seconds: float = START_SECONDS,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens on `port` from when the block begins until it ends.

    It leads a session of its own: a Ctrl-C is ours to handle, and what it started ends with it.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if environment is None else {**os.environ, **environment},
            cwd=log.parent,
            start_new_session=True,
        )
        try:
            wait_listening(port, process, log, start_seconds)
            yield process
        finally:
            stop(process)


def wait_listening(
    port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = START_SECONDS
) -> None:
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    said = " ".join(log.read_text(errors="replace").split())[-300:]
    raise DidNotStart(said or "it ended without a word")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads its own session, and whatever it has started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
