"""Notes in the data directory, for people and `flintmq doctor`: the last start, and damage."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from .. import __version__
from ..engine.host import Host
from ..errors import FlintError
from ..storage.filesystem import LocalFileSystem, replace_file

RECOVERY = "recovery.json"
"""What the last start found."""
DAMAGE = "damage.json"
"""Messages found damaged since the last start."""
NOTE_SECONDS = 0.2
"""Damage found within this time is written at once."""


class DirectoryNotes:
    """Writes the notes. If the disk fails, a note is left out: nothing depends on it."""

    def __init__(self, directory: Path, host: Host) -> None:
        self._filesystem = LocalFileSystem(directory)
        self._host = host
        self._noting: asyncio.Task[None] | None = None

    def note_recovery(self) -> None:
        found = self._host.recovery
        if found is None:
            return
        noted = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": __version__,
            **asdict(found),
            "seconds": round(found.seconds, 3),
        }
        with suppress(FlintError):
            replace_file(self._filesystem, RECOVERY, [msgspec.json.encode(noted)])
            if self._filesystem.exists(DAMAGE) and not self._host.damages.known():
                self._filesystem.remove(DAMAGE)  # it is found again, unless it was mended

    def damage_found(self) -> None:
        if self._noting is None:
            self._noting = asyncio.get_running_loop().create_task(self._note_damage())

    async def _note_damage(self) -> None:
        await asyncio.sleep(NOTE_SECONDS)
        self._noting = None
        found = msgspec.json.encode(self._host.damages.known())
        with suppress(FlintError):
            await asyncio.to_thread(replace_file, self._filesystem, DAMAGE, [found])
