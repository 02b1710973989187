"""The state of a topic as a manifest has it, and back."""

from __future__ import annotations

from collections.abc import Iterator

from ..groups.offset_set import OffsetSet
from ..storage.manifest import CursorState, GroupRecord
from ..storage.manifest import TopicRecord as StoredTopic
from ..storage.topic_log import TopicLog
from .commands import CreateGroup
from .state.topic import TopicState


def stored_topic(topic: TopicState) -> StoredTopic:
    """As it is now, but for what a checkpoint has yet to write. Of one in memory, that it is."""
    log = topic.log
    if not isinstance(log, TopicLog):
        return StoredTopic(topic.id, topic.name, topic.options, 0, 0, 0, [], [], [])
    is_compact = topic.options.compact is not None
    return StoredTopic(
        topic.id,
        topic.name,
        topic.options,
        log.first_offset,
        log.next_offset,
        log.last_time,
        list(log.sections),
        [CursorState(name, *place) for name, place in topic.names.items()],
        [],
        [
            GroupRecord(
                group.name,
                group.order,
                group.filter_text,
                group.start,
                group.paused,
                group.queue.snapshot(),
            )
            for group in topic.groups.values()
        ],
        topic.lanes.cancelled.ranges(),
        [] if topic.discarded is None or is_compact else topic.discarded.ranges(),
        sizes=log.sizes.snapshot(),
        compacted=topic.discarded.to_chunks() if topic.discarded and is_compact else [],
        tiered=list(log.far.all),
        borrowed=log.far.borrowed,
    )


def restoring(topic: TopicState, stored: StoredTopic) -> Iterator[None]:
    """Have a new topic be as it was stored, in steps."""
    log = topic.log
    if not isinstance(log, TopicLog):
        return
    log.far.restore(stored.tiered, stored.borrowed)
    log.restore(
        list(stored.sections),
        stored.first_offset,
        stored.next_offset,
        stored.last_time,
        stored.sizes,
    )
    topic.producers.restore_older(stored.producers, stored.last_time)
    yield from topic.producers.restoring(stored.windows)
    for cursor in stored.cursors:
        topic.set_name(cursor.name, cursor.began, cursor.committed)
    if stored.discarded:
        topic.discard(stored.discarded)
    elif stored.compacted:
        topic.discarded = OffsetSet.from_chunks(stored.compacted)
    for start, stop in stored.cancelled:
        topic.lanes.cancelled.add_range(start, stop)
    for one in sorted(stored.groups, key=lambda group: group.queue.floor):
        topic.create_group(
            CreateGroup(topic.id, one.name, one.order, one.filter, one.start, one.queue.floor)
        )
        group = topic.groups[one.name]
        group.paused = one.paused
        group.queue.restore(one.queue)
        group.pass_gone()  # else one that is of an earlier version waits for them
