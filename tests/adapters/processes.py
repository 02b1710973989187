"""Programs of a framework as processes of their own: started, watched, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.patience import PATIENCE_SECONDS


def tool(name: str) -> str:
    """A command of a framework, from the environment the tests run in."""
    return str(Path(sys.executable).with_name(name))


@contextmanager
def started(
    command: Sequence[str], directory: Path, *, log: str, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a directory, with all of its children; what it says is in the file `log`."""
    with (
        (directory / log).open("ab") as said,
        subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **environment},
            stdout=said,
            stderr=said,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE_SECONDS)
            kill_all(process)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """As `kill -9` of the process and of its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)


def ran(command: Sequence[str], directory: Path, **environment: str) -> str:
    """What a program printed that ended well."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
