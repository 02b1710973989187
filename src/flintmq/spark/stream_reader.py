"""A stream: micro-batches between positions that Spark keeps in its checkpoint.

Spark asks where to begin, where the topics end now, and what to read between; each of these calls
may come again after a crash, so what they say must not depend on when they are asked:

- A start that moves (latest, a time) is looked up once, and pinned in the broker as a cursor group
  until the first batch is done: Spark asks for it anew where that was begun and not done.
- Positions never go back, whatever the broker says.
- A position names the topic by its id: a topic made anew under the name is an error, not a start.

All of it runs in one process beside the driver, which ends without a word; `read` runs in tasks.
"""

from __future__ import annotations

import logging
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
from .batch_reader import RangesPartition, planned, read_partition
from .columns import arrow_schema
from .connecting import BrokerLine, line_to
from .fetching import REMEDY
from .offsets import Positions, TopicPosition, read, written
from .options import ReadOptions
from .planning import Offsets, TopicExtents, each, extents, offsets_at
from .progress import QueryProgress
from .ranges import Range, shares
from .telling import each_told_plainly, told_plainly

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
"""How long an idle query waits for something new before it says that there is nothing."""

GOES_ON = "Begin with a new checkpoint; or, with failOnDataLoss=false, the query goes on {}."


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
        self._told: Positions | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get what reading needs, and no connection."""
        return {"_options": self._options, "_schema": self._schema}

    @property
    def _line(self) -> BrokerLine:
        return line_to(self._options.settings)

    # --- where to begin

    @told_plainly
    def initialOffset(self) -> dict[str, Any]:
        if self._begun is None:  # Spark asks twice, and takes the second answer
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

    @told_plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self._look()
        self._frozen = dict(self._heads)

    @told_plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = read(start)
        known = self._checked(begun, self._look())
        self._tell(known, begun)
        ends = self._ends(begun, known)
        if self._frozen is None:
            backlog = self._backlog(begun, known, ends)
            # Spark asks again at once where it is told that there is nothing to do.
            is_early = not backlog or self._is_too_early(backlog, limit)
            if is_early and self._wait(known):
                known = self._checked(begun, self._look())
                ends = self._ends(begun, known)
            if self._is_too_early(self._backlog(begun, known, ends), limit):
                return written(begun)
        ends = self._limited(begun, known, ends, limit)
        self._waited_since = None
        return written(self._positions(begun, known, ends))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the topics ended when they were last looked at: what is left is the lag."""
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
        """Every topic the query stands in is there, and is the same one."""
        for name, position in begun.items():
            if name not in known:
                if self._options.fail_on_loss:
                    raise self._missing(name)
                _log.warning("topic %r is gone; the query goes on without it", name)
            elif known[name][0].id != position.id:
                replaced = TopicReplaced(name, position.id, known[name][0].id)
                if self._options.fail_on_loss:
                    replaced.add_note(GOES_ON.format("in the new one from its beginning"))
                    raise replaced
                _log.warning("%s; the query goes on in the new one from its beginning", replaced)
        return known

    def _missing(self, name: str) -> FlintError:
        if self._options.wants(name):
            return TopicNotFound(
                name, f"it was deleted under the query. {GOES_ON.format('without it')}"
            )
        return InvalidRequest(
            f"the checkpoint is in topic {name!r}, which is not subscribed to any more. "
            + GOES_ON.format("without it")
        )

    def _starts(self, begun: Positions, known: TopicExtents) -> Offsets:
        """What a query stands in goes on; what is new since begins at its beginning."""
        return {
            (name, part.partition): _start(begun.get(name), known[name][0].id, part)
            for name, part in each(known)
        }

    def _ends(self, begun: Positions, known: TopicExtents) -> Offsets:
        starts = self._starts(begun, known)
        ends = {}
        for place, start in starts.items():
            head = self._heads[place]
            if self._frozen is not None:
                head = min(head, self._frozen.get(place, start))
            ends[place] = max(head, start)
        return ends

    def _backlog(self, begun: Positions, known: TopicExtents, ends: Offsets) -> int:
        starts = self._starts(begun, known)
        return sum(end - starts[place] for place, end in ends.items())

    def _wait(self, known: TopicExtents) -> bool:
        heads = {part.topic: self._heads[name, part.partition] for name, part in each(known)}
        if not heads:
            time.sleep(POLL_SECONDS)
            return True
        return self._line.ask(self._line.broker.wait_beyond(heads, POLL_SECONDS))

    def _is_too_early(self, backlog: int, limit: ReadLimit) -> bool:
        """Whether to wait for more, as minOffsetsPerTrigger says."""
        least = self._options.trigger_rows_min
        if least is None or isinstance(limit, ReadAllAvailable) or backlog >= least:
            return False
        now = time.monotonic()
        if self._waited_since is None:
            self._waited_since = now
        return now - self._waited_since < self._options.trigger_delay

    def _limited(
        self,
        begun: Positions,
        known: TopicExtents,
        ends: Offsets,
        limit: ReadLimit,
    ) -> Offsets:
        if isinstance(limit, ReadAllAvailable):
            return ends
        starts = self._starts(begun, known)
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
        if rows <= most:
            return ends
        taken = shares(backlogs, most, sum(starts.values()))
        return {place: starts[place] + count for place, count in zip(places, taken, strict=True)}

    def _positions(
        self, begun: Positions, known: TopicExtents, ends: Offsets
    ) -> dict[str, TopicPosition]:
        """Positions at the end. What is new and has nothing to read yet is left out: a position
        that reads otherwise is a batch to Spark."""
        positions = {}
        starts = self._starts(begun, known)
        for name, parts in known.items():
            before = begun.get(name)
            at = {
                part.partition: ends[name, part.partition]
                for part in parts
                if (before is not None and part.partition in before.next)
                or ends[name, part.partition] > starts[name, part.partition]
            }
            if at:
                positions[name] = TopicPosition(parts[0].id, at)
        return positions

    # --- what lies between

    @told_plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begun, ended = read(start), read(end)
        known = self._checked(ended, self._look())
        found = []
        for name, position in ended.items():
            for part in known.get(name, []):
                if part.partition not in position.next or known[name][0].id != position.id:
                    continue
                first = _start(begun.get(name), position.id, part)
                one = Range(
                    name, part.partition, part.topic, part.id, first, position.next[part.partition]
                )
                self._check(one, part)
                if one.rows:
                    found.append(one)
        return planned(found, self._options) or [RangesPartition(())]

    def _check(self, one: Range, part: Extent) -> None:
        if one.start > one.end and one.start == part.first_offset:
            # Where the batch began is not in the checkpoint (it is the first one, or the topic was
            # new); what it would have read has gone with retention since.
            if self._options.fail_on_loss:
                raise MessagesLost(one.plain, one.end, one.start, one.start - one.end, REMEDY)
        elif one.start > one.end:
            raise InvalidRequest(
                f"a batch of {one.plain!r} would end at offset {one.end} before it starts at "
                f"{one.start}: what lies between would be lost without a word. The checkpoint and "
                "the options of the query do not fit together; begin with a new checkpoint"
            )
        if one.start < part.first_offset and one.rows and self._options.fail_on_loss:
            # What has expired is gone too, but nobody has missed it: the broker knows which.
            wanted = Fetch(one.plain, one.start, one.end, 1, 1, None, True, part.id)
            fetched = self._line.run(self._line.broker.fetch(wanted))
            if (gap := fetched.rows.gap) is not None:
                raise MessagesLost(one.plain, gap.first, gap.next, gap.count, REMEDY)

    @each_told_plainly
    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._options, self._schema)

    # --- what is done

    @told_plainly
    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done up to here. Spark says so only when it begins the next one."""
        self._say_done(read(end))

    def _tell(self, known: TopicExtents, begun: Positions) -> None:
        """Where a batch is to start, the one before is done: so an idle query shows no lag."""
        self._follow().began(known, begun)
        if begun != self._told and written(begun) != self._begun:
            self._say_done(begun)

    def _say_done(self, ended: Positions) -> None:
        """That the broker hears of it is good to have, no more."""
        if ended == self._told:
            return
        try:
            self._follow().done(ended)
            self._told = ended
        except FlintError as error:
            _log.warning("the broker was not told how far the query is: %s", error)

    def stop(self) -> None:
        """Spark hardly ever calls this: the process simply ends."""
        if self._progress is not None:
            self._progress.close()

    def _follow(self) -> QueryProgress:
        if self._progress is None:
            self._progress = QueryProgress(self._line, self._options.group)
        return self._progress


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a stream that cannot be: says why, whatever Spark asks first."""

    def __init__(self, error: FlintError) -> None:
        self._error = error

    def _refuse(self, *_: Any) -> Any:
        raise self._error.with_traceback(None)

    initialOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse
    latestOffset = partitions = read = commit = _refuse


def _start(position: TopicPosition | None, id: int, part: Extent) -> int:
    if position is None or position.id != id:
        return part.first_offset
    return position.next.get(part.partition, part.first_offset)


def _row_sizes(known: TopicExtents) -> dict[tuple[str, int], float]:
    """What a message of each partition takes on average."""
    return {
        (name, part.partition): part.byte_count / max(1, part.next_offset - part.first_offset)
        for name, part in each(known)
    }
