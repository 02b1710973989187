"""A stream: micro-batches between positions that Spark keeps in its checkpoint.

Spark asks where to begin, where the topics end now, and what to read between. It may repeat each
call after a crash, so the answers must not depend on when it asks:

- A start that moves (latest, a time) is resolved once, and pinned in the broker as a cursor group
  until the first batch is done: if that batch was not finished, Spark asks for the start again.
- Positions never go back, whatever the broker says.
- A position has the id of its topic: a topic created again under the name is an error, not a start.

All of it runs in one process beside the driver, which Spark ends without notice; `read` runs in
tasks.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ..broker_api import Fetch
from ..errors import FlintError, InvalidRequest, MessagesLost, TopicNotFound, TopicReplaced
from ..model import Extent
from .batch_reader import planned, read_partition
from .columns import arrow_schema
from .connecting import BrokerLine, line_to
from .fetching import REMEDY
from .offsets import Positions, TopicPosition, read, written
from .options import ReadOptions
from .planning import Offsets, TopicExtents, each, extents, offsets_at
from .progress import QueryProgress
from .ranges import Range, shares
from .tracebacks import each_without_traceback, without_traceback

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
"""How long an idle query waits for new messages before it reports that there are none."""

GOES_ON = "Start with a new checkpoint, or set failOnDataLoss=false to continue {}."


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._begun: dict[str, Any] | None = None
        self._heads: Offsets = {}
        self._ids: dict[str, int] = {}
        self._frozen: Offsets | None = None
        self._waited_since: float | None = None
        self._progress: QueryProgress | None = None
        self._reported: Positions | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options and the schema, and no connection."""
        return {"_options": self._options, "_schema": self._schema}

    @property
    def _line(self) -> BrokerLine:
        return line_to(self._options.settings)

    # --- where to begin

    @without_traceback
    def initialOffset(self) -> dict[str, Any]:
        if self._begun is None:  # Spark asks twice, and uses the second answer
            options, line = self._options, self._line
            known = extents(line, options)
            starts = offsets_at(
                options.start, known, "startingOffsets", lambda time: extents(line, options, time)
            )
            if options.start_moves:
                starts = self._follow().pinned(known, starts)
            self._begun = written(
                {
                    name: TopicPosition(
                        parts[0].id,
                        {part.partition: starts[name, part.partition] for part in parts},
                    )
                    for name, parts in known.items()
                }
            )
        return self._begun

    # --- where to end

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.trigger_rows_max is not None:
            return ReadMaxRows(options.trigger_rows_max)
        if options.trigger_bytes_max is not None:
            return ReadMaxBytes(options.trigger_bytes_max)
        if options.trigger_rows_min is not None:
            return ReadMinRows(options.trigger_rows_min)
        return ReadAllAvailable()

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:
        self._look()
        self._frozen = dict(self._heads)

    @without_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = read(start)
        if self._options.stop_file is not None and os.path.exists(self._options.stop_file):
            time.sleep(POLL_SECONDS / 5)  # Spark asks again at once
            return written(begun)
        known = self._checked(begun, self._look())
        self._report(known, begun)
        starts, ends = self._span(begun, known)
        if self._frozen is None:
            backlog = _count(starts, ends)
            # If the answer is "nothing to do", Spark asks again at once.
            is_early = not backlog or self._is_too_early(backlog, limit)
            if is_early and self._wait(known):
                known = self._checked(begun, self._look())
                starts, ends = self._span(begun, known)
            if self._is_too_early(_count(starts, ends), limit):
                return written(begun)
        ends = self._limited(known, starts, ends, limit)
        self._waited_since = None
        return written(_positions(begun, known, starts, ends))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the topics ended at the last look; Spark derives the lag from it."""
        heads: dict[str, dict[int, int]] = {}
        for (name, number), head in self._heads.items():
            heads.setdefault(name, {})[number] = head
        return written({name: TopicPosition(self._ids[name], at) for name, at in heads.items()})

    def _look(self) -> TopicExtents:
        known = extents(self._line, self._options, may_be_gone=True)
        for name, parts in known.items():
            if self._ids.get(name) != parts[0].id:
                self._ids[name] = parts[0].id
                for place in [place for place in self._heads if place[0] == name]:
                    del self._heads[place]
            for part in parts:
                place = (name, part.partition)
                self._heads[place] = max(part.next_offset, self._heads.get(place, 0))
        return known

    def _checked(self, begun: Positions, known: TopicExtents) -> TopicExtents:
        """Check that every topic of the query still exists, and is the same one."""
        for name, position in begun.items():
            if name not in known:
                if self._options.fail_on_loss:
                    raise self._missing(name)
                _log.warning("topic %r was deleted; the query continues without it", name)
            elif known[name][0].id != position.id:
                replaced = TopicReplaced(name, position.id, known[name][0].id)
                if self._options.fail_on_loss:
                    replaced.add_note(GOES_ON.format("with the new topic, from its beginning"))
                    raise replaced
                _log.warning(
                    "%s; the query continues with the new topic, from its beginning", replaced
                )
        return known

    def _missing(self, name: str) -> FlintError:
        if self._options.wants(name):
            why = f"it was deleted while the query ran. {GOES_ON.format('without it')}"
            return TopicNotFound(name, why)
        return InvalidRequest(
            f"the checkpoint has a position in topic {name!r}, which is no longer subscribed to. "
            + GOES_ON.format("without it")
        )

    def _span(self, begun: Positions, known: TopicExtents) -> tuple[Offsets, Offsets]:
        """From where to where there is something to read. New topics and partitions are read from
        their beginning."""
        starts: Offsets = {}
        ends: Offsets = {}
        for name, part in each(known):
            place = (name, part.partition)
            start = starts[place] = _start(begun.get(name), known[name][0].id, part)
            head = self._heads[place]
            if self._frozen is not None:
                head = min(head, self._frozen.get(place, start))
            ends[place] = max(head, start)
        return starts, ends

    def _wait(self, known: TopicExtents) -> bool:
        heads = {part.topic: self._heads[name, part.partition] for name, part in each(known)}
        if not heads:
            time.sleep(POLL_SECONDS)
            return True
        return self._line.ask(self._line.broker.wait_beyond(heads, POLL_SECONDS))

    def _is_too_early(self, backlog: int, limit: ReadLimit) -> bool:
        """Whether to wait for more messages (minOffsetsPerTrigger)."""
        least = self._options.trigger_rows_min
        if least is None or isinstance(limit, ReadAllAvailable) or backlog >= least:
            return False
        now = time.monotonic()
        if self._waited_since is None:
            self._waited_since = now
        return now - self._waited_since < self._options.trigger_delay

    def _limited(
        self, known: TopicExtents, starts: Offsets, ends: Offsets, limit: ReadLimit
    ) -> Offsets:
        if isinstance(limit, ReadAllAvailable):
            return ends
        places = sorted(ends)
        backlogs = [ends[place] - starts[place] for place in places]
        rows = sum(backlogs)
        most = self._options.trigger_rows_max or rows
        if isinstance(limit, ReadMaxRows):
            most = min(most, limit.max_rows)
        bytes_max = self._options.trigger_bytes_max
        if isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        if bytes_max is not None and rows:
            sizes = _row_sizes(known)
            size = sum(
                backlog * sizes[place] for place, backlog in zip(places, backlogs, strict=True)
            )
            if size > bytes_max:
                most = min(most, max(1, int(rows * bytes_max / size)))
        taken = shares(backlogs, most, sum(starts.values()))
        return {place: starts[place] + count for place, count in zip(places, taken, strict=True)}

    # --- what lies between

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begun, ended = read(start), read(end)
        known = self._checked(ended, self._look())
        found = []
        for name, position in ended.items():
            for part in known.get(name, []):
                if part.partition not in position.next or known[name][0].id != position.id:
                    continue
                first = _start(begun.get(name), position.id, part)
                stop = position.next[part.partition]
                one = Range(name, part.partition, part.topic, part.id, first, stop, part.far_end)
                self._check(one, part)
                if one.rows:
                    found.append(one)
        return planned(found, self._options)

    def _check(self, one: Range, part: Extent) -> None:
        if one.start > one.end and one.start == part.first_offset:
            # The start of the batch is not in the checkpoint (it is the first one, or the topic was
            # new), and retention has removed its messages meanwhile.
            if self._options.fail_on_loss:
                raise MessagesLost(one.plain, one.end, one.start, one.start - one.end, REMEDY)
        elif one.start > one.end:
            raise InvalidRequest(
                f"a batch of {one.plain!r} would end at offset {one.end}, before its start at "
                f"{one.start}, and the messages between would be lost. The checkpoint does not "
                "match the options of the query; start with a new checkpoint"
            )
        if one.start < part.first_offset and one.rows and self._options.fail_on_loss:
            # Expired messages are removed, too, and are no loss: the broker knows which they are.
            wanted = Fetch(one.plain, one.start, one.end, 1, 1, None, True, part.id)
            fetched = self._line.run(self._line.broker.fetch(wanted))
            if (gap := fetched.rows.gap) is not None:
                raise MessagesLost(one.plain, gap.first, gap.next, gap.count, REMEDY)

    @each_without_traceback
    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._options, self._schema)

    # --- what is done

    @without_traceback
    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done. Spark calls this only when it begins the next one."""
        self._report_done(read(end))

    def _report(self, known: TopicExtents, begun: Positions) -> None:
        """Report the batch before as done when the next one is planned: else an idle query would
        show a lag."""
        self._follow().began(known, begun)
        if begun != self._reported and written(begun) != self._begun:
            self._report_done(begun)

    def _report_done(self, ended: Positions) -> None:
        """Report the position to the broker. Nothing depends on it."""
        if ended == self._reported:
            return
        try:
            self._follow().done(ended)
            self._reported = ended
        except FlintError as error:
            _log.warning("could not report the position of the query to the broker: %s", error)

    def stop(self) -> None:
        """Spark rarely calls this: it ends the process instead."""
        if self._progress is not None:
            self._progress.close()

    def _follow(self) -> QueryProgress:
        if self._progress is None:
            self._progress = QueryProgress(self._line, self._options.group)
        return self._progress


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a stream with wrong options: every call raises the error."""

    def __init__(self, error: FlintError) -> None:
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self._error.with_traceback(None)

    initialOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse
    latestOffset = partitions = read = commit = _refuse


def _start(position: TopicPosition | None, id: int, part: Extent) -> int:
    if position is None or position.id != id:
        return part.first_offset
    return position.next.get(part.partition, part.first_offset)


def _count(starts: Offsets, ends: Offsets) -> int:
    return sum(ends.values()) - sum(starts.values())


def _positions(
    begun: Positions, known: TopicExtents, starts: Offsets, ends: Offsets
) -> dict[str, TopicPosition]:
    """Positions at the end. New partitions with nothing to read yet are left out: Spark takes any
    change of a position for a batch."""
    positions = {}
    for name, parts in known.items():
        before = begun[name].next if name in begun else {}
        at = {
            part.partition: ends[place]
            for part in parts
            if (place := (name, part.partition))
            and (part.partition in before or ends[place] > starts[place])
        }
        if at:
            positions[name] = TopicPosition(parts[0].id, at)
    return positions


def _row_sizes(known: TopicExtents) -> dict[tuple[str, int], float]:
    """The average size of a message, by partition."""
    return {
        (name, part.partition): part.byte_count / max(1, part.next_offset - part.first_offset)
        for name, part in each(known)
    }
