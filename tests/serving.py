"""`flintmq serve` in a process of its own, for tests that only talk to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE_SECONDS


@contextmanager
def serving(directory: Path, listen: str = "127.0.0.1:0") -> Iterator[str]:
    """A broker; its URL. It has to end in good order. A test that fails shows what it logged."""
    command = [sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", str(directory)]
    with subprocess.Popen(
        [*command, "--listen", listen],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert "ready at " in line, f"the broker did not start: {line!r}"
            yield line.split("ready at ")[1].split(",")[0]
        finally:
            process.terminate()
            code = process.wait(PATIENCE_SECONDS)
        assert code == 0
