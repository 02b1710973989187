"""The broker of a chaos run: one address, many lives."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.patience import PATIENCE_SECONDS, free_port

SMALL = (
    *("--checkpoint-bytes", "256KiB"),
    *("--journal-file-bytes", "256KiB"),
    *("--grace-seconds", "2"),
)
"""So that a short run has many journal files, checkpoints and segments behind it."""


EXPECTED = frozenset(
    {"disk_failed", "disk_full", "messages_damaged", "segment_damaged", "group_set_aside"}
)
"""Errors that a broker has to log when the disk is as bad as it is here."""
OF_DAMAGE = frozenset({"group_passed_damage"})
"""And where a bit was flipped."""


class BrokerFailed(Exception):
    """It did not start, or ended by itself where nothing was done to it."""


class ChaosBroker:
    def __init__(self, directory: Path, log: Path, options: Sequence[str] = SMALL) -> None:
        """`options` are those of `flintmq serve`."""
        self.directory = directory
        self._options = options
        self.address = ("127.0.0.1", free_port())
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.slowest_start_seconds = 0.0

    @property
    def url(self) -> str:
        return "flint://{}:{}".format(*self.address)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin_with(self, options: Sequence[str]) -> None:
        """From its next start on."""
        self._options = options

    def start(self) -> None:
        began = time.monotonic()
        output = self.launch()
        line = output.readline()  # it ends with the process
        if b"ready at" not in line:
            last = self._log.read_text().strip().rpartition("\n")[2]
            raise BrokerFailed(f"the broker did not start: {last[:500]}")
        self.slowest_start_seconds = max(self.slowest_start_seconds, time.monotonic() - began)

    def launch(self) -> IO[bytes]:
        """Begin to start it; what it says on stdout."""
        self._close_output()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", str(self.directory),
                 "--listen", "{}:{}".format(*self.address), *self._options],
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self.starts += 1
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def log(self) -> Path:
        return self._log

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)

    def stop(self) -> int:
        """In good order; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(PATIENCE_SECONDS)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def complaints(self, *, was_damaged: bool) -> list[str]:
        """What it logged as an error, or did not log at all but wrote: of disks aside, which fail
        here on purpose."""
        expected = EXPECTED | OF_DAMAGE if was_damaged else EXPECTED
        found = []
        for line in self._log.read_text().splitlines():
            told = json.loads(line) if line.startswith("{") else {}
            is_known = told.get("event") in expected or line.startswith("flintmq: the disk")
            if told.get("level") not in ("info", "debug", "warning") and not is_known:
                found.append(line[:500])
        return found

    def usage(self) -> tuple[int, int] | None:
        """Its memory, in KiB, and how many descriptors it has; None while it is not up."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
            descriptors = len(os.listdir(f"/proc/{self.pid}/fd"))
        except OSError:
            return None
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return None if found is None else (int(found[1]), descriptors)

    def leave(self) -> None:
        if self._process is not None:
            if self.is_up():
                self.go_on()
                self.kill()
            self._close_output()

    def _close_output(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
