"""The verbs of topics: finding, making, changing, deleting, and what there is to know of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import (
    FlintError,
    GroupExists,
    GroupNotFound,
    InvalidRequest,
    TopicExists,
    TopicNotFound,
)
from ..loop.pace import pace
from ..model import OBJECT_RETENTION_COUNT, TopicInfo, TopicOptions, TopicStats, changed_options
from ..observe.logs import event
from ..patterns import check_name, check_pattern, matches
from .commands import ConfigureTopics, CreateGroup, CreateTopics, DeleteTopics, PauseGroup
from .deciding import check_change, check_dead_letters, options_with
from .leading.queue_group import QueueGroup
from .leading.topic import LeadingTopic
from .leading.topic_figures import stats_of
from .proposer import wait_for
from .row_stats import merged_stats
from .shard import Shard
from .waiting import again

_log = logging.getLogger(__name__)

TOPICS_MADE_AT_ONCE = 128
"""How many one command makes on the fly: more would keep the event loop too long."""


class TopicVerbs:
    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.auto_create = True
        """Whether topics may be made on the fly by anybody; what a caller allows comes second."""
        self._defaults: dict[str, Any] = {}
        self._wanted: dict[str, None] = {}
        self._making: asyncio.Task[None] | None = None

    # --- finding

    def row(self, name: str) -> list[LeadingTopic]:
        """The plain topics behind a name: one, or its partitions in order, or none."""
        self._shard.check_open()
        if not isinstance(name, str):
            raise InvalidRequest(f"a topic name is a str, not {name!r}")
        topics = self._shard.topics
        topic = topics.get(name)
        if topic is not None:
            return [topic]
        first = topics.get(f"{name}/0")
        if first is None:
            return []
        return [topics[f"{name}/{number}"] for number in range(first.options.partitions or 1)]

    def existing_row(self, name: str) -> list[LeadingTopic]:
        row = self.row(name)
        if not row:
            self._check_name(name)
            raise TopicNotFound(name)
        return row

    def _whole_row(self, name: str) -> list[LeadingTopic]:
        row = self.existing_row(name)
        if "/" in name:
            raise InvalidRequest(
                f"{name!r} is one partition of {name.partition('/')[0]!r}; options and deletion "
                "concern the topic as a whole"
            )
        return row

    def _check_name(self, name: str) -> None:
        if isinstance(name, str) and "/" in name:
            base, _, number = name.partition("/")
            if row := self.row(base):
                count = row[0].options.partitions
                has = "none" if count is None else f"{count}, 0 to {count - 1}"
                raise InvalidRequest(f"partition {number} of {base!r}: it has {has}")
        check_name(name)

    def queues(self, topic: str, group: str) -> list[QueueGroup]:
        row = self.existing_row(topic)
        found = [part.queues[group] for part in row if group in part.queues]
        if not found:
            if any(part.cursors.has_name(group) for part in row):
                raise GroupExists(topic, group, {"kind": ("cursor", "queue")})
            raise GroupNotFound(topic, group)
        return found

    def find(self, name: str) -> LeadingTopic:
        """A plain topic that is there."""
        self._shard.check_open()
        topic = self._shard.topics.get(name)
        if topic is None:
            if f"{name}/0" in self._shard.topics:
                raise InvalidRequest(f"topic {name!r} is partitioned; name one as in '{name}/0'")
            self._check_name(name)
            raise TopicNotFound(name)
        return topic

    def _is_to_be_made(self, name: str, auto_create: bool) -> bool:
        topics = self._shard.topics
        if name in topics or not (auto_create and self.auto_create):
            return False
        if not isinstance(name, str) or "/" in name or f"{name}/0" in topics:
            return False
        check_name(name)
        return True

    async def obtain(self, name: str, auto_create: bool) -> LeadingTopic:
        """A plain topic, made if need be."""
        if self._shard.proposer.is_instant:
            return self.obtain_now(name, auto_create)
        self._shard.check_open()
        if self._is_to_be_made(name, auto_create):
            self._wanted[name] = None
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(self._make_wanted())
            try:
                await asyncio.shield(self._making)
            except FlintError as error:
                raise again(error) from error
        return self.find(name)

    def obtain_now(self, name: str, auto_create: bool) -> LeadingTopic:
        """The same where the log is an instant one."""
        self._shard.check_open()
        if self._is_to_be_made(name, auto_create):
            self._shard.proposer.propose(self._made([name], self._fresh_options(name)))
        return self.find(name)

    async def _make_wanted(self) -> None:
        """Make the topics that were asked for since the last were decided, by one command."""
        async with self._shard.deciding():
            names, self._wanted, self._making = list(self._wanted), {}, None
            for start in range(0, len(names), TOPICS_MADE_AT_ONCE):
                await self._make(names[start : start + TOPICS_MADE_AT_ONCE])

    async def _make(self, names: list[str]) -> None:
        shard = self._shard
        shard.check_open()
        shard.proposer.check_room()
        lots: list[tuple[TopicOptions, list[str]]] = []
        for name in names:
            if name not in shard.topics and f"{name}/0" not in shard.topics:
                options = self._fresh_options(name)
                if not lots or lots[-1][0] != options:
                    lots.append((options, []))
                lots[-1][1].append(name)
        for options, named in lots:
            await shard.change(self._made(named, options))

    async def obtain_with(self, name: str, options: TopicOptions) -> LeadingTopic:
        """A plain topic, made with these options if need be."""
        if name not in self._shard.topics:
            async with self._shard.deciding():
                if name not in self._shard.topics:
                    self._shard.check_open()
                    await self._shard.change(self._made([name], options))
        return self.find(name)

    async def obtain_for(self, name: str, topic: str, auto_create: bool) -> LeadingTopic:
        """A topic, once none of this name (a group, or readers) is about to be deleted there."""
        found = await self.obtain(topic, auto_create)
        while (leaving := found.leaving.get(name)) is not None:
            await asyncio.wait([leaving])
            found = await self.obtain(topic, auto_create)
        return found

    def _made(self, names: Iterable[str], options: TopicOptions) -> CreateTopics:
        return CreateTopics(self._numbered(names), options)

    def _numbered(self, names: Iterable[str]) -> list[tuple[int, str]]:
        """New topics with ids that were never used."""
        return list(enumerate(names, self._shard.state.last_topic_id + 1))

    # --- options

    def set_defaults(self, options: dict[str, Any]) -> None:
        """What topics made from now on have where nobody says otherwise.

        Dead letters are kept in topics with the defaults of the broker all the same.
        """
        ours = self._shard.defaults
        self._check_tier(options_with(ours, ours, options))  # they have to go together
        self._defaults = dict(options)

    def _defaults_of(self, name: str) -> dict[str, Any]:
        if self._defaults.get("dead_letter_topic") == name:
            # What it gives up itself goes where it would without this default.
            return {**self._defaults, "dead_letter_topic": None}
        return self._defaults

    def _fresh_options(self, name: str) -> TopicOptions:
        """The options of a topic that is made on the fly."""
        ours = self._shard.defaults
        return options_with(ours, ours, self._defaults_of(name)) if self._defaults else ours

    def _check_tier(self, options: TopicOptions) -> None:
        if options.tier is not None:
            self._shard.check_tier(options.tier)

    # --- making and changing

    async def create(self, name: str, options: dict[str, Any]) -> TopicInfo:
        async with self._shard.deciding():
            self._shard.check_open()
            check_name(name)
            ours = self._shard.defaults
            wanted = options_with(ours, ours, {**self._defaults_of(name), **options})
            check_dead_letters(name, wanted)
            self._check_tier(wanted)
            row = self.row(name)
            if row:
                _check_same(name, row[0].options, wanted, options)
                return _info(name, row)
            if wanted.format == "object" and "retention_count" not in options:
                wanted = changed_options(wanted, {"retention_count": OBJECT_RETENTION_COUNT})
            names = [name]
            if wanted.partitions is not None:
                names = [f"{name}/{number}" for number in range(wanted.partitions)]
            self._shard.proposer.check_room()
            await self._shard.change(self._made(names, wanted))
            event(
                _log,
                logging.INFO,
                "topic_created",
                "topic created",
                topic=name,
                storage=wanted.storage,
                partitions=wanted.partitions,
            )
            return _info(name, self.row(name))

    async def configure(self, name: str, options: dict[str, Any]) -> TopicInfo:
        async with self._shard.deciding():
            row = self._whole_row(name)
            ours = row[0].options
            wanted = options_with(self._shard.defaults, ours, options)
            check_change(name, ours, wanted)
            if "tier" in options:
                self._check_tier(wanted)
            added = self._numbered(
                f"{name}/{n}" for n in range(ours.partitions or 0, wanted.partitions or 0)
            )
            names = set.intersection(*(topic.cursors.names() for topic in row)) if added else set()
            await self._shard.change(ConfigureTopics([topic.id for topic in row], wanted, added))
            for _, added_name in added:
                await self._introduce(row, names, self.find(added_name))
            if not added and "partitions" in options:
                # Asked again: whoever was asked first may have ended before it came to the groups.
                for topic in row[1:]:
                    await self._introduce(row, names, topic)
            row = self.row(name)
            for topic in row:
                topic.bell.ring()  # readers of all partitions look whether there are more
                for group in topic.queues.values() if added else ():
                    group.recall()  # and so do members
            return _info(name, row)

    async def _introduce(
        self, row: list[LeadingTopic], names: set[str], topic: LeadingTopic
    ) -> None:
        """Have names and groups of the whole row begin at the start of an added partition.

        A name that rests meanwhile would else begin there by the `start` it comes back with.
        """
        for name in names:
            reader = topic.cursors.open(name, "earliest", None)
            await reader.begin()
            await reader.close()
        groups = [group.state for group in row[0].queues.values()]
        for group in groups:
            if group.name in topic.queues:
                continue
            command = CreateGroup(
                topic.id,
                group.name,
                group.order,
                group.filter_text,
                group.start,
                0,
                self._shard.term,
            )
            made = await topic.make_group(command)
            if made is None:  # a reader of that name was faster
                continue
            made.filter = row[0].queues[group.name].filter
            if group.paused:
                await wait_for(topic.proposer.change(PauseGroup(topic.id, group.name, True)))

    async def delete(self, name: str) -> None:
        async with self._shard.deciding():
            row = self._whole_row(name)
            await self._shard.change(DeleteTopics([topic.id for topic in row]))
            event(_log, logging.INFO, "topic_deleted", "topic deleted", topic=name)

    async def purge(self, name: str, before: int | None) -> int:
        row = self.existing_row(name)
        if before is not None:
            if type(before) is not int or not 0 <= before < 2**63:
                raise InvalidRequest(f"before is an offset, or None for all; not {before!r}")
            if len(row) > 1:
                raise InvalidRequest(
                    f"each partition of {name!r} has its own offsets; purge one, as in "
                    f"'{name}/0', or all of them without an offset"
                )
        # Each decides before any of them is waited for: all go as of one moment.
        begun = [topic.purge(before) for topic in row]
        for _, done in begun:
            await wait_for(done)
        return sum(count for count, _ in begun)

    # --- looking

    async def names(self, pattern: str) -> list[str]:
        self._shard.check_open()
        check_pattern(pattern)
        names = {topic.base for topic in self._shard.topics.values()}
        return sorted(name for name in names if matches(pattern, name))

    async def info(self, name: str) -> TopicInfo:
        return _info(name, self.existing_row(name))

    async def stats(self, name: str) -> TopicStats:
        row = self.existing_row(name)
        parts = [stats_of(topic) for topic in row]
        return parts[0] if row[0].name == name else merged_stats(name, parts)

    async def stats_of(self, names: Sequence[str]) -> list[TopicStats | None]:
        found: list[TopicStats | None] = []
        allowance = pace().begin()
        for name in names:
            try:
                found.append(await self.stats(name))
            except TopicNotFound:
                found.append(None)
            if allowance.is_over():
                break
        return found


def _info(name: str, row: list[LeadingTopic]) -> TopicInfo:
    return TopicInfo(name, row[0].id, row[0].options)


def _check_same(
    name: str, ours: TopicOptions, wanted: TopicOptions, options: Iterable[str]
) -> None:
    differing = {
        option: (getattr(ours, option), getattr(wanted, option))
        for option in options
        if getattr(ours, option) != getattr(wanted, option)
    }
    if differing:
        raise TopicExists(name, differing)
