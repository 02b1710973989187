"""What the disk has damaged: it is noted where it is found, told, and looked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from ..observe.logs import event, limited
from ..storage.filesystem import FileSystem
from ..storage.group_files import path_in, split
from ..storage.scrub import FoundDamage, Scrubber
from ..storage.segments import HIDDEN_TOPIC
from ..storage.topic_log import Damage, TopicLog

if TYPE_CHECKING:
    from .kept import KeptShard
    from .state.topic import TopicState

_log = logging.getLogger(__name__)


class Damages:
    """Of all shards of a node; one thread looks, at one rate."""

    def __init__(
        self, filesystem: FileSystem, kept: Mapping[int, KeptShard], bytes_per_second: int
    ) -> None:
        self._kept = kept
        self.scrubber = Scrubber(filesystem, self._files, self._scrubbed, bytes_per_second)
        self.on_noted: Callable[[], None] = lambda: None
        """Told when messages were found damaged: `known()` has them all."""
        self._topics: set[tuple[int, int]] = set()
        """Those that had damage when it was found, by group and id."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def _files(self) -> set[str]:
        return {
            path_in(kept.files, name)
            for kept in self._kept.values()
            for name in kept.checkpoints.manifest.files()
        }

    def start(self) -> None:
        """Begin to look, in a thread."""
        self._loop = asyncio.get_running_loop()
        if self.scrubber.bytes_per_second:
            self.scrubber.start()

    def known(self) -> dict[str, list[Damage]]:
        """What is known to be damaged on the disk, by topic."""
        found: dict[str, list[Damage]] = {}
        for group, id in sorted(self._topics):
            topic = self._kept[group].shard.state.by_id.get(id)
            if topic is not None and topic.log.damaged:
                found.setdefault(topic.name, []).extend(topic.log.damaged)
        return found

    @property
    def are_noted(self) -> bool:
        """Whether any was found since the start, which may be gone by now."""
        return bool(self._topics)

    def topics(self, kept: KeptShard) -> Iterator[TopicState]:
        """Those of a shard in which damage was found, and is still there."""
        for group, id in sorted(self._topics):
            topic = kept.shard.state.by_id.get(id) if group == kept.group else None
            if topic is not None and topic.log.damaged:
                yield topic

    def messages(self) -> int:
        return sum(damage.next - damage.first for all in self.known().values() for damage in all)

    def note(self, kept: KeptShard, id: int, topic: str, damage: Damage) -> None:
        self._topics.add((kept.group, id))
        limited(
            _log,
            logging.ERROR,
            "messages_damaged",
            topic,
            f"messages are damaged on disk; everything else keeps working: {damage.cause}",
            amount=damage.next - damage.first,
            topic=topic,
            first_offset=damage.first,
            next_offset=damage.next,
            file=kept.files.describe(damage.file),
        )
        self.on_noted()

    def _scrubbed(self, found: FoundDamage) -> None:
        """In the thread that looks for damage."""
        group, name = split(found.file)
        found, kept = found._replace(file=name), self._kept[group]
        if self._loop is None:
            self.found(found, kept)
            return
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self.found, found, kept)

    def found(self, found: FoundDamage, kept: KeptShard) -> None:
        """`found.file` is as the group's own manifest has it."""
        logs = {
            id: topic.log
            for id, topic in kept.shard.state.by_id.items()
            if isinstance(topic.log, TopicLog)
        }
        if found.what == "messages" and found.topic != HIDDEN_TOPIC:
            log = logs.get(found.topic)
            if log is not None and log.holds(found.file, found.first):
                log.note_damage(found.first, found.next, found.file, found.cause, found.is_proven)
            return
        event(
            _log,
            logging.ERROR,
            "segment_damaged",
            f"a segment file is damaged: {found.cause}"
            + ("; no message is lost by that" if found.what == "copy" else ""),
            file=kept.files.describe(found.file),
        )
        if found.what == "index":
            for log in logs.values():
                log.note_lost_index(found.file, found.cause, found.is_proven)
