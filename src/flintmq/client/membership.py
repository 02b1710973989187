"""Joining a group: of a plain topic, or of each partition of a row."""

from __future__ import annotations

import itertools
import os
import socket
from inspect import iscoroutinefunction
from typing import NamedTuple

from ..broker_api import BrokerApi, Filter, Joining, MemberApi
from ..errors import GroupExists, InvalidRequest
from ..group_model import Order, check_order
from ..model import Start
from .context import ClientContext
from .keywords import GroupKeywords, check_keywords
from .routing import partition_name
from .sending import partitions_of

_numbers = itertools.count(1)


class JoinOptions(NamedTuple):
    """What a member says of its group, and whether the topic may be made."""

    order: Order | None = None
    filter: Filter | None = None
    start: Start | None = None
    auto_create: bool = True

    @classmethod
    def checked(cls, verb: str, said: GroupKeywords, context: ClientContext) -> JoinOptions:
        check_keywords(verb, said, GroupKeywords)
        order = said.get("order")
        return cls(
            None if order is None else check_order(order),
            checked_filter(said.get("filter")),
            said.get("start"),
            context.may_create(said.get("auto_create")),
        )

    @property
    def of_group(self) -> tuple[object, ...] | None:
        """What belongs to the group; None if nothing is said of it."""
        said = self[:3]
        return None if said == (None, None, None) else said


def checked_filter(filter: str | Filter | None) -> Filter | None:
    """A filter that can be asked: an expression compiled, or a function of a message."""
    if isinstance(filter, str):
        from ..serde.filters import compile_filter  # loaded with the first filter

        return compile_filter(filter)
    if filter is None or hasattr(filter, "pick"):
        return filter
    if not callable(filter) or iscoroutinefunction(filter):
        raise InvalidRequest(
            f"filter must be an expression or a plain function of a message, not {filter!r}"
        )
    return filter


class GroupMembership:
    """How one member joins a group."""

    def __init__(self, broker: BrokerApi, topic: str, group: str, options: JoinOptions) -> None:
        self.topic, self.group = topic, group
        self._broker = broker
        self._options = options
        self._holder = ""
        """Who holds a lease, for people to read: machine, process and a number."""
        self._known = 0
        self.is_late = False
        """Whether what is joined was added after this member joined the others."""

    def partitions(self) -> int | None:
        """How many partitions there are to join; None for a plain topic."""
        count, start = self.partition_count() or None, self._options.start
        if count is not None and isinstance(start, int):
            raise InvalidRequest(
                f"start={start}: each partition has its own offsets; use another "
                "start, then reset_group(topic, group, {partition: offset})"
            )
        self._known = count or 0
        return count

    def partition_count(self) -> int:
        return partitions_of(self.topic, self._broker.known_options(self.topic)) or 0

    async def join(self, partition: int) -> MemberApi:
        """Join the group of one partition, or of the plain topic."""
        if not self._known:
            return await self._join(self.topic, self._options.start)
        name = partition_name(self.topic, partition)
        if self.is_late or partition >= self._known:  # what it holds was published for us too
            return await self._join(name, None)
        try:
            return await self._join(name, self._options.start)
        except GroupExists as error:
            # A partition that was added later began at its own start, whatever the group said.
            if partition == 0 or set(error.differing) != {"start"}:
                raise
            return await self._join(name, None)

    async def _join(self, topic: str, start: Start | None) -> MemberApi:
        if not self._holder:
            self._holder = f"{socket.gethostname()}:{os.getpid()}:{next(_numbers)}"
        said = self._options
        return await self._broker.join_group(
            Joining(
                topic, self.group, self._holder, said.order, said.filter, start, said.auto_create
            )
        )
