"""`flintmq serve` as a process of its own, for tests that start, stop, kill and measure it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

READY_SECONDS = 60


class Served:
    """A broker process. `end` and `kill` end it; what is left at the end of a test is killed."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        listen: str = "127.0.0.1:0",
        program: Sequence[str] = (sys.executable, "-m", "flintmq.cli"),
    ) -> None:
        self._command = [
            *(*program, "serve"),
            *("--data-dir", str(directory), "--listen", listen),
            *arguments,
        ]
        self._process: asyncio.subprocess.Process | None = None
        self.url = self.http = ""

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "it was not started"
        return self._process

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("flint://").rpartition(":")
        return host, int(port)

    async def launch(self, environment: Mapping[str, str] | None = None) -> None:
        """Start the process; it may not be ready yet."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )

    async def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = (await asyncio.wait_for(self.process.stdout.readline(), READY_SECONDS)).decode()
        if "ready at " not in line:
            raise AssertionError(f"it is not ready: {line!r} {await self.said()!r}")
        self.url, *others = line.split("ready at ")[1].split(", ")
        self.http = next((one for one in others if one.startswith("http")), "")

    async def start(self, environment: Mapping[str, str] | None = None) -> Served:
        await self.launch(environment)
        await self.wait_ready()
        return self

    async def complaints(self) -> list[str]:
        """What it said on stderr that is more than news; once it has ended."""
        found = []
        for line in (await self.said()).splitlines():
            told = json.loads(line) if line.startswith("{") else {}
            if told.get("level") not in ("info", "debug"):
                found.append(told.get("message", line))
        return found

    async def end(self, signal_number: int, seconds: float = 60) -> int:
        self.process.send_signal(signal_number)
        return await self.wait(seconds)

    async def wait(self, seconds: float = 60) -> int:
        return await asyncio.wait_for(self.process.wait(), seconds)

    async def said(self, seconds: float = 60) -> str:
        """What it wrote to stderr, once it has ended."""
        assert self.process.stderr is not None
        return (await asyncio.wait_for(self.process.stderr.read(), seconds)).decode()

    async def leave(self) -> None:
        """End it. What it has logged is in the report of a test that fails."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        with suppress(TimeoutError):  # a child of its own may still hold the pipe
            if said := await self.said(seconds=5):
                print(f"{' '.join(self._command[2:4])} logged:\n{said}", file=sys.stderr)

    # --- what it costs

    def memory_bytes(self) -> int:
        """What of it is in memory (RSS)."""
        return self._status("VmRSS") * 1024

    def wake_ups(self) -> int:
        """How often its threads went to sleep and were woken so far."""
        return sum(
            _status_of(task, "voluntary_ctxt_switches")
            for task in Path(f"/proc/{self.process.pid}/task").iterdir()
        )

    def _status(self, name: str) -> int:
        return _status_of(Path(f"/proc/{self.process.pid}"), name)


def _status_of(process: Path, name: str) -> int:
    for line in (process / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(f"no {name} in {process}/status")
