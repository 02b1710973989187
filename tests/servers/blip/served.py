"""`flintmq blipd` as a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration.served import Served


class ServedBlip(Served):
    def __init__(self, directory: Path, *arguments: str) -> None:
        super().__init__(directory)
        self._command = [
            *(sys.executable, "-m", "flintmq.cli", "blipd", "--data-dir", str(directory)),
            *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--blip", "127.0.0.1:0"),
            *arguments,
        ]
        self.blip = ("", 0)

    async def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode()
        if "ready at " not in line:
            raise AssertionError(f"it is not ready: {line!r} {await self.said()!r}")
        self.url, *others = line.split("ready at ")[1].split(", ")
        places = dict(one.split("://") for one in others if "://" in one)
        self.http = f"http://{places.get('http', '')}"
        host, _, port = places.get("blip", places.get("blips", "")).rpartition(":")
        self.blip = (host, int(port))
