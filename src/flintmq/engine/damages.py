"""What the disk has damaged: it is noted where it is found, told, and looked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from ..logs import event, limited
from ..storage.filesystem import FileSystem
from ..storage.scrub import Found, Scrubber
from ..storage.segments import HIDDEN_TOPIC
from ..storage.topic_log import Damage, TopicLog
from .state.shard import ShardState

_log = logging.getLogger(__name__)


class Damages:
    def __init__(
        self,
        filesystem: FileSystem,
        state: ShardState,
        files: Callable[[], set[str]],
        bytes_per_second: int,
    ) -> None:
        self._filesystem, self._state = filesystem, state
        self.scrubber = Scrubber(filesystem, files, self._scrubbed, bytes_per_second)
        self.on_noted: Callable[[], None] = lambda: None
        """Told when messages were found damaged: `known()` has them all."""
        self._topics: set[int] = set()
        """Those that had damage when it was found."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to look, in a thread."""
        self._loop = asyncio.get_running_loop()
        if self.scrubber.bytes_per_second:
            self.scrubber.start()

    def known(self) -> dict[str, list[Damage]]:
        """What is known to be damaged on the disk, by topic."""
        by_id = self._state.by_id
        return {
            topic.name: list(topic.log.damaged)
            for id in sorted(self._topics)
            if (topic := by_id.get(id)) is not None and topic.log.damaged
        }

    def messages(self) -> int:
        return sum(damage.next - damage.first for all in self.known().values() for damage in all)

    def note(self, id: int, topic: str, damage: Damage) -> None:
        self._topics.add(id)
        limited(
            _log,
            logging.ERROR,
            "messages_damaged",
            topic,
            f"messages of a topic are damaged on the disk, everything else goes on: {damage.cause}",
            amount=damage.next - damage.first,
            topic=topic,
            first_offset=damage.first,
            next_offset=damage.next,
            file=self._filesystem.describe(damage.file),
        )
        self.on_noted()

    def _scrubbed(self, found: Found) -> None:
        """In the thread that looks for damage."""
        if self._loop is None:
            self.found(found)
            return
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self.found, found)

    def found(self, found: Found) -> None:
        logs = {
            id: topic.log
            for id, topic in self._state.by_id.items()
            if isinstance(topic.log, TopicLog)
        }
        if found.what == "messages" and found.topic != HIDDEN_TOPIC:
            log = logs.get(found.topic)
            if log is not None and log.holds(found.file, found.first):
                log.note_damage(*found[4:6], found.file, found.cause, found.is_proven)
            return
        event(
            _log,
            logging.ERROR,
            "segment_damaged",
            f"a file of messages is damaged on the disk: {found.cause}"
            + ("; no message is lost by that" if found.what == "copy" else ""),
            file=self._filesystem.describe(found.file),
        )
        if found.what == "index":
            for log in logs.values():
                log.note_lost_index(found.file, found.cause, found.is_proven)
